"""Restart strategies: decide whether and when a failed job restarts.

Pure: they get the time of each failure and return a delay. Times and delays are in seconds.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from millstream.common.configuration import Configuration
from millstream.common.restart_strategy import (
    BACKOFF_MULTIPLIER,
    EXPONENTIAL_ATTEMPTS,
    FAILURE_RATE_DELAY,
    FAILURE_RATE_FAILURES,
    FAILURE_RATE_INTERVAL,
    FIXED_DELAY_ATTEMPTS,
    FIXED_DELAY_DELAY,
    INITIAL_BACKOFF,
    JITTER_FACTOR,
    MAX_BACKOFF,
    RESET_BACKOFF_THRESHOLD,
    UNLIMITED,
    check_backoffs,
    strategy_type,
)
from millstream.common.setting import in_words

# A delay above any maximum; it keeps an exponential backoff finite.
_AGES = 1e12


class RestartStrategy(Protocol):
    """Decides after each failure of a job."""

    def failed(self, now: float) -> float | None:
        """Return the delay in seconds before the restart; None to fail the job."""
        ...

    def describe(self) -> str:
        """Return the strategy and its settings as text."""
        ...


def restart_strategy(
    config: Configuration, checkpointing: bool, jitter: Callable[[], float] = random.random
) -> RestartStrategy:
    """Return the strategy of a job.

    Without a configured strategy, a job without checkpoints fails at once, and a job with checkpoints restarts without
    limit after growing delays: both as in Flink 2.

    Args:
        config: the job's settings.
        checkpointing: whether the job takes checkpoints.
        jitter: returns a random number between 0 and 1.

    Example:
        >>> restart_strategy(Configuration(), checkpointing=True).describe().partition(",")[0]
        'restart strategy exponential-delay (from 1 s to 1 min'
    """
    kind = strategy_type(config)
    if kind == "none" or (kind is None and not checkpointing):
        return NoRestart()
    if kind == "fixed-delay":
        return FixedDelay(FIXED_DELAY_ATTEMPTS.read(config), FIXED_DELAY_DELAY.read(config) / 1000)
    if kind == "failure-rate":
        return FailureRate(
            FAILURE_RATE_FAILURES.read(config),
            FAILURE_RATE_INTERVAL.read(config) / 1000,
            FAILURE_RATE_DELAY.read(config) / 1000,
        )
    initial, maximum = INITIAL_BACKOFF.read(config), MAX_BACKOFF.read(config)
    check_backoffs(initial, maximum)
    return ExponentialDelay(
        initial / 1000,
        maximum / 1000,
        BACKOFF_MULTIPLIER.read(config),
        RESET_BACKOFF_THRESHOLD.read(config) / 1000,
        JITTER_FACTOR.read(config),
        EXPONENTIAL_ATTEMPTS.read(config),
        jitter,
    )


@dataclass
class NoRestart:
    """Fails the job at the first failure."""

    def failed(self, now: float) -> float | None:
        return None

    def describe(self) -> str:
        return "restart strategy none"


@dataclass
class FixedDelay:
    """A limited number of restarts, each after the same delay."""

    attempts: int
    delay: float
    _failures: int = field(default=0, init=False)

    def failed(self, now: float) -> float | None:
        self._failures += 1
        return self.delay if self._failures <= self.attempts else None

    def describe(self) -> str:
        return f"restart strategy fixed-delay (attempts {_times(self.attempts)}, delay {_words(self.delay)})"


@dataclass
class FailureRate:
    """Restarts unless there are too many failures within an interval, both ends included."""

    max_failures: int
    interval: float
    delay: float
    _failures: deque[float] = field(default_factory=deque, init=False)

    def failed(self, now: float) -> float | None:
        while self._failures and now - self._failures[0] > self.interval:
            self._failures.popleft()
        self._failures.append(now)
        return self.delay if len(self._failures) <= self.max_failures else None

    def describe(self) -> str:
        return (
            f"restart strategy failure-rate (failures {_times(self.max_failures)} in {_words(self.interval)}, "
            f"delay {_words(self.delay)})"
        )


@dataclass
class ExponentialDelay:
    """Restarts after a delay that grows with each failure, and is reset after a long enough run.

    The jitter factor varies the delay at random, so that many jobs do not restart at once.
    """

    initial_backoff: float
    max_backoff: float
    multiplier: float
    reset_threshold: float
    jitter_factor: float
    attempts: int = UNLIMITED
    jitter: Callable[[], float] = random.random
    _failures: int = field(default=0, init=False)
    _backoff: float = field(default=0.0, init=False)
    _restart_at: float = field(default=-math.inf, init=False)

    def failed(self, now: float) -> float | None:
        # A failure before the scheduled restart belongs to the previous one. At the very instant of the restart it is
        # a new one (Flink: still the old one): with a clock that does not advance there would be no delay.
        if now < self._restart_at:
            # At most the maximum, even if the clock was set back.
            delay = min(self._restart_at - now, self.max_backoff)
        else:
            if now - self._restart_at >= self.reset_threshold:
                self._failures = 0
            self._backoff = min(self._backoff * self.multiplier, _AGES) if self._failures else self.initial_backoff
            self._failures += 1
            delay = self._varied(self._backoff)
            self._restart_at = now + delay
        return delay if self._failures <= self.attempts else None

    def _varied(self, backoff: float) -> float:
        varied = backoff * (1 + self.jitter_factor * (2 * self.jitter() - 1))
        return max(self.initial_backoff, min(varied, self.max_backoff))

    def describe(self) -> str:
        return (
            f"restart strategy exponential-delay (from {_words(self.initial_backoff)} to {_words(self.max_backoff)}, "
            f"multiplier {self.multiplier}, jitter {self.jitter_factor}, "
            f"reset after {_words(self.reset_threshold)}, attempts {_times(self.attempts)})"
        )


def _words(seconds: float) -> str:
    return in_words(round(seconds * 1000))


def _times(number: int) -> str:
    return "unlimited" if number == UNLIMITED else str(number)
