"""A priority queue that keeps its elements where Java's keeps them.

Runs with the same first event are equal to the queue, and where a binary heap leaves equal elements decides in which
order matches are found, and with a skip strategy which of them are. So the array must be the one of
java.util.PriorityQueue, which sifts otherwise than `heapq`.

The queue is a plain list of tuples whose first member is what they are ordered by.
"""

from __future__ import annotations

from typing import Any

# (order, ...)
Element = tuple[Any, ...]


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
    """Take out the least element."""
    least = heap[0]
    last = heap.pop()
    if heap:
        _sift_down(heap, 0, last)
    return least


def keep(heap: list[Any], least: Any) -> list[Any]:
    """Return the queue without the elements below a bound; it is the same list when there are none.

    What is left keeps its order in the array, and the heap is built anew from it.
    """
    kept = [element for element in heap if element[0] >= least]
    if len(kept) == len(heap):
        return heap
    for at in range((len(kept) >> 1) - 1, -1, -1):
        _sift_down(kept, at, kept[at])
    return kept


def _sift_down(heap: list[Any], at: int, element: Any) -> None:
    size = len(heap)
    half = size >> 1
    order = element[0]
    while at < half:
        child = 2 * at + 1
        least = heap[child]
        right = child + 1
        if right < size and least[0] > heap[right][0]:
            child = right
            least = heap[child]
        if order <= least[0]:
            break
        heap[at] = least
        at = child
    heap[at] = element
