"""The quick way through event-time sessions that combine records as they come.

With the assigner's own trigger, a fixed gap, no lateness and no evictor, a key's open sessions are all its state: one
list [start, end, value], or a tuple of such lists while a key has several. A record that extends the only session is
handled in the loop; everything else (a first record, a second session, a merge) in
`add_to_session`. The output is the same as that of WindowOperator.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from millstream.common.aliases import Key as UserKey
from millstream.common.aliases import Value
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import Downstream, OperatorSetup, make_hashable
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.windows.assigners import EventTimeSessionWindows
from millstream.operators.windows.contents import Aggregated, Reduced
from millstream.operators.windows.panes import PaneOperator
from millstream.operators.windows.takeover import take_windows
from millstream.operators.windows.triggers import EventTimeTrigger
from millstream.operators.windows.window_operator import WindowOperator
from millstream.operators.windows.windows import TimeWindow
from millstream.state.kinds import SESSIONS

# [start, end, value]
Session = list[Value]
_sessions = SESSIONS.windows


def can_use_sessions(operator: WindowOperator) -> bool:
    """Return whether an operator's sessions can be stored as one state value per key."""
    return (
        type(operator.assigner) is EventTimeSessionWindows
        and isinstance(operator.assigner.gap, int)
        and type(operator.trigger) is EventTimeTrigger
        and type(operator.contents) in (Reduced, Aggregated)
        and operator.lateness == 0
        and operator.evictor is None
    )


class SessionOperator(PaneOperator):
    """A window operator whose state is the open sessions of each key."""

    def prepare(self, setup: OperatorSetup) -> None:
        WindowOperator.prepare(self, setup)
        assert setup.state is not None
        assert isinstance(self.assigner, EventTimeSessionWindows) and isinstance(self.assigner.gap, int)
        self._gap = self.assigner.gap
        self._open = setup.state.table("_sessions", SESSIONS)
        # (last timestamp, number, key): one entry a session, moved on when it comes up too early.
        self._ends: list[tuple[int, int, UserKey]] = []
        self._number = 0
        setup.state.when_loaded(self._load)

    def _take_over(self) -> None:
        for key, window, contents in take_windows(self._state, self.contents.kind):
            self._write_sessions(key, [*_sessions(self._open.get(key)), [window.start, window.end, contents]])

    def _load(self) -> None:
        self._ends = []
        for key, content in self._open.rows():
            for session in _sessions(content):
                self._ends.append((session[1] - 1, self._next(), key))
        heapify(self._ends)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        assert key is not None
        stamp, k, session = value.timestamp, key.name, w.var("s")
        if stamp is None:
            w.line(f"{w.bind(self.refuse, 'refuse')}()", self, value.name)
            return
        overlay, base_get = w.bind(self._open.overlay, "overlay"), w.bind(self._open.base.get, "base_get")
        with w.block(f"if {stamp} is None:"):
            w.line(f"{w.bind(self.refuse, 'refuse')}()", self, value.name)
        with w.block("try:"):
            w.line(f"{session} = {overlay}[{k}]")
        if key.hashable:
            with w.block("except KeyError:"):
                self._from_base(w, session, overlay, base_get, k)
        else:
            # A list, or a key that contains NaN, which never equals itself.
            with w.block("except (KeyError, TypeError):"):
                make_hashable(w, key)
                w.line(f"{session} = {overlay}.get({k})")
                with w.block(f"if {session} is None and {k} not in {overlay}:"):
                    self._from_base(w, session, overlay, base_get, k)
        only = f"{session}.__class__ is {w.bind(list, 'list_class')}"
        with w.block(f"if {only} and {session}[0] - {self._gap} <= {stamp} <= {session}[1]:"):
            with w.block(f"if {stamp} + {self._gap} > {session}[1]:"):
                w.line(f"{session}[1] = {stamp} + {self._gap}")
            with w.block(f"if {stamp} < {session}[0]:"):
                w.line(f"{session}[0] = {stamp}")
            held = w.var("a")
            w.line(f"{held} = {session}[2]")
            w.line(f"{session}[2] = {self._combined(w, held, value.name)}", self, value.name)
        with w.block("else:"):
            w.line(f"{w.bind(self.add_to_session, 'place')}({k}, {value.name}, {stamp}, {session})", self, value.name)

    def _from_base(self, w: CodeWriter, session: str, overlay: str, base_get: str, k: str) -> None:
        w.line(f"{session} = {base_get}({k})")
        with w.block(f"if {session} is not None:"):
            # From here on it belongs to the epoch: if that fails, all state is read again.
            w.line(f"{overlay}[{k}] = {session}")

    def _combined(self, w: CodeWriter, held: str, value: str) -> str:
        if isinstance(self.contents, Reduced):
            return w.call(self.contents.reduce, held, value)
        assert isinstance(self.contents, Aggregated)
        return w.call(self.contents.function.add, value, held)

    # --- called from the loop

    def add_to_session(self, key: UserKey, value: Value, timestamp: int, content: Value) -> None:
        """Add a record: create a session, or merge those that it touches."""
        start, end = timestamp, timestamp + self._gap
        sessions = _sessions(content)
        touching = [s for s in sessions if s[0] <= end and s[1] >= start]
        if not touching:
            if end - 1 <= self.watermark:
                self.late(value, timestamp)
                return
            self._write_sessions(key, [*sessions, [start, end, self._first(value)]])
            heappush(self._ends, (end - 1, self._next(), key))
            return
        touching.sort(key=lambda s: s[0])
        joined = [min(start, touching[0][0]), max(end, *(s[1] for s in touching)), self._joined(touching, value)]
        self._write_sessions(key, [*_without(sessions, touching), joined])

    def _write_sessions(self, key: UserKey, sessions: list[Session]) -> None:
        if sessions:
            self._open.put(key, SESSIONS.of_windows(sessions))
        else:
            self._open.remove(key)

    def _first(self, value: Value) -> Value:
        if isinstance(self.contents, Reduced):
            return value
        assert isinstance(self.contents, Aggregated)
        return self.contents.function.add(value, self.contents.function.create_accumulator())

    def _joined(self, sessions: list[Session], value: Value) -> Value:
        """Merge the sessions, the earliest first, and add the record that joined them."""
        held = sessions[0][2]
        if isinstance(self.contents, Reduced):
            for session in sessions[1:]:
                held = self.contents.reduce(held, session[2])
            return self.contents.reduce(held, value)
        assert isinstance(self.contents, Aggregated)
        for session in sessions[1:]:
            held = self.contents.function.merge(held, session[2])
        return self.contents.function.add(value, held)

    # --- time

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        if self._ends:
            yield self.timer_label, len(self._ends), self._ends[0][0]

    def on_end_of_key(self) -> None:
        self.watermark = MAX_WATERMARK
        self._fire_until(MAX_WATERMARK)
        self.watermark = MIN_WATERMARK

    def _fire_until(self, watermark: int) -> None:
        ends = self._ends
        while ends and ends[0][0] <= watermark:
            last, number, key = heappop(ends)
            sessions = _sessions(self._open.get(key))
            # Not all sessions that the watermark has passed: those of other keys may precede them.
            over = [s for s in sessions if s[1] - 1 <= last]
            if over:
                self._write_sessions(key, _without(sessions, over))
                for start, end, value in sorted(over, key=lambda s: s[0]):
                    self._emit(TimeWindow(start, end), {key: value})
            elif sessions:
                # It has grown since; one of its entries is enough.
                heappush(ends, (min(s[1] for s in sessions) - 1, number, key))


def _without(sessions: list[Session], some: list[Session]) -> list[Session]:
    # By identity: a user's value may have an == of its own.
    return [s for s in sessions if not any(s is other for other in some)]
