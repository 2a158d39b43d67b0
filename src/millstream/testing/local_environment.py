"""LocalEnvironment: an environment whose programs run in this process, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from millstream.common.configuration import Configuration
from millstream.common.errors import JobCancelledError, JobExecutionError, MillstreamError
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_status import JobStatus
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.graph.transformations import Transformation
from millstream.jobmaster.job import JobMaster
from millstream.operators.failures import SubtaskFailed
from millstream.testing.local import LocalJob

# How long a job sleeps that has found nothing to read.
_NAP = 0.001


class LocalEnvironment(StreamExecutionEnvironment):
    """Runs programs in a thread of this process: in milliseconds, with the operators and state files of a real job.

    For tests of whole programs, which need not know: `execute()` and `execute_and_collect()` work as ever. There are no
    checkpoints and savepoints; a job that fails has failed, unless `restarts` says how often it goes on, from the last
    epoch that was good.

    Args:
        configuration: settings.
        clock: a wall clock in milliseconds, for example a `ManualClock`; without one it is the real one.
        restarts: how many failures a job survives.

    Example:
        >>> env = LocalEnvironment()
        >>> list(env.from_collection([1, 2, 3]).map(lambda x: x * x).execute_and_collect())
        [1, 4, 9]
    """

    def __init__(
        self,
        configuration: Configuration | None = None,
        clock: Callable[[], int] | None = None,
        restarts: int = 0,
    ) -> None:
        super().__init__(configuration)
        self._clock = clock or _wall_clock
        self._restarts = restarts
        if not self._config.contains_key("parallelism.default"):
            self.set_parallelism(1)

    def _start(self, job_name: str | None, sinks: list[Transformation]) -> JobMaster:
        run = _Run(LocalJob(self, self._clock, sinks=sinks, job_name=job_name), self._restarts)
        run.start()
        # It has those attributes of a JobMaster that a client looks at.
        return cast(JobMaster, run)


def _wall_clock() -> int:
    return int(time.time() * 1000)


class _Run:
    """A job in a thread of its own."""

    def __init__(self, job: LocalJob, restarts: int) -> None:
        self.plan, self.progress = job.plan, job.progress
        self.result: Future[JobExecutionResult] = Future()
        self.status = JobStatus.RUNNING
        self._job = job
        self._restarts = restarts
        self._cancelled = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._main, name="local-job", daemon=True).start()

    def cancel(self) -> None:
        """Stop after the epoch that runs now."""
        self._cancelled.set()

    def ask(self, request: Any) -> None:
        request.done.set_exception(MillstreamError("A LocalEnvironment has no checkpoints: run the program on Spark."))

    def checkpoint_statistics(self) -> dict[str, Any]:
        return {"counts": {}, "history": []}

    savepoint_directory = None

    def _main(self) -> None:
        started = time.monotonic()
        try:
            self._job.run(self._restarts, before_epoch=self._go_on)
            self._job.close()
        except JobCancelledError as e:
            self._end(JobStatus.CANCELED, e)
        except SubtaskFailed as e:
            error = JobExecutionError(str(e))
            error.__cause__ = e.__cause__
            self._end(JobStatus.FAILED, error)
        except BaseException as e:
            self._end(JobStatus.FAILED, e)
        else:
            self.status = JobStatus.FINISHED
            self.result.set_result(self._outcome(int((time.monotonic() - started) * 1000)))

    def _go_on(self, idle: bool) -> None:
        if self._cancelled.is_set():
            raise JobCancelledError(f"Job '{self.plan.settings.job_name}' was cancelled.")
        if idle:
            time.sleep(_NAP)

    def _end(self, status: JobStatus, error: BaseException) -> None:
        self.status = status
        self.result.set_exception(error)

    def _outcome(self, millis: int) -> JobExecutionResult:
        settings, progress = self.plan.settings, self.progress
        read = progress.records_in(v.id for v in self.plan.vertices if v.is_source)
        return JobExecutionResult(settings.job_id, settings.job_name, millis, read, progress.epochs, progress.metrics())
