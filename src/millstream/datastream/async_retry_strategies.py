"""AsyncRetryStrategy: how often and when to repeat an asynchronous request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError

__all__ = [
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "ExponentialBackoffDelayRetryStrategy",
    "FixedDelayRetryStrategy",
    "NoRetryStrategy",
    "RetryPredicate",
]

OUT = TypeVar("OUT")


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """Decides which outcomes of a request to retry."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Return a predicate over the results of a request, a list, or None to retry no results."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Return a predicate over the error of a request, or None to retry no errors."""


class RetryPredicate(AsyncRetryPredicate[OUT]):
    """Two predicates, either of which may be None."""

    def __init__(
        self,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._result = result_predicate
        self._exception = exception_predicate

    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        return self._result

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        return self._exception


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """Limits the attempts of a request and sets the delays between them.

    Example:
        >>> from millstream.datastream import AsyncRetryStrategy
        >>> retry = AsyncRetryStrategy.fixed_delay(3, 100, lambda results: not results, lambda error: True)
        >>> retry.can_retry(3), retry.can_retry(4), retry.get_backoff_time_millis(1)
        (True, False, 100.0)
    """

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Return whether another attempt may follow this many attempts.

        Example:
            >>> [AsyncRetryStrategy.fixed_delay(2, 100).can_retry(attempts) for attempts in (1, 2, 3)]
            [True, True, False]
        """

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> float:
        """Return the delay before the next attempt in milliseconds.

        Example:
            >>> AsyncRetryStrategy.exponential_backoff(5, 100, 1_000, 2.0).get_backoff_time_millis(3)
            400.0
        """

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return the predicate that selects outcomes to retry.

        Example:
            >>> retry = AsyncRetryStrategy.fixed_delay(3, 100, lambda results: not results)
            >>> retry.get_retry_predicate().result_predicate()([])
            True
        """

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Value]:
        """Return a strategy without retries.

        Example:
            >>> AsyncRetryStrategy.no_restart().can_retry(1)
            False
        """
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Value]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> AsyncRetryStrategy[Value]:
        """Return a strategy with a fixed delay; without a predicate nothing is retried.

        Args:
            max_attempts: the maximum number of retries.
            backoff_time_millis: the delay before each.
            result_predicate: whether to retry these results, a list.
            exception_predicate: whether to retry this error.

        Example:
            >>> retry = AsyncRetryStrategy.fixed_delay(3, 100, exception_predicate=lambda error: True)
            >>> retry.get_backoff_time_millis(2)
            100.0
        """
        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Value]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> AsyncRetryStrategy[Value]:
        """Return a strategy with exponentially growing delays; without a predicate nothing is retried.

        Args:
            max_attempts: the maximum number of retries.
            initial_delay: the first delay in milliseconds.
            max_retry_delay: the longest delay.
            multiplier: the factor by which the delay grows.
            result_predicate: whether to retry these results, a list.
            exception_predicate: whether to retry this error.

        Example:
            >>> retry = AsyncRetryStrategy.exponential_backoff(5, 100, 350, 2.0, exception_predicate=lambda error: True)
            >>> [retry.get_backoff_time_millis(attempt) for attempt in (1, 2, 3)]
            [100.0, 200.0, 350]
        """
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )


class NoRetryStrategy(AsyncRetryStrategy[OUT]):
    """One attempt, and no more."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> float:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return RetryPredicate(None, None)


class ExponentialBackoffDelayRetryStrategy(AsyncRetryStrategy[OUT]):
    """A limited number of attempts with exponentially growing, bounded delays."""

    def __init__(
        self,
        max_attempts: int,
        initial_delay: float,
        max_retry_delay: float,
        multiplier: float,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        if max_attempts < 1:
            raise InvalidProgramError(f"An AsyncRetryStrategy needs at least 1 attempt, not {max_attempts}.")
        self._attempts = max_attempts
        self._first, self._longest, self._multiplier = initial_delay, max_retry_delay, multiplier
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._attempts

    def get_backoff_time_millis(self, current_attempts: int) -> float:
        return min(self._first * self._multiplier ** (current_attempts - 1), self._longest)

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


class FixedDelayRetryStrategy(ExponentialBackoffDelayRetryStrategy[OUT]):
    """A limited number of attempts with a fixed delay."""

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: float,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        super().__init__(
            max_attempts, backoff_time_millis, backoff_time_millis, 1.0, result_predicate, exception_predicate
        )
