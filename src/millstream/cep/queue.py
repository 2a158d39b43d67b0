"""A priority queue with the array layout of Java's.

Runs with the same first event are equal, and the position of equal elements in a binary heap decides in which
order matches are found, and with a skip strategy which of them are. So the array must be the one of
java.util.PriorityQueue, which sifts otherwise than `heapq`.

The queue is a list of tuples, ordered by their first member.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from operator import itemgetter
from typing import Any

# (order, ...)
Element = tuple[Any, ...]
_order = itemgetter(0)


def add(heap: list[Any], element: Element) -> None:
    """Add an element: it rises past the ones that are greater."""
    at = len(heap)
    heap.append(element)
    order = element[0]
    while at > 0:
        above = (at - 1) >> 1
        parent = heap[above]
        if order >= parent[0]:
            break
        heap[at] = parent
        at = above
    heap[at] = element


def poll(heap: list[Any]) -> Any:
    """Remove and return the minimum element."""
    minimum = heap[0]
    last = heap.pop()
    if heap:
        _sift_down(heap, 0, last)
    return minimum


def keep(heap: list[Any], bound: Any) -> list[Any]:
    """Return the queue without the elements below a bound; the same list if there are none.

    The rest keeps its order in the array, and the heap is rebuilt from it.
    """
    if not heap or heap[0][0] >= bound:
        return heap
    remaining = [element for element in heap if element[0] >= bound]
    for at in range((len(remaining) >> 1) - 1, -1, -1):
        _sift_down(remaining, at, remaining[at])
    return remaining


class Shrinking:
    """A queue for repeated removal of elements below a bound, as after many simultaneous matches.

    If the array is sorted, as is common, these are its first elements, and rebuilding the heap changes nothing.

    Example:
        >>> queue = Shrinking([(1, "a"), (2, "b"), (3, "c")])
        >>> queue.keep(2)
        >>> queue.keep(3)
        >>> queue.least(), queue.rest()
        (3, [(3, 'c')])
    """

    __slots__ = ("_at", "_heap", "_is_sorted")

    def __init__(self, heap: list[Any]) -> None:
        self._heap = heap
        self._at = 0
        self._is_sorted: bool | None = None

    def least(self) -> Any:
        """Return the key of the minimum element, or None."""
        return self._heap[self._at][0] if self._at < len(self._heap) else None

    def keep(self, bound: Any) -> None:
        """Remove the elements below a bound."""
        heap, at = self._heap, self._at
        if at == len(heap) or heap[at][0] >= bound:
            return
        if self._is_sorted is None:
            self._is_sorted = all(a[0] <= b[0] for a, b in pairwise(heap))
        if self._is_sorted:
            self._at = bisect_left(heap, bound, at, key=_order)
        else:
            self._heap = keep(heap, bound)

    def rest(self) -> list[Any]:
        """Return the current queue."""
        return self._heap[self._at :] if self._at else self._heap


def _sift_down(heap: list[Any], at: int, element: Any) -> None:
    size = len(heap)
    half = size >> 1
    order = element[0]
    while at < half:
        child = 2 * at + 1
        smaller = heap[child]
        right = child + 1
        if right < size and smaller[0] > heap[right][0]:
            child = right
            smaller = heap[child]
        if order <= smaller[0]:
            break
        heap[at] = smaller
        at = child
    heap[at] = element
