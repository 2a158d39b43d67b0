"""Index of entries by expiry: an entry is examined when it may have expired, not with every batch."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Times are binned by this many bits, about a second.
_BITS = 10


class TtlIndex:
    """Entry numbers in bins by their update time, or an earlier one.

    Updates are not reported: when a bin is due, entries updated since then move to another bin. So an entry that is
    updated all the time is examined once per TTL.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Discard everything, after entries were renumbered."""
        self._bins: dict[int, list[Ints]] = {}
        self._times: list[int] = []
        self._known = 0
        # The rest of bins that were partly due, by time, and their times.
        self._next, self._next_times = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def over(self, last: int, touched: Ints, live: NDArray[np.bool_]) -> Ints:
        """Remove and return the live entries last updated at or before a time, in order.

        Args:
            last: the time.
            touched: the update time of each entry; new entries are at the end, and no time decreases.
            live: whether each entry exists; removed ones do not return.
        """
        self.keep(np.arange(self._known, len(touched)), touched)
        self._known = len(touched)
        due: list[Ints] = []
        while self._times and self._times[0] <= last >> _BITS:
            due += self._bins.pop(heappop(self._times))
        if due:
            there = np.concatenate([self._next, *due])
            times = touched[there]
            order = np.argsort(times, kind="stable")
            self._next, self._next_times = there[order], times[order]
        count = int(np.searchsorted(self._next_times, last, "right"))
        there = self._next[:count]
        self._next, self._next_times = self._next[count:], self._next_times[count:]
        there = there[live[there]]
        is_over = touched[there] <= last
        self.keep(there[~is_over], touched)
        return np.sort(there[is_over])

    def keep(self, numbers: Ints, touched: Ints) -> None:
        """Add entries, or add returned ones again."""
        if not len(numbers):
            return
        times = touched[numbers] >> _BITS
        if (times == times[0]).all():
            self._add(int(times[0]), numbers)
            return
        order = np.argsort(times, kind="stable")
        times, numbers = times[order], numbers[order]
        starts = np.flatnonzero(np.append(True, times[1:] != times[:-1]))
        for time, mine in zip(times[starts].tolist(), np.split(numbers, starts[1:]), strict=True):
            self._add(time, mine)

    def _add(self, time: int, numbers: Ints) -> None:
        if time not in self._bins:
            self._bins[time] = []
            heappush(self._times, time)
        self._bins[time].append(numbers)
