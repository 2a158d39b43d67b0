"""Expression methods for time: intervals, units and time attributes."""

from __future__ import annotations

from enum import Enum
from typing import Self

from millstream.sql.language import syntax
from millstream.sql.types import DataTypes
from millstream.table.api_syntax import TimeMark, WindowBound, interval
from millstream.table.expression_operators import ExpressionBase, T


class TimeIntervalUnit(Enum):
    """Units of intervals, for EXTRACT, FLOOR and CEIL."""

    YEAR = 0
    YEAR_TO_MONTH = 1
    QUARTER = 2
    MONTH = 3
    WEEK = 4
    DAY = 5
    DAY_TO_HOUR = 6
    DAY_TO_MINUTE = 7
    DAY_TO_SECOND = 8
    HOUR = 9
    SECOND = 10
    HOUR_TO_MINUTE = 11
    HOUR_TO_SECOND = 12
    MINUTE = 13
    MINUTE_TO_SECOND = 14


class TimePointUnit(Enum):
    """Units of time, for `timestamp_diff`."""

    YEAR = 0
    MONTH = 1
    DAY = 2
    HOUR = 3
    MINUTE = 4
    SECOND = 5
    QUARTER = 6
    WEEK = 7
    MILLISECOND = 8
    MICROSECOND = 9


class TimeExpression(ExpressionBase[T]):
    """Time."""

    @property
    def to_date(self) -> Self:
        """Text as a DATE."""
        return self._as(syntax.Cast(self._tree, DataTypes.DATE()))

    @property
    def to_time(self) -> Self:
        """Text as a TIME."""
        return self._as(syntax.Cast(self._tree, DataTypes.TIME()))

    @property
    def to_timestamp(self) -> Self:
        """Text as a TIMESTAMP(3)."""
        return self._as(syntax.Cast(self._tree, DataTypes.TIMESTAMP(3)))

    def extract(self, time_interval_unit: TimeIntervalUnit) -> Self:
        """Extract a unit of a time, such as its hour."""
        return self._as(syntax.Call("EXTRACT", (syntax.Symbol(time_interval_unit.name), self._tree)))

    def floor(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Round down, a number or a time to a unit."""
        return self._rounded("FLOOR", time_interval_unit)

    def ceil(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Round up, a number or a time to a unit."""
        return self._rounded("CEIL", time_interval_unit)

    def _rounded(self, function: str, unit: TimeIntervalUnit | None) -> Self:
        return self._call(function, None if unit is None else syntax.Symbol(unit.name))

    @property
    def rowtime(self) -> Self:
        """The column as the event time of rows; of a window, its last moment."""
        return self._as(TimeMark(self._tree, "ROWTIME"))

    @property
    def proctime(self) -> Self:
        """The column as the processing time of rows."""
        return self._as(TimeMark(self._tree, "PROCTIME"))

    @property
    def start(self) -> Self:
        """When a window starts."""
        return self._as(WindowBound(self._tree, "START"))

    @property
    def end(self) -> Self:
        """When a window ends, which is no more in it."""
        return self._as(WindowBound(self._tree, "END"))

    @property
    def year(self) -> Self:
        """An interval of this number of years."""
        return self._as(interval(self._tree, "YEAR"))

    @property
    def years(self) -> Self:
        """An interval of this number of years."""
        return self._as(interval(self._tree, "YEAR"))

    @property
    def quarter(self) -> Self:
        """An interval of this number of quarters."""
        return self._as(interval(self._tree, "QUARTER"))

    @property
    def quarters(self) -> Self:
        """An interval of this number of quarters."""
        return self._as(interval(self._tree, "QUARTER"))

    @property
    def month(self) -> Self:
        """An interval of this number of months."""
        return self._as(interval(self._tree, "MONTH"))

    @property
    def months(self) -> Self:
        """An interval of this number of months."""
        return self._as(interval(self._tree, "MONTH"))

    @property
    def week(self) -> Self:
        """An interval of this number of weeks."""
        return self._as(interval(self._tree, "WEEK"))

    @property
    def weeks(self) -> Self:
        """An interval of this number of weeks."""
        return self._as(interval(self._tree, "WEEK"))

    @property
    def day(self) -> Self:
        """An interval of this number of days."""
        return self._as(interval(self._tree, "DAY"))

    @property
    def days(self) -> Self:
        """An interval of this number of days."""
        return self._as(interval(self._tree, "DAY"))

    @property
    def hour(self) -> Self:
        """An interval of this number of hours."""
        return self._as(interval(self._tree, "HOUR"))

    @property
    def hours(self) -> Self:
        """An interval of this number of hours."""
        return self._as(interval(self._tree, "HOUR"))

    @property
    def minute(self) -> Self:
        """An interval of this number of minutes."""
        return self._as(interval(self._tree, "MINUTE"))

    @property
    def minutes(self) -> Self:
        """An interval of this number of minutes."""
        return self._as(interval(self._tree, "MINUTE"))

    @property
    def second(self) -> Self:
        """An interval of this number of seconds."""
        return self._as(interval(self._tree, "SECOND"))

    @property
    def seconds(self) -> Self:
        """An interval of this number of seconds."""
        return self._as(interval(self._tree, "SECOND"))

    @property
    def milli(self) -> Self:
        """An interval of this number of milliseconds."""
        return self._as(interval(self._tree, "MILLI"))

    @property
    def millis(self) -> Self:
        """An interval of this number of milliseconds."""
        return self._as(interval(self._tree, "MILLI"))
