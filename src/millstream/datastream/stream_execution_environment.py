"""StreamExecutionEnvironment: builds a program from sources and runs it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
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
from millstream.common.errors import JobCancelledError, TypeMismatchError, WrongTypeError
from millstream.common.io import InputFormat
from millstream.common.job_client import JobClient
from millstream.common.job_execution_result import JobExecutionResult
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
from millstream.datastream.collect import LocalJobClient
from millstream.datastream.data_stream import DataStream
from millstream.datastream.execution_settings import ExecutionSettings
from millstream.datastream.launch_context import (
    await_end,
    with_command_line,
    with_overrides,
)
from millstream.datastream.program_builder import ProgramBuilder
from millstream.datastream.stream_base import transformation_of
from millstream.formats.file_format import StreamFormat
from millstream.graph.job_graph import JobGraph, build_job_graph
from millstream.graph.plan import execution_plan
from millstream.graph.transformations import Transformation, UpstreamEdge
from millstream.operators.source import SourceOperator

if TYPE_CHECKING:
    from millstream.spark.dataframes import DataFrame, SparkSession

__all__ = ["StreamExecutionEnvironment"]

log = logging.getLogger("millstream")

_no_other_input = missing_function("create_input", f"{JAVA}; read files with FileSource")


class StreamExecutionEnvironment(ExecutionSettings):
    """Builds a program and runs it on Spark.

    Example:
        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> words = env.from_collection(["to", "be", "or", "not", "to", "be"])
        >>> counts = words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).sum(1)
        >>> list(counts.execute_and_collect())[-1]
        ('be', 2)
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        install_excepthook()
        super().__init__(Configuration(configuration))
        self._builder = ProgramBuilder(self._config)

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Return a new environment; command-line settings take precedence.

        Example:
            >>> from millstream.common import Configuration
            >>> config = Configuration().set_string("pipeline.name", "word counts")
            >>> env = StreamExecutionEnvironment.get_execution_environment(config)
            >>> env.get_configuration().get_string("pipeline.name", "")
            'word counts'
        """
        return StreamExecutionEnvironment(with_command_line(configuration))

    @staticmethod
    def get_default_local_parallelism() -> int:
        """Return the parallelism of environments without one.

        Example:
            >>> StreamExecutionEnvironment.get_default_local_parallelism()
            1
        """
        return StreamExecutionEnvironment.get_execution_environment().get_parallelism()

    # --- sources

    @overload
    def from_collection(self, collection: Iterable[Value], type_info: RowTypeInfo) -> DataStream[Row]: ...

    @overload
    def from_collection(self, collection: Iterable[T], type_info: TypeInformation | None = None) -> DataStream[T]: ...

    def from_collection(
        self, collection: Iterable[Value], type_info: TypeInformation | None = None
    ) -> DataStream[Value]:
        """Create a stream of a collection's elements, in order; its source has one subtask.

        Args:
            collection: the elements.
            type_info: their type, to which they are coerced; by default any Python object.

        Example:
            >>> from millstream.common import Types
            >>> person = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
            >>> people = env.from_collection([("ann", 30)], person)
            >>> list(people.map(lambda row: row.age + 1).execute_and_collect())
            [31]
        """
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
        """Create a stream of a Source, or of an object with the methods of PySpark's DataSourceStreamReader.

        Args:
            source: the source, such as a FileSource or a KafkaSource.
            watermark_strategy: timestamps and watermarks, for each split of its own; by default none.
            source_name: the name of the operator.
            type_info: the type of the records; by default that of the source.

        Example:
            >>> from millstream.common import WatermarkStrategy
            >>> from millstream.datastream.connectors.datagen import DataGeneratorSource
            >>> source = DataGeneratorSource(lambda index: index * index, 4)
            >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "squares").execute_and_collect())
            [0, 1, 4, 9]
        """
        source = as_source(source, "from_source()")
        if isinstance(source, (FileSource, HybridSource)):
            source = source.with_storage_options(storage_options(self._config))
        stream = self._add_source(source, source_name or source.name, type_info or source.produced_type)
        if isinstance(source, (SparkStreamSource, HybridSource)) and source.is_simple:
            stream = stream.force_non_parallel()
        if watermark_strategy is None or watermark_strategy == WatermarkStrategy.no_watermarks():
            return stream
        # Chained to the source, so that every split has its own watermark.
        marked = stream.assign_timestamps_and_watermarks(watermark_strategy)
        origin = transformation_of(stream)
        transformation_of(marked).source = origin
        return marked.force_non_parallel() if origin.non_parallel else marked

    def from_spark(self, frame: DataFrame, directory: str | None = None) -> DataStream[Row]:
        """Create a stream of a Spark DataFrame, bounded or streaming, and thus of anything that Spark reads.

        Spark writes the rows as Parquet files when the job starts, and subtasks read those.

        Args:
            frame: the DataFrame, of `get_spark_session()` or a Spark of the program's own.
            directory: the directory of the files. All workers must see it, and a restored job must find it again;
                by default a temporary directory on this machine. Not in PyFlink.

        Example:
            >>> spark = env.get_spark_session()
            >>> frame = spark.createDataFrame([("ann", 30), ("bob", 25)], ["name", "age"])
            >>> sorted(env.from_spark(frame).map(lambda row: row.name).execute_and_collect())
            ['ann', 'bob']
        """
        from millstream.connectors.spark_dataframes import SparkFrameSource

        return self.from_source(SparkFrameSource(frame, directory))

    def get_spark_session(self) -> SparkSession:
        """Return the SparkSession of the jobs; start one if needed. Not in PyFlink.

        Example:
            >>> env.get_spark_session().sql("SELECT 1 + 1 AS two").collect()
            [Row(two=2)]
        """
        from millstream.spark.dataframes import session_of

        return session_of(self._config)

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream[str]:
        r"""Deprecated: use a FileSource. Create a stream of the lines of a file, or of all files in a directory.

        Example:
            >>> from pathlib import Path
            >>> from millstream.datastream.connectors.file_system import FileSource, StreamFormat
            >>> _ = Path("words.txt").write_text("to\nbe\n")
            >>> source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "words.txt").build()
            >>> list(env.from_source(source).execute_and_collect())
            ['to', 'be']
        """
        warn_deprecated("read_text_file()", "use from_source() with a FileSource of StreamFormat.text_line_format()")
        lines = StreamFormat.text_line_format(charset_name)
        return self.from_source(FileSource.for_record_stream_format(lines, file_path).build())

    def _add_source(self, source: Source[T], name: str, type_info: TypeInformation | None) -> DataStream[T]:
        check_type(type_info, f"The type of source '{name}'")
        transformation = self._builder.add_source(name, SourceOperator(source), type_info)
        return DataStream(self, self._builder, [UpstreamEdge(transformation)])

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
        """Create a stream of a source without watermarks: the older name of `from_source()`.

        Example:
            >>> from millstream.datastream.connectors.datagen import DataGeneratorSource
            >>> list(env.add_source(DataGeneratorSource(lambda index: index, 3)).execute_and_collect())
            [0, 1, 2]
        """
        return self.from_source(source_func, None, source_name, type_info)

    def create_input(self, input_format: InputFormat, type_info: TypeInformation | None = None) -> DataStream[Value]:
        """Create a stream of the files of an input format, such as AvroInputFormat."""
        if not isinstance(input_format, InputFormat):
            _no_other_input()
        return self.from_source(input_format.create_source(), None, "Custom File source", type_info)

    # --- running

    def get_execution_plan(self) -> str:
        """Return the plan of the program as JSON, in Flink's shape.

        Example:
            >>> import json
            >>> _ = env.from_collection([1]).map(lambda x: x).print()
            >>> [node["type"] for node in json.loads(env.get_execution_plan())["nodes"]]
            ['Source: Collection Source', 'Map', 'Print to Std. Out']
        """
        return execution_plan(self._builder.stream_graph(None, self._builder.sinks))

    def _repr_svg_(self) -> str | None:
        """Draw the program that the next execute() would run, for notebooks."""
        return self._builder.draw(self._builder.sinks) if self._builder.sinks else None

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the operators added since the last execute(), and wait for the end of the job.

        Args:
            job_name: the job's name; by default `pipeline.name`.

        Example:
            >>> _ = env.from_collection(["to", "be"]).map(str.upper).print()
            >>> result = env.execute("shout")
            TO
            BE
            >>> result.job_name, result.records_in
            ('shout', 2)
        """
        job = self._builder.start_pending(job_name)
        try:
            return await_end(job)
        except (KeyboardInterrupt, SystemExit):
            job.leave()
            job.result.exception()
            raise

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start the operators added since the last execute(), and return a handle on the job.

        Example:
            >>> from millstream.testing import CollectSink
            >>> _ = env.from_collection([1, 2]).sink_to(CollectSink())
            >>> job = env.execute_async("numbers")
            >>> job.get_job_execution_result().result().records_in
            2
            >>> job.get_job_status().result().name
            'FINISHED'
        """
        directory = SAVEPOINT_DIRECTORY.read(with_overrides(self._config))
        job = self._builder.start_pending(job_name)
        # The program may never ask for the result.
        job.result.add_done_callback(partial(_log_failure, job.view.job_name))
        return LocalJobClient(job, directory)

    def close(self) -> None:
        """Discard pending operators. Spark keeps running: other environments may use it.

        Example:
            >>> _ = env.from_collection([1]).print()
            >>> env.close()
        """
        self._builder.take_sinks()


def _log_failure(job_name: str, result: Future[JobExecutionResult]) -> None:
    error = result.exception()
    if error is not None and not isinstance(error, JobCancelledError):
        log.error("job '%s' has failed:\n%s", job_name, error)


def _fit(convert: Converter, value: Value, index: int) -> Value:
    try:
        return convert(value)
    except TypeMismatchError as e:
        raise TypeMismatchError(f"from_collection(): element {index}: {e}") from None


def builder_of(environment: StreamExecutionEnvironment) -> ProgramBuilder:
    """Return the builder of an environment's program."""
    return environment._builder


def pending_job_graph(
    environment: StreamExecutionEnvironment, job_name: str | None, sinks: list[Transformation] | None
) -> tuple[JobGraph, bool]:
    """Return the job graph of sinks, by default of those pending for `execute()`, and whether it runs in batch mode."""
    builder = environment._builder
    graph = builder.stream_graph(job_name, builder.take_sinks() if sinks is None else sinks)
    batch = builder.is_batch(graph)
    return build_job_graph(graph, batch), batch
