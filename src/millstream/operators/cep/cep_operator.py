"""Pattern matching on a keyed stream: buffers events until the watermark, then processes them in the key's automaton.

The state of a key, in separate rows:

    _cep_events   the buffered events: (timestamp, event), in arrival order
    _cep_runs     partial matches, pending matches, and timers (cep.automaton.Runs)

A key with neither has no row. Buffered events are also in memory in one list for all keys, sorted by time: at a
watermark a prefix of it is due, and every key processes its part at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from millstream.cep.functions import Handler
from millstream.cep.matcher import Alarms, Comparator, Waiting, WaitingEvents, by_time
from millstream.cep.pattern import Pattern
from millstream.common.aliases import Key as UserKey
from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import Downstream, OperatorSetup, make_hashable
from millstream.operators.cep.pattern_runner import Matching, PatternRuntimeContext, StatesOfPattern, set_alarm
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.codegen.object_reuse import detached
from millstream.operators.functions.metrics import Counter
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.functions.user_function import UserFunction
from millstream.operators.stateful import FunctionsOperator
from millstream.operators.windows.window_operator import LATE_DROPPED, LATE_SHOWN
from millstream.state.descriptors import ValueStateDescriptor
from millstream.state.kinds import LIST, VALUE
from millstream.state.table import BY_KEY

EVENTS, RUNS = "_cep_events", "_cep_runs"


class PatternOperator(FunctionsOperator):
    """Buffers events until the watermark reaches them, and then processes them key by key."""

    keyed = True
    uses_key = True
    emits_later = True
    tags_outputs = True

    _dropped: Counter

    def __init__(self, comparator: Comparator | None, late_tag: OutputTag | None, processing_time: bool) -> None:
        self.comparator = comparator
        self.late_tag = late_tag
        self.processing_time = processing_time

    # --- implemented by subclasses

    # The addressing of the rows of runs.
    address = BY_KEY

    def _take_now(self, key: UserKey, value: Value, now: int) -> None:
        """Process an event at once."""
        raise NotImplementedError(f"{type(self).__name__} does not process events")

    def _key_of(self, row: UserKey) -> UserKey:
        """Return the key of a row of runs."""
        return row

    def _fire_keys(self, events: dict[UserKey, list[tuple[int, Value]]], rows: list[UserKey], now: int) -> None:
        """Process the events of keys up to a time, and advance the time of rows of runs."""
        raise NotImplementedError(f"{type(self).__name__} does not process events")

    # --- life cycle

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(replace(setup, context=PatternRuntimeContext(setup.context)))
        assert setup.state is not None
        self._state = setup.state
        self._events = setup.state.table(EVENTS, LIST)
        self._runs = setup.state.table(RUNS, VALUE, self.address)
        self._dropped = setup.context.get_metrics_group().counter(LATE_DROPPED)
        self.late_records: deque[tuple[Value, int, int]] = deque(maxlen=LATE_SHOWN)
        # Events since the last watermark; the loop appends to it.
        self._arrived: list[Waiting] = []
        # Buffered events, and the events of this epoch.
        self._queue = WaitingEvents()
        self._epoch_events: list[Waiting] = []
        # The keys with events in state.
        self._written: set[UserKey] = set()
        # The timers of rows of runs; with a comparator in processing time, also those of keys' events.
        self._alarms = Alarms()
        self._event_alarms = Alarms()
        setup.state.when_loaded(self._load)

    def _load(self) -> None:
        """Rebuild the in-memory structures after the state was loaded."""
        self._arrived.clear()
        self._epoch_events.clear()
        self._queue.clear()
        self._alarms.clear()
        self._event_alarms.clear()
        self._written = {key for key, _ in self._events.rows()}
        buffered = [(stamp, key, event) for key, events in self._events.rows() for stamp, event in events]
        buffered.sort(key=by_time)
        self._queue.add(buffered)
        if self.processing_time:
            for stamp, key, _ in buffered:
                self._event_alarms.set(stamp + 1, key)
        for row, runs in self._runs.rows():
            set_alarm(self._alarms, row, runs, self.processing_time)

    def snapshot(self, epoch: int) -> None:
        super().snapshot(epoch)
        self._sort_arrived()
        append, written = self._events.append, self._written.add
        # Events up to the watermark are processed. In processing time, processed events are already removed.
        reached = MIN_WATERMARK if self.processing_time else self.watermark
        for stamp, key, event in self._epoch_events:
            if stamp > reached:
                append(key, (stamp, event))
                written(key)
        self._epoch_events.clear()

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

    def late(self, value: Value, timestamp: int) -> None:
        if timestamp == MIN_WATERMARK:
            # An event without a timestamp in a stream with timestamps.
            self.refuse()
        if self.late_tag is not None:
            self.setup.emit(((self.late_tag, value),), timestamp)
        else:
            self._dropped.inc()
            self.late_records.append((value, timestamp, self.watermark))

    def take(self, key: UserKey, value: Value) -> None:
        """Process an event in processing time: now, or with a comparator together with all of its millisecond."""
        now = self.setup.clock()
        if self.comparator is not None:
            self._arrived.append((now, key, value))
            self._event_alarms.set(now + 1, key)
            return
        self._take_now(key, value, now)

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
        # All of it was processed.
        self._epoch_events.clear()

    @property
    def follows_clock(self) -> bool:
        return self.processing_time

    def next_wake(self) -> int | None:
        times = [t for t in (self._alarms.next_time(), self._event_alarms.next_time()) if t is not None]
        return min(times, default=None) if self.processing_time else None

    def on_processing_time(self) -> None:
        if self.processing_time:
            self._fire_by_clock(self.setup.clock())

    def _fire(self, watermark: int) -> None:
        """Process events up to a watermark, and advance the time of keys without events."""
        self._sort_arrived()
        events: dict[UserKey, list[tuple[int, Value]]] = {}
        due = self._queue.take(watermark)
        for stamp, key, event in due:
            key_events = events.get(key)
            if key_events is None:
                events[key] = [(stamp, event)]
            else:
                key_events.append((stamp, event))
        if due:
            self._remove_written(events, watermark)
        self._fire_keys(events, list(self._alarms.take(watermark)), watermark)

    def _fire_by_clock(self, now: int) -> None:
        rows, due_keys = list(self._alarms.take(now)), dict.fromkeys(self._event_alarms.take(now))
        if not rows and not due_keys:
            return
        self._sort_arrived()
        # A key with any due timer processes all its events.
        events: dict[UserKey, list[tuple[int, Value]]] = {key: [] for key in (*due_keys, *map(self._key_of, rows))}
        others: list[Waiting] = []
        for entry in self._queue.take(MAX_WATERMARK):
            if entry[1] in events:
                events[entry[1]].append((entry[0], entry[2]))
            else:
                others.append(entry)
        self._queue.add(others)
        self._epoch_events = [e for e in self._epoch_events if e[1] not in events]
        self._remove_written(events, MAX_WATERMARK)
        self._fire_keys(events, rows, now)

    def _sort_arrived(self) -> None:
        arrived = self._arrived
        if arrived:
            sorted_events = sorted(arrived, key=by_time)
            arrived.clear()
            self._epoch_events += sorted_events
            self._queue.add(sorted_events)

    def _remove_written(self, keys: Iterable[Value], until: int) -> None:
        """Remove the processed events of keys, up to a time, from the state."""
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


class CepOperator(PatternOperator):
    """Matches a pattern on the events of each key."""

    identity = "cep"

    def __init__(
        self,
        pattern: Pattern,
        handler: Handler,
        comparator: Comparator | None,
        late_tag: OutputTag | None,
        processing_time: bool,
    ) -> None:
        super().__init__(comparator, late_tag, processing_time)
        self.pattern = pattern
        self.handler = handler

    def functions(self) -> list[UserFunction]:
        return [UserFunction(f, None) for f in self.handler.functions]

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        # Records in checkpoints the states that runs can be in.
        self._state.handle(ValueStateDescriptor(RUNS, StatesOfPattern(self.pattern)))
        self._matching = Matching(
            self.pattern, self.handler, self.comparator, self.setup, self._runs, self._alarms, self.processing_time
        )

    def open(self) -> None:
        super().open()
        self._matching.open_conditions()

    def close(self) -> None:
        super().close()
        self._matching.close_conditions()

    def _take_now(self, key: UserKey, value: Value, now: int) -> None:
        self._matching.event(key, key, value, now)

    def _fire_keys(self, events: dict[UserKey, list[tuple[int, Value]]], rows: list[UserKey], now: int) -> None:
        for key in rows:
            events.setdefault(key, [])
        self._matching.fire(zip(events, events, events.values(), strict=True), now)
