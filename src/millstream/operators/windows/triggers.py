"""Triggers, which decide when windows fire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Generic, TypeVar

from millstream.common.aliases import UserCode, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration, Time, to_millis
from millstream.common.typeinfo import TypeInformation
from millstream.operators.functions.metrics import MetricGroup
from millstream.operators.windows.windows import AnyWindow, TimeWindow, Window
from millstream.state.descriptors import ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """The decision of a trigger; the value is (fire, purge)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window function is called."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the window's contents are cleared."""
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
    """Decides when a window fires. Triggers are stateless objects: their state is in the context."""

    TriggerContext = TriggerContext
    OnMergeContext = OnMergeContext

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: _Context) -> TriggerResult:
        """Handle a record that was added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: _Context) -> TriggerResult:
        """Handle a due processing-time timer."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: _Context) -> TriggerResult:
        """Handle a due event-time timer."""

    def can_merge(self) -> bool:
        """Return whether the trigger supports merging windows."""
        return False

    def on_merge(self, window: W, ctx: _MergeContext) -> None:
        """Handle the merge of windows into this one."""

    @abstractmethod
    def clear(self, window: W, ctx: _Context) -> None:
        """Delete the timers and state of a window that was removed."""


class EventTimeTrigger(Trigger[T, TimeWindow]):
    """Fires when the watermark passes the end of the window, and for every late record after that."""

    @staticmethod
    def create() -> EventTimeTrigger[Value]:
        """Fire when the watermark reaches the window's end."""
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
    """Fires when the processing time passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger[Value]:
        """Fire when the processing time reaches the window's end."""
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
    """Fires periodically in event time, and at the end of the window."""

    @staticmethod
    def of(interval: Time | Duration | int) -> ContinuousEventTimeTrigger[Value]:
        """Fire at this interval of event time."""
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
    """Fires periodically in processing time."""

    @staticmethod
    def of(interval: Time | Duration | int) -> ContinuousProcessingTimeTrigger[Value]:
        """Fire at this interval of processing time."""
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


def _add(a: int, b: int) -> int:
    return a + b


class CountTrigger(Trigger[T, AnyWindow]):
    """Fires after every `max_count` records."""

    def __init__(self, window_size: int) -> None:
        self.count = window_size
        self._seen = ReducingStateDescriptor("count", _add)

    @staticmethod
    def of(window_size: int) -> CountTrigger[Value]:
        """Fire after every `max_count` records."""
        return CountTrigger(window_size)

    def on_element(self, element: T, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        seen = ctx.get_partitioned_state(self._seen)
        seen.add(1)
        if seen.get() >= self.count:
            seen.clear()
            return FIRE
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(self._seen)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self._seen).clear()


class DeltaTrigger(Trigger[T, AnyWindow]):
    """Fires when the delta between a record and the one at the last firing exceeds a threshold."""

    def __init__(self, threshold: float, delta_function: Callable[[Value, Value], float]) -> None:
        self.threshold = threshold
        self.delta: Callable[[Value, Value], float] = getattr(delta_function, "get_delta", delta_function)
        self._last = ValueStateDescriptor("last-element")

    @staticmethod
    def of(threshold: float, delta_function: UserCode, type_info: TypeInformation | None = None) -> DeltaTrigger[Value]:
        """Fire when `delta_function` of the record at the last firing and a new one exceeds the threshold."""
        return DeltaTrigger(threshold, delta_function)

    def on_element(self, element: T, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        last = ctx.get_partitioned_state(self._last)
        before = last.value()
        if before is None:
            last.update(element)
            return CONTINUE
        if self.delta(before, element) > self.threshold:
            last.update(element)
            return FIRE
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.get_partitioned_state(self._last).clear()


class NeverTrigger(Trigger[T, AnyWindow]):
    """Never fires."""

    def on_element(self, element: T, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def can_merge(self) -> bool:
        return True

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        pass


class _Nested(Trigger[T, AnyWindow]):
    """A trigger that wraps another one."""

    def __init__(self, nested_trigger: Trigger[T, AnyWindow]) -> None:
        if not isinstance(nested_trigger, Trigger):
            raise InvalidProgramError(f"{type(self).__name__} wraps another trigger, not {nested_trigger!r}.")
        self.nested = nested_trigger

    @abstractmethod
    def _change(self, result: TriggerResult, window: Window, ctx: TriggerContext) -> TriggerResult: ...

    def on_element(self, element: T, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._change(self.nested.on_element(element, timestamp, window, ctx), window, ctx)

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._change(self.nested.on_processing_time(time, window, ctx), window, ctx)

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._change(self.nested.on_event_time(time, window, ctx), window, ctx)

    def can_merge(self) -> bool:
        return self.nested.can_merge()

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        self.nested.on_merge(window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self.nested.clear(window, ctx)


class PurgingTrigger(_Nested[T]):
    """Clears the window's contents whenever the nested trigger fires."""

    @staticmethod
    def of(nested_trigger: Trigger[Value, AnyWindow]) -> PurgingTrigger[Value]:
        """Clear the window's contents whenever the nested trigger fires."""
        return PurgingTrigger(nested_trigger)

    def _change(self, result: TriggerResult, window: Window, ctx: TriggerContext) -> TriggerResult:
        return FIRE_AND_PURGE if result.is_fire() else result


class NoRepeatedTrigger(_Nested[T]):
    """Suppresses firings of the nested trigger while no record has arrived since the last one."""

    def __init__(self, nested_trigger: Trigger[T, AnyWindow]) -> None:
        super().__init__(nested_trigger)
        self._fresh = ValueStateDescriptor("has-new-elements")

    @staticmethod
    def of(nested_trigger: Trigger[Value, AnyWindow]) -> NoRepeatedTrigger[Value]:
        """Fire with the nested trigger, but not again without a new record."""
        return NoRepeatedTrigger(nested_trigger)

    def on_element(self, element: T, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.get_partitioned_state(self._fresh).update(True)
        return super().on_element(element, timestamp, window, ctx)

    def _change(self, result: TriggerResult, window: Window, ctx: TriggerContext) -> TriggerResult:
        if not result.is_fire():
            return result
        fresh = ctx.get_partitioned_state(self._fresh)
        if fresh.value():
            fresh.clear()
            return result
        return PURGE if result.is_purge() else CONTINUE

    def on_merge(self, window: Window, ctx: OnMergeContext) -> None:
        super().on_merge(window, ctx)
        ctx.get_partitioned_state(self._fresh).update(True)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        super().clear(window, ctx)
        ctx.get_partitioned_state(self._fresh).clear()
