"""Duration, Time (its older form for windows and TTL) and Instant."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Union

from millstream.common.errors import WrongTypeError
from millstream.common.tags import tagged

__all__ = ["Duration", "Instant", "Time", "to_millis"]

_DAY = 24 * 3600 * 1000


@tagged("duration")
@dataclass(frozen=True, order=True)
class Duration:
    """A duration.

    Example:
        >>> Duration.of_seconds(90).to_millis()
        90000
    """

    nanos: int

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a duration of days."""
        return Duration(_units(days, _DAY * 1_000_000, "Duration.of_days"))

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a duration of hours."""
        return Duration(_units(hours, 3_600_000_000_000, "Duration.of_hours"))

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a duration of minutes."""
        return Duration(_units(minutes, 60_000_000_000, "Duration.of_minutes"))

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a duration of seconds."""
        return Duration(_units(seconds, 1_000_000_000, "Duration.of_seconds"))

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a duration of milliseconds."""
        return Duration(_units(millis, 1_000_000, "Duration.of_millis"))

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a duration of nanoseconds."""
        return Duration(_units(nanos, 1, "Duration.of_nanos"))

    def to_millis(self) -> int:
        """Return the duration in milliseconds."""
        return self.nanos // 1_000_000


@tagged("time")
@dataclass(frozen=True, order=True, init=False)
class Time:
    """A duration in milliseconds, as windows and TTL take it."""

    millis: int

    def __init__(self, milliseconds: int) -> None:
        object.__setattr__(self, "millis", milliseconds)

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a duration of milliseconds."""
        return Time(_units(milliseconds, 1, "Time.milliseconds"))

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a duration of seconds."""
        return Time(_units(seconds, 1000, "Time.seconds"))

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a duration of minutes."""
        return Time(_units(minutes, 60_000, "Time.minutes"))

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a duration of hours."""
        return Time(_units(hours, 3_600_000, "Time.hours"))

    @staticmethod
    def days(days: int) -> Time:
        """Return a duration of days."""
        return Time(_units(days, _DAY, "Time.days"))

    def to_milliseconds(self) -> int:
        """Return the duration in milliseconds."""
        return self.millis


@tagged("instant")
@dataclass(frozen=True, order=True)
class Instant:
    """A point in time: seconds since 1970 and nanoseconds within the second."""

    seconds: int
    nanos: int = 0

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant of a Unix time in milliseconds."""
        return Instant(epoch_milli // 1000, epoch_milli % 1000 * 1_000_000)

    def to_epoch_milli(self) -> int:
        """Return the Unix time in milliseconds."""
        return self.seconds * 1000 + self.nanos // 1_000_000


def _units(count: float, size: int, method: str) -> int:
    """Return a number of units; refuse a string, which Python would repeat."""
    if not isinstance(count, Real):
        raise WrongTypeError(f"{method}() takes a number, not {count!r} ({type(count).__name__}).")
    return int(count * size)


def to_millis(length: Union[Duration, Time, int]) -> int:
    """Convert a duration of any type to milliseconds."""
    if isinstance(length, Duration):
        return length.to_millis()
    if isinstance(length, Time):
        return length.to_milliseconds()
    if not isinstance(length, Real):
        raise WrongTypeError(
            f"A length of time is a Duration, a Time or a number of milliseconds, not {length!r} "
            f"({type(length).__name__})."
        )
    return int(length)
