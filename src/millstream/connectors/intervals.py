"""Sources over an interval of integers: number sequences, and collections by the index of their elements."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator
from typing import TypeAlias

from millstream.common.aliases import Value
from millstream.connectors.base import SourceReader, SplitAssignment, SplitEnumerator, SplitRange

# A part of an interval: the split, the start, the end, and whether the split ends there.
IntervalRange: TypeAlias = tuple[int, int, int, bool]
# The rest of each split: its start and end.
IntervalPosition: TypeAlias = dict[int, tuple[int, int]]


def split_interval(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """Divide [start, end) into contiguous parts whose lengths differ by at most one, longer parts first."""
    size, extra = divmod(max(end - start, 0), parts)
    intervals, begin = [], start
    for i in range(parts):
        stop = begin + size + (i < extra)
        intervals.append((begin, stop))
        begin = stop
    return intervals


class IntervalEnumerator(SplitEnumerator):
    """Assigns an interval of integers, divided into contiguous splits: one per subtask of the first start."""

    def __init__(self, start: int, end: int, parallelism: int, restored: IntervalPosition | None = None) -> None:
        self._parallelism = parallelism
        self._left = dict(enumerate(split_interval(start, end, parallelism))) if restored is None else dict(restored)
        self._drop_empty()

    def _drop_empty(self) -> None:
        self._left = {split: (start, end) for split, (start, end) in self._left.items() if start < end}

    def poll(self, budget: int, now: float) -> SplitAssignment:
        ranges: dict[int, list[SplitRange]] = {}
        # After a rescale a subtask may have several splits, which share its budget.
        max_records = max(budget // -(-len(self._left) // self._parallelism), 1) if self._left else 0
        for split, (start, end) in self._left.items():
            stop = min(start + max_records, end)
            ranges.setdefault(split % self._parallelism, []).append((split, start, stop, stop == end))
            self._left[split] = (stop, end)
        self._drop_empty()
        return SplitAssignment(ranges, limited=bool(self._left))

    def snapshot(self) -> IntervalPosition:
        return dict(self._left)

    def is_finished(self) -> bool:
        return not self._left


class IntervalReader(SourceReader):
    """Reads parts of an interval; each split has its own watermark."""

    @abstractmethod
    def read(self, split_range: IntervalRange) -> Iterator[Collection[Value]]: ...

    def rest(self, split_range: IntervalRange, read: int) -> Iterator[Collection[Value]]:
        split, start, end, ends = split_range
        return self.read((split, start + read, end, ends))

    def split_of(self, split_range: IntervalRange) -> int:
        return split_range[0]

    def ends_split(self, split_range: IntervalRange) -> bool:
        return split_range[3]
