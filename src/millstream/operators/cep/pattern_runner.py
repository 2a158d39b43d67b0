"""Runs a pattern in a subtask: its automaton, the runs of each key, and the user's functions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NoReturn

from millstream.cep.automaton import Automaton, Match, Runs, match_of
from millstream.cep.compiler import compile_pattern
from millstream.cep.functions import Handler
from millstream.cep.matcher import Alarms, Comparator, Matcher, MatchResult
from millstream.cep.pattern import Pattern
from millstream.common.aliases import Key, UserCode, Value
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

# The row of a key's runs, the key, and its events with timestamps, in order.
Waiting = tuple[Key, Key, list[tuple[int, Value]]]

_logger = logging.getLogger(__name__)


class PatternRuntimeContext(RuntimeContext):
    """The runtime context of functions and conditions of a pattern: without state."""

    def __init__(self, context: RuntimeContext) -> None:
        vars(self).update(vars(context))

    def _state(self, descriptor: StateDescriptor) -> NoReturn:
        raise InvalidProgramError(
            "State is not supported. Use the match, or in conditions ctx.get_events_for_pattern(name)."
        )


class StatesOfPattern(PickledBytesTypeInfo):
    """The type of runs in checkpoints: the states of a pattern that they can be in."""

    NAME = "runs in states "

    def __init__(self, pattern: Pattern) -> None:
        self._names = Automaton(compile_pattern(pattern)).state_names()

    def __str__(self) -> str:
        return self.NAME + ", ".join(sorted(self._names))

    @staticmethod
    def removed_and_added_states(before: str, now: str) -> tuple[list[str], list[str]] | None:
        """Return the removed and the added states of a pattern; None if the types are not those of runs."""
        name = StatesOfPattern.NAME
        if not before.startswith(name) or not now.startswith(name):
            return None
        old, new = (text.removeprefix(name).split(", ") for text in (before, now))
        return [s for s in old if s not in new], [s for s in new if s not in old]


class MatchTime:
    """The context of a function that processes matches."""

    __slots__ = ("_clock", "_timestamp")

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._timestamp = 0

    def timestamp(self) -> int:
        """Return the timestamp of the match: that of its last event, or of its time-out."""
        return self._timestamp

    def current_processing_time(self) -> int:
        """Return the wall clock in milliseconds."""
        return self._clock()


class Matching:
    """A pattern with its runs, a row per key."""

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
        self._key: Key = None

    # --- life cycle

    def open_conditions(self) -> None:
        for owner in self._owners():
            owner.open(self.setup.context)

    def close_conditions(self) -> None:
        for owner in self._owners():
            if hasattr(owner, "close"):
                owner.close()

    def _owners(self) -> list[UserCode]:
        owners = {id(a.owner): a.owner for a in self._automaton.conditions()}
        return [o for o in owners.values() if hasattr(o, "open")]

    # --- events

    def fire(self, batches: Iterable[Waiting], now: int) -> None:
        """Process the events of keys up to a time, and advance to it."""
        get, begin, fire = self._runs.get, self._matcher.begin, self._matcher.fire
        for row, key, events in batches:
            runs = get(row)
            try:
                self._key = key
                if runs is None:
                    begun = begin(events, now)
                    if begun is None:
                        continue
                    runs, matches = begun
                    is_stored, alarm = False, None
                else:
                    is_stored, alarm = True, runs.timers[0] if runs.timers else None
                    matches = fire(runs, events, now)
            except Exception as e:
                self._explain(e, key)
                raise
            if runs.queue is not None or runs.timers or runs.completed:
                self._store(row, runs, alarm)
            elif is_stored:
                self._runs.remove(row)
            if matches:
                self._emit(key, matches)

    def event(self, row: Key, key: Key, value: Value, now: int) -> None:
        """Process an event of a key at once, in processing time."""
        runs = self._runs.get(row)
        is_stored = runs is not None
        if runs is None:
            runs = Runs()
        alarm = runs.timers[0] if runs.timers else None
        self._key = key
        try:
            matches = self._matcher.event(runs, value, now)
        except Exception as e:
            self._explain(e, key)
            raise
        if not runs.is_idle:
            self._store(row, runs, alarm)
        elif is_stored:
            self._runs.remove(row)
        if matches:
            self._emit(key, matches)

    def _store(self, row: Key, runs: Runs, alarm: int | None) -> None:
        self._runs.put(row, runs)
        if runs.timers and runs.timers[0] != alarm:
            set_alarm(self._alarms, row, runs, self.processing_time)

    # --- results

    def _emit(self, key: Key, matches: list[MatchResult]) -> None:
        """Call the user's functions with matches, and emit the results."""
        time, handler = self._time, self.handler
        results: list[Value] = []
        last: int | None = None
        for cell, timestamp, timed_out in matches:
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

    def _send(self, results: list[Value], timestamp: int | None) -> None:
        self.setup.emit(results, None if self.processing_time else timestamp)

    def _explain(self, error: Exception, key: Key) -> None:
        failed = self._automaton.failed_condition(error)
        about = f"key {shorten(thaw(key))}"
        if failed is not None:
            pattern, event = failed
            about = f"a condition of pattern {pattern!r}, event {shorten(event)}, {about}"
        error.add_note(f"in {about}")

    def _warn(self, count: int) -> None:
        names = " ".join(self._automaton.graph.names)
        _logger.warning(
            "Key %s has %s partial matches of pattern '%s' in operator '%s': add within(...) or until(...), or remove "
            "allow_combinations() and followed_by_any(): their number grows without bound.",
            shorten(thaw(self._key)),
            f"{count:,}",
            names,
            self.setup.context.get_task_name(),
        )


def set_alarm(alarms: Alarms, row: Key, runs: Runs, processing_time: bool) -> None:
    """Set the alarm of a row to its next timer; in processing time, a millisecond later."""
    if runs.timers:
        alarms.set(runs.timers[0] + processing_time, row)


def _own(match: Match) -> Match:
    """Return a match with copied events, which a function may modify: state retains the originals."""
    for events in match.values():
        for i, event in enumerate(events):
            if event.__class__ not in ATOMS:
                events[i] = detach(event)
    return match


def _tagged(result: Value) -> Value:
    if result.__class__ is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
        return result
    raise InvalidProgramError(
        f"process_timed_out_match(...) yields (OutputTag, value) pairs and this is {shorten(result)}: a time-out has "
        "no other output."
    )
