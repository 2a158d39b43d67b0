"""Handles on a running job: CloseableIterator over its records, and its JobClient."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Generic

from millstream.common.aliases import T_co, Value
from millstream.common.completable_future import CompletableFuture
from millstream.common.errors import InvalidProgramError, JobCancelledError
from millstream.common.job_client import JobClient
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.graph.transformations import check_parallelism
from millstream.jobmaster.machine.requests import CheckpointRequest, RescaleRequest, SavepointRequest

if TYPE_CHECKING:
    from millstream.jobmaster.job import JobMaster

__all__ = ["CloseableIterator"]

# Maximum epochs of records buffered for a slow reader before the job stalls.
_READY = 8


class Mailbox:
    """Buffers a job's records. The job references it instead of the iterator, which can thus be garbage-collected."""

    def __init__(self) -> None:
        self._batches: queue.Queue[list[Value] | None] = queue.Queue(_READY)
        self.closed = False

    def put(self, batch: list[Value] | None) -> None:
        """Add a batch, or None at the end; block while the buffer is full, unless the reader has closed it."""
        while not self.closed:
            try:
                self._batches.put(batch, timeout=0.1)
                return
            except queue.Full:
                continue

    def take(self) -> list[Value] | None:
        return self._batches.get()


class CloseableIterator(Generic[T_co]):
    """Iterates over the records of a running job.

    The job is cancelled if the iterator is closed or garbage-collected (for example after `break` out of a loop over
    it), or if waiting is interrupted; in Flink only if it is closed. The iterator raises the error of a failed job
    after its last record.

    Example:
        >>> with env.from_collection([1, 2, 3]).execute_and_collect() as numbers:
        ...     for number in numbers:
        ...         print(number)
        1
        2
        3
    """

    def __init__(self, mailbox: Mailbox, job: JobMaster) -> None:
        self._mailbox = mailbox
        self._current: Iterator[T_co] = iter(())
        self._job = job
        job.result.add_done_callback(lambda _: mailbox.put(None))

    def __iter__(self) -> CloseableIterator[T_co]:
        return self

    def __next__(self) -> T_co:
        try:
            while True:
                for value in self._current:
                    return value
                if self._mailbox.closed:
                    raise StopIteration
                batch = self._mailbox.take()
                if batch is None:
                    self._mailbox.closed = True
                    self._raise_failure()
                    raise StopIteration
                self._current = iter(batch)
        except KeyboardInterrupt:
            self.close()
            raise

    def next(self) -> T_co:
        """Return the next record, as `next(iterator)` does.

        Example:
            >>> with env.from_collection([1, 2, 3]).execute_and_collect() as numbers:
            ...     numbers.next()
            1
        """
        return self.__next__()

    def _raise_failure(self) -> None:
        error = self._job.result.exception()
        if error is not None:
            raise error

    def close(self) -> None:
        """Cancel the job if it still runs, and wait until it has ended.

        Example:
            >>> numbers = env.from_collection([1, 2, 3]).execute_and_collect()
            >>> numbers.close()
        """
        self._mailbox.closed = True
        self._job.cancel()
        error = self._job.result.exception()
        if error is not None and not isinstance(error, JobCancelledError):
            raise error

    def __del__(self) -> None:
        self._mailbox.closed = True
        if not self._job.result.done():
            # In a thread: the last reference may disappear anywhere, also while locks are held.
            with contextlib.suppress(RuntimeError):
                threading.Thread(target=self._job.cancel, daemon=True).start()

    def __enter__(self) -> CloseableIterator[T_co]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class LocalJobClient(JobClient):
    """The handle on a job of this process."""

    def __init__(self, job: JobMaster, savepoint_directory: str | None = None) -> None:
        """Wrap a job; `savepoint_directory` is the default for savepoints."""
        self.job = job
        self._default_directory = savepoint_directory

    def get_job_id(self) -> JobID:
        return JobID(self.job.view.job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(self.job.view.status)

    def cancel(self) -> CompletableFuture[None]:
        self.job.cancel()
        done: Future[None] = Future()
        self.job.result.add_done_callback(lambda _: done.set_result(None))
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
        request.done.add_done_callback(lambda done: self.job.cancel() if done.exception() is None else None)
        return self._savepoint(request)

    def _savepoint(self, request: SavepointRequest) -> CompletableFuture[str]:
        self.job.ask(request)
        return CompletableFuture(request.done)

    def _savepoint_directory(self, requested: str | None) -> str:
        directory = requested or self._default_directory
        if directory is None:
            raise InvalidProgramError(
                "No savepoint directory is configured: pass one, or set execution.checkpointing.savepoint-dir."
            )
        return directory

    def trigger_checkpoint(self) -> CompletableFuture[str]:
        request = CheckpointRequest()
        self.job.ask(request)
        return CompletableFuture(request.done)

    def get_checkpoint_statistics(self) -> dict[str, Value]:
        return self.job.view.checkpoints.statistics()

    def rescale(self, parallelism: int) -> CompletableFuture[None]:
        check_parallelism(parallelism, "the job")
        request = RescaleRequest(parallelism)
        self.job.ask(request)
        return CompletableFuture(request.done)

    def get_accumulators(self) -> CompletableFuture[dict[str, Value]]:
        return CompletableFuture.completed(self.job.view.progress.metrics())

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return CompletableFuture(self.job.result)
