"""AsyncDataStream: asynchronous requests for the records of a stream, with timeouts and retries."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable

from millstream.common.aliases import OUT, T, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration, Time, to_millis
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.async_retry_strategies import AsyncRetryPredicate, AsyncRetryStrategy
from millstream.datastream.data_stream import DataStream
from millstream.datastream.functions import (
    AsyncFunction,
)
from millstream.datastream.stream_base import add_operator
from millstream.datastream.stream_functions import as_user_function
from millstream.operators.async_io import AsyncOperator, RetryPolicy

__all__ = ["AsyncDataStream", "AsyncFunction", "AsyncRetryPredicate", "AsyncRetryStrategy"]


def _policy(strategy: AsyncRetryStrategy[Value]) -> RetryPolicy:
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
    """Adds asynchronous requests to a stream.

    A pending request delays only its own results and, at full capacity, further input; other records, timers and
    checkpoints proceed. Requests in flight are checkpointed and sent again after a restore. The timeout covers all
    attempts for a record; `AsyncFunction.timeout` decides the result of a record that exceeds it.

    Example:
        >>> import asyncio
        >>> from millstream.datastream import AsyncDataStream
        >>> async def look_up(user):
        ...     await asyncio.sleep(0.02 if user == "ann" else 0)
        ...     return [f"{user}@example.org"]
        >>> users = env.from_collection(["ann", "bob"])
        >>> list(AsyncDataStream.ordered_wait(users, look_up, Time.seconds(5)).execute_and_collect())
        ['ann@example.org', 'bob@example.org']
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream[T],
        async_function: Callable[[T], Awaitable[Iterable[OUT]]] | AsyncFunction[T, OUT],
        timeout: Time | Duration | int,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Emit results in completion order, but never across a watermark.

        Args:
            data_stream: the records.
            async_function: a coroutine function, or an AsyncFunction, that returns the list of results for a record.
            timeout: the maximum time for a record from its first request; milliseconds if a number.
            capacity: the maximum number of requests in flight; at the limit no input is read.
            output_type: the type of the results.

        Example:
            >>> from millstream.common import Time
            >>> async def look_up(user):
            ...     return [f"{user}@example.org"]
            >>> users = env.from_collection(["ann", "bob"])
            >>> mails = AsyncDataStream.unordered_wait(users, look_up, Time.seconds(5), capacity=10)
            >>> sorted(mails.execute_and_collect())
            ['ann@example.org', 'bob@example.org']
        """
        return _add(data_stream, async_function, timeout, capacity, output_type, False, None)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[T],
        async_function: Callable[[T], Awaitable[Iterable[OUT]]] | AsyncFunction[T, OUT],
        timeout: Time | Duration | int,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Emit results in input order: an unfinished request holds back later results.

        Takes the arguments of `unordered_wait`.

        Example:
            >>> from millstream.common import Time
            >>> async def look_up(user):
            ...     return [f"{user}@example.org"]
            >>> users = env.from_collection(["ann", "bob"])
            >>> list(AsyncDataStream.ordered_wait(users, look_up, Time.seconds(5)).execute_and_collect())
            ['ann@example.org', 'bob@example.org']
        """
        return _add(data_stream, async_function, timeout, capacity, output_type, True, None)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: Callable[[T], Awaitable[Iterable[OUT]]] | AsyncFunction[T, OUT],
        timeout: Time | Duration | int,
        async_retry_strategy: AsyncRetryStrategy[Value],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Emit results in completion order, and repeat requests by a strategy.

        Args:
            data_stream: the records.
            async_function: a coroutine function, or an AsyncFunction, that returns the list of results for a record.
            timeout: the maximum time for a record, over all its requests; milliseconds if a number.
            async_retry_strategy: the outcomes to retry, how often and when.
            capacity: the maximum number of requests in flight; at the limit no input is read.
            output_type: the type of the results.

        Example:
            >>> from millstream.common import Time
            >>> from millstream.datastream import AsyncRetryStrategy
            >>> async def look_up(user):
            ...     return [f"{user}@example.org"]
            >>> failed = lambda error: isinstance(error, ConnectionError)
            >>> retry = AsyncRetryStrategy.exponential_backoff(3, 100, 1_000, 2.0, exception_predicate=failed)
            >>> users = env.from_collection(["ann", "bob"])
            >>> mails = AsyncDataStream.unordered_wait_with_retry(users, look_up, Time.seconds(5), retry)
            >>> sorted(mails.execute_and_collect())
            ['ann@example.org', 'bob@example.org']
        """
        return _add(data_stream, async_function, timeout, capacity, output_type, False, async_retry_strategy)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: Callable[[T], Awaitable[Iterable[OUT]]] | AsyncFunction[T, OUT],
        timeout: Time | Duration | int,
        async_retry_strategy: AsyncRetryStrategy[Value],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream[OUT]:
        """Emit results in input order, and repeat requests by a strategy.

        Takes the arguments of `unordered_wait_with_retry`.

        Example:
            >>> from millstream.common import Time
            >>> from millstream.datastream import AsyncRetryStrategy
            >>> attempts = []
            >>> async def look_up(user):
            ...     attempts.append(user)
            ...     return [f"{user}@example.org"] if len(attempts) > 1 else []
            >>> retry = AsyncRetryStrategy.fixed_delay(3, 1, result_predicate=lambda results: not results)
            >>> users = env.from_collection(["ann"])
            >>> mails = AsyncDataStream.ordered_wait_with_retry(users, look_up, Time.seconds(5), retry)
            >>> list(mails.execute_and_collect())
            ['ann@example.org']
        """
        return _add(data_stream, async_function, timeout, capacity, output_type, True, async_retry_strategy)


def _add(
    stream: DataStream[Value],
    function: object,
    timeout: Time | Duration | int,
    capacity: int,
    output_type: TypeInformation | None,
    ordered: bool,
    strategy: AsyncRetryStrategy[Value] | None,
) -> DataStream[Value]:
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
    return add_operator(stream, "Async Wait", operator, output_type)
