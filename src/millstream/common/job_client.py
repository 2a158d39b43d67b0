"""JobClient: the handle to a running job."""

from __future__ import annotations

from abc import ABC, abstractmethod

from millstream.common.aliases import Json, Value
from millstream.common.completable_future import CompletableFuture
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus

__all__ = ["JobClient"]


class JobClient(ABC):
    """Monitors, awaits or cancels a job started with `execute_async`.

    Example:
        >>> from millstream.testing import CollectSink
        >>> _ = env.from_collection([1, 2]).sink_to(CollectSink())
        >>> job = env.execute_async("numbers")
        >>> job.get_job_execution_result().result().records_in
        2
    """

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the job's id: 32 lowercase hexadecimal digits.

        Example:
            >>> from millstream.testing import CollectSink
            >>> _ = env.from_collection([1, 2]).sink_to(CollectSink())
            >>> len(str(env.execute_async().get_job_id()))
            32
        """

    @abstractmethod
    def get_job_status(self) -> CompletableFuture[JobStatus]:
        """Return the job's current status.

        Example:
            >>> from millstream.testing import CollectSink
            >>> _ = env.from_collection([1, 2]).sink_to(CollectSink())
            >>> job = env.execute_async()
            >>> result = job.get_job_execution_result().result()
            >>> job.get_job_status().result().name
            'FINISHED'
        """

    @abstractmethod
    def cancel(self) -> CompletableFuture[None]:
        """Cancel the job; the future completes when it has stopped.

        Example:
            >>> from millstream.datastream.connectors.datagen import DataGeneratorSource
            >>> numbers = env.from_source(DataGeneratorSource(lambda index: index, 1_000_000, 10))
            >>> _ = numbers.add_sink(lambda value: None)
            >>> job = env.execute_async()
            >>> job.cancel().result()
            >>> job.get_job_status().result().name
            'CANCELED'
        """

    @abstractmethod
    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint of the running job; the future holds its location.

        Args:
            savepoint_directory: the target; by default execution.checkpointing.savepoint-dir.
        """

    @abstractmethod
    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        """Stop the job with a savepoint; the future holds its location.

        Args:
            advance_to_end_of_event_time: whether to drain: all windows and timers fire first, as at the end of input.
            savepoint_directory: the target; by default execution.checkpointing.savepoint-dir.

        Example:
            >>> from millstream.datastream.connectors.datagen import DataGeneratorSource
            >>> numbers = env.from_source(DataGeneratorSource(lambda index: index, 1_000_000, 10))
            >>> _ = numbers.add_sink(lambda value: None)
            >>> job = env.execute_async()
            >>> savepoint = job.stop_with_savepoint(savepoint_directory="savepoints").result()
            >>> result = job.get_job_execution_result().result()
            >>> job.get_job_status().result().name
            'FINISHED'
        """

    @abstractmethod
    def cancel_with_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        """Take a savepoint, then cancel the job; the future holds its location."""

    @abstractmethod
    def trigger_checkpoint(self) -> CompletableFuture[str]:
        """Take a checkpoint now; the future holds its location. Not in PyFlink."""

    @abstractmethod
    def get_checkpoint_statistics(self) -> dict[str, Json]:
        """Return checkpoint counts, and status, duration, size and location of the latest checkpoints.

        Not in PyFlink.
        """

    @abstractmethod
    def rescale(self, parallelism: int) -> CompletableFuture[None]:
        """Change the parallelism with the next epoch, without a restart. Not in PyFlink.

        Operators with an explicit parallelism retain it.
        """

    @abstractmethod
    def get_accumulators(self) -> CompletableFuture[dict[str, Value]]:
        """Return the accumulators as of the last completed epoch."""

    @abstractmethod
    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        """Return the job's result; waiting for it waits for the end of the job."""
