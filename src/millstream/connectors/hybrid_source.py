"""HybridSource: reads several sources in sequence, such as files and then a stream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import copy
from dataclasses import replace
from typing import NamedTuple, Self, TypeAlias

from millstream.common.aliases import T_co, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.base import BadRecords, Source, SourceReader, SplitAssignment, SplitEnumerator, SplitRange
from millstream.connectors.files.source import FileSource
from millstream.connectors.spark_source import SparkStreamSource, StreamReader, as_source

__all__ = ["HybridSource", "HybridSourceBuilder"]


# The position and the split of an inner source.
_Position: TypeAlias = Value
_Split: TypeAlias = Value


@tagged("hybrid-position")
class HybridPosition(NamedTuple):
    """The position of a HybridSource in a checkpoint.

    Attributes:
        source: the index of the current source; earlier ones have ended.
        inner: the position of the current source.
    """

    source: int
    inner: _Position


@tagged("hybrid-split-range")
class HybridSplitRange(NamedTuple):
    """A split range of the source with an index."""

    source: int
    inner: SplitRange


def _no_listener() -> None:
    pass


class _Enumerator(SplitEnumerator):
    """Assigns the splits of one source after another; an epoch reads one source, so all subtasks switch together."""

    def __init__(self, sources: tuple[Source, ...], parallelism: int, position: HybridPosition | None) -> None:
        self._sources = sources
        self._parallelism = parallelism
        self._index = 0 if position is None else position.source
        inner = None if position is None else position.inner
        self._current = sources[self._index].create_enumerator(parallelism, inner)
        # Finished sources whose last checkpoint is not complete yet.
        self._former: dict[int, SplitEnumerator] = {}
        self._wake: Callable[[], None] = _no_listener

    def poll(self, budget: int, now: float) -> SplitAssignment:
        while True:
            assignment = SplitAssignment({}) if self._current.is_finished() else self._current.poll(budget, now)
            if assignment.split_ranges or not self._must_switch():
                return self._labelled(assignment)
            self._switch()

    def _labelled(self, assignment: SplitAssignment) -> SplitAssignment:
        ranges = {
            subtask: [HybridSplitRange(self._index, r) for r in inner]
            for subtask, inner in assignment.split_ranges.items()
        }
        # The next source may have input now.
        return replace(assignment, split_ranges=ranges, limited=assignment.limited or self._must_switch())

    def _must_switch(self) -> bool:
        return self._index + 1 < len(self._sources) and self._current.is_finished()

    def _switch(self) -> None:
        # Created now: a source may read its start offsets or list files when its enumerator is created.
        following = self._sources[self._index + 1].create_enumerator(self._parallelism)
        self._former[self._index] = self._current
        following.listen(self._wake)
        self._index, self._current = self._index + 1, following

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._current.listen(wake)

    def pause_splits(self, splits: Collection[tuple[int, _Split]]) -> None:
        self._current.pause_splits([split for source, split in splits if source == self._index])

    def is_finished(self) -> bool:
        return self._index + 1 == len(self._sources) and self._current.is_finished()

    def next_poll(self, now: float) -> float | None:
        return now if self._must_switch() else self._current.next_poll(now)

    def snapshot(self) -> HybridPosition:
        return HybridPosition(self._index, self._current.snapshot())

    def committed(self, snapshot: HybridPosition) -> None:
        for index in [i for i in self._former if i < snapshot.source]:
            former = self._former.pop(index)
            former.committed(former.snapshot())
            former.close()
        enumerator = self._current if snapshot.source == self._index else self._former.get(snapshot.source)
        if enumerator is not None:
            enumerator.committed(snapshot.inner)

    def close(self) -> None:
        for enumerator in (*self._former.values(), self._current):
            enumerator.close()


class _Reader(SourceReader):
    """Reads with the reader of the current source; there is one at a time."""

    def __init__(self, create: Callable[[int], SourceReader], unstamped: frozenset[int]) -> None:
        self._create = create
        # Sources without timestamps, if others have them: their records get None.
        self._unstamped = unstamped
        self._index = -1
        self._current: SourceReader | None = None

    def _of(self, split_range: HybridSplitRange) -> SourceReader:
        if self._current is None or self._index != split_range.source:
            self.close()
            self._index, self._current = split_range.source, self._create(split_range.source)
        return self._current

    def read(self, split_range: HybridSplitRange) -> Iterator[Collection[Value]]:
        return self._stamped(split_range, self._of(split_range).read(split_range.inner))

    def rest(self, split_range: HybridSplitRange, read: int) -> Iterator[Collection[Value]]:
        return self._stamped(split_range, self._of(split_range).rest(split_range.inner, read))

    def _stamped(
        self, split_range: HybridSplitRange, batches: Iterator[Collection[Value]]
    ) -> Iterator[Collection[Value]]:
        if split_range.source not in self._unstamped:
            return batches
        return ([(value, None) for value in batch] for batch in batches)

    def split_of(self, split_range: HybridSplitRange) -> tuple[int, _Split] | None:
        split = self._of(split_range).split_of(split_range.inner)
        return None if split is None else (split_range.source, split)

    def in_turn(self, split_range: HybridSplitRange) -> bool:
        return self._of(split_range).in_turn(split_range.inner)

    def ends_split(self, split_range: HybridSplitRange) -> bool:
        return self._of(split_range).ends_split(split_range.inner)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None


class HybridSource(Source[T_co]):
    """Reads sources in sequence, such as files and then a stream; only the last one may be unbounded.

    A source starts when all subtasks have read the previous one to its end. A checkpoint contains the index of the
    current source and its position.

    A custom source with splits must report in `ends_split` the end of each split: otherwise the split holds back the
    watermark of the next sources.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.datastream.connectors.number_seq import NumberSequenceSource
        >>> old, new = NumberSequenceSource(1, 2), NumberSequenceSource(10, 12)
        >>> source = HybridSource.builder(old).add_source(new).build()
        >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").execute_and_collect())
        [1, 2, 10, 11, 12]
    """

    name = "Hybrid Source"

    def __init__(self, sources: tuple[Source[T_co], ...]) -> None:
        self._sources = sources
        self.produced_type = _common_type(sources)
        self.timestamped = any(source.timestamped for source in sources)

    @staticmethod
    def builder(first_source: Source | StreamReader) -> HybridSourceBuilder:
        """Return a builder with the first source, a Source or an object like PySpark's DataSourceStreamReader."""
        return HybridSourceBuilder().add_source(first_source)

    @property
    def is_bounded(self) -> bool:
        return self._sources[-1].is_bounded

    @property
    def aligns_splits(self) -> bool:  # type: ignore[override]
        """Whether all sources can pause single splits."""
        return all(source.aligns_splits for source in self._sources)

    def check(self) -> None:
        # The input of the others may appear while the first is read.
        self._sources[0].check()

    @property
    def is_simple(self) -> bool:
        """Whether only one subtask can read it, because one of its sources requires that."""
        kinds = (SparkStreamSource, HybridSource)
        return any(isinstance(source, kinds) and source.is_simple for source in self._sources)

    def with_storage_options(self, options: dict[str, dict[str, Value]]) -> HybridSource[T_co]:
        """Return the source with options of file systems, by protocol."""
        kinds = (FileSource, HybridSource)
        reached = copy(self)
        reached._sources = tuple(s.with_storage_options(options) if isinstance(s, kinds) else s for s in self._sources)
        return reached

    def on_bad_records(self, policy: BadRecords) -> Self:
        tolerant = super().on_bad_records(policy)
        tolerant._sources = tuple(source.on_bad_records(policy) for source in self._sources)
        return tolerant

    def create_enumerator(self, parallelism: int, restored: HybridPosition | None = None) -> SplitEnumerator:
        return _Enumerator(self._sources, parallelism, _position(restored, len(self._sources)))

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        unstamped = frozenset(i for i, s in enumerate(self._sources) if self.timestamped and not s.timestamped)
        return _Reader(lambda index: self._sources[index].create_reader(subtask, parallelism), unstamped)

    def subtask_of(self, split: tuple[int, _Split], parallelism: int) -> int:
        index, inner = split
        source: Source = self._sources[index]
        return source.subtask_of(inner, parallelism)


class HybridSourceBuilder:
    """Builds a HybridSource; see HybridSource for an example."""

    def __init__(self) -> None:
        self._sources: tuple[Source, ...] = ()

    def add_source(self, source: Source | StreamReader) -> HybridSourceBuilder:
        """Add a source, which is read after the previous ones have ended."""
        added = as_source(source, "HybridSource")
        if self._sources and not self._sources[-1].is_bounded:
            raise InvalidProgramError(
                f"HybridSource: '{added.name}' would never be read, because '{self._sources[-1].name}' before it "
                "never ends; only the last source may be unbounded."
            )
        if added.bad_records != BadRecords.fail():
            raise InvalidProgramError(
                f"HybridSource: '{added.name}' has a policy for bad records: set it for the HybridSource instead, with "
                "on_bad_records(...)."
            )
        if added.rate_per_second is not None:
            raise InvalidProgramError(
                f"HybridSource: '{added.name}' has a rate limit: set it for the HybridSource instead, with "
                "at_most(...)."
            )
        self._sources = (*self._sources, added)
        return self

    def build(self) -> HybridSource[Value]:
        """Return the source, which has at least the source of `HybridSource.builder`."""
        return HybridSource(self._sources)


def _common_type(sources: tuple[Source, ...]) -> TypeInformation | None:
    """Return the type of all sources' records; None if the sources have different types."""
    first = sources[0].produced_type
    return first if all(source.produced_type == first for source in sources) else None


def _position(restored: HybridPosition | None, sources: int) -> HybridPosition | None:
    if restored is None:
        return None
    if not isinstance(restored, HybridPosition) or restored.source >= sources:
        raise InvalidProgramError(
            f"HybridSource: the checkpoint belongs to another chain of sources than these {sources}; "
            "set another uid to read it from the beginning."
        )
    return restored
