"""Buffers of events and timers of all keys until their time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

# (timestamp, key, event)
Waiting = tuple[int, Any, Any]
by_time = itemgetter(0)


class _Sorted:
    """Events sorted by time; those before an index are taken."""

    __slots__ = ("at", "events")

    def __init__(self, events: list[Waiting]) -> None:
        self.events = events
        self.at = 0

    def __len__(self) -> int:
        return len(self.events) - self.at

    def take(self, until: int) -> list[Waiting]:
        to = bisect_right(self.events, until, self.at, key=by_time)
        due = self.events[self.at : to]
        self.at = to
        if to > len(self.events) >> 1:
            # Half of the list is taken, so moving the rest costs no more than taking did.
            del self.events[:to]
            self.at = 0
        return due

    def rest(self) -> list[Waiting]:
        return self.events[self.at :]


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
        """Remove and return the keys whose timers are due."""
        while self._times and self._times[0] <= until:
            yield from self._keys.pop(heappop(self._times))

    def next_time(self) -> int | None:
        return self._times[0] if self._times else None
