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
        """Return a field of a row, by name or by index from 0.

        Example:
            >>> people = t_env.from_elements([(1, ("ann", 30))], ["id", "person"])
            >>> name, age = col("person").get("_1").alias("name"), col("person").get(1).alias("age")
            >>> list(people.select(name, age).execute().collect())
            [<Row('ann', 30)>]
        """
        if isinstance(name_or_index, int):
            return self._as(FieldAt(self._tree, name_or_index))
        return self._as(syntax.Field(self._tree, name_or_index))

    @property
    def flatten(self) -> Self:
        """All fields of a row, as columns.

        Example:
            >>> people = t_env.from_elements([(1, ("ann", 30))], ["id", "person"])
            >>> list(people.select(col("id"), col("person").flatten).execute().collect())
            [<Row(1, 'ann', 30)>]
        """
        if not isinstance(self._tree, syntax.Name):
            raise InvalidProgramError(f"flatten is for a column, as in col('a').flatten, not {self}.")
        return self._as(syntax.Star(self._tree.parts))

    def at(self, index: Operand) -> Self:
        """Return the element of an array, from 1, or the value of a map's key; `[...]` does the same.

        Example:
            >>> list(t_env.from_elements([lit(["a", "b"]).at(1), lit(["a", "b"])[2]]).execute().collect())
            [<Row('a')>, <Row('b')>]
        """
        return self._call("ITEM", index)

    def __getitem__(self, index: Operand) -> Self:
        return self.at(index)

    @property
    def cardinality(self) -> Self:
        """The number of elements of an array or map.

        Example:
            >>> list(t_env.from_elements([lit(["a", "b"]).cardinality]).execute().collect())
            [<Row(2)>]
        """
        return self._call("CARDINALITY")

    @property
    def element(self) -> Self:
        """The only element of an array; null if empty, and an error for several elements.

        Example:
            >>> list(t_env.from_elements([lit(["a"]).element]).execute().collect())
            [<Row('a')>]
        """
        return self._call("ELEMENT")

    def array_append(self, addition: Operand) -> Self:
        """Add an element at the end.

        Example:
            >>> list(t_env.from_elements([lit([1, 2]).array_append(3)]).execute().collect())
            [<Row([1, 2, 3])>]
        """
        return self._call("ARRAY_APPEND", addition)

    def array_contains(self, needle: Operand) -> Self:
        """Return whether the array contains an element.

        Example:
            >>> list(t_env.from_elements([lit([1, 2]).array_contains(2)]).execute().collect())
            [<Row(True)>]
        """
        return self._call("ARRAY_CONTAINS", needle)

    def array_distinct(self) -> Self:
        """Return every element once.

        Example:
            >>> list(t_env.from_elements([lit([1, 2, 1]).array_distinct()]).execute().collect())
            [<Row([1, 2])>]
        """
        return self._call("ARRAY_DISTINCT")

    def array_position(self, needle: Operand) -> Self:
        """Return the first position of an element, from 1; 0 if absent.

        Example:
            >>> list(t_env.from_elements([lit([5, 7]).array_position(7)]).execute().collect())
            [<Row(2)>]
        """
        return self._call("ARRAY_POSITION", needle)

    def array_prepend(self, addition: Operand) -> Self:
        """Add an element at the front.

        Example:
            >>> list(t_env.from_elements([lit([1, 2]).array_prepend(0)]).execute().collect())
            [<Row([0, 1, 2])>]
        """
        return self._call("ARRAY_PREPEND", addition)

    def array_remove(self, needle: Operand) -> Self:
        """Remove all elements equal to a value.

        Example:
            >>> list(t_env.from_elements([lit([1, 2, 1]).array_remove(1)]).execute().collect())
            [<Row([2])>]
        """
        return self._call("ARRAY_REMOVE", needle)

    def array_reverse(self) -> Self:
        """Return the elements from the last to the first.

        Example:
            >>> list(t_env.from_elements([lit([1, 2, 3]).array_reverse()]).execute().collect())
            [<Row([3, 2, 1])>]
        """
        return self._call("ARRAY_REVERSE")

    def array_slice(self, start_offset: Operand, end_offset: Operand = None) -> Self:
        """Return the elements from one position to another, counted from 1; negative positions count from the end.

        Example:
            >>> numbers = lit([1, 2, 3, 4])
            >>> list(t_env.from_elements([numbers.array_slice(2, 3), numbers.array_slice(-2)]).execute().collect())
            [<Row([2, 3])>, <Row([3, 4])>]
        """
        return self._call("ARRAY_SLICE", start_offset, end_offset)

    def array_sort(self, ascending_order: Operand = None, null_first: Operand = None) -> Self:
        """Return the elements in order, by default ascending; nulls come first if ascending, else last, by default.

        Example:
            >>> numbers = lit([3, 1, 2])
            >>> list(t_env.from_elements([numbers.array_sort(), numbers.array_sort(False)]).execute().collect())
            [<Row([1, 2, 3])>, <Row([3, 2, 1])>]
        """
        return self._call("ARRAY_SORT", ascending_order, null_first)

    def array_union(self, array: Operand) -> Self:
        """Return the distinct elements of both arrays.

        Example:
            >>> list(t_env.from_elements([lit([1, 2]).array_union([2, 3])]).execute().collect())
            [<Row([1, 2, 3])>]
        """
        return self._call("ARRAY_UNION", array)

    def array_concat(self, *arrays: Operand) -> Self:
        """Concatenate arrays.

        Example:
            >>> list(t_env.from_elements([lit([1, 2]).array_concat([2], [3])]).execute().collect())
            [<Row([1, 2, 2, 3])>]
        """
        return self._call("ARRAY_CONCAT", *arrays)

    def array_max(self) -> Self:
        """Return the maximum element.

        Example:
            >>> list(t_env.from_elements([lit([1, 3, 2]).array_max()]).execute().collect())
            [<Row(3)>]
        """
        return self._call("ARRAY_MAX")

    def array_join(self, delimiter: Operand, null_replacement: Operand = None) -> Self:
        """Join the elements to one text; nulls are skipped without a replacement.

        Example:
            >>> list(t_env.from_elements([lit(["to", "be"]).array_join("-")]).execute().collect())
            [<Row('to-be')>]
        """
        return self._call("ARRAY_JOIN", delimiter, null_replacement)

    def array_min(self) -> Self:
        """Return the minimum element.

        Example:
            >>> list(t_env.from_elements([lit([3, 1, 2]).array_min()]).execute().collect())
            [<Row(1)>]
        """
        return self._call("ARRAY_MIN")

    def array_except(self, array: Operand) -> Self:
        """Return the distinct elements that another array does not contain.

        Example:
            >>> list(t_env.from_elements([lit([1, 2, 3]).array_except([2])]).execute().collect())
            [<Row([1, 3])>]
        """
        return self._call("ARRAY_EXCEPT", array)

    def array_intersect(self, array: Operand) -> Self:
        """Return the distinct elements that another array also contains.

        Example:
            >>> list(t_env.from_elements([lit([1, 2, 3]).array_intersect([3, 2])]).execute().collect())
            [<Row([2, 3])>]
        """
        return self._call("ARRAY_INTERSECT", array)

    @property
    def map_keys(self) -> Self:
        """The keys of a map.

        Example:
            >>> list(t_env.from_elements([lit({"a": 1, "b": 2}).map_keys]).execute().collect())
            [<Row(['a', 'b'])>]
        """
        return self._call("MAP_KEYS")

    def map_union(self, *maps: Operand) -> Self:
        """Return the entries of all maps; the last map wins for equal keys.

        Example:
            >>> list(t_env.from_elements([lit({"a": 1, "b": 2}).map_union({"b": 3})]).execute().collect())
            [<Row({'a': 1, 'b': 3})>]
        """
        return self._call("MAP_UNION", *maps)

    @property
    def map_values(self) -> Self:
        """The values of a map.

        Example:
            >>> list(t_env.from_elements([lit({"a": 1, "b": 2}).map_values]).execute().collect())
            [<Row([1, 2])>]
        """
        return self._call("MAP_VALUES")

    @property
    def map_entries(self) -> Self:
        """The entries of a map, as rows.

        Example:
            >>> list(t_env.from_elements([lit({"a": 1, "b": 2}).map_entries]).execute().collect())
            [<Row([<Row('a', 1)>, <Row('b', 2)>])>]
        """
        return self._call("MAP_ENTRIES")


class TimeIntervalUnit(Enum):
    """Names the units of intervals, for `extract`, `floor` and `ceil`."""

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
    """Names the units of time, for `timestamp_diff`."""

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
        """Text as a DATE.

        Example:
            >>> list(t_env.from_elements([lit("2026-11-19").to_date]).execute().collect())
            [<Row(datetime.date(2026, 11, 19))>]
        """
        return self._as(syntax.Cast(self._tree, DataTypes.DATE()))

    @property
    def to_time(self) -> Self:
        """Text as a TIME.

        Example:
            >>> list(t_env.from_elements([lit("12:30:00").to_time]).execute().collect())
            [<Row(datetime.time(12, 30))>]
        """
        return self._as(syntax.Cast(self._tree, DataTypes.TIME()))

    @property
    def to_timestamp(self) -> Self:
        """Text as a TIMESTAMP(3).

        Example:
            >>> list(t_env.from_elements([lit("2026-11-19 12:30:00").to_timestamp]).execute().collect())
            [<Row(datetime.datetime(2026, 11, 19, 12, 30))>]
        """
        return self._as(syntax.Cast(self._tree, DataTypes.TIMESTAMP(3)))

    def extract(self, time_interval_unit: TimeIntervalUnit) -> Self:
        """Extract a unit of a time, such as its hour.

        Example:
            >>> date = lit("2026-11-19").to_date
            >>> list(t_env.from_elements([date.extract(TimeIntervalUnit.MONTH)]).execute().collect())
            [<Row(11)>]
        """
        return self._as(syntax.Call("EXTRACT", (syntax.Symbol(time_interval_unit.name), self._tree)))

    def floor(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Round down: a number to an integer, or a time to a unit.

        Example:
            >>> at = lit("2026-11-19 12:34:56").to_timestamp
            >>> list(t_env.from_elements([at.floor(TimeIntervalUnit.HOUR)]).execute().collect())
            [<Row(datetime.datetime(2026, 11, 19, 12, 0))>]
            >>> list(t_env.from_elements([lit(1.7).floor()]).execute().collect())
            [<Row(1.0)>]
        """
        return self._rounded("FLOOR", time_interval_unit)

    def ceil(self, time_interval_unit: TimeIntervalUnit | None = None) -> Self:
        """Round up: a number to an integer, or a time to a unit.

        Example:
            >>> at = lit("2026-11-19 12:34:56").to_timestamp
            >>> list(t_env.from_elements([at.ceil(TimeIntervalUnit.HOUR)]).execute().collect())
            [<Row(datetime.datetime(2026, 11, 19, 13, 0))>]
            >>> list(t_env.from_elements([lit(1.2).ceil()]).execute().collect())
            [<Row(2.0)>]
        """
        return self._rounded("CEIL", time_interval_unit)

    def _rounded(self, function: str, unit: TimeIntervalUnit | None) -> Self:
        return self._call(function, None if unit is None else syntax.Symbol(unit.name))

    @property
    def rowtime(self) -> Self:
        """The event time of rows: a stream's timestamp as a column, or for a window its last millisecond.

        The rowtime of a window keeps the watermark, so another window can follow.

        Example:
            >>> from millstream.table.window import Tumble
            >>> _ = t_env.execute_sql("CREATE TABLE clicks (n INT, "
            ...     "ts AS TIMESTAMPADD(SECOND, n, TIMESTAMP '2026-11-19 12:00:00'), WATERMARK FOR ts AS ts) WITH "
            ...     "('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
            ...     "'fields.n.start' = '8', 'fields.n.end' = '12')")
            >>> windows = t_env.from_path("clicks").window(Tumble.over(lit(10).seconds).on(col("ts")).alias("w"))
            >>> windows.group_by(col("w")).select(col("w").rowtime.alias("at"), col("n").sum.alias("sum")).to_pandas()
                                   at  sum
            0 2026-11-19 12:00:09.999   17
            1 2026-11-19 12:00:19.999   33
        """
        return self._as(TimeMark(self._tree, "ROWTIME"))

    @property
    def proctime(self) -> Self:
        """The processing time of rows as a column, when a stream becomes a table.

        Example:
            >>> from millstream.common.typeinfo import Types
            >>> users = t_env.from_data_stream(
            ...     env.from_collection(["ann"], Types.STRING()), col("user"), col("at").proctime)
            >>> list(users.select(col("user")).execute().collect())
            [<Row('ann')>]
        """
        return self._as(TimeMark(self._tree, "PROCTIME"))

    @property
    def start(self) -> Self:
        """The start of a window, inclusive.

        See `WindowGroupedTable.select` for an example.
        """
        return self._as(WindowBound(self._tree, "START"))

    @property
    def end(self) -> Self:
        """The end of a window, exclusive.

        See `WindowGroupedTable.select` for an example.
        """
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
        """An interval of this number of days; the other units work alike.

        Example:
            >>> list(t_env.from_elements([lit("2026-11-19").to_date + lit(2).days]).execute().collect())
            [<Row(datetime.date(2026, 11, 21))>]
        """
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
        """An interval of this number of milliseconds; the number must be a literal."""
        return self._as(interval(self._tree, "MILLI"))

    @property
    def millis(self) -> Self:
        """An interval of this number of milliseconds; the number must be a literal."""
        return self._as(interval(self._tree, "MILLI"))
