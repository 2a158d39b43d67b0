"""Windows that depend on records rather than on time: global and count windows, and triggers that look at records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import TypeVar

from millstream.common.aliases import UserCode, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import TypeInformation
from millstream.operators.windows.assigners import Environment, WindowAssigner, WindowAssignerContext
from millstream.operators.windows.triggers import (
    CONTINUE,
    FIRE,
    FIRE_AND_PURGE,
    PURGE,
    OnMergeContext,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from millstream.operators.windows.windows import GLOBAL, AnyWindow, CountWindow, GlobalWindow, Window
from millstream.state.descriptors import ReducingStateDescriptor, ValueStateDescriptor

T = TypeVar("T")


def _add(a: int, b: int) -> int:
    return a + b


class CountTrigger(Trigger[T, AnyWindow]):
    """Fires after every `window_size` records.

    Example:
        >>> from millstream.datastream.window import CountTrigger, GlobalWindows
        >>> windows = env.from_collection([1, 2, 3, 4, 5]).window_all(GlobalWindows.create())
        >>> list(windows.trigger(CountTrigger.of(2)).reduce(lambda a, b: a + b).execute_and_collect())
        [3, 10]
    """

    def __init__(self, window_size: int) -> None:
        self.count = window_size
        self._seen = ReducingStateDescriptor("count", _add)

    @staticmethod
    def of(window_size: int) -> CountTrigger[Value]:
        """Fire after every `window_size` records; the window's contents stay.

        Example:
            >>> CountTrigger.of(100).count
            100
        """
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
    """Fires when the delta between a record and the one at the last firing exceeds a threshold. Not in PyFlink.

    Example:
        >>> from millstream.datastream.window import DeltaTrigger, GlobalWindows
        >>> prices = env.from_collection([100, 101, 108, 109, 120]).window_all(GlobalWindows.create())
        >>> jumps = prices.trigger(DeltaTrigger.of(5, lambda before, price: price - before))
        >>> list(jumps.apply(lambda window, inputs: [list(inputs)[-1]]).execute_and_collect())
        [108, 120]
    """

    def __init__(self, threshold: float, delta_function: Callable[[Value, Value], float]) -> None:
        self.threshold = threshold
        self.delta: Callable[[Value, Value], float] = getattr(delta_function, "get_delta", delta_function)
        self._last = ValueStateDescriptor("last-element")

    @staticmethod
    def of(threshold: float, delta_function: UserCode, type_info: TypeInformation | None = None) -> DeltaTrigger[Value]:
        """Fire when `delta_function` of the record at the last firing and a new one exceeds the threshold.

        Args:
            threshold: the highest delta that does not fire.
            delta_function: takes two records and returns a number.
            type_info: accepted for compatibility with Flink, without effect.

        Example:
            >>> DeltaTrigger.of(5, lambda before, price: price - before).threshold
            5
        """
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
    """Never fires: the trigger of GlobalWindows if the program sets none.

    Example:
        >>> from millstream.datastream.window import GlobalWindows, NeverTrigger
        >>> windows = env.from_collection([1, 2, 3]).window_all(GlobalWindows.create()).trigger(NeverTrigger())
        >>> list(windows.reduce(max).execute_and_collect())
        []
    """

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
    """Clears the window's contents whenever the nested trigger fires.

    Example:
        >>> from millstream.datastream.window import CountTrigger, GlobalWindows, PurgingTrigger
        >>> windows = env.from_collection([1, 2, 3, 4]).window_all(GlobalWindows.create())
        >>> sums = windows.trigger(PurgingTrigger.of(CountTrigger.of(2))).reduce(lambda a, b: a + b)
        >>> list(sums.execute_and_collect())
        [3, 7]
    """

    @staticmethod
    def of(nested_trigger: Trigger[Value, AnyWindow]) -> PurgingTrigger[Value]:
        """Clear the window's contents whenever the nested trigger fires.

        Example:
            >>> type(PurgingTrigger.of(CountTrigger.of(2)).nested).__name__
            'CountTrigger'
        """
        return PurgingTrigger(nested_trigger)

    def _change(self, result: TriggerResult, window: Window, ctx: TriggerContext) -> TriggerResult:
        return FIRE_AND_PURGE if result.is_fire() else result


class NoRepeatedTrigger(_Nested[T]):
    """Suppresses firings of the nested trigger while no record has arrived since the last one.

    Example:
        >>> from millstream.datastream.window import ContinuousEventTimeTrigger, NoRepeatedTrigger
        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> from millstream.testing import WindowHarness
        >>> trigger = NoRepeatedTrigger.of(ContinuousEventTimeTrigger.of(2))
        >>> with WindowHarness(TumblingEventTimeWindows.of(10), max, None, "reduce", trigger=trigger) as harness:
        ...     harness.process_element(1, timestamp=1)
        ...     for time in (3, 5, 9):
        ...         harness.process_watermark(time)
        ...     harness.output()
        [1]
    """

    def __init__(self, nested_trigger: Trigger[T, AnyWindow]) -> None:
        super().__init__(nested_trigger)
        self._fresh = ValueStateDescriptor("has-new-elements")

    @staticmethod
    def of(nested_trigger: Trigger[Value, AnyWindow]) -> NoRepeatedTrigger[Value]:
        """Fire with the nested trigger, but not again without a new record.

        Example:
            >>> type(NoRepeatedTrigger.of(CountTrigger.of(2)).nested).__name__
            'CountTrigger'
        """
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


class GlobalWindows(WindowAssigner[T, GlobalWindow]):
    """One window for all records of a key; it fires only with a trigger that the program sets.

    Example:
        >>> from millstream.datastream.window import CountTrigger, GlobalWindows, PurgingTrigger
        >>> windows = env.from_collection([1, 2, 3, 4, 5]).window_all(GlobalWindows.create())
        >>> sums = windows.trigger(PurgingTrigger.of(CountTrigger.of(2))).reduce(lambda a, b: a + b)
        >>> list(sums.execute_and_collect())
        [3, 7]
    """

    @staticmethod
    def create() -> GlobalWindows[Value]:
        """Return the assigner; the window never ends, so set a trigger.

        Example:
            >>> GlobalWindows.create().assign_windows("record", 5, None)
            [GlobalWindow]
        """
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
    """Windows of a number of consecutive records: those of `count_window(size)`.

    Example:
        >>> windows = env.from_collection([1, 2, 3, 4, 5]).window_all(CountTumblingWindowAssigner.of(2))
        >>> list(windows.apply(lambda window, inputs: [(window.id, list(inputs))]).execute_and_collect())
        [(0, [1, 2]), (1, [3, 4])]
    """

    def __init__(self, window_size: int) -> None:
        if window_size < 1:
            raise InvalidProgramError(f"The size of a count window must be at least 1, it is {window_size}.")
        self.size = window_size
        self._seen = ValueStateDescriptor("tumble-count-assigner")

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner[Value]:
        """Return windows of a number of records.

        Example:
            >>> CountTumblingWindowAssigner.of(100)
            CountTumblingWindowAssigner(100)
        """
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
    """Windows of a number of records, of which a new one starts with every slide: those of `count_window(size, slide)`.

    Example:
        >>> windows = env.from_collection([1, 2, 3, 4, 5]).window_all(CountSlidingWindowAssigner.of(3, 1))
        >>> list(windows.apply(lambda window, inputs: [(window.id, list(inputs))]).execute_and_collect())
        [(0, [1, 2, 3]), (1, [2, 3, 4]), (2, [3, 4, 5])]
    """

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
        """Return windows of `window_size` records; a new one starts every `window_slide` records.

        Example:
            >>> CountSlidingWindowAssigner.of(100, 10)
            CountSlidingWindowAssigner(100, 10)
        """
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


def count_assigner(size: int, slide: int) -> WindowAssigner[Value, CountWindow]:
    """Return the assigner of count_window(): tumbling windows if the slide is 0."""
    return CountSlidingWindowAssigner(size, slide) if slide else CountTumblingWindowAssigner(size)
