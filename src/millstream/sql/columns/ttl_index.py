"""What lives for a time, by when it may be over: looked at when its time may have come, not with every batch."""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Times of so many bits, about a second, are one bin.
_BITS = 10


class TtlIndex:
    """Numbers from 0 on, in bins by a time at which each was touched, or an earlier one.

    Nobody tells it that something was touched again: that is found out when its bin is due, and it is put into another.
    So one that is touched all the time is looked at once for as long as it lives without.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: numbers mean something else."""
        self._bins: dict[int, list[Ints]] = {}
        self._times: list[int] = []
        self._known = 0
        # What is left of bins of which some was due, by time, and those times.
        self._next, self._next_times = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def over(self, last: int, touched: Ints, live: NDArray[np.bool_]) -> Ints:
        """Return which are there and were last touched then or before, in order; they are forgotten here.

        Args:
            last: the time.
            touched: of each when it was touched; new ones are behind those of before, and no time is less than it was.
            live: whether each is there; one that is not will not be again.
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
        """Take some in, or back in that were told to be over."""
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
