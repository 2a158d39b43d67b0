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
    """A group window with its name.

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
    """Tumbling windows of a fixed size.

    Example:
        >>> from millstream.table.expressions import col, lit
        >>> Tumble.over(lit(10).minutes).on(col("ts")).alias("w").function
        'TUMBLE'
    """

    @classmethod
    def over(cls, size: Expression) -> TumbleWithSize:
        """Set the size: an interval or a number of rows."""
        return TumbleWithSize((tree_of(size),))


class Slide:
    """Sliding windows: of one size, starting at every slide."""

    @classmethod
    def over(cls, size: Expression) -> SlideWithSize:
        """Set the size: an interval or a number of rows."""
        return SlideWithSize(tree_of(size))


class Session:
    """Session windows, which end after a gap without rows."""

    @classmethod
    def with_gap(cls, gap: Expression) -> SessionWithGap:
        """Set the gap that ends a session."""
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
        """Name the window."""
        return GroupWindow(self.function, self._sizes, self._time, alias)


class TumbleWithSize(_Sized):
    """A tumbling window without a time column yet."""

    def on(self, time_field: Expression) -> TumbleWithSizeOnTime:
        """Set the time column."""
        return TumbleWithSizeOnTime(self._sizes, tree_of(time_field))


class TumbleWithSizeOnTime(_Timed):
    """A tumbling window without an alias yet."""

    function = "TUMBLE"


class SlideWithSize:
    """A sliding window without a slide yet."""

    def __init__(self, size: syntax.Expression) -> None:
        self._size = size

    def every(self, slide: Expression) -> SlideWithSizeAndSlide:
        """Set the interval between the starts of windows."""
        return SlideWithSizeAndSlide((tree_of(slide), self._size))


class SlideWithSizeAndSlide(_Sized):
    """A sliding window without a time column yet."""

    def on(self, time_field: Expression) -> SlideWithSizeAndSlideOnTime:
        """Set the time column."""
        return SlideWithSizeAndSlideOnTime(self._sizes, tree_of(time_field))


class SlideWithSizeAndSlideOnTime(_Timed):
    """A sliding window without an alias yet."""

    function = "HOP"


class SessionWithGap(_Sized):
    """A session window without a time column yet."""

    def on(self, time_field: Expression) -> SessionWithGapOnTime:
        """Set the time column."""
        return SessionWithGapOnTime(self._sizes, tree_of(time_field))


class SessionWithGapOnTime(_Timed):
    """A session window without an alias yet."""

    function = "SESSION"


# --- OVER


@fast_dataclass
class OverWindow:
    """An OVER window with its alias."""

    tree: syntax.Window
    alias: str


class Over:
    """The window of an OVER aggregate.

    Example:
        >>> from millstream.table.expressions import col
        >>> Over.partition_by(col("a")).order_by(col("ts")).alias("w").alias
        'w'
    """

    @classmethod
    def order_by(cls, order_by: Expression) -> OverWindowPartitionedOrdered:
        """Order all rows."""
        return OverWindowPartitioned(()).order_by(order_by)

    @classmethod
    def partition_by(cls, *partition_by: Expression) -> OverWindowPartitioned:
        """Partition the rows by columns."""
        return OverWindowPartitioned(tuple(map(tree_of, partition_by)))


class OverWindowPartitioned:
    """A partitioned OVER window without an order."""

    def __init__(self, partition: tuple[syntax.Expression, ...]) -> None:
        self._partition = partition

    def order_by(self, order_by: Expression) -> OverWindowPartitionedOrdered:
        """Order the rows."""
        return OverWindowPartitionedOrdered(self._partition, sort_key(tree_of(order_by), is_descending(order_by)))


class OverWindowPartitionedOrdered:
    """An OVER window of all rows up to the current one, unless `preceding` sets a bound."""

    def __init__(self, partition: tuple[syntax.Expression, ...], order: syntax.SortKey) -> None:
        self._partition = partition
        self._order = order

    def alias(self, alias: str) -> OverWindow:
        """Name the window."""
        return OverWindow(syntax.Window(self._partition, (self._order,)), alias)

    def preceding(self, preceding: Expression) -> OverWindowPartitionedOrderedPreceding:
        """Set the start of the frame: a number of rows or an interval before the row, or unbounded."""
        return OverWindowPartitionedOrderedPreceding(self._partition, self._order, preceding)


class OverWindowPartitionedOrderedPreceding:
    """An OVER window up to the current row, unless `following` sets a bound."""

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
        """Set the end of the frame."""
        return OverWindowPartitionedOrderedPreceding(self._partition, self._order, self._preceding, following)

    def alias(self, alias: str) -> OverWindow:
        """Name the window."""
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
