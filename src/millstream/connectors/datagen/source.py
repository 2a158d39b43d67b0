"""Sources of generated records: number sequences and user functions of an index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from millstream.common.aliases import T_co
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

__all__ = ["DataGeneratorSource", "NumberSequenceSource"]


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


class _NumberReader(IntervalReader):
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
        return _NumberReader()


class _RatedEnumerator(SplitEnumerator):
    """Deals out indexes from 0 upwards, no more than the rate allows by now."""

    def __init__(self, count: int | None, rate: float | None, parallelism: int, at: int) -> None:
        self._count = count
        self._rate = rate
        self._parallelism = parallelism
        self._at = at
        self._started: float | None = None

    def snapshot(self) -> int:
        return self._at

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if self._started is None:
            # What was dealt out before a restart counts as if it had come at the rate.
            self._started = now - (self._at / self._rate if self._rate is not None else 0)
        most = self._at + budget * self._parallelism
        due = most if self._rate is None else int((now - self._started) * self._rate)
        if self._count is not None:
            due = min(due, self._count)
        to = max(min(due, most), self._at)
        cuts = split_interval(self._at, to, self._parallelism)
        unlimited_more = self._rate is None and not (self._count is not None and to >= self._count)
        self._at = to
        return SplitAssignment(
            {i: [(a, b)] for i, (a, b) in enumerate(cuts) if a < b}, limited=to < due or unlimited_more
        )

    def is_finished(self) -> bool:
        return self._count is not None and self._at >= self._count

    def next_poll(self, now: float) -> float:
        if self._rate is None or self._started is None:
            return now
        # When the next record is due, but not so often that a fast source is asked for each.
        return max(self._started + (self._at + 1) / self._rate, now + 0.001)


class _Made(Sequence[Any]):
    """Records that are made when they are asked for: the function may take long."""

    def __init__(self, function: Callable[[int], Any], indexes: range) -> None:
        self._function = function
        self._indexes = indexes

    def __len__(self) -> int:
        return len(self._indexes)

    def __getitem__(self, place: Any) -> Any:
        found = self._indexes[place]
        return [self._function(i) for i in found] if isinstance(place, slice) else self._function(found)


class _GeneratorReader(SourceReader):
    def __init__(self, function: Callable[[int], Any]) -> None:
        self._function = function

    def read(self, share: Any) -> Iterator[Collection[Any]]:
        start, end = share
        for at in range(start, end, BATCH):
            yield _Made(self._function, range(at, min(at + BATCH, end)))

    def rest(self, share: Any, read: int) -> Iterator[Collection[Any]]:
        start, end = share
        return self.read((start + read, end))


class DataGeneratorSource(Source[T_co]):
    """Records made by `generator_function(index)`.

    Args:
        generator_function: makes a record from its index, 0, 1, 2, ...
        count: how many records; None goes on for ever.
        rate_per_second: how many a second over all subtasks; None is as fast as can be.

    Example:
        >>> DataGeneratorSource(lambda i: f"event {i}", count=10, rate_per_second=5).is_bounded
        True
    """

    name = "Data Generator Source"

    def __init__(
        self,
        generator_function: Callable[[int], T_co],
        count: int | None = None,
        rate_per_second: float | None = None,
    ) -> None:
        if not callable(generator_function):
            raise InvalidProgramError(f"DataGeneratorSource takes a function of an index, not {generator_function!r}.")
        if count is not None and count < 0:
            raise InvalidProgramError(f"DataGeneratorSource: count must not be negative, it is {count}.")
        if rate_per_second is not None and rate_per_second <= 0:
            raise InvalidProgramError(f"DataGeneratorSource: rate_per_second must be above 0, it is {rate_per_second}.")
        self._function = generator_function
        self._count = count
        self._rate = rate_per_second

    @property
    def is_bounded(self) -> bool:
        return self._count is not None

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _RatedEnumerator(self._count, self._rate, parallelism, restored or 0)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _GeneratorReader(self._function)
