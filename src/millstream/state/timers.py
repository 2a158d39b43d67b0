"""Timers are state: rows (timestamp, key, namespace) in a table, and a heap over them for the order of firing."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count

from millstream.common.aliases import Key, Value
from millstream.state.table import StateTable

# A timer: timestamp, key, namespace (a window, or None).
Timer = tuple[int, Key, Value]


class TimerQueue:
    """The timers of one time domain. The same timer registered twice is one timer."""

    def __init__(self, table: StateTable) -> None:
        self._table = table
        self._sequence = count()
        # (timestamp, sequence, timer); entries of deleted timers stay until they are due.
        self._heap: list[tuple[int, int, Timer]] = []

    def rebuild(self) -> None:
        """Rebuild the heap from the table, which was reloaded."""
        self._heap = [(timer[0], next(self._sequence), timer) for timer, _ in self._table.rows()]
        heapify(self._heap)

    def register(self, timer: Timer) -> None:
        if self._table.get(timer) is None:
            self._table.put(timer, True)
            heappush(self._heap, (timer[0], next(self._sequence), timer))

    def delete(self, timer: Timer) -> None:
        self._table.remove(timer)

    def due(self, until: int) -> Iterator[Timer]:
        """Remove and yield the timers up to `until` in order of time, including those registered meanwhile."""
        heap, table = self._heap, self._table
        while heap and heap[0][0] <= until:
            timer = heappop(heap)[2]
            if table.get(timer) is not None:
                table.remove(timer)
                yield timer

    def __len__(self) -> int:
        """Return an upper bound of the number of timers: deleted ones may count."""
        return len(self._heap)

    def next_time(self) -> int | None:
        """Return the timestamp of the next timer."""
        heap = self._heap
        while heap and self._table.get(heap[0][2]) is None:
            heappop(heap)
        return heap[0][0] if heap else None
