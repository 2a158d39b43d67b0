"""Triggers, which decide when windows fire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Generic, TypeVar

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration, Time, to_millis
from millstream.operators.functions.metrics import MetricGroup
from millstream.operators.windows.windows import TimeWindow
from millstream.state.descriptors import ReducingStateDescriptor, StateDescriptor

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """The decision of a trigger: to fire the window, to clear its contents, both or neither.

    Example:
        >>> from millstream.datastream.window import TriggerResult
        >>> [(result.name, result.is_fire(), result.is_purge()) for result in TriggerResult]
        [('CONTINUE', False, False), ('FIRE_AND_PURGE', True, True), ('FIRE', True, False), ('PURGE', False, True)]
    """

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window function is called.

        Example:
            >>> TriggerResult.FIRE.is_fire(), TriggerResult.PURGE.is_fire()
            (True, False)
        """
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the window's contents are cleared.

        Example:
            >>> TriggerResult.FIRE.is_purge(), TriggerResult.FIRE_AND_PURGE.is_purge()
            (False, True)
        """
        return self.value[1]


CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = (
    TriggerResult.CONTINUE,
    TriggerResult.FIRE,
    TriggerResult.PURGE,
    TriggerResult.FIRE_AND_PURGE,
)


class TriggerContext(ABC):
    """Time, timers and state of a trigger, for the current key and window."""

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """Return the processing time in milliseconds."""

    @abstractmethod
    def get_current_watermark(self) -> int:
        """Return the watermark in milliseconds."""

    @abstractmethod
    def get_metric_group(self) -> MetricGroup:
        """Return the metric group of the operator."""

    @abstractmethod
    def register_processing_time_timer(self, time: int) -> None:
        """Register a processing-time timer."""

    @abstractmethod
    def register_event_time_timer(self, time: int) -> None:
        """Register an event-time timer."""

    @abstractmethod
    def delete_processing_time_timer(self, time: int) -> None:
        """Delete a processing-time timer."""

    @abstractmethod
    def delete_event_time_timer(self, time: int) -> None:
        """Delete an event-time timer."""

    @abstractmethod
    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Value:
        """Return a state of the key and the window."""


class OnMergeContext(TriggerContext):
    """A TriggerContext while windows merge."""

    @abstractmethod
    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Merge the state of the merged windows into that of the new window."""


# Inside Trigger the plain names are its attributes.
_Context = TriggerContext
_MergeContext = OnMergeContext


class Trigger(ABC, Generic[T, W]):
    """Decides when a window fires. Triggers are stateless objects: their state is in the context.

    Example:
        >>> from millstream.datastream.window import EventTimeTrigger, TriggerResult, TumblingEventTimeWindows
        >>> from millstream.testing import WindowHarness
        >>> class AtLast(EventTimeTrigger):
        ...     def on_element(self, element, timestamp, window, ctx):
        ...         at_end = super().on_element(element, timestamp, window, ctx)
        ...         return TriggerResult.FIRE if element == "last" else at_end
        >>> concat = lambda window, inputs: [" ".join(inputs)]
        >>> with WindowHarness(TumblingEventTimeWindows.of(10), concat, None, "apply", trigger=AtLast()) as harness:
        ...     for time, word in enumerate(["first", "last"]):
        ...         harness.process_element(word, timestamp=time)
        ...     harness.output()
        ['first last']
    """

    TriggerContext = TriggerContext
    OnMergeContext = OnMergeContext

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: _Context) -> TriggerResult:
        """Handle a record that was added to the window; return whether the window fires.

        Args:
            element: the record.
            timestamp: its timestamp in milliseconds.
            window: the window.
            ctx: gives time, timers and state of the key and window.

        Example:
            >>> from millstream.datastream.window import CountTrigger, GlobalWindows, TriggerResult
            >>> class AtStop(CountTrigger):
            ...     def on_element(self, element, timestamp, window, ctx):
            ...         return TriggerResult.FIRE_AND_PURGE if element == "stop" else TriggerResult.CONTINUE
            >>> words = env.from_collection(["to", "be", "stop", "or", "stop"])
            >>> windows = words.window_all(GlobalWindows.create()).trigger(AtStop(1))
            >>> list(windows.apply(lambda window, inputs: [list(inputs)]).execute_and_collect())
            [['to', 'be', 'stop'], ['or', 'stop']]
        """

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: _Context) -> TriggerResult:
        """Handle a due processing-time timer of the window; return whether the window fires.

        Example:
            >>> from millstream.datastream.window import TimeWindow, TriggerResult
            >>> ProcessingTimeTrigger().on_processing_time(9, TimeWindow(0, 10), None)
            <TriggerResult.FIRE: (True, False)>
        """

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: _Context) -> TriggerResult:
        """Handle a due event-time timer of the window; return whether the window fires.

        Example:
            >>> from millstream.datastream.window import TimeWindow
            >>> EventTimeTrigger().on_event_time(9, TimeWindow(0, 10), None)
            <TriggerResult.FIRE: (True, False)>
        """

    def can_merge(self) -> bool:
        """Return whether the trigger supports windows that merge; by default it does not.

        Example:
            >>> from millstream.datastream.window import DeltaTrigger
            >>> EventTimeTrigger().can_merge(), DeltaTrigger.of(1, lambda a, b: b - a).can_merge()
            (True, False)
        """
        return False

    def on_merge(self, window: W, ctx: _MergeContext) -> None:
        """Handle the merge of windows into this one: merge their states, and register timers again.

        Example:
            >>> from millstream.datastream.window import CountTrigger, EventTimeSessionWindows
            >>> from millstream.testing import WindowHarness
            >>> class Loud(CountTrigger):
            ...     def on_merge(self, window, ctx):
            ...         super().on_merge(window, ctx)
            ...         print("merged into", window)
            >>> sessions = EventTimeSessionWindows.with_gap(10)
            >>> with WindowHarness(sessions, max, None, "reduce", trigger=Loud(3)) as harness:
            ...     harness.process_element(1, timestamp=0)
            ...     harness.process_element(2, timestamp=5)
            merged into TimeWindow(start=0, end=15)
        """

    @abstractmethod
    def clear(self, window: W, ctx: _Context) -> None:
        """Delete the timers and state of a window that has ended.

        Example:
            >>> from millstream.datastream.window import EventTimeTrigger, TumblingEventTimeWindows
            >>> from millstream.testing import WindowHarness
            >>> class Loud(EventTimeTrigger):
            ...     def clear(self, window, ctx):
            ...         super().clear(window, ctx)
            ...         print("clear", window)
            >>> with WindowHarness(TumblingEventTimeWindows.of(10), max, None, "reduce", trigger=Loud()) as harness:
            ...     harness.process_element(1, timestamp=0)
            ...     harness.process_watermark(9)
            clear TimeWindow(start=0, end=10)
        """


class EventTimeTrigger(Trigger[T, TimeWindow]):
    """Fires when the watermark passes the end of the window, and for every late record after that.

    Example:
        >>> from millstream.datastream.window import EventTimeTrigger, TumblingEventTimeWindows
        >>> from millstream.testing import WindowHarness
        >>> trigger = EventTimeTrigger.create()
        >>> with WindowHarness(TumblingEventTimeWindows.of(10), max, None, "reduce", trigger=trigger) as harness:
        ...     harness.process_element(3, timestamp=3)
        ...     harness.process_watermark(9)
        ...     harness.output()
        [3]
    """

    @staticmethod
    def create() -> EventTimeTrigger[Value]:
        """Fire when the watermark reaches the window's end.

        Example:
            >>> EventTimeTrigger.create().can_merge()
            True
        """
        return EventTimeTrigger()

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return FIRE if time == window.max_timestamp() else CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(Trigger[T, TimeWindow]):
    """Fires when the processing time passes the end of the window.

    Example:
        >>> from millstream.datastream.window import ProcessingTimeTrigger, TumblingProcessingTimeWindows
        >>> from millstream.testing import WindowHarness
        >>> trigger = ProcessingTimeTrigger.create()
        >>> with WindowHarness(TumblingProcessingTimeWindows.of(10), max, None, "reduce", trigger=trigger) as harness:
        ...     harness.process_element(3)
        ...     harness.set_processing_time(10)
        ...     harness.output()
        [3]
    """

    @staticmethod
    def create() -> ProcessingTimeTrigger[Value]:
        """Fire when the processing time reaches the window's end.

        Example:
            >>> ProcessingTimeTrigger.create().can_merge()
            True
        """
        return ProcessingTimeTrigger()

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return FIRE

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


def _interval(interval: Time | Duration | int, name: str) -> int:
    millis = to_millis(interval)
    if millis <= 0:
        raise InvalidProgramError(f"{name} needs an interval above 0, not {millis} ms.")
    return millis


def _min_time(a: int, b: int) -> int:
    return min(a, b)


class _ContinuousTrigger(Trigger[T, TimeWindow]):
    """Fires periodically; the time of the next firing is in state, so that merged windows share it."""

    def __init__(self, interval: int) -> None:
        self.interval = _interval(interval, type(self).__name__)
        self._fire_time = ReducingStateDescriptor("fire-time", _min_time)

    @abstractmethod
    def _register(self, ctx: TriggerContext, time: int) -> None: ...

    @abstractmethod
    def _delete(self, ctx: TriggerContext, time: int) -> None: ...

    def _begin(self, time: int, window: TimeWindow, ctx: TriggerContext) -> None:
        """Schedule the first firing of a window, unless one is scheduled."""
        if ctx.get_partitioned_state(self._fire_time).get() is None:
            self.register_next_fire_timestamp(time - time % self.interval, window, ctx)

    def _on_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        fire_time = ctx.get_partitioned_state(self._fire_time)
        if fire_time.get() != time:
            return CONTINUE
        fire_time.clear()
        self.register_next_fire_timestamp(time, window, ctx)
        return FIRE

    def register_next_fire_timestamp(self, time: int, window: TimeWindow, ctx: TriggerContext) -> None:
        """Register the next firing: an interval after a time, at the latest at the end of the window."""
        following = min(time + self.interval, window.max_timestamp())
        ctx.get_partitioned_state(self._fire_time).add(following)
        self._register(ctx, following)

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._fire_time)
        following = ctx.get_partitioned_state(self._fire_time).get()
        if following is not None:
            self._register(ctx, following)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        fire_time = ctx.get_partitioned_state(self._fire_time)
        following = fire_time.get()
        if following is not None:
            self._delete(ctx, following)
            fire_time.clear()


class ContinuousEventTimeTrigger(_ContinuousTrigger[T]):
    """Fires periodically in event time, and at the end of the window.

    Example:
        >>> from millstream.datastream.window import ContinuousEventTimeTrigger, TumblingEventTimeWindows
        >>> from millstream.testing import WindowHarness
        >>> trigger, add = ContinuousEventTimeTrigger.of(4), lambda a, b: a + b
        >>> with WindowHarness(TumblingEventTimeWindows.of(10), add, None, "reduce", trigger=trigger) as harness:
        ...     for time in (1, 5, 9):
        ...         harness.process_element(1, timestamp=time)
        ...         harness.process_watermark(time)
        ...     harness.output()
        [2, 3, 3]
    """

    @staticmethod
    def of(interval: Time | Duration | int) -> ContinuousEventTimeTrigger[Value]:
        """Fire at this interval of event time: a Time, a Duration or milliseconds.

        Example:
            >>> ContinuousEventTimeTrigger.of(Time.seconds(10)).interval
            10000
        """
        return ContinuousEventTimeTrigger(to_millis(interval))

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        self._begin(timestamp, window, ctx)
        return CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return FIRE if time == window.max_timestamp() else self._on_time(time, window, ctx)

    def _register(self, ctx: TriggerContext, time: int) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, ctx: TriggerContext, time: int) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger[T]):
    """Fires periodically in processing time.

    Example:
        >>> from millstream.datastream.window import ContinuousProcessingTimeTrigger, GlobalWindows
        >>> from millstream.testing import WindowHarness
        >>> trigger, add = ContinuousProcessingTimeTrigger.of(5), lambda a, b: a + b
        >>> with WindowHarness(GlobalWindows.create(), add, None, "reduce", trigger=trigger) as harness:
        ...     harness.process_elements([1, 2])
        ...     harness.set_processing_time(5)
        ...     harness.output()
        [3]
    """

    @staticmethod
    def of(interval: Time | Duration | int) -> ContinuousProcessingTimeTrigger[Value]:
        """Fire at this interval of processing time: a Time, a Duration or milliseconds.

        Example:
            >>> ContinuousProcessingTimeTrigger.of(Time.seconds(10)).interval
            10000
        """
        return ContinuousProcessingTimeTrigger(to_millis(interval))

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        self._begin(ctx.get_current_processing_time(), window, ctx)
        return CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return self._on_time(time, window, ctx)

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def _register(self, ctx: TriggerContext, time: int) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, ctx: TriggerContext, time: int) -> None:
        ctx.delete_processing_time_timer(time)
