"""CloseableIterator: a running job's records, as they come."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from millstream.common.errors import JobCancelledError
from millstream.jobmaster.job import JobMaster

__all__ = ["CloseableIterator"]

# A job waits when its records are not taken: this many epochs' worth may lie ready.
_READY = 8


class CloseableIterator:
    """Iterates over the records of a running job; closing it cancels the job.

    The error of a failed job is raised where the records end.
    """

    def __init__(self) -> None:
        self._batches: queue.Queue[list[Any] | None] = queue.Queue(_READY)
        self._current: Iterator[Any] = iter(())
        self._job: JobMaster | None = None
        self._over = False

    def _follow(self, job: JobMaster) -> None:
        self._job = job
        job.result.add_done_callback(lambda _: self._offer(None))

    def _take(self, values: list[Any]) -> None:
        self._offer(values)

    def _offer(self, item: list[Any] | None) -> None:
        # Waits for room, but not for a reader that has gone.
        while not self._over:
            try:
                self._batches.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        while True:
            for value in self._current:
                return value
            if self._over:
                raise StopIteration
            batch = self._batches.get()
            if batch is None:
                self._over = True
                self._raise_failure()
                raise StopIteration
            self._current = iter(batch)

    def next(self) -> Any:
        """Return the next record, as `next(iterator)` does."""
        return self.__next__()

    def _raise_failure(self) -> None:
        assert self._job is not None
        error = self._job.result.exception()
        if error is not None:
            raise error

    def close(self) -> None:
        """Cancel the job if it still runs, and wait until it has ended."""
        self._over = True
        if self._job is not None:
            self._job.cancel()
            error = self._job.result.exception()
            if error is not None and not isinstance(error, JobCancelledError):
                raise error

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
