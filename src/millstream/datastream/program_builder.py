"""ProgramBuilder: collects the operators of an environment's program and starts jobs of them.

The environment's `execute` calls `start_pending`. It builds the stream graph, to check the program, and launches the
job in this process or on Spark (`Launcher`). The job launcher calls the function of the `JobSpec` that builds both
graphs, the stream graph and the job graph, for a parallelism.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.known_keys import check_keys
from millstream.common.log_format import write_log
from millstream.common.pipeline_options import MAX_PARALLELISM, runs_here
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.cached_stream import Cache
from millstream.datastream.execution_mode import RuntimeExecutionMode
from millstream.datastream.execution_settings import RUNTIME_MODE, ExecutionSettings
from millstream.datastream.launch_context import (
    end_on_signals,
    notify_watchers,
    stop_if_only_planned,
    with_overrides,
)
from millstream.datastream.program_lint import RunTracker
from millstream.graph.job_graph import JobGraph, build_job_graph
from millstream.graph.plan import draw
from millstream.graph.stream_graph import StreamGraph, build_stream_graph
from millstream.graph.transformations import Program, Transformation
from millstream.operators.base import Operator
from millstream.state.backend import Backend, backend_of

# Imported late: loading it overlaps with Spark's start, and workers never need it.
if TYPE_CHECKING:
    from millstream.jobmaster.job import JobMaster
    from millstream.jobmaster.job_launcher import JobSpec

_JOB_NAME = "pipeline.name"
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


class Launcher:
    """Launches jobs in this process or on Spark, as configured."""

    def start_ahead(self, config: Configuration) -> None:
        """Start Spark while the launcher is imported and the job is planned."""
        if runs_here(config):
            return
        from millstream.spark.embedded import start_ahead

        start_ahead(config)

    def launch(self, job: JobSpec) -> JobMaster:
        """Launch a job locally or on Spark."""
        if runs_here(job.config):
            from millstream.jobmaster.local import launch_locally

            return launch_locally(job)
        from millstream.spark.spark_launcher import launch

        return launch(job)


class ProgramBuilder:
    """The operators of an environment's program.

    The environment and its streams share one, so that PyFlink's classes have no other public methods than PyFlink's.

    Args:
        config: the environment's configuration, shared with it.
        launcher: launches the jobs.
        clock: the wall clock of a test in milliseconds; by default the real one.
    """

    def __init__(
        self, config: Configuration, launcher: Launcher | None = None, clock: Callable[[], int] | None = None
    ) -> None:
        self.program = Program()
        # The sinks that the next execute() runs.
        self.sinks: list[Transformation] = []
        self.clock = clock
        self._config = config
        # Not the environment itself: in a reference cycle, collections would stay in memory until a garbage collection.
        self._settings = ExecutionSettings(config)
        self._launcher = launcher or Launcher()
        self._run_tracker = RunTracker()

    def add_source(self, name: str, operator: Operator, type_info: TypeInformation | None) -> Transformation:
        """Add a source to the program."""
        self._run_tracker.begin()
        return self.program.add(name, operator, type_info=type_info)

    def add_sink(self, transformation: Transformation) -> None:
        """Make a transformation of the program a sink of the next execute()."""
        self.sinks.append(transformation)

    def take_sinks(self) -> list[Transformation]:
        """Return and clear the sinks pending for execute()."""
        sinks, self.sinks = self.sinks, []
        return sinks

    def discard(self, transformation: Transformation) -> None:
        """Remove a pending sink from the program."""
        self.sinks.remove(transformation)
        self.program.transformations.remove(transformation)

    def stream_graph(
        self,
        job_name: str | None,
        sinks: list[Transformation],
        parallelism: int | None = None,
        backend: Backend | None = None,
    ) -> StreamGraph:
        """Return the stream graph of some sinks; by default with the configured name, parallelism and backend."""
        self._run_tracker.runs()
        name = job_name or self._config.get_string(_JOB_NAME, "Flink Streaming Job")
        max_parallelism = MAX_PARALLELISM.read(self._config)
        parallelism = parallelism or self._settings.get_parallelism()
        backend = backend or backend_of(with_overrides(self._config))
        chained = self._settings.is_chaining_enabled()
        return build_stream_graph(sinks, parallelism, name, chained, backend, max(max_parallelism, 0) or None)

    def is_batch(self, graph: StreamGraph) -> bool:
        """Return whether a job of a graph runs in batch mode."""
        mode = RUNTIME_MODE.read(self._config)
        if mode is RuntimeExecutionMode.BATCH and not graph.is_bounded:
            unbounded = next(n.label for n in graph.nodes if not n.transformation.is_bounded)
            raise InvalidProgramError(f"BATCH needs bounded sources, and {unbounded} is not: use STREAMING.")
        bounded = mode is RuntimeExecutionMode.AUTOMATIC and graph.is_bounded
        return mode is RuntimeExecutionMode.BATCH or bounded

    def draw(self, ends: list[Transformation]) -> str:
        """Return an SVG image of the program up to some transformations."""
        return draw(build_job_graph(self.stream_graph(None, ends)))

    def start_pending(self, job_name: str | None) -> JobMaster:
        """Start a job of the pending sinks."""
        job = self.start(job_name, self.sinks)
        self.take_sinks()
        return job

    def start(self, job_name: str | None, sinks: list[Transformation]) -> JobMaster:
        """Start a job of some sinks."""
        end_on_signals()
        parameters = self._settings.get_config().get_global_job_parameters()
        check_keys(with_overrides(self._config).key_set() - parameters.keys())
        graph = self.stream_graph(job_name, sinks)
        stop_if_only_planned(graph, self._config)
        has_caches = any(n.transformation.cache for n in graph.nodes)
        filling = self._use_caches(graph)
        roots = list(sinks)
        if has_caches:
            roots += [cache.tap(self.program, t) for t, cache in filling]
            graph = self.stream_graph(job_name, roots)
        batch = self.is_batch(graph)
        name, backend = graph.job_name, graph.backend

        def job_graph(parallelism: int | None) -> JobGraph:
            # A restarted job keeps its backend, even if the program has set another since.
            return build_job_graph(self.stream_graph(name, roots, parallelism, backend), batch)

        config = with_overrides(self._config)
        write_log(config)
        self._launcher.start_ahead(config)
        register = _served(config)
        from millstream.jobmaster.job_launcher import JobSpec

        job = self._launcher.launch(JobSpec(job_graph, config, batch, self._settings.get_buffer_timeout(), self.clock))
        register(job)
        for _, cache in filling:
            cache.job = job.result
        notify_watchers(job)
        return job

    def _use_caches(self, graph: StreamGraph) -> list[tuple[Transformation, Cache]]:
        """Read filled caches instead of their streams; return the caches that this job must fill."""
        filling = []
        for transformation in [n.transformation for n in graph.nodes]:
            cache = transformation.cache
            if not isinstance(cache, Cache):
                continue
            if not graph.is_bounded:
                raise InvalidProgramError(
                    f"cache() of {transformation.label} needs a bounded stream, and a source of this one never ends."
                )
            if cache.is_filled:
                cache.replace(self.program, transformation)
                transformation.cache = None
            elif cache.needs_job:
                filling.append((transformation, cache))
        return filling


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
