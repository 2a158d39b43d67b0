"""JobClient: the handle on a running job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from millstream.common.completable_future import CompletableFuture
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus

__all__ = ["JobClient"]


class JobClient(ABC):
    """Watch, wait for, or cancel a job that was started with `execute_async`."""

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the job's id: 32 lowercase hexadecimal digits."""

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return the state the job is in now."""

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Stop the job; the future is done when it has stopped."""

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint while the job goes on; the future holds where it is.

        Args:
            savepoint_directory: where it goes; without it where execution.checkpointing.savepoint-dir says.
        """

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Take a savepoint and end the job with it; the future holds where it is.

        Args:
            advance_to_end_of_event_time: whether to drain: all windows and timers fire first, as at the end of input.
            savepoint_directory: where it goes; without it where execution.checkpointing.savepoint-dir says.
        """

    @abstractmethod
    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint, then cancel the job; the future holds where it is."""

    @abstractmethod
    def trigger_checkpoint(self) -> CompletableFuture[str]:
        """Take a checkpoint now; the future holds where it is."""

    @abstractmethod
    def get_checkpoint_statistics(self) -> dict[str, Any]:
        """Return how many checkpoints there were, and of the last ones: status, duration, bytes, place."""

    @abstractmethod
    def rescale(self, parallelism: int) -> CompletableFuture[None]:
        """Go on with another parallelism from the next epoch on, without a restart.

        Operators that were given a parallelism of their own keep it.
        """

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        """Return the accumulators as of the last finished epoch."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return the job's result; waiting for it waits for the job's end."""
