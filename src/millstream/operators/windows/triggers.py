"""When a window fires: triggers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration, Time, to_millis
from millstream.operators.windows.windows import TimeWindow, Window
from millstream.state.descriptors import ReducingStateDescriptor, StateDescriptor, ValueStateDescriptor

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """What a trigger wants done with its window; the value is (fire, purge)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        """Return whether the window function is called."""
        return self.value[0]

    def is_purge(self) -> bool:
        """Return whether the window is emptied."""
        return self.value[1]


CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = (
    TriggerResult.CONTINUE,
    TriggerResult.FIRE,
    TriggerResult.PURGE,
    TriggerResult.FIRE_AND_PURGE,
)


class TriggerContext(ABC):
    """What a trigger can ask and do; everything is of the current key and window."""

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """Return the time of the wall clock, in milliseconds."""

    @abstractmethod
    def get_current_watermark(self) -> int:
        """Return how far event time has come, in milliseconds."""

    @abstractmethod
    def get_metric_group(self) -> Any:
        """Return where metrics are made."""

    @abstractmethod
    def register_processing_time_timer(self, time: int) -> None:
        """Ask to be called at a time of the wall clock."""

    @abstractmethod
    def register_event_time_timer(self, time: int) -> None:
        """Ask to be called at an event time."""

    @abstractmethod
    def delete_processing_time_timer(self, time: int) -> None:
        """Take that back."""

    @abstractmethod
    def delete_event_time_timer(self, time: int) -> None:
        """Take that back."""

    @abstractmethod
    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        """Return a state of the key and the window."""


class OnMergeContext(TriggerContext):
    """A TriggerContext while windows merge."""

    @abstractmethod
    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        """Put the state of all merged windows together in the new one."""


# Inside Trigger the plain names are its attributes.
_Context = TriggerContext
_MergeContext = OnMergeContext


class Trigger(ABC, Generic[T, W]):
    """Decides when a window fires. It has no memory of its own: what it must know it keeps in the context's state."""

    TriggerContext = TriggerContext
    OnMergeContext = OnMergeContext

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: _Context) -> TriggerResult:
        """A record was added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: _Context) -> TriggerResult:
        """A processing-time timer is due."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: _Context) -> TriggerResult:
        """An event-time timer is due."""

    def can_merge(self) -> bool:
        """Return whether the trigger supports merging windows."""
        return False

    def on_merge(self, window: W, ctx: _MergeContext) -> None:
        """Windows have merged into this one."""

    @abstractmethod
    def clear(self, window: W, ctx: _Context) -> None:
        """The window is gone: delete timers and state."""


class EventTimeTrigger(Trigger[T, TimeWindow]):
    """Fires when the watermark passes the end of the window, and for every late record after that."""

    @staticmethod
    def create() -> EventTimeTrigger[Any]:
        """Fire when event time has come to the window's end."""
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
    """Fires when the wall clock passes the end of the window."""

    @staticmethod
    def create() -> ProcessingTimeTrigger[Any]:
        """Fire when the wall clock has come to the window's end."""
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
    """Fires at every interval of a time; the next firing is in state, so that merged windows have one."""

    def __init__(self, interval: int) -> None:
        self.interval = _interval(interval, type(self).__name__)
        self._fire_time = ReducingStateDescriptor("fire-time", _min_time)

    @abstractmethod
    def _register(self, ctx: TriggerContext, time: int) -> None: ...

    @abstractmethod
    def _delete(self, ctx: TriggerContext, time: int) -> None: ...

    def _begin(self, time: int, window: TimeWindow, ctx: TriggerContext) -> None:
        """Have the window fire, unless its next time is known."""
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
    """Fires at every interval of event time, and at the end of the window."""

    @staticmethod
    def of(interval: Time | Duration | int) -> ContinuousEventTimeTrigger[Any]:
        """Fire again and again, so far apart in event time."""
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
    """Fires at every interval of the wall clock."""

    @staticmethod
    def of(interval: Time | Duration | int) -> ContinuousProcessingTimeTrigger[Any]:
        """Fire again and again, so far apart by the wall clock."""
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


class CountTrigger(Trigger[T, Any]):
    """Fires after every `max_count` records."""

    def __init__(self, window_size: int) -> None:
        self.count = window_size
        self._seen = ReducingStateDescriptor("count", _add)

    @staticmethod
    def of(window_size: int) -> CountTrigger[Any]:
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


class DeltaTrigger(Trigger[T, Any]):
    """Fires when a record is further than a threshold from the one at the last firing."""

    def __init__(self, threshold: float, delta_function: Callable[[Any, Any], float]) -> None:
        self.threshold = threshold
        self.delta: Callable[[Any, Any], float] = getattr(delta_function, "get_delta", delta_function)
        self._last = ValueStateDescriptor("last-element")

    @staticmethod
    def of(threshold: float, delta_function: Any, type_info: Any = None) -> DeltaTrigger[Any]:
        """Fire when a record is far enough from the one of the last time, by a function."""
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


class NeverTrigger(Trigger[T, Any]):
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


class _Nested(Trigger[T, Any]):
    """A trigger around another."""

    def __init__(self, nested_trigger: Trigger[T, Any]) -> None:
        if not isinstance(nested_trigger, Trigger):
            raise InvalidProgramError(f"{type(self).__name__} goes around another trigger, not {nested_trigger!r}.")
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
    """Empties the window whenever the other trigger fires."""

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> PurgingTrigger[Any]:
        """Empty the window whenever another trigger fires."""
        return PurgingTrigger(nested_trigger)

    def _change(self, result: TriggerResult, window: Window, ctx: TriggerContext) -> TriggerResult:
        return FIRE_AND_PURGE if result.is_fire() else result


class NoRepeatedTrigger(_Nested[T]):
    """Lets the other trigger fire only when a record has come since it last fired."""

    def __init__(self, nested_trigger: Trigger[T, Any]) -> None:
        super().__init__(nested_trigger)
        self._fresh = ValueStateDescriptor("has-new-elements")

    @staticmethod
    def of(nested_trigger: Trigger[Any, Any]) -> NoRepeatedTrigger[Any]:
        """Fire once, when another trigger does."""
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
