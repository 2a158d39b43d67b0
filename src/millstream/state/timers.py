"""Timers are state: rows (timestamp, key, namespace) in a table, and a heap over them for the order of firing."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from millstream.state.table import StateTable

# A timer: when, for which key, in which namespace (a window, or None).
Timer = tuple[int, Any, Any]


class TimerQueue:
    """The timers of one time domain. The same timer registered twice is one timer."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self._sequence = count()
        # (timestamp, sequence, timer); entries of deleted timers stay until they come up.
        self._heap: list[tuple[int, int, Timer]] = []

    def rebuild(self) -> None:
        """Start over from the table, which was read anew."""
        self._heap = [(timer[0], next(self._sequence), timer) for timer, _ in self._table.rows()]
        heapify(self._heap)

    def register(self, timer: Timer) -> None:
        if self._table.get(timer) is None:
            self._table.put(timer, True)
            heappush(self._heap, (timer[0], next(self._sequence), timer))

    def delete(self, timer: Timer) -> None:
        self._table.remove(timer)

    def due(self, until: int) -> Iterator[Timer]:
        """Take out, in the order of time, the timers up to `until`; also those registered meanwhile."""
        heap, table = self._heap, self._table
        while heap and heap[0][0] <= until:
            timer = heappop(heap)[2]
            if table.get(timer) is not None:
                table.remove(timer)
                yield timer

    def __len__(self) -> int:
        """Return how many there are, about: some of those that were deleted count."""
        return len(self._heap)

    def next_time(self) -> int | None:
        """Return when the next timer is due."""
        heap = self._heap
        while heap and self._table.get(heap[0][2]) is None:
            heappop(heap)
        return heap[0][0] if heap else None
