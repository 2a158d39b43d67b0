"""Assigners, which decide the windows of a record, and the state windows of merging windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeAlias, TypeVar

from millstream.common.aliases import Key, UserCode, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.serializer import TypeSerializer
from millstream.common.time import Duration, Time, to_millis
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.windows.triggers import (
    EventTimeTrigger,
    ProcessingTimeTrigger,
    Trigger,
)
from millstream.operators.windows.windows import (
    AnyWindow,
    TimeWindow,
    Window,
    merge_time_windows,
)
from millstream.state.table import StateTable

T = TypeVar("T")
W = TypeVar("W")
Length = Time | Duration | int
# The StreamExecutionEnvironment, which the DataStream API above this package defines.
Environment: TypeAlias = Value


class WindowAssignerContext(ABC):
    """The time and runtime context of an assigner."""

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """Return the processing time in milliseconds."""

    @abstractmethod
    def get_runtime_context(self) -> RuntimeContext:
        """Return the runtime context of the operator."""


# Inside WindowAssigner the plain name is its attribute.
_Context = WindowAssignerContext


class WindowAssigner(ABC, Generic[T, W]):
    """Assigns windows to records: the base of all assigners, and of your own.

    Example:
        >>> from millstream.datastream.window import EventTimeTrigger, TimeWindow, WindowAssigner
        >>> from millstream.testing import WindowHarness
        >>> class Doubling(WindowAssigner):
        ...     def assign_windows(self, element, timestamp, context):
        ...         return [TimeWindow(0, 1 << timestamp.bit_length())]
        ...     def get_default_trigger(self, env=None):
        ...         return EventTimeTrigger.create()
        ...     def is_event_time(self):
        ...         return True
        >>> with WindowHarness(Doubling(), lambda window, inputs: [(window, list(inputs))], None, "apply") as harness:
        ...     for time in (1, 2, 3, 5):
        ...         harness.process_element(time, timestamp=time)
        ...     harness.process_watermark(3)
        ...     harness.output()
        [(TimeWindow(start=0, end=2), [1]), (TimeWindow(start=0, end=4), [2, 3])]
    """

    WindowAssignerContext = WindowAssignerContext

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: _Context) -> Collection[W]:
        """Return the windows of a record.

        Args:
            element: the record.
            timestamp: its timestamp in milliseconds.
            context: gives the processing time and the runtime context.

        Example:
            >>> from millstream.datastream.window import SlidingEventTimeWindows
            >>> SlidingEventTimeWindows.of(10, 5).assign_windows("record", 12, None)
            [TimeWindow(start=10, end=20), TimeWindow(start=5, end=15)]
        """

    @abstractmethod
    def get_default_trigger(self, env: Environment = None) -> Trigger[T, W]:
        """Return the trigger to use if the program sets none.

        Example:
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> type(TumblingEventTimeWindows.of(10).get_default_trigger()).__name__
            'EventTimeTrigger'
        """

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether windows are in event time.

        Example:
            >>> from millstream.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
            >>> TumblingEventTimeWindows.of(10).is_event_time(), TumblingProcessingTimeWindows.of(10).is_event_time()
            (True, False)
        """

    def get_window_serializer(self) -> TypeSerializer[W] | None:
        """Return None: unlike PyFlink's, assigners need no serializer, because windows are pickled.

        Example:
            >>> from millstream.datastream.window import TumblingEventTimeWindows
            >>> TumblingEventTimeWindows.of(10).get_window_serializer() is None
            True
        """
        return None


class MergeCallback(ABC, Generic[W]):
    """Receives the windows that a merging assigner merges."""

    @abstractmethod
    def merge(self, to_be_merged: Iterable[W], merge_result: W) -> None:
        """Merge windows into one."""


_Callback = MergeCallback


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge, such as sessions.

    Example:
        >>> from millstream.datastream.window import EventTimeSessionWindows
        >>> isinstance(EventTimeSessionWindows.with_gap(10), MergingWindowAssigner)
        True
    """

    MergeCallback = MergeCallback

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: _Callback[W]) -> None:
        """Call `callback.merge(windows, merged)` for each group of windows that merge.

        Example:
            >>> from millstream.datastream.window import EventTimeSessionWindows, TimeWindow
            >>> class Show(MergeCallback):
            ...     def merge(self, to_be_merged, merge_result):
            ...         print(to_be_merged, "become", merge_result)
            >>> windows = [TimeWindow(0, 10), TimeWindow(30, 40), TimeWindow(7, 17)]
            >>> EventTimeSessionWindows.with_gap(10).merge_windows(windows, Show())
            [TimeWindow(start=0, end=10), TimeWindow(start=7, end=17)] become TimeWindow(start=0, end=17)
        """


def _length(length: Length, name: str, min_millis: int = 1) -> int:
    millis = to_millis(length)
    if not isinstance(millis, int) or millis < min_millis:
        raise InvalidProgramError(f"{name} must be at least {min_millis} ms, it is {millis!r}.")
    return millis


def _offset(offset: Length | None) -> int:
    return 0 if offset is None else to_millis(offset)


def _needs_timestamp(timestamp: int, assigner: object) -> None:
    if timestamp == MIN_WATERMARK:
        raise InvalidProgramError(
            f"{assigner} needs records with timestamps and this one has none: "
            "did you forget to call 'data_stream.assign_timestamps_and_watermarks(...)'?"
        )


class _TimeWindows(WindowAssigner[T, TimeWindow]):
    """Windows that depend only on a time."""

    @abstractmethod
    def _windows_at(self, element: T, time: int) -> list[TimeWindow]:
        """Return the windows of a record with that time."""


class _ByEventTime(_TimeWindows[T]):
    """Uses the records' timestamps."""

    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[TimeWindow]:
        _needs_timestamp(timestamp, self)
        return self._windows_at(element, timestamp)

    def get_default_trigger(self, env: Environment = None) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class _ByProcessingTime(_TimeWindows[T]):
    """Uses the processing time."""

    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[TimeWindow]:
        return self._windows_at(element, context.get_current_processing_time())

    def get_default_trigger(self, env: Environment = None) -> Trigger[T, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class _Tumbling(_TimeWindows[T]):
    def __init__(self, size: int, offset: int = 0) -> None:
        self.size = _length(size, f"The size of {type(self).__name__}")
        self.offset = offset
        if abs(offset) >= self.size:
            raise InvalidProgramError(
                f"The offset of {type(self).__name__} must be less than its size {self.size} ms, it is {offset} ms."
            )

    def _windows_at(self, element: T, time: int) -> list[TimeWindow]:
        start = time - (time - self.offset) % self.size
        return [TimeWindow(start, start + self.size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.offset})"


class TumblingEventTimeWindows(_Tumbling[T], _ByEventTime[T]):
    """Adjacent windows of one size, in event time.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time, _: time)
        >>> times = env.from_collection([1, 4, 11]).assign_timestamps_and_watermarks(by_time)
        >>> windows = times.window_all(TumblingEventTimeWindows.of(10))
        >>> list(windows.apply(lambda window, inputs: [(window.start, window.end, list(inputs))]).execute_and_collect())
        [(0, 10, [1, 4]), (10, 20, [11])]
    """

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingEventTimeWindows[Value]:
        """Return windows of a size, aligned to multiples of it plus an offset: Times, Durations or milliseconds.

        Example:
            >>> TumblingEventTimeWindows.of(Time.hours(1), Time.minutes(15))
            TumblingEventTimeWindows(3600000, 900000)
        """
        return TumblingEventTimeWindows(to_millis(size), _offset(offset))


class TumblingProcessingTimeWindows(_Tumbling[T], _ByProcessingTime[T]):
    """Adjacent windows of one size, in processing time.

    Example:
        >>> from millstream.datastream.window import TumblingProcessingTimeWindows
        >>> from millstream.testing import WindowHarness
        >>> with WindowHarness(TumblingProcessingTimeWindows.of(10), max, None, "reduce") as harness:
        ...     harness.process_elements([3, 8, 5])
        ...     harness.set_processing_time(10)
        ...     harness.output()
        [8]
    """

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingProcessingTimeWindows[Value]:
        """Return windows of a size, aligned to multiples of it plus an offset: Times, Durations or milliseconds.

        Example:
            >>> TumblingProcessingTimeWindows.of(Time.seconds(5))
            TumblingProcessingTimeWindows(5000, 0)
        """
        return TumblingProcessingTimeWindows(to_millis(size), _offset(offset))


class _Sliding(_TimeWindows[T]):
    def __init__(self, size: int, slide: int, offset: int = 0) -> None:
        self.size = _length(size, f"The size of {type(self).__name__}")
        self.slide = _length(slide, f"The slide of {type(self).__name__}")
        self.offset = offset
        if abs(offset) >= self.slide:
            raise InvalidProgramError(
                f"The offset of {type(self).__name__} must be less than its slide {self.slide} ms, it is {offset} ms."
            )

    def _windows_at(self, element: T, time: int) -> list[TimeWindow]:
        last = time - (time - self.offset) % self.slide
        return [TimeWindow(start, start + self.size) for start in range(last, time - self.size, -self.slide)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size}, {self.slide}, {self.offset})"


class SlidingEventTimeWindows(_Sliding[T], _ByEventTime[T]):
    """Windows of one size that start at every slide, in event time; a record is in several of them.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.datastream.window import SlidingEventTimeWindows
        >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time, _: time)
        >>> times = env.from_collection([1, 4, 11]).assign_timestamps_and_watermarks(by_time)
        >>> windows = times.window_all(SlidingEventTimeWindows.of(10, 5))
        >>> list(windows.apply(lambda window, inputs: [(window.start, window.end, list(inputs))]).execute_and_collect())
        [(-5, 5, [1, 4]), (0, 10, [1, 4]), (5, 15, [11]), (10, 20, [11])]
    """

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingEventTimeWindows[Value]:
        """Return windows of a size that start at every slide, plus an offset: Times, Durations or milliseconds.

        Example:
            >>> SlidingEventTimeWindows.of(Time.hours(1), Time.minutes(15))
            SlidingEventTimeWindows(3600000, 900000, 0)
        """
        return SlidingEventTimeWindows(to_millis(size), to_millis(slide), _offset(offset))


class SlidingProcessingTimeWindows(_Sliding[T], _ByProcessingTime[T]):
    """Windows of one size that start at every slide, in processing time; a record is in several of them.

    Example:
        >>> from millstream.datastream.window import SlidingProcessingTimeWindows
        >>> from millstream.testing import WindowHarness
        >>> with WindowHarness(SlidingProcessingTimeWindows.of(10, 5), max, None, "reduce") as harness:
        ...     harness.process_elements([3, 8, 5])
        ...     harness.set_processing_time(10)
        ...     harness.output()
        [8, 8]
    """

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingProcessingTimeWindows[Value]:
        """Return windows of a size that start at every slide, plus an offset: Times, Durations or milliseconds.

        Example:
            >>> SlidingProcessingTimeWindows.of(Time.seconds(10), Time.seconds(5))
            SlidingProcessingTimeWindows(10000, 5000, 0)
        """
        return SlidingProcessingTimeWindows(to_millis(size), to_millis(slide), _offset(offset))


class SessionWindowTimeGapExtractor(ABC):
    """Extracts the session gap from a record, for `with_dynamic_gap()`, which also takes a plain function.

    Example:
        >>> from millstream.datastream.window import EventTimeSessionWindows, SessionWindowTimeGapExtractor
        >>> class ByUser(SessionWindowTimeGapExtractor):
        ...     def extract(self, element):
        ...         return 30_000 if element["user"] == "ann" else 10_000
        >>> EventTimeSessionWindows.with_dynamic_gap(ByUser()).assign_windows({"user": "ann"}, 5_000, None)
        [TimeWindow(start=5000, end=35000)]
    """

    @abstractmethod
    def extract(self, element: Value) -> int:
        """Return the gap after a record in milliseconds; it must be above 0."""


class _Sessions(_TimeWindows[T], MergingWindowAssigner[T, TimeWindow]):
    """Windows that grow while records arrive within a gap of each other."""

    def __init__(self, gap: int | Callable[[Value], int]) -> None:
        self.gap = _length(gap, f"The gap of {type(self).__name__}") if isinstance(gap, int) else gap

    def _windows_at(self, element: T, time: int) -> list[TimeWindow]:
        gap = self.gap if isinstance(self.gap, int) else self.gap(element)
        if not isinstance(gap, int) or gap <= 0:
            raise InvalidProgramError(
                f"The dynamic gap of {type(self).__name__} must be an int above 0, it is {gap!r}."
            )
        return [TimeWindow(time, time + gap)]

    def merge_windows(self, windows: Iterable[TimeWindow], callback: MergeCallback[TimeWindow]) -> None:
        merge_time_windows(windows, callback.merge)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.gap if isinstance(self.gap, int) else 'dynamic gap'})"


def _extractor(extractor: UserCode) -> Callable[[Value], int]:
    function: Callable[[Value], int] = extractor
    function = getattr(function, "extract", function)
    if not callable(function):
        raise InvalidProgramError(f"with_dynamic_gap() takes a SessionWindowTimeGapExtractor, not {extractor!r}.")
    return function


class EventTimeSessionWindows(_Sessions[T], _ByEventTime[T]):
    """Sessions in event time: windows that grow while records arrive within a gap of each other.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.datastream.window import EventTimeSessionWindows
        >>> by_time = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time, _: time)
        >>> times = env.from_collection([1, 4, 30]).assign_timestamps_and_watermarks(by_time)
        >>> windows = times.window_all(EventTimeSessionWindows.with_gap(10))
        >>> list(windows.apply(lambda window, inputs: [(window.start, window.end, list(inputs))]).execute_and_collect())
        [(1, 14, [1, 4]), (30, 40, [30])]
    """

    def __init__(self, session_gap: int) -> None:
        super().__init__(session_gap)

    @staticmethod
    def with_gap(size: Length) -> EventTimeSessionWindows[Value]:
        """Return sessions that end after a gap without records: a Time, a Duration or milliseconds.

        Example:
            >>> EventTimeSessionWindows.with_gap(Time.minutes(30))
            EventTimeSessionWindows(1800000)
        """
        return EventTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(extractor: UserCode) -> EventTimeSessionWindows[Value]:
        """Return sessions whose gap the extractor reads from each record.

        Example:
            >>> sessions = EventTimeSessionWindows.with_dynamic_gap(lambda event: event["gap"])
            >>> sessions.assign_windows({"gap": 7}, 100, None)
            [TimeWindow(start=100, end=107)]
        """
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_Sessions[T], _ByProcessingTime[T]):
    """Sessions in processing time: windows that grow while records arrive within a gap of each other.

    Example:
        >>> from millstream.datastream.window import ProcessingTimeSessionWindows
        >>> from millstream.testing import WindowHarness
        >>> with WindowHarness(ProcessingTimeSessionWindows.with_gap(10), max, None, "reduce") as harness:
        ...     harness.process_element(3)
        ...     harness.set_processing_time(6)
        ...     harness.process_element(8)
        ...     harness.set_processing_time(16)
        ...     harness.output()
        [8]
    """

    def __init__(self, session_gap: int) -> None:
        super().__init__(session_gap)

    @staticmethod
    def with_gap(size: Length) -> ProcessingTimeSessionWindows[Value]:
        """Return sessions that end after a gap without records: a Time, a Duration or milliseconds.

        Example:
            >>> ProcessingTimeSessionWindows.with_gap(Time.minutes(30))
            ProcessingTimeSessionWindows(1800000)
        """
        return ProcessingTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(extractor: UserCode) -> ProcessingTimeSessionWindows[Value]:
        """Return sessions whose gap the extractor reads from each record.

        Example:
            >>> ProcessingTimeSessionWindows.with_dynamic_gap(lambda event: event["gap"])
            DynamicProcessingTimeSessionWindows(dynamic gap)
        """
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(EventTimeSessionWindows[T]):
    """Sessions in event time, with a gap per record: those of `EventTimeSessionWindows.with_dynamic_gap()`.

    Example:
        >>> DynamicEventTimeSessionWindows(lambda event: event["gap"]).assign_windows({"gap": 7}, 100, None)
        [TimeWindow(start=100, end=107)]
    """

    def __init__(self, session_window_time_gap_extractor: UserCode) -> None:
        _Sessions.__init__(self, _extractor(session_window_time_gap_extractor))


class DynamicProcessingTimeSessionWindows(ProcessingTimeSessionWindows[T]):
    """Sessions in processing time, with a gap per record: those of `ProcessingTimeSessionWindows.with_dynamic_gap()`.

    Example:
        >>> DynamicProcessingTimeSessionWindows(lambda event: event["gap"])
        DynamicProcessingTimeSessionWindows(dynamic gap)
    """

    def __init__(self, session_window_time_gap_extractor: UserCode) -> None:
        _Sessions.__init__(self, _extractor(session_window_time_gap_extractor))


# Called with: the resulting window, the merged windows, its state window, and the state windows merged into that.
OnMerge = Callable[[Window, list[Window], Window, list[Window]], None]


class MergingWindows(MergeCallback[Window]):
    """The windows in flight of one key.

    State does not move when a window grows: each window in flight has a state window, the first of those that merged
    into it, and the state stays there.
    """

    def __init__(self, assigner: MergingWindowAssigner[Value, AnyWindow], table: StateTable, key: Key) -> None:
        self._assigner = assigner
        self._table = table
        self._key = key
        self._before: dict[Window, Window] = table.get(key) or {}
        self.windows = dict(self._before)
        self._merges: list[tuple[list[Window], Window]] = []

    def save(self) -> None:
        """Write the windows to the state if they have changed."""
        if self.windows == self._before:
            return
        if self.windows:
            self._table.put(self._key, dict(self.windows))
        else:
            self._table.remove(self._key)

    def state_window(self, window: Window) -> Window | None:
        """Return the state window of a window, None if it is not in flight."""
        return self.windows.get(window)

    def retire(self, window: Window) -> None:
        """Remove a window that has ended."""
        del self.windows[window]

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self._merges.append((list(to_be_merged), merge_result))

    def add(self, window: Window, on_merge: OnMerge) -> Window:
        """Add a window; return the window that it was merged into, or itself."""
        self._merges = []
        self._assigner.merge_windows([*self.windows, window], self)
        result, merged = window, False
        for members, merged_window in self._merges:
            if window in members:
                members.remove(window)
                result, merged = merged_window, True
            state_window = self.windows[members[0]]
            others = [self.windows.pop(m) for m in members]
            self.windows[merged_window] = state_window
            if members != [merged_window]:
                on_merge(merged_window, members, state_window, others[1:])
        if not merged:
            self.windows[window] = window
        return result
