"""Expression methods for arrays, maps, rows and times."""

from __future__ import annotations

from enum import Enum
from typing import Self

from millstream.common.aliases import T
from millstream.common.errors import InvalidProgramError
from millstream.sql.language import syntax
from millstream.sql.types import DataTypes
from millstream.table.api_syntax import FieldAt, Operand, TimeMark, WindowBound, interval
from millstream.table.expression_operators import ExpressionBase


class CollectionExpression(ExpressionBase[T]):
    """Arrays, maps and rows."""

    def get(self, name_or_index: str | int) -> Self:
        """Return a field of a row, by name or by index from 0."""
        if isinstance(name_or_index, int):
            return self._as(FieldAt(self._tree, name_or_index))
        return self._as(syntax.Field(self._tree, name_or_index))

    @property
    def flatten(self) -> Self:
        """All fields of a row, as columns."""
        if not isinstance(self._tree, syntax.Name):
            raise InvalidProgramError(f"flatten is for a column, as in col('a').flatten, not {self}.")
        return self._as(syntax.Star(self._tree.parts))

    def at(self, index: Operand) -> Self:
        """Return the element of an array, from 1, or the value of a map's key."""
        return self._call("ITEM", index)

    def __getitem__(self, index: Operand) -> Self:
        return self.at(index)

    @property
    def cardinality(self) -> Self:
        """The number of elements."""
        return self._call("CARDINALITY")

    @property
    def element(self) -> Self:
        """The only element of an array."""
        return self._call("ELEMENT")

    def array_append(self, addition: Operand) -> Self:
        """Add an element at the end."""
        return self._call("ARRAY_APPEND", addition)

    def array_contains(self, needle: Operand) -> Self:
        """Return whether the array contains an element."""
        return self._call("ARRAY_CONTAINS", needle)

    def array_distinct(self) -> Self:
        """Return every element once."""
        return self._call("ARRAY_DISTINCT")

    def array_position(self, needle: Operand) -> Self:
        """Return the first position of an element, from 1; 0 if absent."""
        return self._call("ARRAY_POSITION", needle)

    def array_prepend(self, addition: Operand) -> Self:
        """Add an element at the front."""
        return self._call("ARRAY_PREPEND", addition)

    def array_remove(self, needle: Operand) -> Self:
        """Remove all elements equal to a value."""
        return self._call("ARRAY_REMOVE", needle)

    def array_reverse(self) -> Self:
        """Return the elements from the last to the first."""
        return self._call("ARRAY_REVERSE")

    def array_slice(self, start_offset: Operand, end_offset: Operand = None) -> Self:
        """Return the elements from one position to another, counted from 1."""
        return self._call("ARRAY_SLICE", start_offset, end_offset)

    def array_sort(self, ascending_order: Operand = None, null_first: Operand = None) -> Self:
        """Return the elements in order."""
        return self._call("ARRAY_SORT", ascending_order, null_first)

    def array_union(self, array: Operand) -> Self:
        """Return the distinct elements of both."""
        return self._call("ARRAY_UNION", array)

    def array_concat(self, *arrays: Operand) -> Self:
        """Concatenate arrays."""
        return self._call("ARRAY_CONCAT", *arrays)

    def array_max(self) -> Self:
        """Return the maximum element."""
        return self._call("ARRAY_MAX")

    def array_join(self, delimiter: Operand, null_replacement: Operand = None) -> Self:
        """Join the elements to one text."""
        return self._call("ARRAY_JOIN", delimiter, null_replacement)

    def array_min(self) -> Self:
        """Return the minimum element."""
        return self._call("ARRAY_MIN")

    def array_except(self, array: Operand) -> Self:
        """Return the distinct elements that another array does not contain."""
        return self._call("ARRAY_EXCEPT", array)

    def array_intersect(self, array: Operand) -> Self:
        """Return the distinct elements that another array also contains."""
        return self._call("ARRAY_INTERSECT", array)

    @property
    def map_keys(self) -> Self:
        """The keys of a map."""
        return self._call("MAP_KEYS")

    def map_union(self, *maps: Operand) -> Self:
        """Return the entries of all maps; the last map wins for equal keys."""
        return self._call("MAP_UNION", *maps)

    @property
    def map_values(self) -> Self:
        """The values of a map."""
        return self._call("MAP_VALUES")

    @property
    def map_entries(self) -> Self:
        """The entries of a map, as rows."""
        return self._call("MAP_ENTRIES")


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
        """The column as the event time of rows; for a window, its last millisecond."""
        return self._as(TimeMark(self._tree, "ROWTIME"))

    @property
    def proctime(self) -> Self:
        """The column as the processing time of rows."""
        return self._as(TimeMark(self._tree, "PROCTIME"))

    @property
    def start(self) -> Self:
        """The start of a window."""
        return self._as(WindowBound(self._tree, "START"))

    @property
    def end(self) -> Self:
        """The end of a window, exclusive."""
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
