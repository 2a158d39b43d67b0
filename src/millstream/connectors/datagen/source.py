"""Sources of generated records: number sequences and user functions of an index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Generic, overload

from millstream.common.aliases import T_co, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.inferred_types import Whole
from millstream.connectors.base import (
    BATCH,
    Source,
    SourceReader,
    SplitAssignment,
    SplitEnumerator,
    SplitRange,
)
from millstream.connectors.intervals import (
    IntervalEnumerator,
    IntervalPosition,
    IntervalRange,
    IntervalReader,
    split_interval,
)

__all__ = ["DataGeneratorSource", "NumberSequenceSource"]


class _NumberReader(IntervalReader):
    def read(self, split_range: IntervalRange) -> Iterator[Collection[int]]:
        _, start, end, _ = split_range
        for begin in range(start, end, BATCH):
            yield range(begin, min(begin + BATCH, end))


class NumberSequenceSource(Source[int]):
    """Generates the integers from `start` to `end`, both included; subtasks read parts of them in parallel.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> numbers = env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "numbers")
        >>> list(numbers.execute_and_collect())
        [1, 2, 3]
    """

    name = "Sequence Source"

    def __init__(self, start: int, end: int) -> None:
        if start > end:
            raise InvalidProgramError(f"NumberSequenceSource: the start {start} must not be above the end {end}.")
        self._start, self._end = start, end
        self.inferred_type = Whole(start, end)

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: IntervalPosition | None = None) -> SplitEnumerator:
        self._check_within(restored or {})
        return IntervalEnumerator(self._start, self._end + 1, parallelism, restored)

    def _check_within(self, left: IntervalPosition) -> None:
        """Refuse a checkpoint with other numbers: as in Flink it decides what is read, but the plan assumes these."""
        beyond = [(a, b - 1) for a, b in left.values() if a < self._start or b - 1 > self._end]
        if beyond:
            raise InvalidProgramError(
                f"NumberSequenceSource: the checkpoint has the unread numbers from {beyond[0][0]:,} to "
                f"{beyond[0][1]:,}, which the interval from {self._start:,} to {self._end:,} does not contain: extend "
                "the interval, or set another uid to start without state."
            )

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _NumberReader()


class RatedEnumerator(SplitEnumerator):
    """Assigns consecutive numbers from 0 on, at most as many as a rate allows by now. A range is (start, end).

    Args:
        count: the number of records; None for unbounded.
        rate: the records per second over all subtasks; None for no limit.
        parallelism: the number of subtasks.
        position: the first number.
        block: ranges end at multiples of this number; only the first and the last may be shorter.
        head_start: the records that are due at once.
    """

    def __init__(
        self,
        count: int | None,
        rate: float | None,
        parallelism: int,
        position: int,
        block: int = 1,
        head_start: int = 0,
    ) -> None:
        self._count = count
        self._rate = rate
        self._parallelism = parallelism
        self._position = position
        self._block = block
        self._head_start = head_start
        self._started: float | None = None

    def snapshot(self) -> int:
        return self._position

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if self._started is None:
            # Records before a restart count as generated at the rate.
            self._started = now - (self._position / self._rate if self._rate is not None else 0)
        # Whole blocks, but at least one.
        max_end = self._position + -(-budget // self._block) * self._parallelism * self._block
        due = max_end
        if self._rate is not None:
            due = int((now - self._started) * self._rate) + self._head_start
        if self._count is not None:
            due = min(due, self._count)
        end = max(min(due, max_end), self._position)
        ranges = self._divide(self._position, end)
        self._position = end
        return SplitAssignment(ranges, limited=end < due or (self._rate is None and not self.is_finished()))

    def _divide(self, start: int, end: int) -> dict[int, list[SplitRange]]:
        """Divide records among subtasks, at the borders of blocks."""
        block = self._block
        blocks = split_interval(start // block, -(-end // block), self._parallelism)
        ranges = [(max(a * block, start), min(b * block, end)) for a, b in blocks]
        return {i: [(a, b)] for i, (a, b) in enumerate(ranges) if a < b}

    def is_finished(self) -> bool:
        return self._count is not None and self._position >= self._count

    def next_poll(self, now: float) -> float:
        if self._rate is None or self._started is None:
            return now
        # When the next record is due, but not for each single record of a fast source.
        return max(self._started + (self._position + 1 - self._head_start) / self._rate, now + 0.001)


class _GeneratedRecords(Sequence[T_co], Generic[T_co]):
    """Records that are generated on access, because the function may be slow."""

    def __init__(self, function: Callable[[int], T_co], indexes: range) -> None:
        self._function = function
        self._indexes = indexes

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, index: int) -> T_co: ...

    @overload
    def __getitem__(self, index: slice) -> list[T_co]: ...

    def __getitem__(self, index: int | slice) -> T_co | list[T_co]:
        if isinstance(index, slice):
            return [self._function(i) for i in self._indexes[index]]
        return self._function(self._indexes[index])


class _GeneratorReader(SourceReader):
    def __init__(self, function: Callable[[int], Value]) -> None:
        self._function = function

    def read(self, split_range: tuple[int, int]) -> Iterator[Collection[Value]]:
        start, end = split_range
        for begin in range(start, end, BATCH):
            yield _GeneratedRecords(self._function, range(begin, min(begin + BATCH, end)))

    def rest(self, split_range: tuple[int, int], read: int) -> Iterator[Collection[Value]]:
        start, end = split_range
        return self.read((start + read, end))


class DataGeneratorSource(Source[T_co]):
    """Generates records with a function of their index. PyFlink has no such source.

    Args:
        generator_function: returns the record of an index, 0, 1, 2, ...
        count: the number of records; None, the default, for unbounded.
        rate_per_second: records per second over all subtasks; None, the default, for no limit.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> source = DataGeneratorSource(lambda i: f"event {i}", count=3, rate_per_second=1000)
        >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "events").execute_and_collect())
        ['event 0', 'event 1', 'event 2']
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

    def create_enumerator(self, parallelism: int, restored: int | None = None) -> SplitEnumerator:
        return RatedEnumerator(self._count, self._rate, parallelism, restored or 0)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _GeneratorReader(self._function)
