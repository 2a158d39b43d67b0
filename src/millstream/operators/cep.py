"""Pattern matching on a keyed stream: events wait for their time, then go to the automaton of their key.

State of a key, each a row of its own:

    _cep_events   the events that wait: (timestamp, event), in the order in which they came
    _cep_runs     partial matches, matches that wait, and when to look at the time again (cep.automaton.Runs)

A key with neither has no row. What waits is also in memory in one list for all keys, sorted by time: at a watermark a
prefix of it is due, and every key gets its part at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from millstream.cep.automaton import Automaton, Match, Runs, match_of
from millstream.cep.compiler import compile_pattern
from millstream.cep.functions import Handler
from millstream.cep.matcher import Comparator, Found, Matcher
from millstream.cep.pattern import Pattern
from millstream.cep.waiting import Alarms, Waiting, WaitingEvents, by_time
from millstream.common.errors import InvalidProgramError
from millstream.common.values import ATOMS, detach
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import Downstream, Operator, OperatorSetup, make_hashable
from millstream.operators.codegen import CodeWriter, Key, Var
from millstream.operators.context import RuntimeContext
from millstream.operators.failures import shorten
from millstream.operators.functions import UserFunction
from millstream.operators.metrics import Counter
from millstream.operators.output_tag import OutputTag
from millstream.operators.values import detached
from millstream.operators.windows.operator import LATE_DROPPED
from millstream.state.key_groups import thaw
from millstream.state.kinds import LIST, VALUE

EVENTS, RUNS = "_cep_events", "_cep_runs"

# A key with more runs than this is told of, once.
MANY_RUNS = 10_000

_logger = logging.getLogger(__name__)


class PatternRuntimeContext:
    """What functions and conditions of a pattern can ask about where they run: all but state."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        if name.endswith("state") and name.startswith("get_"):
            raise InvalidProgramError(
                "State is not supported. Functions and conditions of a pattern have none: what was taken before is in "
                "the match, or in ctx.get_events_for_pattern(name)."
            )
        return getattr(self._context, name)


class MatchTime:
    """What a function of matches can ask."""

    __slots__ = ("_clock", "_timestamp")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._timestamp = 0

    def timestamp(self) -> int:
        """Return the match's timestamp: that of its last event, or of what ended its time."""
        return self._timestamp

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        return self._clock()


class CepOperator(Operator):
    """Looks for a pattern in the events of each key."""

    keyed = True
    uses_key = True
    emits_later = True
    tags_outputs = True

    _dropped: Counter

    def __init__(
        self,
        pattern: Pattern,
        handler: Handler,
        comparator: Comparator | None,
        late_tag: OutputTag | None,
        processing_time: bool,
    ) -> None:
        self.pattern = pattern
        self.handler = handler
        self.comparator = comparator
        self.late_tag = late_tag
        self.processing_time = processing_time

    @property
    def identity(self) -> str:
        return "CepOperator"

    def functions(self) -> list[UserFunction]:
        return [UserFunction(f, None) for f in self.handler.functions]

    # --- life

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.state is not None
        self._state = setup.state
        self._events = setup.state.table(EVENTS, LIST)
        self._runs = setup.state.table(RUNS, VALUE)
        self._automaton = Automaton(compile_pattern(self.pattern), setup.clock)
        self._matcher = Matcher(self._automaton, self.comparator)
        self._time = MatchTime(setup.clock)
        self._dropped = setup.context.get_metrics_group().counter(LATE_DROPPED)
        # What came since the last watermark; the loop appends to it.
        self._arrived: list[Waiting] = []
        # What waits, and of that what this epoch's changes do not name yet.
        self._queue = WaitingEvents()
        self._unwritten: list[Waiting] = []
        # The keys with events in state.
        self._written: set[Any] = set()
        self._alarms = Alarms()
        self._warned = False
        setup.state.when_loaded(self._load)

    def open(self) -> None:
        context = PatternRuntimeContext(self.setup.context)
        self.handler.open(context)
        for owner in self._owners():
            owner.open(context)

    def close(self) -> None:
        self.handler.close()
        for owner in self._owners():
            if hasattr(owner, "close"):
                owner.close()

    def _owners(self) -> list[Any]:
        owners = {id(a.owner): a.owner for a in self._automaton.conditions()}
        return [o for o in owners.values() if hasattr(o, "open")]

    def _load(self) -> None:
        """The state was read anew: make of it what is in memory."""
        self._arrived.clear()
        self._unwritten.clear()
        self._queue.clear()
        self._alarms.clear()
        self._written = {key for key, _ in self._events.rows()}
        waiting = [(stamp, key, event) for key, events in self._events.rows() for stamp, event in events]
        waiting.sort(key=by_time)
        self._queue.add(waiting)
        if self.processing_time:
            for stamp, key, _ in waiting:
                self._alarms.set(stamp + 1, key)
        for key, runs in self._runs.rows():
            self._set_alarm(key, runs)

    def snapshot(self, epoch: int) -> None:
        super().snapshot(epoch)
        self._sort_arrived()
        append, written = self._events.append, self._written.add
        for stamp, key, event in self._unwritten:
            append(key, (stamp, event))
            written(key)
        self._unwritten.clear()

    # --- events

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        assert key is not None
        make_hashable(w, key)
        if self.processing_time:
            value = detached(w, value)
            w.line(f"{w.bind(self.take, 'take')}({key.name}, {value.name})", self, value.name)
            return
        stamp = value.timestamp
        if stamp is None:
            w.line(f"{w.bind(self.refuse, 'refuse')}()", self, value.name)
            return
        with w.block(f"if {stamp} is None:"):
            w.line(f"{w.bind(self.refuse, 'refuse')}()", self, value.name)
        with w.block(f"if {stamp} <= {w.bind(self, 'patterns')}.watermark:"):
            w.line(f"{w.bind(self.late, 'late')}({value.name}, {stamp})", self, value.name)
        with w.block("else:"):
            value = detached(w, value)
            w.line(f"{w.bind(self._arrived.append, 'wait')}(({stamp}, {key.name}, {value.name}))")

    def refuse(self) -> None:
        raise InvalidProgramError(
            "A pattern needs events with timestamps and this one has none: call "
            "assign_timestamps_and_watermarks(...) before CEP.pattern(...), or look for it in_processing_time()."
        )

    def late(self, value: Any, timestamp: int) -> None:
        if timestamp == MIN_WATERMARK:
            # This is how an event without one looks in a stream that has them.
            self.refuse()
        if self.late_tag is not None:
            self.setup.emit(((self.late_tag, value),), timestamp)
        else:
            self._dropped.inc()

    def take(self, key: Any, value: Any) -> None:
        """In processing time: process an event now, or with a comparator a millisecond later with its likes."""
        now = self.setup.clock()
        if self.comparator is not None:
            self._arrived.append((now, key, value))
            self._alarms.set(now + 1, key)
            return
        runs = self._runs.get(key)
        known = runs is not None
        if runs is None:
            runs = Runs()
        alarm = runs.timers[0] if runs.timers else None
        try:
            found = self._matcher.event(runs, value, now)
        except Exception as e:
            self._explain(e, key)
            raise
        if not runs.at_rest:
            self._keep(key, runs, alarm)
        elif known:
            self._runs.remove(key)
        if found:
            self._emit(key, found)

    # --- time

    def on_watermark(self, watermark: int) -> int | None:
        self.watermark = watermark
        if not self.processing_time:
            self._fire(watermark)
        return watermark

    def on_end_of_key(self) -> None:
        if self.processing_time:
            self._fire_by_clock(MAX_WATERMARK)
            return
        self.watermark = MAX_WATERMARK
        self._fire(MAX_WATERMARK)
        self.watermark = MIN_WATERMARK

    @property
    def follows_clock(self) -> bool:
        return self.processing_time

    def next_wake(self) -> int | None:
        return self._alarms.next_time() if self.processing_time else None

    def on_processing_time(self) -> None:
        if self.processing_time:
            self._fire_by_clock(self.setup.clock())

    def _fire(self, watermark: int) -> None:
        """Event time has come this far: each key gets its events, or the time alone."""
        self._sort_arrived()
        events: dict[Any, list[tuple[int, Any]]] = {}
        due = self._queue.take(watermark)
        for stamp, key, event in due:
            mine = events.get(key)
            if mine is None:
                events[key] = [(stamp, event)]
            else:
                mine.append((stamp, event))
        for key in list(self._alarms.take(watermark)):
            events.setdefault(key, [])
        if due:
            self._written_no_longer(events, watermark)
        for key, mine in events.items():
            self._look(key, mine, watermark)

    def _fire_by_clock(self, now: int) -> None:
        keys = dict.fromkeys(self._alarms.take(now))
        if not keys:
            return
        self._sort_arrived()
        events: dict[Any, list[tuple[int, Any]]] = {key: [] for key in keys}
        others: list[Waiting] = []
        for waiting in self._queue.take(MAX_WATERMARK):
            if waiting[1] in events:
                events[waiting[1]].append((waiting[0], waiting[2]))
            else:
                others.append(waiting)
        self._queue.add(others)
        self._written_no_longer(events, MAX_WATERMARK)
        for key, mine in events.items():
            self._look(key, mine, now)

    def _sort_arrived(self) -> None:
        arrived = self._arrived
        if arrived:
            came = sorted(arrived, key=by_time)
            arrived.clear()
            self._unwritten += came
            self._queue.add(came)

    def _written_no_longer(self, keys: Iterable[Any], until: int) -> None:
        """Events up to a time no longer wait: take them out of what is written, or will be."""
        if self._unwritten:
            chosen = keys if self.processing_time else None
            self._unwritten = [
                e for e in self._unwritten if e[0] > until or (chosen is not None and e[1] not in chosen)
            ]
        table, written = self._events, self._written
        if not written:
            return
        for key in keys:
            if key in written:
                waited = table.get(key)
                left = [e for e in waited if e[0] > until]
                if not left:
                    table.remove(key)
                    written.discard(key)
                elif len(left) < len(waited):
                    table.put(key, left)

    def _look(self, key: Any, events: list[tuple[int, Any]], now: int) -> None:
        """Let a key process its events up to a time, and that time."""
        table, runs = self._runs, self._runs.get(key)
        known = runs is not None
        if runs is None:
            runs = Runs()
        alarm = runs.timers[0] if runs.timers else None
        try:
            found = self._matcher.fire(runs, events, now)
        except Exception as e:
            self._explain(e, key)
            raise
        if runs.queue is None and not runs.timers and not runs.completed:
            if known:
                table.remove(key)
        else:
            self._keep(key, runs, alarm)
        if found:
            self._emit(key, found)

    def _keep(self, key: Any, runs: Runs, alarm: int | None) -> None:
        self._runs.put(key, runs)
        if runs.timers and runs.timers[0] != alarm:
            self._set_alarm(key, runs)
        if not self._warned and runs.queue is not None and len(runs.queue) > MANY_RUNS:
            self._warn(key, len(runs.queue))

    def _set_alarm(self, key: Any, runs: Runs) -> None:
        if runs.timers:
            self._alarms.set(runs.timers[0] + self.processing_time, key)

    # --- results

    def _emit(self, key: Any, found: list[Found]) -> None:
        """Hand what was found to the user's functions, and emit what they return."""
        time, handler, results = self._time, self.handler, []
        last: int | None = None
        for cell, timestamp, timed_out in found:
            call = handler.timed_out if timed_out else handler.match
            if call is None:
                continue
            if timestamp != last and results:
                self._send(results, last)
                results = []
            last = time._timestamp = timestamp
            match = _own(match_of(cell))
            try:
                returned = call(match, time)
                if returned is None:
                    continue
                if timed_out:
                    returned = [_tagged(r) for r in returned]
                results += returned
            except Exception as e:
                e.add_note(f"with the match {shorten(match)} of key {shorten(thaw(key))}")
                raise
        if results:
            self._send(results, last)

    def _send(self, results: list[Any], timestamp: int | None) -> None:
        self.setup.emit(results, None if self.processing_time else timestamp)

    def _explain(self, error: Exception, key: Any) -> None:
        asked = self._automaton.asked(error)
        about = f"key {shorten(thaw(key))}"
        if asked is not None:
            pattern, event = asked
            about = f"a condition of pattern {pattern!r}, event {shorten(event)}, {about}"
        error.add_note(f"in {about}")

    def _warn(self, key: Any, many: int) -> None:
        self._warned = True
        names = " ".join(self._automaton.graph.names)
        _logger.warning(
            "Key %s has %s partial matches of pattern '%s' in operator '%s': say within(...) or until(...), or leave "
            "allow_combinations() and followed_by_any() out, or they become ever more.",
            shorten(thaw(key)),
            f"{many:,}",
            names,
            self.setup.context.get_task_name(),
        )


def _own(match: Match) -> Match:
    """Return a match whose events a function may change: state keeps others."""
    for events in match.values():
        for at, event in enumerate(events):
            if event.__class__ not in ATOMS:
                events[at] = detach(event)
    return match


def _tagged(result: Any) -> Any:
    if result.__class__ is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
        return result
    raise InvalidProgramError(
        f"process_timed_out_match(...) yields (OutputTag, value) pairs and this is {shorten(result)}: a time-out has "
        "no other output."
    )
