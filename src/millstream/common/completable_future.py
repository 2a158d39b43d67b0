"""CompletableFuture: the result of the API's asynchronous calls."""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["CompletableFuture"]

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """A result that may not be available yet; it can be waited for or awaited.

    Example:
        >>> from millstream.common.completable_future import CompletableFuture
        >>> CompletableFuture.completed(3).result()
        3
    """

    def __init__(self, future: Future[T]) -> None:
        self._future = future

    @classmethod
    def completed(cls, value: T) -> CompletableFuture[T]:
        """Return a completed future.

        Example:
            >>> CompletableFuture.completed(3).done()
            True
        """
        future: Future[T] = Future()
        future.set_result(value)
        return cls(future)

    def cancel(self) -> bool:
        """Stop waiting for the result; the operation continues."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        """Return whether the future was cancelled.

        Example:
            >>> CompletableFuture.completed(3).cancelled()
            False
        """
        return self._future.cancelled()

    def done(self) -> bool:
        """Return whether there is a result or an error.

        Example:
            >>> CompletableFuture.completed(3).done()
            True
        """
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it, or raise its error.

        Args:
            timeout: the maximum seconds to wait; by default any time.

        Example:
            >>> CompletableFuture.completed(3).result(timeout=10)
            3
        """
        return self._future.result(timeout)

    def exception(self) -> BaseException | None:
        """Wait for the end, and return the error, or None.

        Example:
            >>> CompletableFuture.completed(3).exception() is None
            True
        """
        return self._future.exception()

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Call a function when the future is done; at once if it is.

        Example:
            >>> CompletableFuture.completed(3).add_done_callback(lambda future: print(future.result()))
            3
        """
        self._future.add_done_callback(fn)

    def __await__(self) -> Generator[object, None, T]:
        import asyncio

        return asyncio.wrap_future(self._future).__await__()
