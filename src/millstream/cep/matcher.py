"""Advances a key in time: passes buffered events to the automaton in order, and expires runs.

Like the automaton this has no clock and no state. `Runs.timers` holds the times at which a caller with a clock must
call again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cmp_to_key
from heapq import heappop, heappush
from itertools import groupby
from operator import itemgetter
from typing import Protocol

from millstream.cep.automaton import Automaton, History, Runs
from millstream.common.aliases import Key, Value

# (timestamp, key, event)
Waiting = tuple[int, Key, Value]
by_time = itemgetter(0)


class _Sorted:
    """Events sorted by time; those before an index are taken."""

    __slots__ = ("events", "offset")

    def __init__(self, events: list[Waiting]) -> None:
        self.events = events
        self.offset = 0

    def __len__(self) -> int:
        return len(self.events) - self.offset

    def take(self, until: int) -> list[Waiting]:
        to = bisect_right(self.events, until, self.offset, key=by_time)
        due = self.events[self.offset : to]
        self.offset = to
        if to > len(self.events) >> 1:
            # Half of the list is taken, so moving the rest costs no more than taking did.
            del self.events[:to]
            self.offset = 0
        return due

    def rest(self) -> list[Waiting]:
        return self.events[self.offset :]


class WaitingEvents:
    """Buffers events of all keys until their time, in a few sorted lists, the earliest arrivals first.

    Each list is less than half as long as the previous one, so there are few, and events rarely move.

    Example:
        >>> waiting = WaitingEvents()
        >>> waiting.add([(1, "k", "a"), (5, "k", "b")])
        >>> waiting.add([(1, "k", "c")])
        >>> waiting.take(4), waiting.take(5)
        ([(1, 'k', 'a'), (1, 'k', 'c')], [(5, 'k', 'b')])
    """

    def __init__(self) -> None:
        self._lists: list[_Sorted] = []

    def clear(self) -> None:
        self._lists.clear()

    def add(self, events: list[Waiting]) -> None:
        """Add events, sorted by time, that arrived after the buffered ones; takes ownership of the list."""
        if not events:
            return
        lists = self._lists
        while lists and len(lists[-1]) <= 2 * len(events):
            events = sorted(lists.pop().rest() + events, key=by_time)
        lists.append(_Sorted(events))

    def take(self, until: int) -> list[Waiting]:
        """Remove and return the events up to a time, ordered by time and then by arrival."""
        taken = [part.take(until) for part in self._lists]
        self._lists = [part for part in self._lists if len(part)]
        if len(taken) == 1:
            return taken[0]
        return sorted((event for due in taken for event in due), key=by_time)


class Alarms:
    """Timers: the keys to advance without an event, by time."""

    def __init__(self) -> None:
        self._keys: dict[int, list[Key]] = {}
        self._times: list[int] = []

    def clear(self) -> None:
        self._keys.clear()
        self._times.clear()

    def set(self, time: int, key: Key) -> None:
        keys = self._keys.get(time)
        if keys is None:
            self._keys[time] = [key]
            heappush(self._times, time)
        else:
            keys.append(key)

    def take(self, until: int) -> Iterator[Key]:
        """Remove and return the keys whose timers are due."""
        while self._times and self._times[0] <= until:
            yield from self._keys.pop(heappop(self._times))

    def next_time(self) -> int | None:
        return self._times[0] if self._times else None


_stamp = itemgetter(0)

# Compares two events of one timestamp: below 0 if the first precedes, above 0 if the second does.
Comparator = Callable[[Value, Value], int]


class EventComparator(Protocol):
    """A comparator as an object."""

    def compare(self, first: Value, second: Value, /) -> int:
        """Return a number below 0 if the first event precedes, above 0 if the second does."""
        ...


# A match or a timed-out partial one: its history, its timestamp, and which of the two it is.
MatchResult = tuple[History, int, bool]


class Matcher:
    """Runs an automaton on events in order, and expires runs by their time windows."""

    def __init__(
        self, automaton: Automaton, comparator: Comparator | None = None, processing_time: bool = False
    ) -> None:
        self.automaton = automaton
        # Bound methods: called for every event.
        self._take, self._start, self._begin = automaton.event, automaton.start, automaton.begin
        self._window, self._guarded = automaton.window, automaton.has_guards
        # A processing-time timer fires a millisecond after its window, so another run's timer may fire first.
        self._all_timers = automaton.has_guards or processing_time
        self._delay = 1 if processing_time else 0
        self._order = None if comparator is None else cmp_to_key(comparator)

    def fire(self, runs: Runs, events: Iterable[tuple[int, Value]], now: int) -> list[MatchResult]:
        """Process events up to a time, and advance to it.

        Args:
            runs: the runs of the key, which are changed.
            events: timestamps and events, by timestamp and then by arrival.
            now: the watermark, or the wall clock; no event is later.
        """
        matches: list[MatchResult] = []
        self._fire(runs, events if self._order is None else self._sorted(events), None, now, matches)
        return matches

    def begin(self, events: Iterable[tuple[int, Value]], now: int) -> tuple[Runs, list[MatchResult]] | None:
        """Process events of a key without runs; return None if no match begins, as for most events."""
        left = iter(events if self._order is None else self._sorted(events))
        begin = self._begin
        if begin is None:
            runs, matches = Runs(), list[MatchResult]()
            self._fire(runs, left, None, now, matches)
            return runs, matches
        for timestamp, event in left:
            outcome = begin(event, None)
            if not outcome.unchanged:
                runs, matches = Runs(), []
                for cell in self._start(runs, outcome, event, timestamp):
                    matches.append((cell, timestamp, False))
                if runs.began and self._window > 0 and self._needs_all_timers(runs):
                    runs.set_timer(timestamp + self._window)
                self._fire(runs, left, timestamp, now, matches)
                return runs, matches
        return None

    def _fire(
        self, runs: Runs, events: Iterable[tuple[int, Value]], last: int | None, now: int, results: list[MatchResult]
    ) -> None:
        """Process events after a timestamp, advance to a time, and add the matches."""
        take, start, begin = self._take, self._start, self._begin
        window, guarded = self._window, self._guarded
        for timestamp, event in events:
            queue = runs.queue
            if queue is not None and timestamp != last and (guarded or timestamp - queue[0][0][0] >= window > 0):
                self._advance(runs, timestamp, results)
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
                results.append((cell, timestamp, False))
        if guarded or window > 0:
            self._advance(runs, now, results)
            self._keep_timers(runs, now)
        runs.began = False

    def event(self, runs: Runs, event: Value, now: int) -> list[MatchResult]:
        """Process an event at once, in processing time."""
        matches: list[MatchResult] = []
        self._advance(runs, now, matches)
        for cell in self.automaton.event(runs, event, now):
            matches.append((cell, now, False))
        if runs.began and self.automaton.window > 0:
            runs.set_timer(now + self.automaton.window)
        runs.began = False
        return matches

    def _needs_all_timers(self, runs: Runs) -> bool:
        """Return whether another run's timer may expire this run, which has no timer."""
        return self._all_timers or (runs.queue is not None and runs.queue[0][0][0] <= 0)

    def _keep_timers(self, runs: Runs, now: int) -> None:
        """Retain the timers that can still expire a run: all, or that of the run that began first."""
        if self._needs_all_timers(runs):
            if runs.timers:
                runs.keep_timers([t for t in runs.timers if t > now - self._delay])
        elif runs.queue is None or self._window <= 0:
            runs.keep_timers([])
        else:
            runs.keep_timers([runs.queue[0][0][0] + self._window])

    def _advance(self, runs: Runs, timestamp: int, results: list[MatchResult]) -> None:
        matches, timed_out = self.automaton.advance(runs, timestamp)
        for cell in matches:
            results.append((cell, timestamp, False))
        for cell, due in timed_out:
            results.append((cell, due, True))

    def _sorted(self, events: Iterable[tuple[int, Value]]) -> Iterable[tuple[int, Value]]:
        order = self._order
        assert order is not None
        for timestamp, together in groupby(events, _stamp):
            for event in sorted([e for _, e in together], key=order):
                yield timestamp, event
