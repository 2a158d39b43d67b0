"""Retries of requests to external systems."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

# Returns the pause in seconds after a number of failures, from 0 for the first failure on.
Backoff = Callable[[int], float]


def constant(seconds: float) -> Backoff:
    """Return a backoff with equal pauses."""
    return lambda failures: seconds


def linear(seconds: float, first: float = 0.0) -> Backoff:
    """Return a backoff whose pauses grow by a constant; by default the first retry follows at once, as in Flink."""
    return lambda failures: first + seconds * failures


def exponential(seconds: float, max_seconds: float = float("inf"), jitter: bool = False) -> Backoff:
    """Return a backoff whose pauses double.

    Args:
        seconds: the first pause.
        max_seconds: the longest pause.
        jitter: whether pauses vary at random by half, so that competing clients do not meet again.
    """

    def pause(failures: int) -> float:
        mean = min(seconds * 2.0 ** min(failures, 64), max_seconds)
        return mean * (0.5 + random.random()) if jitter else mean

    return pause


class Retries:
    """The retries of one operation, limited by their number or by time.

    Args:
        backoff: the pauses between attempts.
        max_retries: the number of retries; None for no limit.
        max_seconds: the time in which retries may start; None for no limit.

    Example:
        >>> retries = Retries(constant(0), max_retries=2)
        >>> [retries.wait() for _ in range(3)]
        [True, True, False]
    """

    def __init__(self, backoff: Backoff, max_retries: int | None = None, max_seconds: float | None = None) -> None:
        self._backoff = backoff
        self._max_retries = max_retries
        self._deadline = None if max_seconds is None else time.monotonic() + max_seconds
        self._failures = 0

    def wait(self) -> bool:
        """Pause before the next attempt and return True, or return False if the limit is reached."""
        if self._failures == self._max_retries:
            return False
        if self._deadline is not None and time.monotonic() > self._deadline:
            return False
        time.sleep(self._backoff(self._failures))
        self._failures += 1
        return True
