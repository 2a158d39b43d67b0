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
        # For every event, so at hand.
        self._take, self._start, self._begin = automaton.event, automaton.start, automaton.begin
        self._window, self._guarded = automaton.window, automaton.has_guards
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
        self._fire(runs, events if self._order is None else self._sorted(events), None, now, found)
        return found

    def begin(self, events: Iterable[tuple[int, Any]], now: int) -> tuple[Runs, list[Found]] | None:
        """Do the same for a key that has no runs; None where nothing begins, as is so with most events."""
        left = iter(events if self._order is None else self._sorted(events))
        begin = self._begin
        if begin is None:
            runs, found = Runs(), list[Found]()
            self._fire(runs, left, None, now, found)
            return runs, found
        for timestamp, event in left:
            outcome = begin(event, None)
            if not outcome.unchanged:
                runs, found = Runs(), []
                for cell in self._start(runs, outcome, event, timestamp):
                    found.append((cell, timestamp, False))
                if runs.began and self._window > 0 and self._needs_all_timers(runs):
                    runs.set_timer(timestamp + self._window)
                self._fire(runs, left, timestamp, now, found)
                return runs, found
        return None

    def _fire(
        self, runs: Runs, events: Iterable[tuple[int, Any]], last: int | None, now: int, found: list[Found]
    ) -> None:
        """Process events behind those of a timestamp, and let a time come; add what is found."""
        take, start, begin = self._take, self._start, self._begin
        window, guarded = self._window, self._guarded
        for timestamp, event in events:
            queue = runs.queue
            if queue is not None and timestamp != last and (guarded or timestamp - queue[0][0][0] >= window > 0):
                self._advance(runs, timestamp, found)
                queue = runs.queue
            last = timestamp
            if queue is None and begin is not None:
                outcome = begin(event, None)
                if outcome.unchanged and not runs.began:
                    continue
                matches = () if outcome.unchanged else start(runs, outcome, event, timestamp)
            else:
                matches = take(runs, event, timestamp)
            if runs.began and window > 0 and self._needs_all_timers(runs):
                runs.set_timer(timestamp + window)
            for cell in matches:
                found.append((cell, timestamp, False))
        if guarded or window > 0:
            self._advance(runs, now, found)
            self._keep_timers(runs, now)
        runs.began = False

    def event(self, runs: Runs, event: Any, now: int) -> list[Found]:
        """Process an event at once, in processing time."""
        found: list[Found] = []
        self._advance(runs, now, found)
        for cell in self.automaton.event(runs, event, now):
            found.append((cell, now, False))
        if runs.began and self.automaton.window > 0:
            runs.set_timer(now + self.automaton.window)
        runs.began = False
        return found

    def _needs_all_timers(self, runs: Runs) -> bool:
        """Tell whether a run may end by a timer that is not its own, as one does that has none."""
        return self._all_timers or (runs.queue is not None and runs.queue[0][0][0] <= 0)

    def _keep_timers(self, runs: Runs, now: int) -> None:
        """Leave the timers that can still do something: all of them, or that of the run that began first."""
        if self._needs_all_timers(runs):
            if runs.timers:
                runs.keep_timers([t for t in runs.timers if t > now - self._delay])
        elif runs.queue is None or self._window <= 0:
            runs.keep_timers([])
        else:
            runs.keep_timers([runs.queue[0][0][0] + self._window])

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
