"""The handle on a job whose driver is this process."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from millstream.common.completable_future import CompletableFuture
from millstream.common.errors import InvalidProgramError
from millstream.common.job_client import JobClient
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.graph.transformations import check_parallelism
from millstream.jobmaster.machine.requests import CheckpointRequest, RescaleRequest, SavepointRequest

# Not yet: it is imported while Spark starts, and not at all by workers.
if TYPE_CHECKING:
    from millstream.jobmaster.job import JobMaster


class LocalJobClient(JobClient):
    """The handle on a job of this process."""

    def __init__(self, job: JobMaster, savepoint_directory: str | None = None) -> None:
        """Take a job; `savepoint_directory` is where savepoints go whose directory is not given."""
        self._job = job
        self._default_directory = savepoint_directory

    def get_job_id(self) -> JobID:
        return JobID(self._job.view.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(self._job.view.status)

    def cancel(self) -> CompletableFuture[None]:
        self._job.cancel()
        done: Future[None] = Future()
        self._job.result.add_done_callback(lambda _: done.set_result(None))
        return CompletableFuture(done)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return self._savepoint(SavepointRequest(self._savepoint_directory(savepoint_directory)))

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        directory = self._savepoint_directory(savepoint_directory)
        return self._savepoint(SavepointRequest(directory, stop=True, drain=advance_to_end_of_event_time))

    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        request = SavepointRequest(self._savepoint_directory(savepoint_directory))
        request.done.add_done_callback(lambda done: self._job.cancel() if done.exception() is None else None)
        return self._savepoint(request)

    def _savepoint(self, request: SavepointRequest) -> CompletableFuture[str]:
        self._job.ask(request)
        return CompletableFuture(request.done)

    def _savepoint_directory(self, given: str | None) -> str:
        directory = given or self._default_directory
        if directory is None:
            raise InvalidProgramError(
                "There is no directory for the savepoint: give one, or set execution.checkpointing.savepoint-dir."
            )
        return directory

    def trigger_checkpoint(self) -> CompletableFuture[str]:
        request = CheckpointRequest()
        self._job.ask(request)
        return CompletableFuture(request.done)

    def get_checkpoint_statistics(self) -> dict[str, Any]:
        return self._job.view.checkpoints.statistics()

    def rescale(self, parallelism: int) -> CompletableFuture[None]:
        check_parallelism(parallelism, "the job")
        request = RescaleRequest(parallelism)
        self._job.ask(request)
        return CompletableFuture(request.done)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed(self._job.view.progress.metrics())

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return CompletableFuture(self._job.result)
