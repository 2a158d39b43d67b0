"""The quick way through the commonest windows: tumbling or sliding in event time, combined as records come.

With the assigner's own trigger, no lateness and no evictor, a window needs no timers and no trigger state: all keys of
a window fire together when the watermark passes its end. So the state is one dict of keys for each window (a pane), the
loop is written out, and firing is one pass over a dict. What comes out is the same as from WindowOperator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from millstream.common.aliases import Key as UserKey
from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import Downstream, OperatorSetup
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.lookup_codegen import look_up
from millstream.operators.windows.assigners import SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.operators.windows.contents import Aggregated, Reduced
from millstream.operators.windows.takeover import take_windows
from millstream.operators.windows.triggers import EventTimeTrigger
from millstream.operators.windows.window_operator import WindowOperator
from millstream.operators.windows.windows import TimeWindow
from millstream.state.kinds import PANES
from millstream.state.table import BY_PANE, MISSING, about_len

Pane = tuple[dict[UserKey, Value], Callable[..., Value]]
_NOTHING: dict[UserKey, Value] = {}


def can_use_panes(operator: WindowOperator) -> bool:
    """Return whether an operator's windows can be stored as panes."""
    return (
        type(operator.assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows)
        and type(operator.trigger) is EventTimeTrigger
        and type(operator.contents) in (Reduced, Aggregated)
        and operator.lateness == 0
        and operator.evictor is None
    )


class PaneOperator(WindowOperator):
    """A window operator whose state is one dict of keys for each window."""

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.state is not None
        self._panes = setup.state.table("_panes", PANES, BY_PANE)
        assigner = self.assigner
        assert isinstance(assigner, (TumblingEventTimeWindows, SlidingEventTimeWindows))
        self._size = assigner.size

    def _take_over(self) -> None:
        panes: dict[int, dict[UserKey, Value]] = {}
        for key, window, contents in take_windows(self._state, self.contents.kind):
            panes.setdefault(window.start, {})[key] = contents
        for start, pane in panes.items():
            self._panes.put(start, pane)

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        assigner, stamp = self.assigner, value.timestamp
        if stamp is None:
            w.line(f"{w.bind(self.refuse, 'refuse')}()", self, value.name)
            return
        with w.block(f"if {stamp} is None:"):
            w.line(f"{w.bind(self.refuse, 'refuse')}()", self, value.name)
        start, current = w.var("s"), w.var("c")
        overlay, base_get = w.var("o"), w.var("b")
        w.before(f"{current} = None")
        if isinstance(assigner, TumblingEventTimeWindows):
            w.line(f"{start} = {_first(stamp, assigner.offset, assigner.size)}")
            with w.block(f"if {start} != {current}:"):
                self._find(w, start, current, overlay, base_get)
            self._late_or_added(w, value, key, overlay, base_get)
            return
        assert isinstance(assigner, SlidingEventTimeWindows)
        skipped, last = w.var("n"), _first(stamp, assigner.offset, assigner.slide)
        w.line(f"{skipped} = True")
        with w.block(f"for {start} in range({last}, {stamp} - {assigner.size}, -{assigner.slide}):"):
            self._find(w, start, current, overlay, base_get)
            with w.block(f"if {overlay} is not None:"):
                w.line(f"{skipped} = False")
                self._added(w, value, key, overlay, base_get)
        with w.block(f"if {skipped} and {stamp} <= {w.bind(self, 'windows')}.watermark:"):
            w.line(f"{w.bind(self.late, 'late')}({value.name}, {stamp})", self, value.name)

    def _find(self, w: CodeWriter, start: str, current: str, overlay: str, base_get: str) -> None:
        w.line(f"{current} = {start}")
        w.line(f"{overlay}, {base_get} = {w.bind(self.pane, 'pane')}({start})")

    def _late_or_added(self, w: CodeWriter, value: Var, key: Key | None, overlay: str, base_get: str) -> None:
        with w.block(f"if {overlay} is None:"):
            w.line(f"{w.bind(self.late, 'late')}({value.name}, {value.timestamp})", self, value.name)
        with w.block("else:"):
            self._added(w, value, key, overlay, base_get)

    def _added(self, w: CodeWriter, value: Var, key: Key | None, overlay: str, base_get: str) -> None:
        assert key is not None
        k, old, missing = key.name, w.var("a"), w.bind(MISSING, "missing")
        look_up(w, self, old, key, value.name, overlay, base_get)
        if isinstance(self.contents, Reduced):
            reduced, first = w.call(self.contents.reduce, old, value.name), w.expression_of(value.name)
            new = f"{reduced} if {old} is not {missing} else {first}"
        else:
            assert isinstance(self.contents, Aggregated)
            create = w.bind(self.contents.function.create_accumulator, "create")
            with w.block(f"if {old} is {missing}:"):
                w.line(f"{old} = {create}()", self, value.name)
            new = w.call(self.contents.function.add, value.name, old)
        w.line(f"{overlay}[{k}] = {new}", self, value.name)

    # --- called from the loop

    def pane(self, start: int) -> Pane | tuple[None, None]:
        """Return the overlay of a window and the `get` of its values of earlier epochs; None if it has ended."""
        if start + self._size - 1 <= self.watermark:
            return None, None
        overlay = self._panes.overlay.get(start)
        if overlay is None:
            overlay = self._panes.overlay[start] = {}
        return overlay, (self._panes.base.get(start) or _NOTHING).get

    def late(self, value: Value, timestamp: int) -> None:
        if self.late_tag is not None:
            self.setup.emit(((self.late_tag, value),), timestamp)
        else:
            self.drop(value, timestamp)

    def refuse(self) -> None:
        raise InvalidProgramError(
            f"{self.assigner} needs records with timestamps and this one has none: "
            "did you forget to call 'data_stream.assign_timestamps_and_watermarks(...)'?"
        )

    # --- time

    def on_watermark(self, watermark: int) -> int | None:
        self.watermark = watermark
        self._fire_until(watermark)
        return watermark

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        panes = self._panes
        starts = {s for s in panes.overlay if panes.overlay[s] is not None}
        starts.update(s for s, _ in panes.base.items() if s not in panes.overlay)
        if starts:
            count = sum(about_len(*pane) for pane in panes.panes())
            yield self.timer_label, count, min(starts) + self._size - 1

    def on_end_of_key(self) -> None:
        self.watermark = MAX_WATERMARK
        self._fire_until(MAX_WATERMARK)
        self.watermark = MIN_WATERMARK

    def _fire_until(self, watermark: int) -> None:
        panes, last = self._panes, watermark - self._size + 1
        due = {s for s in panes.overlay if s <= last and panes.overlay[s] is not None}
        due.update(s for s, _ in panes.base.items() if s <= last and s not in panes.overlay)
        for start in sorted(due):
            values = panes.get(start)
            panes.remove(start)
            if values:
                self._emit(TimeWindow(start, start + self._size), values)

    def _emit(self, window: TimeWindow, values: dict[UserKey, Value]) -> None:
        stamp = window.max_timestamp()
        if self.result.function is None:
            if isinstance(self.contents, Aggregated):
                self.setup.emit(self._results(window, values), stamp)
            else:
                self.setup.emit(values.values(), stamp)
            return
        for key, value in values.items():
            self.firing = "fire_pane", (window, key, value)
            contents = value if isinstance(self.contents, Reduced) else self.contents.function.get_result(value)  # type: ignore[attr-defined]
            results = self._call(key, window, contents)
            if results is not None:
                self.setup.emit(results, stamp)
            self._clear_function_state(key, window)
        self.firing = None

    def _results(self, window: TimeWindow, values: dict[UserKey, Value]) -> Iterator[Value]:
        """Yield the results of a window without a window function, key by key."""
        assert isinstance(self.contents, Aggregated)
        result = self.contents.function.get_result
        for key, value in values.items():
            self.firing = "fire_pane", (window, key, value)
            output = result(value)
            # From here on downstream operators process it.
            self.firing = None
            yield output

    def fire_pane(self, pane: tuple[TimeWindow, UserKey, Value]) -> None:
        """Fire the window of one key."""
        window, key, value = pane
        self._emit(window, {key: value})


def _first(stamp: str, offset: int, size: int) -> str:
    return f"{stamp} - {stamp} % {size}" if offset == 0 else f"{stamp} - ({stamp} - {offset}) % {size}"
