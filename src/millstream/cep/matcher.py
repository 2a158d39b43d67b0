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

    def __init__(self, automaton: Automaton, comparator: Comparator | None = None) -> None:
        self.automaton = automaton
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
        take, window, follows_time = automaton.event, automaton.window, automaton.follows_time
        begin = automaton.begin
        for timestamp, event in events:
            if runs.queue is None:
                # Where nothing has begun, most events begin nothing.
                if begin is not None and begin(event, None).unchanged and not runs.began:
                    continue
            elif follows_time and timestamp != last:
                self._advance(runs, timestamp, found)
            last = timestamp
            matches = take(runs, event, timestamp)
            if runs.began and window > 0:
                self._set_timer(runs, timestamp + window)
            for cell in matches:
                found.append((cell, timestamp, False))
        runs.began = False
        if follows_time:
            self._advance(runs, now, found)
            if runs.timers:
                runs.timers = [t for t in runs.timers if t > now]
        return found

    def event(self, runs: Runs, event: Any, now: int) -> list[Found]:
        """Process an event at once, in processing time."""
        found: list[Found] = []
        self._advance(runs, now, found)
        for cell in self.automaton.event(runs, event, now):
            found.append((cell, now, False))
        if runs.began and self.automaton.window > 0:
            self._set_timer(runs, now + self.automaton.window)
        runs.began = False
        return found

    def _set_timer(self, runs: Runs, due: int) -> None:
        if not runs.timers or runs.timers[-1] != due:
            runs.timers.append(due)

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
