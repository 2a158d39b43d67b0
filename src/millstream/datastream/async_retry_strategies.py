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
    """Decides which outcomes to retry."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Return a predicate over results to retry, or None."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Return a predicate over errors to retry, or None."""


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
    """Limits the attempts of a request and sets the delays between them."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Return whether another attempt may follow this many attempts."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> float:
        """Return the delay before the next attempt in milliseconds."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return the predicate that selects outcomes to retry."""

    @staticmethod
    def no_restart() -> AsyncRetryStrategy[Value]:
        """Return a strategy without retries."""
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Value]], bool] | None = None,
        exception_predicate: Callable[[Exception], bool] | None = None,
    ) -> AsyncRetryStrategy[Value]:
        """Return a strategy with a fixed delay."""
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
        """Return a strategy with exponentially growing delays."""
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
