"""NumberSequenceSource: the integers of an interval, in parallel."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.datastream.connectors.base import Dealt, Source, SourceReader, SplitEnumerator

__all__ = ["NumberSequenceSource"]

# Records are handed to a chain in batches; between two batches full buckets are sent off.
BATCH = 2048


def split_interval(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Cut [start, end) into contiguous parts as even as can be, the longer ones first."""
    size, extra = divmod(max(end - start, 0), parts)
    cuts, at = [], start
    for i in range(parts):
        to = at + size + (i < extra)
        cuts.append((at, to))
        at = to
    return cuts


class IntervalEnumerator(SplitEnumerator):
    """Deals out intervals of integers: one contiguous part for every subtask."""

    def __init__(self, start: int, end: int, parallelism: int) -> None:
        self._left = dict(enumerate(split_interval(start, end, parallelism)))
        self._drop_empty()

    def _drop_empty(self) -> None:
        self._left = {s: (a, b) for s, (a, b) in self._left.items() if a < b}

    def poll(self, budget: int, now: float) -> Dealt:
        shares = {}
        for subtask, (a, b) in self._left.items():
            to = min(a + budget, b)
            shares[subtask] = [(a, to)]
            self._left[subtask] = (to, b)
        self._drop_empty()
        return Dealt(shares, limited=bool(self._left))

    def is_finished(self) -> bool:
        return not self._left


class _Reader(SourceReader):
    def read(self, share: Any) -> Iterator[Collection[Any]]:
        start, end = share
        for at in range(start, end, BATCH):
            yield range(at, min(at + BATCH, end))


class NumberSequenceSource(Source):
    """The integers from `start` to `end`, both included.

    Example:
        >>> NumberSequenceSource(1, 3).is_bounded
        True
    """

    name = "Sequence Source"

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            raise InvalidProgramError(f"NumberSequenceSource: the start {start} must not be above the end {end}.")
        self._start, self._end = start, end

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return IntervalEnumerator(self._start, self._end + 1, parallelism)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader()
