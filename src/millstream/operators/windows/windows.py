"""Windows: of a time interval, of a count, and global."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from millstream.common.aliases import Value
from millstream.common.tags import tagged
from millstream.common.watermark_strategy import MAX_WATERMARK

if TYPE_CHECKING:
    from millstream.operators.windows.assigners import MergeCallback

# A window of the class that its assigner creates; the program's types name that class.
AnyWindow: TypeAlias = Value


class Window:
    """A group of records: the base of all windows; equal windows are the same."""

    __slots__ = ()

    def max_timestamp(self) -> int:
        """Return the last timestamp that can belong to the window.

        Example:
            >>> TimeWindow(0, 10).max_timestamp()
            9
        """
        raise NotImplementedError(f"{type(self).__name__} must define max_timestamp()")

    def __stable_key__(self) -> int:
        """Return a key that is equal for equal windows of any user's class."""
        return self.max_timestamp()


class _Interval(NamedTuple):
    start: int
    end: int


@tagged("time-window")
class TimeWindow(_Interval, Window):
    """The time from `start`, inclusive, to `end`, exclusive, in milliseconds.

    Example:
        >>> from millstream.datastream.window import TimeWindow
        >>> window = TimeWindow(0, 10)
        >>> window.start, window.end, window.max_timestamp()
        (0, 10, 9)
    """

    __slots__ = ()

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Return whether the windows overlap or touch.

        Example:
            >>> TimeWindow(0, 10).intersects(TimeWindow(10, 20)), TimeWindow(0, 10).intersects(TimeWindow(11, 20))
            (True, False)
        """
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """Return the smallest window that contains both.

        Example:
            >>> TimeWindow(0, 10).cover(TimeWindow(30, 40))
            TimeWindow(start=0, end=40)
        """
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Return the start of the tumbling window of a timestamp.

        Example:
            >>> TimeWindow.get_window_start_with_offset(27, 0, 10)
            20
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]) -> None:
        """Call `callback.merge(windows, merged)` for every group of windows that overlap or touch.

        Example:
            >>> from millstream.datastream.window import MergingWindowAssigner
            >>> class Show(MergingWindowAssigner.MergeCallback):
            ...     def merge(self, to_be_merged, merge_result):
            ...         print(to_be_merged, "become", merge_result)
            >>> TimeWindow.merge_windows([TimeWindow(0, 10), TimeWindow(5, 15), TimeWindow(20, 30)], Show())
            [TimeWindow(start=0, end=10), TimeWindow(start=5, end=15)] become TimeWindow(start=0, end=15)
        """
        merge_time_windows(windows, callback.merge)

    def __repr__(self) -> str:
        return f"TimeWindow(start={self.start}, end={self.end})"


class _Numbered(NamedTuple):
    id: int


@tagged("count-window")
class CountWindow(_Numbered, Window):
    """The window with a number, of an assigner that counts records.

    Example:
        >>> from millstream.datastream.window import CountWindow
        >>> CountWindow(3).id
        3
    """

    __slots__ = ()

    def max_timestamp(self) -> int:
        return MAX_WATERMARK

    def __repr__(self) -> str:
        return f"CountWindow(id={self.id})"


@tagged("global-window", write=lambda _: ())
class GlobalWindow(Window):
    """The window of all records; there is one.

    Example:
        >>> from millstream.datastream.window import GlobalWindow
        >>> GlobalWindow.get()
        GlobalWindow
    """

    __slots__ = ()

    @staticmethod
    def get() -> GlobalWindow:
        """Return the only instance.

        Example:
            >>> GlobalWindow.get() is GlobalWindow.get()
            True
        """
        return GLOBAL

    def max_timestamp(self) -> int:
        return MAX_WATERMARK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalWindow)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "GlobalWindow"


GLOBAL = GlobalWindow()


def merge_time_windows(windows: Iterable[TimeWindow], merge: Callable[[list[TimeWindow], TimeWindow], None]) -> None:
    """Call `merge` for every group of windows that overlap or touch, with the window that contains them."""
    group: list[TimeWindow] = []
    merged_window: TimeWindow | None = None
    for window in sorted(windows):
        if merged_window is not None and merged_window.intersects(window):
            group.append(window)
            merged_window = merged_window.cover(window)
            continue
        if merged_window is not None and len(group) > 1:
            merge(group, merged_window)
        group, merged_window = [window], window
    if merged_window is not None and len(group) > 1:
        merge(group, merged_window)
