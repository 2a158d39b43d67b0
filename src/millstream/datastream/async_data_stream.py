"""AsyncDataStream: asynchronous requests for the records of a stream, with timeouts and retries."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration, Time, to_millis
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.data_stream import DataStream
from millstream.datastream.functions import Function, as_user_function
from millstream.operators.async_io import AsyncOperator, RetryPolicy

__all__ = ["AsyncDataStream", "AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy"]

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Function, Generic[IN, OUT]):
    """Makes an asynchronous request for a record."""

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """Return the results for a record."""

    def timeout(self, value: IN) -> list[OUT]:
        """Return the results for a record whose request took too long; raises unless overridden."""
        raise TimeoutError(f"Async function call has timed out for input: {value!r}")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Says which outcomes ask for another attempt."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None: ...

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None: ...


class _Predicates(AsyncRetryPredicate[Any]):
    def __init__(
        self, result: Callable[[list[Any]], bool] | None, exception: Callable[[Exception], bool] | None
    ) -> None:
        self._result = result
        self._exception = exception

    def result_predicate(self) -> Callable[[list[Any]], bool] | None:
        return self._result

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        return self._exception


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """How often and after what pauses a request is made again."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool: ...

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> float: ...

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]: ...

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Any]:
        """Never."""
        return _Backoff(1, 0, 0, 1.0, None, None)

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> AsyncRetryStrategy[Any]:
        """After the same pause each time."""
        return _Backoff(
            max_attempts, backoff_time_millis, backoff_time_millis, 1.0, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> AsyncRetryStrategy[Any]:
        """After pauses that grow."""
        return _Backoff(max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate)


class _Backoff(AsyncRetryStrategy[Any]):
    def __init__(
        self,
        attempts: int,
        first: float,
        longest: float,
        multiplier: float,
        result: Callable[[list[Any]], bool] | None,
        exception: Callable[[Exception], bool] | None,
    ) -> None:
        if attempts < 1:
            raise InvalidProgramError(f"An AsyncRetryStrategy needs at least 1 attempt, not {attempts}.")
        self._attempts = attempts
        self._first, self._longest, self._multiplier = first, longest, multiplier
        self._predicate = _Predicates(result, exception)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._attempts

    def get_backoff_time_millis(self, current_attempts: int) -> float:
        return min(self._first * self._multiplier ** (current_attempts - 1), self._longest)

    def get_retry_predicate(self) -> AsyncRetryPredicate[Any]:
        return self._predicate


def _policy(strategy: AsyncRetryStrategy[Any]) -> RetryPolicy:
    predicate = strategy.get_retry_predicate()
    # A first attempt that is not a retry, then as many retries as the strategy allows.
    retries = 0
    while retries < 1 << 16 and strategy.can_retry(retries + 1):
        retries += 1
    has_predicate = predicate.result_predicate() is not None or predicate.exception_predicate() is not None
    return RetryPolicy(
        retries + 1 if has_predicate else 1,
        strategy.get_backoff_time_millis,
        predicate.result_predicate(),
        predicate.exception_predicate(),
    )


class AsyncDataStream:
    """Adds asynchronous requests to a stream."""

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: Any,
        timeout: Time | Duration | int,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Emit results as they come, but never across a watermark."""
        return _add(data_stream, async_function, timeout, capacity, output_type, False, None)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: Any,
        timeout: Time | Duration | int,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Emit results in the order of the records."""
        return _add(data_stream, async_function, timeout, capacity, output_type, True, None)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: Any,
        timeout: Time | Duration | int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """The same with retries."""
        return _add(data_stream, async_function, timeout, capacity, output_type, False, async_retry_strategy)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: Any,
        timeout: Time | Duration | int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """The same with retries."""
        return _add(data_stream, async_function, timeout, capacity, output_type, True, async_retry_strategy)


def _add(
    stream: DataStream,
    function: Any,
    timeout: Time | Duration | int,
    capacity: int,
    output_type: TypeInformation | None,
    ordered: bool,
    strategy: AsyncRetryStrategy[Any] | None,
) -> DataStream:
    user_function = as_user_function(function, "async_invoke", "AsyncDataStream")
    if not inspect.iscoroutinefunction(user_function.call):
        raise InvalidProgramError(f"Method 'async_invoke' of {user_function} should be declared as 'async def'.")
    millis = to_millis(timeout)
    if millis <= 0 or capacity < 1:
        raise InvalidProgramError(
            f"AsyncDataStream needs a timeout above 0 and a capacity of at least 1, not {millis} ms and {capacity}."
        )
    retry = None if strategy is None else _policy(strategy)
    operator = AsyncOperator(user_function, millis, capacity, ordered, retry)
    return stream._then("Async Wait", operator, output_type)
