"""One pattern at work in a subtask: its automaton, the runs of each key, and the user's functions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from millstream.cep.automaton import Automaton, Match, Runs, match_of
from millstream.cep.compiler import compile_pattern
from millstream.cep.functions import Handler
from millstream.cep.matcher import Alarms, Comparator, Found, Matcher
from millstream.cep.pattern import Pattern
from millstream.common.errors import InvalidProgramError
from millstream.common.immutability import ATOMS, detach
from millstream.common.typeinfo import PickledBytesTypeInfo
from millstream.operators.base import OperatorSetup
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.functions.output_tag import OutputTag
from millstream.state.descriptors import StateDescriptor
from millstream.state.key_groups import thaw
from millstream.state.table import StateTable

# Where the runs of a key are, the key, and its events with their timestamps, in order.
Waiting = tuple[Any, Any, list[tuple[int, Any]]]

_logger = logging.getLogger(__name__)


class PatternRuntimeContext(RuntimeContext):
    """What functions and conditions of a pattern can ask about where they run: all but state."""

    def __init__(self, context: RuntimeContext) -> None:
        vars(self).update(vars(context))

    def _state(self, descriptor: StateDescriptor) -> Any:
        raise InvalidProgramError(
            "State is not supported. Functions and conditions of a pattern have none: what was taken before is in the "
            "match, or in ctx.get_events_for_pattern(name)."
        )


class StatesOfPattern(PickledBytesTypeInfo):
    """What kind of state runs are: which states of a pattern they can be in."""

    NAME = "runs in states "

    def __init__(self, pattern: Pattern) -> None:
        self._names = Automaton(compile_pattern(pattern)).state_names()

    def __str__(self) -> str:
        return self.NAME + ", ".join(sorted(self._names))

    @staticmethod
    def gone_and_new(before: str, now: str) -> tuple[list[str], list[str]] | None:
        """Return the states that a pattern no longer has, and those that are new; None where this is not about runs."""
        name = StatesOfPattern.NAME
        if not before.startswith(name) or not now.startswith(name):
            return None
        old, new = (text.removeprefix(name).split(", ") for text in (before, now))
        return [s for s in old if s not in new], [s for s in new if s not in old]


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


class Matching:
    """A pattern with its runs; each key's are a row of a table."""

    def __init__(
        self,
        pattern: Pattern,
        handler: Handler,
        comparator: Comparator | None,
        setup: OperatorSetup,
        runs: StateTable,
        alarms: Alarms,
        processing_time: bool,
    ) -> None:
        self.handler = handler
        self.setup = setup
        self.processing_time = processing_time
        self._runs = runs
        self._alarms = alarms
        self._automaton = Automaton(compile_pattern(pattern), setup.clock, self._warn)
        self._matcher = Matcher(self._automaton, comparator, processing_time)
        self._time = MatchTime(setup.clock)
        # The key whose events are processed.
        self._key: Any = None

    # --- life

    def open_conditions(self) -> None:
        for owner in self._owners():
            owner.open(self.setup.context)

    def close_conditions(self) -> None:
        for owner in self._owners():
            if hasattr(owner, "close"):
                owner.close()

    def _owners(self) -> list[Any]:
        owners = {id(a.owner): a.owner for a in self._automaton.conditions()}
        return [o for o in owners.values() if hasattr(o, "open")]

    # --- work

    def fire(self, waiting: Iterable[Waiting], now: int) -> None:
        """Let keys process their events up to a time, and that time."""
        get, begin, fire = self._runs.get, self._matcher.begin, self._matcher.fire
        for row, key, events in waiting:
            runs = get(row)
            try:
                self._key = key
                if runs is None:
                    begun = begin(events, now)
                    if begun is None:
                        continue
                    runs, found = begun
                    known, alarm = False, None
                else:
                    known, alarm = True, runs.timers[0] if runs.timers else None
                    found = fire(runs, events, now)
            except Exception as e:
                self._explain(e, key)
                raise
            if runs.queue is not None or runs.timers or runs.completed:
                self._keep(row, runs, alarm)
            elif known:
                self._runs.remove(row)
            if found:
                self._emit(key, found)

    def event(self, row: Any, key: Any, value: Any, now: int) -> None:
        """Let a key process an event at once, in processing time."""
        runs = self._runs.get(row)
        known = runs is not None
        if runs is None:
            runs = Runs()
        alarm = runs.timers[0] if runs.timers else None
        self._key = key
        try:
            found = self._matcher.event(runs, value, now)
        except Exception as e:
            self._explain(e, key)
            raise
        if not runs.at_rest:
            self._keep(row, runs, alarm)
        elif known:
            self._runs.remove(row)
        if found:
            self._emit(key, found)

    def _keep(self, row: Any, runs: Runs, alarm: int | None) -> None:
        self._runs.put(row, runs)
        if runs.timers and runs.timers[0] != alarm:
            set_alarm(self._alarms, row, runs, self.processing_time)

    # --- results

    def _emit(self, key: Any, found: list[Found]) -> None:
        """Hand what was found to the user's functions, and emit what they return."""
        time, handler = self._time, self.handler
        results: list[Any] = []
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

    def _warn(self, many: int) -> None:
        names = " ".join(self._automaton.graph.names)
        _logger.warning(
            "Key %s has %s partial matches of pattern '%s' in operator '%s': say within(...) or until(...), or leave "
            "allow_combinations() and followed_by_any() out, or they become ever more.",
            shorten(thaw(self._key)),
            f"{many:,}",
            names,
            self.setup.context.get_task_name(),
        )


def set_alarm(alarms: Alarms, row: Any, runs: Runs, processing_time: bool) -> None:
    """Have a row looked at when its next time has come; by the clock, a millisecond later."""
    if runs.timers:
        alarms.set(runs.timers[0] + processing_time, row)


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
