"""Windows of the Table API: group windows and OVER windows."""

from __future__ import annotations

from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.language import syntax
from millstream.table.api_syntax import RowInterval, sort_key
from millstream.table.expression import Expression, is_descending, tree_of

__all__ = ["GroupWindow", "Over", "OverWindow", "Session", "Slide", "Tumble"]


@fast_dataclass
class GroupWindow:
    """Holds a group window with its name, for `Table.window`.

    Attributes:
        function: TUMBLE, HOP or SESSION.
        sizes: the slide of HOP and the size; or the gap.
        time: the time column.
        alias: its name.
    """

    function: str
    sizes: tuple[syntax.Expression, ...]
    time: syntax.Expression
    alias: str

    @property
    def tree(self) -> syntax.Call:
        """The window as SQL has it in GROUP BY."""
        return self.part("")

    def part(self, suffix: str) -> syntax.Call:
        """Return the SQL function of a window property, such as TUMBLE_START."""
        return syntax.Call(self.function + suffix, (self.time, *self.sizes))


class Tumble:
    """Creates tumbling windows, of a fixed size and without overlap.

    Example:
        >>> Tumble.over(lit(10).minutes).on(col("ts")).alias("w").function
        'TUMBLE'
    """

    @classmethod
    def over(cls, size: Expression) -> TumbleWithSize:
        """Set the size: an interval, or a number of rows by `row_interval`.

        Example:
            >>> from millstream.table.expressions import call_sql, row_interval
            >>> numbers = t_env.from_elements([(1,), (2,), (3,), (4,)], ["n"])
            >>> numbers = numbers.add_columns(call_sql("PROCTIME()").alias("ts"))
            >>> pairs = numbers.window(Tumble.over(row_interval(2)).on(col("ts")).alias("w")).group_by(col("w"))
            >>> list(pairs.select(col("n").sum).execute().collect())
            [<Row(3)>, <Row(7)>]
        """
        return TumbleWithSize((tree_of(size),))


class Slide:
    """Creates sliding windows: of one size, starting at every slide; a row is in several of them.

    Example:
        >>> Slide.over(lit(10).minutes).every(lit(5).minutes).on(col("ts")).alias("w").function
        'HOP'
    """

    @classmethod
    def over(cls, size: Expression) -> SlideWithSize:
        """Set the size: an interval, or a number of rows by `row_interval`.

        Example:
            >>> from millstream.table.expressions import call_sql, row_interval
            >>> numbers = t_env.from_elements([(1,), (2,), (3,)], ["n"]).add_columns(call_sql("PROCTIME()").alias("ts"))
            >>> window = Slide.over(row_interval(2)).every(row_interval(1)).on(col("ts")).alias("w")
            >>> list(numbers.window(window).group_by(col("w")).select(col("n").sum).execute().collect())
            [<Row(3)>, <Row(5)>]
        """
        return SlideWithSize(tree_of(size))


class Session:
    """Creates session windows, which end after a gap without rows.

    Example:
        >>> Session.with_gap(lit(10).minutes).on(col("ts")).alias("w").function
        'SESSION'
    """

    @classmethod
    def with_gap(cls, gap: Expression) -> SessionWithGap:
        """Set the gap that ends a session: an interval.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE clicks (n INT, "
            ...     "ts AS TIMESTAMPADD(SECOND, n * n, TIMESTAMP '2026-11-19 12:00:00'), WATERMARK FOR ts AS ts) WITH "
            ...     "('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
            ...     "'fields.n.start' = '1', 'fields.n.end' = '4')")
            >>> sessions = t_env.from_path("clicks").window(Session.with_gap(lit(4).seconds).on(col("ts")).alias("w"))
            >>> sessions.group_by(col("w")).select(col("n").count.alias("n")).to_pandas()["n"].tolist()
            [2, 1, 1]
        """
        if isinstance(tree_of(gap), RowInterval):
            raise InvalidProgramError("Session.with_gap() takes an interval of time, not a number of rows.")
        return SessionWithGap((tree_of(gap),))


class _Sized:
    function = ""

    def __init__(self, sizes: tuple[syntax.Expression, ...]) -> None:
        self._sizes = sizes


class _Timed:
    function = ""

    def __init__(self, sizes: tuple[syntax.Expression, ...], time: syntax.Expression) -> None:
        self._sizes = sizes
        self._time = time

    def alias(self, alias: str) -> GroupWindow:
        """Name the window, for `group_by` and for expressions such as `col("w").end`.

        See `Tumble.over` for an example.
        """
        return GroupWindow(self.function, self._sizes, self._time, alias)


class TumbleWithSize(_Sized):
    """Holds a tumbling window, until `on` sets its time column."""

    def on(self, time_field: Expression) -> TumbleWithSizeOnTime:
        """Set the time column: an event-time or processing-time attribute, in batch mode any timestamp.

        See `Tumble.over` for an example.
        """
        return TumbleWithSizeOnTime(self._sizes, tree_of(time_field))


class TumbleWithSizeOnTime(_Timed):
    """Holds a tumbling window, until `alias` names it."""

    function = "TUMBLE"


class SlideWithSize:
    """Holds a sliding window, until `every` sets its slide."""

    def __init__(self, size: syntax.Expression) -> None:
        self._size = size

    def every(self, slide: Expression) -> SlideWithSizeAndSlide:
        """Set the interval between the starts of windows.

        See `Slide.over` for an example.
        """
        return SlideWithSizeAndSlide((tree_of(slide), self._size))


class SlideWithSizeAndSlide(_Sized):
    """Holds a sliding window, until `on` sets its time column."""

    def on(self, time_field: Expression) -> SlideWithSizeAndSlideOnTime:
        """Set the time column: an event-time or processing-time attribute, in batch mode any timestamp.

        See `Slide.over` for an example.
        """
        return SlideWithSizeAndSlideOnTime(self._sizes, tree_of(time_field))


class SlideWithSizeAndSlideOnTime(_Timed):
    """Holds a sliding window, until `alias` names it."""

    function = "HOP"


class SessionWithGap(_Sized):
    """Holds a session window, until `on` sets its time column."""

    def on(self, time_field: Expression) -> SessionWithGapOnTime:
        """Set the time column: an event-time or processing-time attribute, in batch mode any timestamp.

        See `Session.with_gap` for an example.
        """
        return SessionWithGapOnTime(self._sizes, tree_of(time_field))


class SessionWithGapOnTime(_Timed):
    """Holds a session window, until `alias` names it."""

    function = "SESSION"


# --- OVER


@fast_dataclass
class OverWindow:
    """Holds an OVER window with its alias, for `Table.over_window`."""

    tree: syntax.Window
    alias: str


class Over:
    """Creates windows of rows around each row, for aggregates with `over`.

    Example:
        >>> from millstream.table.expressions import call_sql, row_interval
        >>> prices = t_env.from_elements([("a", 1), ("b", 2), ("a", 3)], ["key", "n"])
        >>> prices = prices.add_columns(call_sql("PROCTIME()").alias("ts"))
        >>> last_two = Over.partition_by(col("key")).order_by(col("ts")).preceding(row_interval(1)).alias("w")
        >>> list(prices.over_window(last_two).select(col("key"), col("n").sum.over(col("w"))).execute().collect())
        [<Row('a', 1)>, <Row('b', 2)>, <Row('a', 4)>]
    """

    @classmethod
    def order_by(cls, order_by: Expression) -> OverWindowPartitionedOrdered:
        """Order all rows, which one subtask then processes; in streaming mode by a time attribute.

        Example:
            >>> Over.order_by(col("ts")).alias("w").alias
            'w'
        """
        return OverWindowPartitioned(()).order_by(order_by)

    @classmethod
    def partition_by(cls, *partition_by: Expression) -> OverWindowPartitioned:
        """Partition the rows by columns, each partition with its own window; `order_by` follows.

        Example:
            >>> Over.partition_by(col("key")).order_by(col("ts")).alias("w").alias
            'w'
        """
        return OverWindowPartitioned(tuple(map(tree_of, partition_by)))


class OverWindowPartitioned:
    """Holds an OVER window of partitions, until `order_by` orders their rows."""

    def __init__(self, partition: tuple[syntax.Expression, ...]) -> None:
        self._partition = partition

    def order_by(self, order_by: Expression) -> OverWindowPartitionedOrdered:
        """Order the rows of each partition; in streaming mode by a time attribute.

        See `Over` for an example.
        """
        return OverWindowPartitionedOrdered(self._partition, sort_key(tree_of(order_by), is_descending(order_by)))


class OverWindowPartitionedOrdered:
    """Holds an OVER window of all rows up to the current one, unless `preceding` sets a bound."""

    def __init__(self, partition: tuple[syntax.Expression, ...], order: syntax.SortKey) -> None:
        self._partition = partition
        self._order = order

    def alias(self, alias: str) -> OverWindow:
        """Name the window, for `over`.

        See `Over` for an example.
        """
        return OverWindow(syntax.Window(self._partition, (self._order,)), alias)

    def preceding(self, preceding: Expression) -> OverWindowPartitionedOrderedPreceding:
        """Set the start of the frame: rows or an interval before the row, or `UNBOUNDED_ROW` or `UNBOUNDED_RANGE`.

        Example:
            >>> from millstream.table.expressions import UNBOUNDED_ROW
            >>> Over.order_by(col("ts")).preceding(UNBOUNDED_ROW).alias("w").tree.unit
            'ROWS'
        """
        return OverWindowPartitionedOrderedPreceding(self._partition, self._order, preceding)


class OverWindowPartitionedOrderedPreceding:
    """Holds an OVER window up to the current row, unless `following` sets a bound."""

    def __init__(
        self,
        partition: tuple[syntax.Expression, ...],
        order: syntax.SortKey,
        preceding: Expression,
        following: Expression | None = None,
    ) -> None:
        self._partition = partition
        self._order = order
        self._preceding = preceding
        self._following = following

    def following(self, following: Expression) -> OverWindowPartitionedOrderedPreceding:
        """Set the end of the frame, by default the current row; in streaming mode nothing else is possible.

        Example:
            >>> from millstream.table.expressions import CURRENT_ROW, row_interval
            >>> Over.order_by(col("ts")).preceding(row_interval(2)).following(CURRENT_ROW).alias("w").tree.unit
            'ROWS'
        """
        return OverWindowPartitionedOrderedPreceding(self._partition, self._order, self._preceding, following)

    def alias(self, alias: str) -> OverWindow:
        """Name the window, for `over`.

        See `Over` for an example.
        """
        unit, start = _bound(self._preceding, -1)
        end = syntax.Bound(0)
        if self._following is not None:
            other, end = _bound(self._following, 1)
            if other != unit:
                raise InvalidProgramError("preceding() and following() of a window must both be rows, or both time.")
        return OverWindow(syntax.Window(self._partition, (self._order,), unit, start, end), alias)


_NAMED = {
    "UNBOUNDED_ROW": ("ROWS", None),
    "UNBOUNDED_RANGE": ("RANGE", None),
    "CURRENT_ROW": ("ROWS", 0),
    "CURRENT_RANGE": ("RANGE", 0),
}


def _bound(bound: Expression, side: int) -> tuple[str, syntax.Bound]:
    tree = tree_of(bound)
    if isinstance(tree, syntax.Symbol) and tree.word in _NAMED:
        unit, distance = _NAMED[tree.word]
        return unit, syntax.Bound(side if distance is None else 0)
    if isinstance(tree, RowInterval):
        return "ROWS", syntax.Bound(side, syntax.Literal("INTEGER", str(tree.rows)))
    return "RANGE", syntax.Bound(side, tree)
