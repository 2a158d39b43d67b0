"""Pattern matching on a keyed stream: events wait for their time, then go to the automaton of their key.

State of a key, each a row of its own:

    _cep_events   the events that wait: (timestamp, event), in the order in which they came
    _cep_runs     partial matches, matches that wait, and when to look at the time again (cep.automaton.Runs)

A key with neither has no row. What waits is also in memory in one list for all keys, sorted by time: at a watermark a
prefix of it is due, and every key gets its part at once.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

from millstream.cep.automaton import Automaton, Runs, match_of
from millstream.cep.compiler import compile_pattern
from millstream.cep.functions import Handler
from millstream.cep.matcher import Comparator, Found, Matcher
from millstream.cep.pattern import Pattern
from millstream.common.errors import InvalidProgramError
from millstream.common.values import detach
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import Downstream, Operator, OperatorSetup, make_hashable
from millstream.operators.codegen import CodeWriter, Key, Var
from millstream.operators.context import RuntimeContext
from millstream.operators.failures import shorten
from millstream.operators.functions import UserFunction
from millstream.operators.metrics import Counter
from millstream.operators.output_tag import OutputTag
from millstream.operators.process import one_by_one
from millstream.operators.values import detached
from millstream.operators.windows.operator import LATE_DROPPED
from millstream.state.key_groups import thaw
from millstream.state.kinds import LIST, VALUE

EVENTS, RUNS = "_cep_events", "_cep_runs"

# A key with more runs than this is told of, once.
MANY_RUNS = 10_000

_logger = logging.getLogger(__name__)

# (timestamp, key, event)
Waiting = tuple[int, Any, Any]
_stamp = itemgetter(0)


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


class Queue:
    """Events of all keys that wait for their time, sorted; in a few lists, the older ones first."""

    # With more lists than this they are made one.
    MANY = 16

    def __init__(self) -> None:
        self._lists: list[list[Waiting]] = []

    def clear(self) -> None:
        self._lists.clear()

    def add(self, events: list[Waiting]) -> None:
        """Add events that came after those that are here, sorted by time."""
        if events:
            self._lists.append(events)
        if len(self._lists) > self.MANY:
            self._lists = [sorted((e for part in self._lists for e in part), key=_stamp)]

    def take(self, until: int) -> list[Waiting]:
        """Take out the events up to a time, in the order of time and then of arrival."""
        due: list[Waiting] = []
        left: list[list[Waiting]] = []
        for part in self._lists:
            if part[0][0] > until:
                left.append(part)
                continue
            at = bisect_right(part, until, key=_stamp)
            due += part[:at]
            if at < len(part):
                left.append(part[at:])
        if len(self._lists) > 1:
            due.sort(key=_stamp)
        self._lists = left
        return due


class Alarms:
    """When to look at which key without an event."""

    def __init__(self) -> None:
        self._keys: dict[int, list[Any]] = {}
        self._times: list[int] = []

    def clear(self) -> None:
        self._keys.clear()
        self._times.clear()

    def set(self, time: int, key: Any) -> None:
        keys = self._keys.get(time)
        if keys is None:
            self._keys[time] = [key]
            heappush(self._times, time)
        else:
            keys.append(key)

    def take(self, until: int) -> Iterator[Any]:
        """Take out the keys whose time has come."""
        while self._times and self._times[0] <= until:
            yield from self._keys.pop(heappop(self._times))

    def next_time(self) -> int | None:
        return self._times[0] if self._times else None


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
        self._queue = Queue()
        self._unwritten: list[Waiting] = []
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
        waiting = [(stamp, key, event) for key, events in self._events.rows() for stamp, event in events]
        waiting.sort(key=_stamp)
        self._queue.add(waiting)
        if self.processing_time:
            for stamp, key, _ in waiting:
                self._alarms.set(stamp + 1, key)
        for key, runs in self._runs.rows():
            self._set_alarm(key, runs)

    def snapshot(self, epoch: int) -> None:
        super().snapshot(epoch)
        self._sort_arrived()
        append = self._events.append
        for stamp, key, event in self._unwritten:
            append(key, (stamp, event))
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
        self._with_runs(key, (), lambda runs: self._matcher.event(runs, value, now))

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
            came = sorted(arrived, key=_stamp)
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
        table = self._events
        if not table.overlay and not table.base:
            return
        for key in keys:
            written = table.get(key)
            if written:
                left = [e for e in written if e[0] > until]
                if not left:
                    table.remove(key)
                elif len(left) < len(written):
                    table.put(key, left)

    def _look(self, key: Any, events: list[tuple[int, Any]], now: int) -> None:
        self._with_runs(key, events, lambda runs: self._matcher.fire(runs, events, now))

    def _with_runs(self, key: Any, events: Iterable[Any], work: Callable[[Runs], list[Found]]) -> None:
        """Work on the runs of a key, keep what is left of them, and emit what was found."""
        table = self._runs
        runs = table.get(key)
        known = runs is not None
        if runs is None:
            runs = Runs()
        alarm = runs.timers[0] if runs.timers else None
        try:
            found = work(runs)
        except Exception as e:
            self._explain(e, key)
            raise
        if not runs.at_rest:
            table.put(key, runs)
            if runs.timers and runs.timers[0] != alarm:
                self._set_alarm(key, runs)
            if runs.queue is not None and len(runs.queue) > MANY_RUNS and not self._warned:
                self._warn(key, len(runs.queue))
        elif known:
            table.remove(key)
        if found:
            self._emit(key, found)

    def _set_alarm(self, key: Any, runs: Runs) -> None:
        if runs.timers:
            self._alarms.set(runs.timers[0] + self.processing_time, key)

    # --- results

    def _emit(self, key: Any, found: list[Found]) -> None:
        emit, time, handler = self.setup.emit, self._time, self.handler
        by_clock = self.processing_time
        for cell, timestamp, timed_out in found:
            call = handler.timed_out if timed_out else handler.match
            if call is None:
                continue
            time._timestamp = timestamp
            match = detach(match_of(cell))
            try:
                results = call(match, time)
                if results is None:
                    continue
                if timed_out:
                    results = [_tagged(r) for r in results]
                emit(one_by_one(results), None if by_clock else timestamp)
            except Exception as e:
                e.add_note(f"with the match {shorten(match)} of key {shorten(thaw(key))}")
                raise

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


def _tagged(result: Any) -> Any:
    if result.__class__ is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
        return result
    raise InvalidProgramError(
        f"process_timed_out_match(...) yields (OutputTag, value) pairs and this is {shorten(result)}: a time-out has "
        "no other output."
    )
