"""NumberSequenceSource: the integers of an interval, in parallel."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.common.inferred_types import Whole
from millstream.connectors.base import (
    BATCH,
    Source,
    SourceReader,
    SplitAssignment,
    SplitEnumerator,
    SplitRange,
    split_interval,
)

__all__ = ["NumberSequenceSource"]


class IntervalEnumerator(SplitEnumerator):
    """Deals out intervals of integers: contiguous splits, as many as the source first had subtasks.

    A share is (split, start, end, whether the split ends there).
    """

    def __init__(
        self, start: int, end: int, parallelism: int, restored: dict[int, tuple[int, int]] | None = None
    ) -> None:
        self._parallelism = parallelism
        self._left = dict(enumerate(split_interval(start, end, parallelism))) if restored is None else dict(restored)
        self._drop_empty()

    def _drop_empty(self) -> None:
        self._left = {s: (a, b) for s, (a, b) in self._left.items() if a < b}

    def poll(self, budget: int, now: float) -> SplitAssignment:
        shares: dict[int, list[SplitRange]] = {}
        # With fewer subtasks than before one has several splits, which share its budget.
        each = max(budget // -(-len(self._left) // self._parallelism), 1) if self._left else 0
        for split, (a, b) in self._left.items():
            to = min(a + each, b)
            shares.setdefault(split % self._parallelism, []).append((split, a, to, to == b))
            self._left[split] = (to, b)
        self._drop_empty()
        return SplitAssignment(shares, limited=bool(self._left))

    def snapshot(self) -> dict[int, tuple[int, int]]:
        return dict(self._left)

    def is_finished(self) -> bool:
        return not self._left


class IntervalReader(SourceReader):
    """Reads shares of an interval, each split with watermarks of its own."""

    def rest(self, share: Any, read: int) -> Iterator[Collection[Any]]:
        split, start, end, ends = share
        return self.read((split, start + read, end, ends))

    def split_of(self, share: Any) -> int:
        split: int = share[0]
        return split

    def ends_split(self, share: Any) -> bool:
        ends: bool = share[3]
        return ends


class _Reader(IntervalReader):
    def read(self, share: Any) -> Iterator[Collection[Any]]:
        _, start, end, _ = share
        for at in range(start, end, BATCH):
            yield range(at, min(at + BATCH, end))


class NumberSequenceSource(Source[int]):
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
        self.shape = Whole(start, end)

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        self._check_within(restored or {})
        return IntervalEnumerator(self._start, self._end + 1, parallelism, restored)

    def _check_within(self, left: dict[int, tuple[int, int]]) -> None:
        """What a checkpoint has left counts, as in Flink; but the job was planned for the numbers of this source."""
        beyond = [(a, b - 1) for a, b in left.values() if a < self._start or b - 1 > self._end]
        if beyond:
            raise InvalidProgramError(
                f"NumberSequenceSource: the numbers from {beyond[0][0]:,} to {beyond[0][1]:,} are left to read in the "
                f"checkpoint, and are not all in this one's, from {self._start:,} to {self._end:,}: give it an "
                "interval that has them, or a uid of its own to start anew."
            )

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader()
