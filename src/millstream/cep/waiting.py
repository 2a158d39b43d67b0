"""What waits for its time: events of all keys, and keys that have to be looked at without an event."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

# (timestamp, key, event)
Waiting = tuple[int, Any, Any]
by_time = itemgetter(0)


class WaitingEvents:
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
            self._lists = [sorted((e for part in self._lists for e in part), key=by_time)]

    def take(self, until: int) -> list[Waiting]:
        """Take out the events up to a time, in the order of time and then of arrival."""
        due: list[Waiting] = []
        left: list[list[Waiting]] = []
        for part in self._lists:
            if part[0][0] > until:
                left.append(part)
                continue
            at = bisect_right(part, until, key=by_time)
            due += part[:at]
            if at < len(part):
                left.append(part[at:])
        if len(self._lists) > 1:
            due.sort(key=by_time)
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
