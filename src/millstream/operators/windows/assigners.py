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
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
)
from millstream.operators.windows.windows import (
    GLOBAL,
    AnyWindow,
    CountWindow,
    GlobalWindow,
    TimeWindow,
    Window,
    merge_time_windows,
)
from millstream.state.descriptors import ValueStateDescriptor
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
    """Assigns windows to records."""

    WindowAssignerContext = WindowAssignerContext

    @abstractmethod
    def assign_windows(self, element: T, timestamp: int, context: _Context) -> Collection[W]:
        """Return the windows of a record."""

    @abstractmethod
    def get_default_trigger(self, env: Environment = None) -> Trigger[T, W]:
        """Return the trigger to use if the program sets none."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Return whether windows are in event time."""

    def get_window_serializer(self) -> TypeSerializer[W] | None:
        """Accepted for compatibility with Flink; windows are pickled."""
        return None


class MergeCallback(ABC, Generic[W]):
    """Receives the windows that a merging assigner merges."""

    @abstractmethod
    def merge(self, to_be_merged: Iterable[W], merge_result: W) -> None:
        """Merge windows into one."""


_Callback = MergeCallback


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows may merge."""

    MergeCallback = MergeCallback

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: _Callback[W]) -> None:
        """Call the callback for each group of windows that merge."""


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
    """Adjacent windows of one size, in event time."""

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingEventTimeWindows[Value]:
        """Return windows of a size, aligned to multiples of it plus an offset."""
        return TumblingEventTimeWindows(to_millis(size), _offset(offset))


class TumblingProcessingTimeWindows(_Tumbling[T], _ByProcessingTime[T]):
    """Adjacent windows of one size, in processing time."""

    @staticmethod
    def of(size: Length, offset: Length | None = None) -> TumblingProcessingTimeWindows[Value]:
        """Return windows of a size, aligned to multiples of it plus an offset."""
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
    """Windows of one size that start at every slide, in event time."""

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingEventTimeWindows[Value]:
        """Return windows of a size that start at every slide, plus an offset."""
        return SlidingEventTimeWindows(to_millis(size), to_millis(slide), _offset(offset))


class SlidingProcessingTimeWindows(_Sliding[T], _ByProcessingTime[T]):
    """Windows of one size that start at every slide, in processing time."""

    @staticmethod
    def of(size: Length, slide: Length, offset: Length | None = None) -> SlidingProcessingTimeWindows[Value]:
        """Return windows of a size that start at every slide, plus an offset."""
        return SlidingProcessingTimeWindows(to_millis(size), to_millis(slide), _offset(offset))


class SessionWindowTimeGapExtractor(ABC):
    """Extracts the session gap from a record."""

    @abstractmethod
    def extract(self, element: Value) -> int:
        """Return the gap after a record in milliseconds."""


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
    """Sessions in event time."""

    def __init__(self, session_gap: int) -> None:
        super().__init__(session_gap)

    @staticmethod
    def with_gap(size: Length) -> EventTimeSessionWindows[Value]:
        """Return sessions that end after a gap without records."""
        return EventTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(extractor: UserCode) -> EventTimeSessionWindows[Value]:
        """Return sessions whose gap the extractor reads from each record."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_Sessions[T], _ByProcessingTime[T]):
    """Sessions in processing time."""

    def __init__(self, session_gap: int) -> None:
        super().__init__(session_gap)

    @staticmethod
    def with_gap(size: Length) -> ProcessingTimeSessionWindows[Value]:
        """Return sessions that end after a gap without records."""
        return ProcessingTimeSessionWindows(to_millis(size))

    @staticmethod
    def with_dynamic_gap(extractor: UserCode) -> ProcessingTimeSessionWindows[Value]:
        """Return sessions whose gap the extractor reads from each record."""
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(EventTimeSessionWindows[T]):
    """Sessions in event time, with a gap per record."""

    def __init__(self, session_window_time_gap_extractor: UserCode) -> None:
        _Sessions.__init__(self, _extractor(session_window_time_gap_extractor))


class DynamicProcessingTimeSessionWindows(ProcessingTimeSessionWindows[T]):
    """Sessions in processing time, with a gap per record."""

    def __init__(self, session_window_time_gap_extractor: UserCode) -> None:
        _Sessions.__init__(self, _extractor(session_window_time_gap_extractor))


class GlobalWindows(WindowAssigner[T, GlobalWindow]):
    """One window for all records; it fires only with a trigger that the program sets."""

    @staticmethod
    def create() -> GlobalWindows[Value]:
        """Return the assigner; the window never ends, so set a trigger."""
        return GlobalWindows()

    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[GlobalWindow]:
        return [GLOBAL]

    def get_default_trigger(self, env: Environment = None) -> Trigger[T, GlobalWindow]:
        return NeverTrigger()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"


class CountTumblingWindowAssigner(WindowAssigner[T, CountWindow]):
    """Windows of a number of consecutive records."""

    def __init__(self, window_size: int) -> None:
        if window_size < 1:
            raise InvalidProgramError(f"The size of a count window must be at least 1, it is {window_size}.")
        self.size = window_size
        self._seen = ValueStateDescriptor("tumble-count-assigner")

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner[Value]:
        """Return windows of a number of records."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[CountWindow]:
        state = context.get_runtime_context().get_state(self._seen)
        seen = state.value() or 0
        state.update(seen + 1)
        return [CountWindow(seen // self.size)]

    def get_default_trigger(self, env: Environment = None) -> Trigger[T, CountWindow]:
        # A full window has ended: no record can be added.
        return PurgingTrigger(CountTrigger(self.size))

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self.size})"


class CountSlidingWindowAssigner(WindowAssigner[T, CountWindow]):
    """Windows of a number of records; a new one starts with every slide."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        if window_size < 1 or window_slide < 1:
            raise InvalidProgramError(
                f"Size and slide of a count window must be at least 1, they are {window_size} and {window_slide}."
            )
        self.size = window_size
        self.slide = window_slide
        self._seen = ValueStateDescriptor("slide-count-assigner")

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner[Value]:
        """Return windows of `window_size` records; a new one starts every `window_slide` records."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(self, element: T, timestamp: int, context: WindowAssignerContext) -> Collection[CountWindow]:
        state = context.get_runtime_context().get_state(self._seen)
        seen = state.value() or 0
        state.update(seen + 1)
        first, last = max((seen - self.size) // self.slide + 1, 0), seen // self.slide
        return [CountWindow(i) for i in range(last, first - 1, -1)]

    def get_default_trigger(self, env: Environment = None) -> Trigger[T, CountWindow]:
        return PurgingTrigger(CountTrigger(self.size))

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self.size}, {self.slide})"


def count_windows(size: int, slide: int) -> WindowAssigner[Value, CountWindow]:
    """Return the assigner of count_window(): tumbling windows if the slide is 0."""
    return CountSlidingWindowAssigner(size, slide) if slide else CountTumblingWindowAssigner(size)


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
