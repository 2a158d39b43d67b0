"""HybridSource: several sources read one after the other, such as what is in files and then what goes on to come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, Self

from millstream.common.aliases import T_co
from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.base import BadRecords, Source, SourceReader, SplitAssignment, SplitEnumerator, SplitRange
from millstream.connectors.files.source import FileSource
from millstream.connectors.spark_source import SparkStreamSource, as_source

__all__ = ["HybridSource", "HybridSourceBuilder"]


@tagged("hybrid-position")
class HybridPosition(NamedTuple):
    """How far a chain of sources was dealt out.

    Attributes:
        source: the place of the source that is being read; those before it are over.
        inner: that source's own snapshot.
    """

    source: int
    inner: Any


@tagged("hybrid-split-range")
class HybridShare(NamedTuple):
    """A share of one of the sources, which is named by its place."""

    source: int
    inner: SplitRange


def _nobody_listens() -> None:
    pass


class _Enumerator(SplitEnumerator):
    """Deals out one source after another. No epoch has shares of two, so all subtasks switch together."""

    def __init__(self, sources: tuple[Source, ...], parallelism: int, position: HybridPosition | None) -> None:
        self._sources = sources
        self._parallelism = parallelism
        self._at = 0 if position is None else position.source
        self._current = sources[self._at].create_enumerator(parallelism, None if position is None else position.inner)
        # Sources that are over, but have not been told yet that all of them was processed for good.
        self._former: dict[int, SplitEnumerator] = {}
        self._wake: Callable[[], None] = _nobody_listens

    def poll(self, budget: int, now: float) -> SplitAssignment:
        while True:
            dealt = SplitAssignment({}) if self._current.is_finished() else self._current.poll(budget, now)
            if dealt.split_ranges or not self._must_switch():
                return self._labelled(dealt)
            self._switch()

    def _labelled(self, dealt: SplitAssignment) -> SplitAssignment:
        shares = {subtask: [HybridShare(self._at, s) for s in found] for subtask, found in dealt.split_ranges.items()}
        # The next source has something to read at once, as far as anybody knows.
        return replace(dealt, split_ranges=shares, limited=dealt.limited or self._must_switch())

    def _must_switch(self) -> bool:
        return self._at + 1 < len(self._sources) and self._current.is_finished()

    def _switch(self) -> None:
        # Made only now: a source may look where its input begins, or what files there are, when it is made.
        following = self._sources[self._at + 1].create_enumerator(self._parallelism)
        self._former[self._at] = self._current
        following.listen(self._wake)
        self._at, self._current = self._at + 1, following

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._current.listen(wake)

    def hold_back(self, splits: Collection[tuple[int, Any]]) -> None:
        self._current.hold_back([split for source, split in splits if source == self._at])

    def is_finished(self) -> bool:
        return self._at + 1 == len(self._sources) and self._current.is_finished()

    def next_poll(self, now: float) -> float | None:
        return now if self._must_switch() else self._current.next_poll(now)

    def snapshot(self) -> HybridPosition:
        return HybridPosition(self._at, self._current.snapshot())

    def committed(self, snapshot: HybridPosition) -> None:
        for place in [p for p in self._former if p < snapshot.source]:
            former = self._former.pop(place)
            former.committed(former.snapshot())
            former.close()
        enumerator = self._current if snapshot.source == self._at else self._former.get(snapshot.source)
        if enumerator is not None:
            enumerator.committed(snapshot.inner)

    def close(self) -> None:
        for enumerator in (*self._former.values(), self._current):
            enumerator.close()


class _Reader(SourceReader):
    """Reads with the reader of the source a share is of; there is one at a time."""

    def __init__(self, create: Callable[[int], SourceReader], unstamped: frozenset[int]) -> None:
        self._create = create
        # Sources whose records have no timestamps, where those of others have: theirs are none.
        self._unstamped = unstamped
        self._at = -1
        self._current: SourceReader | None = None

    def _of(self, share: HybridShare) -> SourceReader:
        if self._current is None or self._at != share.source:
            self.close()
            self._at, self._current = share.source, self._create(share.source)
        return self._current

    def read(self, share: HybridShare) -> Iterator[Collection[Any]]:
        return self._alike(share, self._of(share).read(share.inner))

    def rest(self, share: HybridShare, read: int) -> Iterator[Collection[Any]]:
        return self._alike(share, self._of(share).rest(share.inner, read))

    def _alike(self, share: HybridShare, batches: Iterator[Collection[Any]]) -> Iterator[Collection[Any]]:
        if share.source not in self._unstamped:
            return batches
        return ([(value, None) for value in batch] for batch in batches)

    def split_of(self, share: HybridShare) -> tuple[int, Any] | None:
        split = self._of(share).split_of(share.inner)
        return None if split is None else (share.source, split)

    def in_turn(self, share: HybridShare) -> bool:
        return self._of(share).in_turn(share.inner)

    def ends_split(self, share: HybridShare) -> bool:
        return self._of(share).ends_split(share.inner)

    def close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None


class HybridSource(Source[T_co]):
    """Reads sources one after the other; the last may go on for ever.

    A source is begun when the one before it has been read to its end by all subtasks. What a checkpoint holds is which
    source is being read, and how far.

    A source of one's own that has splits must say in `ends_split` when one is over: what it does not end holds back the
    watermark of the sources behind it.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.datastream.connectors.number_seq import NumberSequenceSource
        >>> old, new = NumberSequenceSource(1, 2), NumberSequenceSource(10, 12)
        >>> source = HybridSource.builder(old).add_source(new).build()
        >>> env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        >>> numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        >>> list(numbers.execute_and_collect())
        [1, 2, 10, 11, 12]
    """

    name = "Hybrid Source"

    def __init__(self, sources: tuple[Source[T_co], ...]) -> None:
        self._sources = sources
        self.produced_type = _common_type(sources)
        self.timestamped = any(source.timestamped for source in sources)

    @staticmethod
    def builder(first_source: Any) -> HybridSourceBuilder:
        """Begin with a source: a Source, or any object with the methods of PySpark's DataSourceStreamReader."""
        return HybridSourceBuilder().add_source(first_source)

    @property
    def is_bounded(self) -> bool:
        return self._sources[-1].is_bounded

    @property
    def aligns_splits(self) -> bool:  # type: ignore[override]
        """Whether all of its sources can hold single splits back."""
        return all(source.aligns_splits for source in self._sources)

    def check(self) -> None:
        # What the others read may come while the first is read.
        self._sources[0].check()

    @property
    def is_simple(self) -> bool:
        """Whether only one subtask can read it: when that is so for one of its sources."""
        kinds = (SparkStreamSource, HybridSource)
        return any(isinstance(source, kinds) and source.is_simple for source in self._sources)

    def reached_with(self, options: dict[str, dict[str, Any]]) -> HybridSource[T_co]:
        """Return the source with what file systems need to know, by protocol."""
        kinds = (FileSource, HybridSource)
        reached = copy(self)
        reached._sources = tuple(s.reached_with(options) if isinstance(s, kinds) else s for s in self._sources)
        return reached

    def on_bad_records(self, policy: BadRecords) -> Self:
        tolerant = super().on_bad_records(policy)
        tolerant._sources = tuple(source.on_bad_records(policy) for source in self._sources)
        return tolerant

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Enumerator(self._sources, parallelism, _position(restored, len(self._sources)))

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        unstamped = frozenset(i for i, s in enumerate(self._sources) if self.timestamped and not s.timestamped)
        return _Reader(lambda place: self._sources[place].create_reader(subtask, parallelism), unstamped)

    def subtask_of(self, split: Any, parallelism: int) -> int:
        place, inner = split
        source: Source = self._sources[place]
        return source.subtask_of(inner, parallelism)


class HybridSourceBuilder:
    """Builds a HybridSource."""

    def __init__(self) -> None:
        self._sources: tuple[Source, ...] = ()

    def add_source(self, source: Any) -> HybridSourceBuilder:
        """Read this source when those before it have come to their end."""
        added = as_source(source, "HybridSource")
        if self._sources and not self._sources[-1].is_bounded:
            raise InvalidProgramError(
                f"HybridSource: '{added.name}' would never be read, because '{self._sources[-1].name}' before it "
                "never ends; only the last source may be unbounded."
            )
        if added.bad_records != BadRecords.fail():
            raise InvalidProgramError(
                f"HybridSource: what '{added.name}' does with bad records is said of the HybridSource itself, with "
                "on_bad_records(...)."
            )
        if added.rate_per_second is not None:
            raise InvalidProgramError(
                f"HybridSource: '{added.name}' is limited to a rate: limit the HybridSource itself, with at_most(...)."
            )
        self._sources = (*self._sources, added)
        return self

    def build(self) -> HybridSource[Any]:
        """Return the source."""
        return HybridSource(self._sources)


def _common_type(sources: tuple[Source, ...]) -> TypeInformation | None:
    """Return the type that all sources say their records have; None when they do not say the same."""
    first = sources[0].produced_type
    return first if all(source.produced_type == first for source in sources) else None


def _position(restored: Any, sources: int) -> HybridPosition | None:
    if restored is None:
        return None
    if not isinstance(restored, HybridPosition) or restored.source >= sources:
        raise InvalidProgramError(
            f"HybridSource: the checkpoint was taken in another chain of sources than these {sources}; "
            "give the source a uid of its own to read it from the beginning."
        )
    return restored
