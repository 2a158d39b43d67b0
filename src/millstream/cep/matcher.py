"""What a key does when its time has come: the events that wait go to the automaton, and time goes on.

Like the automaton this has no clock and no state of its own. It says when time has to be looked at again
(`Runs.timers`), and whoever has a clock calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cmp_to_key
from itertools import groupby
from operator import itemgetter
from typing import Any

from millstream.cep.automaton import Automaton, Runs

_stamp = itemgetter(0)

# Says which of two events of one timestamp comes first: below 0 for the first one, above 0 for the second.
Comparator = Callable[[Any, Any], int]


# A match, or a partial one whose time was up: its history, its timestamp, and which of the two it is.
Found = tuple[Any, int, bool]


class Matcher:
    """An automaton with the order of events and the windows of time around it."""

    def __init__(
        self, automaton: Automaton, comparator: Comparator | None = None, processing_time: bool = False
    ) -> None:
        self.automaton = automaton
        # By the clock a timer comes a millisecond after its window has ended, so that one of another run may be first.
        self._all_timers = automaton.has_guards or processing_time
        self._delay = 1 if processing_time else 0
        self._order = None if comparator is None else cmp_to_key(comparator)

    def fire(self, runs: Runs, events: Iterable[tuple[int, Any]], now: int) -> list[Found]:
        """Process events up to a time, and let that time come.

        Args:
            runs: the runs of the key, which are changed.
            events: timestamps and events, by timestamp and then in the order in which they came.
            now: the watermark, or the wall clock; no event is later.
        """
        found: list[Found] = []
        if self._order is not None:
            events = self._sorted(events)
        automaton, last = self.automaton, None
        take, start, begin = automaton.event, automaton.start, automaton.begin
        window, guarded = automaton.window, automaton.has_guards
        for timestamp, event in events:
            queue = runs.queue
            if queue is not None and timestamp != last and (guarded or timestamp - queue[0][0][0] >= window > 0):
                self._advance(runs, timestamp, found)
                queue = runs.queue
            last = timestamp
            if queue is None and begin is not None:
                # Where nothing has begun, most events begin nothing.
                outcome = begin(event, None)
                if outcome.unchanged and not runs.began:
                    continue
                matches = () if outcome.unchanged else start(runs, outcome, event, timestamp)
            else:
                matches = take(runs, event, timestamp)
            if runs.began and window > 0 and self._needs_all_timers(runs):
                _set_timer(runs, timestamp + window)
            for cell in matches:
                found.append((cell, timestamp, False))
        if guarded or window > 0:
            self._advance(runs, now, found)
            self._keep_timers(runs, now)
        runs.began = False
        return found

    def event(self, runs: Runs, event: Any, now: int) -> list[Found]:
        """Process an event at once, in processing time."""
        found: list[Found] = []
        self._advance(runs, now, found)
        for cell in self.automaton.event(runs, event, now):
            found.append((cell, now, False))
        if runs.began and self.automaton.window > 0:
            _set_timer(runs, now + self.automaton.window)
        runs.began = False
        return found

    def _needs_all_timers(self, runs: Runs) -> bool:
        """Tell whether a run may end by a timer that is not its own, as one does that has none."""
        return self._all_timers or (runs.queue is not None and runs.queue[0][0][0] <= 0)

    def _keep_timers(self, runs: Runs, now: int) -> None:
        """Leave the timers that can still do something: all of them, or that of the run that began first."""
        if self._needs_all_timers(runs):
            runs.timers = [t for t in runs.timers if t > now - self._delay]
        elif runs.queue is None or self.automaton.window <= 0:
            runs.timers = []
        else:
            runs.timers = [runs.queue[0][0][0] + self.automaton.window]

    def _advance(self, runs: Runs, timestamp: int, found: list[Found]) -> None:
        matches, timed_out = self.automaton.advance(runs, timestamp)
        for cell in matches:
            found.append((cell, timestamp, False))
        for cell, due in timed_out:
            found.append((cell, due, True))

    def _sorted(self, events: Iterable[tuple[int, Any]]) -> Iterable[tuple[int, Any]]:
        order = self._order
        assert order is not None
        for timestamp, together in groupby(events, _stamp):
            for event in sorted([e for _, e in together], key=order):
                yield timestamp, event


def _set_timer(runs: Runs, due: int) -> None:
    if not runs.timers or runs.timers[-1] != due:
        runs.timers.append(due)
