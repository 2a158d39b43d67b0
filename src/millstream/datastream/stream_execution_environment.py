"""StreamExecutionEnvironment: builds a program from sources and runs it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, overload

from millstream.checkpoint.options import SAVEPOINT_DIRECTORY
from millstream.checkpoint.storage import storage_options
from millstream.common.aliases import T, Value
from millstream.common.call_site import warn_deprecated
from millstream.common.coercion import Converter
from millstream.common.configuration import Configuration
from millstream.common.error_rendering import install_excepthook
from millstream.common.errors import InvalidProgramError, JobCancelledError, TypeMismatchError, WrongTypeError
from millstream.common.io import InputFormat
from millstream.common.job_client import JobClient
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.known_keys import check_keys
from millstream.common.log_format import write_log
from millstream.common.pipeline_options import (
    MAX_PARALLELISM,
    runs_here,
)
from millstream.common.scalar_types import check_type
from millstream.common.typeinfo import RowTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.common.unsupported import JAVA, missing_function
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.base import Source
from millstream.connectors.collection import CollectionSource
from millstream.connectors.files.source import FileSource
from millstream.connectors.hybrid_source import HybridSource
from millstream.connectors.spark_source import SparkStreamSource, as_source
from millstream.datastream.cached_stream import Cache
from millstream.datastream.collect import LocalJobClient
from millstream.datastream.data_stream import DataStream
from millstream.datastream.execution_mode import RuntimeExecutionMode
from millstream.datastream.execution_settings import RUNTIME_MODE, ExecutionSettings
from millstream.datastream.launch_context import (
    await_end,
    end_on_signals,
    notify_watchers,
    stop_if_only_planned,
    with_command_line,
    with_last_word,
)
from millstream.datastream.program_lint import RunTracker
from millstream.datastream.state_backend import StateBackend
from millstream.formats.file_format import StreamFormat
from millstream.graph.job_graph import JobGraph, build_job_graph
from millstream.graph.plan import draw, execution_plan
from millstream.graph.stream_graph import StreamGraph, build_stream_graph
from millstream.graph.transformations import (
    Program,
    Transformation,
    UpstreamEdge,
)
from millstream.operators.source import SourceOperator
from millstream.state.backend import Backend, backend_of

# Imported late: loading it overlaps with Spark's start, and workers never need it.
if TYPE_CHECKING:
    from millstream.jobmaster.job import JobMaster
    from millstream.jobmaster.job_launcher import JobSpec
    from millstream.spark.dataframes import DataFrame, SparkSession

__all__ = ["StreamExecutionEnvironment"]

log = logging.getLogger("millstream")

_JOB_NAME = "pipeline.name"
_no_other_input = missing_function("create_input", f"{JAVA}; read files with FileSource")


# Any of these enables the REST service, the archive of finished jobs, or reporters.
_SERVED_BY = (
    "rest.bind-port",
    "rest.port",
    "web.port",
    "jobmanager.web.port",
    "jobmanager.archive.fs.dir",
    "metrics.reporters",
    "traces.reporters",
)


class StreamExecutionEnvironment(ExecutionSettings):
    """Builds a program and runs it on Spark.

    Example:
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_collection(["to", "be", "or", "not", "to", "be"])
        >>> counts = words.map(lambda w: (w, 1)).key_by(lambda t: t[0]).sum(1)
        >>> list(counts.execute_and_collect())[-1]
        ('be', 2)
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        install_excepthook()
        self._config = Configuration(configuration)
        self._program = Program()
        self._sinks: list[Transformation] = []
        self._run_tracker = RunTracker()
        self._state_backend: StateBackend | None = None
        # A wall clock of a test's own, in milliseconds.
        self._clock: Callable[[], int] | None = None

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Return a new environment; command-line settings take precedence."""
        return StreamExecutionEnvironment(with_command_line(configuration))

    @staticmethod
    def get_default_local_parallelism() -> int:
        """Return the parallelism of environments without one."""
        return StreamExecutionEnvironment.get_execution_environment().get_parallelism()

    # --- sources

    @overload
    def from_collection(self, collection: Iterable[Value], type_info: RowTypeInfo) -> DataStream[Row]: ...

    @overload
    def from_collection(self, collection: Iterable[T], type_info: TypeInformation | None = None) -> DataStream[T]: ...

    def from_collection(
        self, collection: Iterable[Value], type_info: TypeInformation | None = None
    ) -> DataStream[Value]:
        """Create a stream of a collection's elements, in order."""
        if not isinstance(collection, Iterable):
            raise WrongTypeError(f"from_collection() takes a collection of elements, not {collection!r}.")
        check_type(type_info, "The type of from_collection()")
        elements = list(collection)
        convert = type_info.converter() if type_info is not None else None
        if convert is not None:
            elements = [_fit(convert, value, i) for i, value in enumerate(elements)]
        source: CollectionSource[Value] = CollectionSource(elements)
        # The elements are coerced already, so the source need not check them.
        source.produced_type = type_info
        stream = self._add_source(source, "Collection Source", type_info)
        return stream.force_non_parallel()

    @overload
    def from_source(
        self,
        source: Source[T],
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str | None = None,
        type_info: TypeInformation | None = None,
    ) -> DataStream[T]: ...

    @overload
    def from_source(
        self,
        source: object,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str | None = None,
        type_info: TypeInformation | None = None,
    ) -> DataStream[Value]: ...

    def from_source(
        self,
        source: object,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str | None = None,
        type_info: TypeInformation | None = None,
    ) -> DataStream[Value]:
        """Create a stream of a Source, or of an object with the methods of PySpark's DataSourceStreamReader."""
        source = as_source(source, "from_source()")
        if isinstance(source, (FileSource, HybridSource)):
            source = source.reached_with(storage_options(self._config))
        stream = self._add_source(source, source_name or source.name, type_info or source.produced_type)
        if isinstance(source, (SparkStreamSource, HybridSource)) and source.is_simple:
            stream = stream.force_non_parallel()
        if watermark_strategy is None or watermark_strategy == WatermarkStrategy.no_watermarks():
            return stream
        # Chained to the source, so that every split has its own watermark.
        marked = stream.assign_timestamps_and_watermarks(watermark_strategy)
        marked._transformation.source = stream._transformation
        return marked.force_non_parallel() if stream._transformation.non_parallel else marked

    def from_spark(self, frame: DataFrame, directory: str | None = None) -> DataStream[Row]:
        """Create a stream of a Spark DataFrame, bounded or streaming, and thus of anything that Spark reads.

        Spark writes the rows as Parquet files when the job starts, and subtasks read those.

        Args:
            frame: the DataFrame, of `get_spark_session()` or a Spark of the program's own.
            directory: the directory of the files. All workers must see it, and a restored job must find it again;
                by default a temporary directory on this machine. Not in PyFlink.
        """
        from millstream.connectors.spark_dataframes import SparkFrameSource

        return self.from_source(SparkFrameSource(frame, directory))

    def get_spark_session(self) -> SparkSession:
        """Return the SparkSession of the jobs; start one if needed. Not in PyFlink."""
        from millstream.spark.dataframes import session_of

        return session_of(self._config)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream[str]:
        """Deprecated: use a FileSource. Create a stream of the lines of a file, or of all files in a directory."""
        warn_deprecated("read_text_file()", "use from_source() with a FileSource of StreamFormat.text_line_format()")
        lines = StreamFormat.text_line_format(charset_name)
        return self.from_source(FileSource.for_record_stream_format(lines, file_path).build())

    def _add_source(self, source: Source[T], name: str, type_info: TypeInformation | None) -> DataStream[T]:
        check_type(type_info, f"The type of source '{name}'")
        self._run_tracker.begin()
        transformation = self._program.add(name, SourceOperator(source), type_info=type_info)
        return DataStream(self, [UpstreamEdge(transformation)])

    @overload
    def add_source(
        self, source_func: Source[T], source_name: str = "Custom Source", type_info: TypeInformation | None = None
    ) -> DataStream[T]: ...

    @overload
    def add_source(
        self, source_func: object, source_name: str = "Custom Source", type_info: TypeInformation | None = None
    ) -> DataStream[Value]: ...

    def add_source(
        self, source_func: object, source_name: str = "Custom Source", type_info: TypeInformation | None = None
    ) -> DataStream[Value]:
        """The older name of `from_source`, without watermarks."""
        return self.from_source(source_func, None, source_name, type_info)

    def create_input(self, input_format: InputFormat, type_info: TypeInformation | None = None) -> DataStream[Value]:
        """Create a stream of the files of an input format, such as AvroInputFormat."""
        if not isinstance(input_format, InputFormat):
            _no_other_input()
        return self.from_source(input_format.create_source(), None, "Custom File source", type_info)

    # --- running

    def get_execution_plan(self) -> str:
        """Return the plan of the program as JSON, in Flink's shape."""
        return execution_plan(self._stream_graph(None, self._sinks))

    def _repr_svg_(self) -> str | None:
        """Draw the program that the next execute() would run, for notebooks."""
        return self._picture(self._sinks) if self._sinks else None

    def _picture(self, ends: list[Transformation]) -> str:
        return draw(build_job_graph(self._stream_graph(None, ends)))

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the operators added since the last execute(), and wait for the end of the job."""
        job = self._launch_pending(job_name)
        try:
            return await_end(job)
        except (KeyboardInterrupt, SystemExit):
            job.leave()
            job.result.exception()
            raise

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start the operators added since the last execute(), and return a handle on the job."""
        directory = SAVEPOINT_DIRECTORY.read(with_last_word(self._config))
        job = self._launch_pending(job_name)
        # The program may never ask for the result.
        job.result.add_done_callback(partial(_tell_failure, job.view.job_name))
        return LocalJobClient(job, directory)

    def close(self) -> None:
        """Discard pending operators. Spark keeps running: other environments may use it."""
        self._take_sinks()

    def _launch_pending(self, job_name: str | None) -> JobMaster:
        job = self._start(job_name, self._sinks)
        self._take_sinks()
        return job

    def _take_sinks(self) -> list[Transformation]:
        """Return and clear the sinks pending for execute()."""
        sinks, self._sinks = self._sinks, []
        return sinks

    def _start(self, job_name: str | None, sinks: list[Transformation]) -> JobMaster:
        end_on_signals()
        check_keys(with_last_word(self._config).key_set() - self.get_config().get_global_job_parameters().keys())
        graph = self._stream_graph(job_name, sinks)
        stop_if_only_planned(graph, self._config)
        has_caches = any(n.transformation.cache for n in graph.nodes)
        filling = self._use_caches(graph)
        roots = list(sinks)
        if has_caches:
            roots += [cache.tap(self._program, t) for t, cache in filling]
            graph = self._stream_graph(job_name, roots)
        batch = self._is_batch(graph)
        name, backend = graph.job_name, graph.backend

        def job_graph(parallelism: int | None) -> JobGraph:
            # A restarted job keeps its backend, even if the program has set another since.
            return build_job_graph(self._stream_graph(name, roots, parallelism, backend), batch)

        config = with_last_word(self._config)
        write_log(config)
        self._start_ahead(config)
        register = _served(config)
        from millstream.jobmaster.job_launcher import JobSpec

        job = self._launch(JobSpec(job_graph, config, batch, self.get_buffer_timeout(), self._clock))
        register(job)
        for _, cache in filling:
            cache.job = job.result
        notify_watchers(job)
        return job

    def _start_ahead(self, config: Configuration) -> None:
        """Start Spark while the launcher is imported and the job is planned."""
        if runs_here(config):
            return
        from millstream.spark.embedded import start_ahead

        start_ahead(config)

    def _launch(self, job: JobSpec) -> JobMaster:
        """Launch a job locally or on Spark."""
        if runs_here(job.config):
            from millstream.jobmaster.local_launcher import launch_locally

            return launch_locally(job)
        from millstream.spark.spark_launcher import launch

        return launch(job)

    def _use_caches(self, graph: StreamGraph) -> list[tuple[Transformation, Cache]]:
        """Read filled caches instead of their streams; return the caches that this job must fill."""
        filling = []
        for transformation in [n.transformation for n in graph.nodes]:
            cache = transformation.cache
            if cache is None:
                continue
            if not graph.is_bounded:
                raise InvalidProgramError(
                    f"cache() of {transformation.label} needs a bounded stream, and a source of this one never ends."
                )
            if cache.is_filled:
                cache.replace(self._program, transformation)
                transformation.cache = None
            elif cache.needs_job:
                filling.append((transformation, cache))
        return filling

    def _stream_graph(
        self,
        job_name: str | None,
        sinks: list[Transformation],
        parallelism: int | None = None,
        backend: Backend | None = None,
    ) -> StreamGraph:
        self._run_tracker.runs()
        name = job_name or self._config.get_string(_JOB_NAME, "Flink Streaming Job")
        max_parallelism = MAX_PARALLELISM.read(self._config)
        parallelism = parallelism or self.get_parallelism()
        backend = backend or backend_of(with_last_word(self._config))
        chained = self.is_chaining_enabled()
        return build_stream_graph(sinks, parallelism, name, chained, backend, max(max_parallelism, 0) or None)

    def _is_batch(self, graph: StreamGraph) -> bool:
        mode = RUNTIME_MODE.read(self._config)
        if mode is RuntimeExecutionMode.BATCH and not graph.is_bounded:
            unbounded = next(n.label for n in graph.nodes if not n.transformation.is_bounded)
            raise InvalidProgramError(f"BATCH needs bounded sources, and {unbounded} is not: use STREAMING.")
        bounded = mode is RuntimeExecutionMode.AUTOMATIC and graph.is_bounded
        return mode is RuntimeExecutionMode.BATCH or bounded

    def _add_sink(self, transformation: Transformation) -> None:
        self._sinks.append(transformation)

    def _forget(self, transformation: Transformation) -> None:
        self._sinks.remove(transformation)
        self._program.transformations.remove(transformation)


def _tell_failure(job_name: str, result: Future[JobExecutionResult]) -> None:
    error = result.exception()
    if error is not None and not isinstance(error, JobCancelledError):
        log.error("job '%s' has failed:\n%s", job_name, error)


def _fit(convert: Converter, value: Value, index: int) -> Value:
    try:
        return convert(value)
    except TypeMismatchError as e:
        raise TypeMismatchError(f"from_collection(): element {index}: {e}") from None


def _served(config: Configuration) -> Callable[[JobMaster], object]:
    """Start the REST service and archive if configured; return a function that registers a job."""
    if not any(config.contains_key(key) for key in _SERVED_BY):
        return lambda job: None
    from millstream.service.registry import JOBS
    from millstream.service.server import serve

    if not serve(config):
        return lambda job: None
    settings = config.to_dict()
    return lambda job: JOBS.add(job, settings)


def pending_job_graph(
    environment: StreamExecutionEnvironment, job_name: str | None, sinks: list[Transformation] | None
) -> tuple[JobGraph, bool]:
    """Return the job graph of sinks, by default of those pending for `execute()`, and whether it runs in batch mode."""
    graph = environment._stream_graph(job_name, environment._take_sinks() if sinks is None else sinks)
    batch = environment._is_batch(graph)
    return build_job_graph(graph, batch), batch
