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
    """A duration, with the precision of nanoseconds.

    Example:
        >>> from millstream.common import Duration
        >>> Duration.of_seconds(90).to_millis()
        90000
    """

    nanos: int

    @staticmethod
    def of_days(days: int) -> Duration:
        """Return a duration of days.

        Example:
            >>> Duration.of_days(1).to_millis()
            86400000
        """
        return Duration(_units(days, _DAY * 1_000_000, "Duration.of_days"))

    @staticmethod
    def of_hours(hours: int) -> Duration:
        """Return a duration of hours.

        Example:
            >>> Duration.of_hours(1).to_millis()
            3600000
        """
        return Duration(_units(hours, 3_600_000_000_000, "Duration.of_hours"))

    @staticmethod
    def of_minutes(minutes: int) -> Duration:
        """Return a duration of minutes.

        Example:
            >>> Duration.of_minutes(1).to_millis()
            60000
        """
        return Duration(_units(minutes, 60_000_000_000, "Duration.of_minutes"))

    @staticmethod
    def of_seconds(seconds: int) -> Duration:
        """Return a duration of seconds.

        Example:
            >>> Duration.of_seconds(1).to_millis()
            1000
        """
        return Duration(_units(seconds, 1_000_000_000, "Duration.of_seconds"))

    @staticmethod
    def of_millis(millis: int) -> Duration:
        """Return a duration of milliseconds.

        Example:
            >>> Duration.of_millis(500) < Duration.of_seconds(1)
            True
        """
        return Duration(_units(millis, 1_000_000, "Duration.of_millis"))

    @staticmethod
    def of_nanos(nanos: int) -> Duration:
        """Return a duration of nanoseconds.

        Example:
            >>> Duration.of_nanos(5_000_000).to_millis()
            5
        """
        return Duration(_units(nanos, 1, "Duration.of_nanos"))

    def to_millis(self) -> int:
        """Return the duration in milliseconds, rounded down.

        Example:
            >>> Duration.of_nanos(1_999_999).to_millis()
            1
        """
        return self.nanos // 1_000_000


@tagged("time")
@dataclass(frozen=True, order=True, init=False)
class Time:
    """A duration in milliseconds, as windows and TTL take it; they also take a Duration or a number of milliseconds.

    Example:
        >>> from millstream.common import Time
        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> TumblingEventTimeWindows.of(Time.seconds(5))
        TumblingEventTimeWindows(5000, 0)
    """

    millis: int

    def __init__(self, milliseconds: int) -> None:
        object.__setattr__(self, "millis", milliseconds)

    @staticmethod
    def milliseconds(milliseconds: int) -> Time:
        """Return a duration of milliseconds.

        Example:
            >>> Time.milliseconds(500).to_milliseconds()
            500
        """
        return Time(_units(milliseconds, 1, "Time.milliseconds"))

    @staticmethod
    def seconds(seconds: int) -> Time:
        """Return a duration of seconds.

        Example:
            >>> Time.seconds(1).to_milliseconds()
            1000
        """
        return Time(_units(seconds, 1000, "Time.seconds"))

    @staticmethod
    def minutes(minutes: int) -> Time:
        """Return a duration of minutes.

        Example:
            >>> Time.minutes(1).to_milliseconds()
            60000
        """
        return Time(_units(minutes, 60_000, "Time.minutes"))

    @staticmethod
    def hours(hours: int) -> Time:
        """Return a duration of hours.

        Example:
            >>> Time.hours(1).to_milliseconds()
            3600000
        """
        return Time(_units(hours, 3_600_000, "Time.hours"))

    @staticmethod
    def days(days: int) -> Time:
        """Return a duration of days.

        Example:
            >>> Time.days(1).to_milliseconds()
            86400000
        """
        return Time(_units(days, _DAY, "Time.days"))

    def to_milliseconds(self) -> int:
        """Return the duration in milliseconds.

        Example:
            >>> Time.seconds(90).to_milliseconds()
            90000
        """
        return self.millis


@tagged("instant")
@dataclass(frozen=True, order=True)
class Instant:
    """A point in time: seconds since 1970 and nanoseconds within the second; a value of Types.INSTANT().

    Example:
        >>> from millstream.common.time import Instant
        >>> Instant.of_epoch_milli(1_500)
        Instant(seconds=1, nanos=500000000)
    """

    seconds: int
    nanos: int = 0

    @staticmethod
    def of_epoch_milli(epoch_milli: int) -> Instant:
        """Return the instant of a Unix time in milliseconds.

        Example:
            >>> Instant.of_epoch_milli(1_500).seconds
            1
        """
        return Instant(epoch_milli // 1000, epoch_milli % 1000 * 1_000_000)

    def to_epoch_milli(self) -> int:
        """Return the Unix time in milliseconds.

        Example:
            >>> Instant(1, 500_000_000).to_epoch_milli()
            1500
        """
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
