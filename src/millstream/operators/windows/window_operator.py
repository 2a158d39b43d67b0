"""The window operator: assigner x trigger x evictor x contents x window function, after Flink's WindowOperator."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from types import GenericAlias
from typing import ClassVar, Self

from millstream.common.aliases import Key as UserKey
from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import Downstream, OperatorSetup
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.metrics import Counter, MetricGroup
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.runtime.timers import Timers
from millstream.operators.stateful import FunctionsOperator, TimerOperator
from millstream.operators.windows.assigners import (
    MergingWindowAssigner,
    MergingWindows,
    WindowAssigner,
    WindowAssignerContext,
)
from millstream.operators.windows.contents import Contents, Result, Row, Stamped
from millstream.operators.windows.evictors import Evictor, EvictorContext, TimestampedValue
from millstream.operators.windows.takeover import take_panes, take_sessions
from millstream.operators.windows.triggers import OnMergeContext, Trigger, TriggerResult
from millstream.operators.windows.windows import AnyWindow, Window
from millstream.state.descriptors import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    renamed,
)
from millstream.state.handles import State
from millstream.state.key_groups import thaw
from millstream.state.keyed import KeyedState
from millstream.state.kinds import WINDOWS
from millstream.state.table import BY_NAMESPACE, KeyCell, StateTable
from millstream.state.timers import Timer

LATE_DROPPED = "numLateRecordsDropped"
# The number of late records retained for diagnostics.
LATE_SHOWN = 3


class WindowOperator(TimerOperator, FunctionsOperator):
    """Groups a keyed stream into windows."""

    identity = "window"

    keyed = True
    uses_key = True
    emits_later = True
    tags_outputs = True
    assigns_timestamps = True
    timer_label = "windows"

    _state: KeyedState
    _merging: StateTable
    _dropped: Counter

    def __init__(
        self,
        assigner: WindowAssigner[Value, AnyWindow],
        trigger: Trigger[Value, AnyWindow],
        contents: Contents,
        result: Result,
        lateness: int = 0,
        late_tag: OutputTag | None = None,
        evictor: Evictor | None = None,
    ) -> None:
        if isinstance(assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise InvalidProgramError(
                f"The trigger {type(trigger).__name__} cannot be used with {assigner}, whose windows merge: "
                "give it can_merge() and on_merge()."
            )
        self.assigner = assigner
        self.trigger = trigger
        self.contents = contents
        self.result = result
        self.lateness = lateness
        self.late_tag = late_tag
        self.evictor = evictor

    @classmethod
    def like(cls, other: WindowOperator) -> Self:
        """Return an operator of this form for the windows of another."""
        return cls(
            other.assigner,
            other.trigger,
            other.contents,
            other.result,
            other.lateness,
            other.late_tag,
            other.evictor,
        )

    def functions(self) -> list[UserFunction]:
        return [self.result.function] if self.result.function is not None else []

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.state is not None
        self._state = setup.state
        self.timers = Timers(setup.state)
        self.contents.table = setup.state.table("_window_contents", self.contents.kind, BY_NAMESPACE)
        self._merges = isinstance(self.assigner, MergingWindowAssigner)
        if self._merges:
            self._merging = setup.state.table("_merging_windows", WINDOWS)
        self._dropped = setup.context.get_metrics_group().counter(LATE_DROPPED)
        self.late_records: deque[tuple[Value, int, int]] = deque(maxlen=LATE_SHOWN)
        setup.state.when_taken_over(self._take_over)
        self._assigning = _AssignerContext(self)
        self._triggering = _TriggerContext(self)
        self._processing = ProcessWindowContext(self)

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        self.set_key(w, key)
        many, out = w.var("r"), w.var()
        process = w.bind(self.process_element, "window")
        w.line(f"{many} = {process}({value.name}, {value.timestamp})", self, value.name)
        with w.block(f"if {many}:"), w.block(f"for {out}, {out}t in {many}:"):
            downstream(Var(out, f"{out}t", detached=False))

    def _take_over(self) -> None:
        """Convert the state of a pane or session operator."""
        assert self.timers is not None
        windows = take_panes(self._state, getattr(self.assigner, "size", 0)) + take_sessions(self._state)
        for key, window, contents in windows:
            self.contents.table.put((key, window), contents)
            if self._merges:
                self._merging.put(key, {**(self._merging.get(key) or {}), window: window})
            self.timers.event.register((window.max_timestamp(), key, window))
            self._register_cleanup(key, window)

    # --- records

    def process_element(self, value: Value, timestamp: int | None) -> list[tuple[Value, int | None]] | None:
        """Add a record to its windows; return the results of those that fire, as (value, timestamp)."""
        key = self._state.cell.key
        stamp = MIN_WATERMARK if timestamp is None else timestamp
        windows = self.assigner.assign_windows(value, stamp, self._assigning)
        if windows is None:
            raise InvalidProgramError(
                f"{self.assigner} returned None: it must return a list of windows, even if empty."
            )
        fired: list[tuple[Value, int | None]] = []
        add = self._add_merging if self._merges else self._add
        skipped = True
        for window in windows:
            if add(key, window, value, timestamp, stamp, fired):
                skipped = False
        if skipped and self._is_late_record(stamp):
            if self.late_tag is not None:
                fired.append(((self.late_tag, value), timestamp))
            else:
                self.drop(value, stamp)
        return fired

    def drop(self, value: Value, timestamp: int) -> None:
        """Count a late record, and retain it for diagnostics."""
        self._dropped.inc()
        self.late_records.append((value, timestamp, self.watermark))

    def _add(
        self, key: UserKey, window: Window, value: Value, timestamp: int | None, stamp: int, fired: list[Value]
    ) -> bool:
        if self._is_late(window):
            return False
        row = (key, window)
        self.contents.add(row, value, timestamp)
        self._decide(
            key, window, row, self.trigger.on_element(value, stamp, window, self._trigger_context(key, window)), fired
        )
        self._register_cleanup(key, window)
        return True

    def _add_merging(
        self, key: UserKey, window: Window, value: Value, timestamp: int | None, stamp: int, fired: list[Value]
    ) -> bool:
        merging = self._windows_of(key)
        actual = merging.add(window, lambda *merged: self._on_merge(key, *merged))
        if self._is_late(actual):
            merging.retire(actual)
            merging.save()
            return False
        row = (key, merging.state_window(actual))
        self.contents.add(row, value, timestamp)
        self._decide(
            key, actual, row, self.trigger.on_element(value, stamp, actual, self._trigger_context(key, actual)), fired
        )
        self._register_cleanup(key, actual)
        merging.save()
        return True

    def _windows_of(self, key: UserKey) -> MergingWindows:
        assert isinstance(self.assigner, MergingWindowAssigner)
        return MergingWindows(self.assigner, self._merging, key)

    def _on_merge(
        self, key: UserKey, merged_window: Window, members: list[Window], state_window: Window, merged: list[Window]
    ) -> None:
        late = merged_window.max_timestamp() + self.lateness <= self.watermark
        if self.assigner.is_event_time() and late:
            raise InvalidProgramError(
                f"The end of the merged window {merged_window} is already behind the watermark {self.watermark}: "
                "a merging assigner must not create windows that have ended."
            )
        context = _MergeContext(self, key, merged_window, members)
        self.trigger.on_merge(merged_window, context)
        for member in members:
            self.trigger.clear(member, self._trigger_context(key, member))
            self._delete_cleanup(key, member)
        self.contents.merge((key, state_window), [(key, w) for w in merged])

    # --- time

    def on_event_timer(self, timer: Timer) -> None:
        self._on_timer(timer, self.trigger.on_event_time, self.assigner.is_event_time())

    def on_processing_timer(self, timer: Timer) -> None:
        self._on_timer(timer, self.trigger.on_processing_time, not self.assigner.is_event_time())

    def _on_timer(self, timer: Timer, on_time: Callable[..., TriggerResult], cleans_up: bool) -> None:
        time, key, window = timer
        self._state.cell.key = key
        fired: list[tuple[Value, int | None]] = []
        merging = self._windows_of(key) if self._merges else None
        state_window = window if merging is None else merging.state_window(window)
        # A timer may remain after its window was removed.
        if state_window is not None:
            row = (key, state_window)
            self._decide(key, window, row, on_time(time, window, self._trigger_context(key, window)), fired)
            if cleans_up and time == self._cleanup_time(window):
                self._clear(key, window, row, merging)
        if merging is not None:
            merging.save()
        for value, timestamp in fired:
            self.setup.emit((value,), timestamp)

    def _decide(self, key: UserKey, window: Window, row: Row, result: TriggerResult, fired: list[Value]) -> None:
        if result is TriggerResult.CONTINUE:
            return
        if not isinstance(result, TriggerResult):
            raise InvalidProgramError(
                f"The trigger {type(self.trigger).__name__} returned {result!r}: it must return a TriggerResult."
            )
        if result.is_fire():
            self._fire(key, window, row, fired)
        if result.is_purge():
            self.contents.clear(row)

    def _fire(self, key: UserKey, window: Window, row: Row, fired: list[Value]) -> None:
        contents = self.contents.get(row)
        if contents is None:
            return
        after: Callable[[], None] | None = None
        if self.evictor is not None:
            contents, after = self._evict(self.evictor, window, row, contents)
        stamp = window.max_timestamp()
        results = self._call(key, window, contents)
        if results is not None:
            fired.extend((value, stamp) for value in results)
        if after is not None:
            after()

    def _call(self, key: UserKey, window: Window, contents: Value) -> Iterable[Value] | None:
        context = self._processing
        context._enter(key, window)
        return self.result.call(thaw(key), context, window, contents)

    def _evict(
        self, evictor: Evictor, window: Window, row: Row, contents: list[tuple[Value, int | None]]
    ) -> tuple[list[Value], Callable[[], None]]:
        elements = [TimestampedValue(*e) for e in contents]
        about = EvictorContext(self.watermark, self.setup.clock(), self.setup.context.get_metrics_group())
        evictor.evict_before(elements, len(elements), window, about)
        seen = [e.value for e in elements]

        def after() -> None:
            evictor.evict_after(elements, len(elements), window, about)
            assert isinstance(self.contents, Stamped)
            self.contents.replace(row, [(e.value, e.timestamp) for e in elements])

        return seen, after

    # --- ends

    def _is_late(self, window: Window) -> bool:
        return self.assigner.is_event_time() and self._cleanup_time(window) <= self.watermark

    def _is_late_record(self, stamp: int) -> bool:
        return self.assigner.is_event_time() and stamp + self.lateness <= self.watermark

    def _cleanup_time(self, window: Window) -> int:
        end: int = window.max_timestamp()
        if self.assigner.is_event_time():
            return min(end + self.lateness, MAX_WATERMARK)
        return end

    def _register_cleanup(self, key: UserKey, window: Window) -> None:
        time = self._cleanup_time(window)
        assert self.timers is not None
        if time != MAX_WATERMARK:
            queue = self.timers.event if self.assigner.is_event_time() else self.timers.processing
            queue.register((time, key, window))

    def _delete_cleanup(self, key: UserKey, window: Window) -> None:
        time = self._cleanup_time(window)
        assert self.timers is not None
        if time != MAX_WATERMARK:
            queue = self.timers.event if self.assigner.is_event_time() else self.timers.processing
            queue.delete((time, key, window))

    def _clear(self, key: UserKey, window: Window, row: Row, merging: MergingWindows | None) -> None:
        self.contents.clear(row)
        self.trigger.clear(window, self._trigger_context(key, window))
        self._clear_function_state(key, window)
        if merging is not None:
            merging.retire(window)

    def _clear_function_state(self, key: UserKey, window: Window) -> None:
        """Let the window function clear its state of a removed window."""
        self._processing._enter(key, window)
        if self.result.function is not None:
            clear = getattr(self.result.function.function, "clear", None)
            if clear is not None:
                clear(self._processing)

    def _trigger_context(self, key: UserKey, window: Window) -> _TriggerContext:
        self._triggering.enter(key, window)
        return self._triggering


class _AssignerContext(WindowAssignerContext):
    def __init__(self, operator: WindowOperator) -> None:
        self._operator = operator

    def get_current_processing_time(self) -> int:
        return self._operator.setup.clock()

    def get_runtime_context(self) -> RuntimeContext:
        return self._operator.setup.context


def _trigger_state(descriptor: StateDescriptor) -> str:
    """Return the name of a trigger's state: one that no state of the window function has."""
    return f"_trigger.{descriptor.name}"


class _TriggerContext(OnMergeContext):
    """The context of triggers; their state has rows (key, window)."""

    def __init__(self, operator: WindowOperator) -> None:
        self._operator = operator
        self._cell = KeyCell(BY_NAMESPACE)
        self._handles: dict[str, State] = {}

    def enter(self, key: UserKey, window: Window) -> None:
        self._cell.key = (key, window)

    def get_current_processing_time(self) -> int:
        return self._operator.setup.clock()

    def get_current_watermark(self) -> int:
        return self._operator.watermark

    def get_metric_group(self) -> MetricGroup:
        return self._operator.setup.context.get_metrics_group()

    def _timer(self, time: int) -> Timer:
        key, window = self._cell.key
        return time, key, window

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.processing.register(self._timer(time))

    def register_event_time_timer(self, time: int) -> None:
        self._timers.event.register(self._timer(time))

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.processing.delete(self._timer(time))

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.event.delete(self._timer(time))

    @property
    def _timers(self) -> Timers:
        assert self._operator.timers is not None
        return self._operator.timers

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Value:
        handle = self._handles.get(state_descriptor.name)
        if handle is None:
            named = renamed(state_descriptor, _trigger_state(state_descriptor))
            handle = self._handles[state_descriptor.name] = self._operator._state.handle(named, self._cell)
        return handle

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        raise InvalidProgramError("merge_partitioned_state() can only be called in on_merge().")


class _MergeContext(_TriggerContext):
    """The context while windows merge into one."""

    def __init__(self, operator: WindowOperator, key: UserKey, merged_window: Window, members: list[Window]) -> None:
        super().__init__(operator)
        self._key = key
        self._members = members
        self._cell = operator._triggering._cell
        self._handles = operator._triggering._handles
        self.enter(key, merged_window)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        handle = self.get_partitioned_state(state_descriptor)
        merged_key = self._cell.key
        if not hasattr(handle, "add"):
            raise InvalidProgramError(
                f"State {state_descriptor.name!r} of a trigger cannot merge: use reducing, aggregating or list state."
            )
        table = self._operator._state.tables[_trigger_state(state_descriptor)]
        contents = []
        for member in self._members:
            content = table.get((self._key, member))
            if content is not None and (self._key, member) != merged_key:
                contents.append(content)
                table.remove((self._key, member))
        for content in contents:
            _merge_into(state_descriptor, table, merged_key, content)


def _merge_into(descriptor: StateDescriptor, table: StateTable, row: Row, content: Value) -> None:
    before = table.get(row)
    if before is None:
        table.put(row, content)
    elif isinstance(descriptor, ReducingStateDescriptor):
        table.put(row, descriptor.reducer()(before, content))
    elif isinstance(descriptor, AggregatingStateDescriptor):
        table.put(row, descriptor.agg_function.merge(before, content))
    else:
        table.put(row, [*before, *content])


class ProcessWindowContext:
    """The context of a window function."""

    # Supports annotations such as `Context[TimeWindow]`.
    __class_getitem__: ClassVar[object] = classmethod(GenericAlias)

    def __init__(self, operator: WindowOperator) -> None:
        self._operator = operator
        self._window: Window | None = None
        self._cell = KeyCell(BY_NAMESPACE)

    def _enter(self, key: UserKey, window: Window) -> None:
        self._window = window
        self._cell.key = (key, window)
        self._operator._state.cell.key = key

    def window(self) -> AnyWindow:
        """Return the window."""
        return self._window

    def current_processing_time(self) -> int:
        """Return the processing time in milliseconds."""
        return self._operator.setup.clock()

    def current_watermark(self) -> int:
        """Return the watermark in milliseconds."""
        return self._operator.watermark

    def window_state(self) -> WindowStateStore:
        """Return the state of this key and window; it must be cleared in the function's `clear`."""
        if self._operator._merges:
            raise InvalidProgramError("Per-window state is not allowed when using merging windows: use global_state().")
        return WindowStateStore(self._operator._state, self._cell, "_window.")

    def global_state(self) -> WindowStateStore:
        """Return the state of this key over all windows."""
        return WindowStateStore(self._operator._state, self._operator._state.cell, "")


class WindowStateStore:
    """The states of a window function."""

    def __init__(self, state: KeyedState, cell: KeyCell, prefix: str) -> None:
        self._state = state
        self._cell = cell
        self._prefix = prefix

    def _handle(self, state_descriptor: StateDescriptor) -> Value:
        """Return the state that a descriptor names, of this window or of its key."""
        name = f"{self._prefix}{state_descriptor.name}"
        return self._state.handle(renamed(state_descriptor, name), self._cell)

    get_state = get_list_state = get_map_state = get_reducing_state = get_aggregating_state = _handle
