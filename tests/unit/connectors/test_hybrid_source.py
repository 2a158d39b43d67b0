"""HybridSource: one source after another, stopped anywhere and restored at any parallelism."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.checkpoint.snapshot import Snapshot
from millstream.common import Duration, Types, WatermarkStrategy
from millstream.common.errors import InvalidProgramError
from millstream.connectors.collection import CollectionSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.functions import ProcessFunction
from millstream.testing import CollectSink
from millstream.testing.local_job import LocalJob, MemoryStorage

Env = StreamExecutionEnvironment
TEXT = StreamFormat.text_line_format()


def chain(*sources: Any) -> HybridSource[Any]:
    builder = HybridSource.builder(sources[0])
    for source in sources[1:]:
        builder = builder.add_source(source)
    return builder.build()


def job(
    source: Any,
    sink: CollectSink,
    parallelism: int = 1,
    sizes: Callable[[], int] | None = None,
    snapshot: Snapshot | None = None,
    storage: MemoryStorage | None = None,
) -> LocalJob:
    env = Env.get_execution_environment().set_parallelism(parallelism)
    env.from_source(source).uid("source").map(str).sink_to(sink).uid("sink")
    return LocalJob(env, None, sizes, snapshot, storage)


def read(source: Any, parallelism: int = 1, size: int = 1 << 30) -> list[str]:
    sink = CollectSink()
    job(source, sink, parallelism, lambda: size).run()
    return list(sink.results())


def lines(path: Path, count: int) -> FileSource:
    path.write_text("".join(f"line {i}\n" for i in range(count)))
    return FileSource.for_record_stream_format(TEXT, str(path)).build()


def test_hybrid_source_reads_sources_in_order(tmp_path: Path) -> None:
    source = chain(lines(tmp_path / "a", 3), CollectionSource(["x", "y"]), NumberSequenceSource(7, 9))
    assert read(source) == ["line 0", "line 1", "line 2", "x", "y", "7", "8", "9"]
    assert read(source, size=1) == read(source)


def test_hybrid_source_switches_after_all_subtasks_finish() -> None:
    source = chain(
        NumberSequenceSource(0, 99), NumberSequenceSource(100, 199), DataGeneratorSource(lambda i: i + 200, 9)
    )
    values = [int(v) for v in read(source, parallelism=3, size=7)]
    assert sorted(values[:100]) == list(range(100)) and sorted(values[100:200]) == list(range(100, 200))
    assert sorted(values[200:]) == list(range(200, 209))


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_hybrid_source_skips_an_empty_source(empty: int) -> None:
    sources = [CollectionSource([i]) for i in range(3)]
    sources[empty] = CollectionSource([])
    assert read(chain(*sources)) == [str(i) for i in range(3) if i != empty]


def test_hybrid_source_of_empty_sources_is_empty() -> None:
    assert read(chain(CollectionSource([]), CollectionSource([]))) == []


def test_hybrid_source_accepts_repeated_and_nested_sources() -> None:
    numbers = NumberSequenceSource(1, 2)
    inner = chain(numbers, CollectionSource(["a"]))
    assert read(chain(inner, numbers, inner), size=1) == ["1", "2", "a", "1", "2", "1", "2", "a"]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_hybrid_source_is_exactly_once_across_restarts(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(0, 200)
    file = lines(tmp_path_factory.mktemp("in") / "file", count)
    source = chain(
        DataGeneratorSource(lambda i: f"made {i}", rng.randint(0, 30)),
        file,
        chain(CollectionSource(list(range(rng.randint(0, 40)))), NumberSequenceSource(100, 100 + rng.randint(0, 50))),
    )
    expected = Counter(read(source))
    actual: Counter[str] = Counter()
    snapshot, storage = None, MemoryStorage()
    while True:
        sink = CollectSink()
        running = job(source, sink, rng.randint(1, 4), lambda: rng.randint(1, 60), snapshot, storage)
        for _ in range(rng.randint(1, 4)):
            if not running.is_finished:
                running.run_epoch()
        snapshot, counted = running.snapshot(), list(sink.results())
        actual.update(counted)
        if running.is_finished:
            break
        # Records after the checkpoint are rolled back.
        for _ in range(rng.randint(0, 2)):
            if not running.is_finished:
                running.run_epoch()
    assert actual == expected


class Parts(Source[int]):
    """A custom source that ends on the next poll, has named splits and records commit notifications."""

    def __init__(self, first: int, count: int, calls: list[Any]) -> None:
        self.first, self.count, self.calls = first, count, calls

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Parts(self, restored or 0)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _PartReader(self.first)


class _Parts(SplitEnumerator):
    def __init__(self, source: Parts, position: int) -> None:
        self.source, self.position, self.has_ended = source, position, False

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if self.position == self.source.count:
            self.has_ended = True
            return SplitAssignment({})
        self.position += 1
        return SplitAssignment({0: [self.position - 1]})

    def is_finished(self) -> bool:
        return self.has_ended

    def snapshot(self) -> int:
        return self.position

    def committed(self, snapshot: int) -> None:
        self.source.calls.append(("committed", self.source.first, snapshot))

    def close(self) -> None:
        self.source.calls.append(("closed", self.source.first))


class _PartReader(SourceReader):
    def __init__(self, first: int) -> None:
        self.first = first

    def read(self, split_range: int) -> Iterator[list[int]]:
        yield [self.first + split_range]

    def split_of(self, split_range: int) -> str:
        return f"part {split_range}"

    def ends_split(self, split_range: int) -> bool:
        return True


def test_hybrid_source_accepts_custom_sources() -> None:
    assert read(chain(Parts(0, 2, []), Parts(10, 0, []), Parts(20, 1, []))) == ["0", "1", "20"]


def test_hybrid_source_notifies_each_source_of_commits() -> None:
    calls: list[Any] = []
    enumerator = chain(Parts(0, 2, calls), Parts(10, 2, calls)).create_enumerator(1)
    enumerator.poll(1, 0)
    in_first = enumerator.snapshot()
    enumerator.poll(1, 0)
    enumerator.poll(1, 0)
    in_second = enumerator.snapshot()
    # The first source ends when the checkpoint taken in it completes.
    enumerator.committed(in_first)
    assert calls == [("committed", 0, 1)]
    enumerator.committed(in_second)
    assert calls[1:] == [("committed", 0, 2), ("closed", 0), ("committed", 10, 1)]
    enumerator.close()
    assert calls[4:] == [("closed", 10)]


def test_hybrid_source_polls_the_next_source_at_once() -> None:
    enumerator = chain(DataGeneratorSource(int, 2), DataGeneratorSource(int, None, 1)).create_enumerator(1)
    assignment = enumerator.poll(10, 5.0)
    assert assignment.limited and not enumerator.is_finished() and enumerator.next_poll(5.0) == 5.0
    assert enumerator.poll(10, 5.0).split_ranges == {}
    assert enumerator.next_poll(5.0) == 6.0


def test_hybrid_source_creates_a_source_when_its_turn_comes(tmp_path: Path) -> None:
    (tmp_path / "later").mkdir()
    later = FileSource.for_record_stream_format(TEXT, str(tmp_path / "later")).build()
    sink = CollectSink()
    running = job(chain(NumberSequenceSource(1, 2), later), sink, sizes=lambda: 1)
    running.run_epoch()
    (tmp_path / "later" / "file").write_text("found\n")
    running.run()
    assert list(sink.results()) == ["1", "2", "found"]


class Times(ProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield value, ctx.timer_service().current_watermark()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_hybrid_source_watermarks_continue_in_the_next_source(parallelism: int) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)
    env, sink = Env.get_execution_environment().set_parallelism(2), CollectSink()
    source = chain(
        NumberSequenceSource(0, 99), NumberSequenceSource(100, 199), DataGeneratorSource(lambda i: i + 200, 100)
    )
    stream = env.from_source(source, strategy).uid("source")
    stream.key_by(lambda _: 0).process(Times()).uid("times").sink_to(sink).uid("sink")
    running = LocalJob(env, None, lambda: 10)
    for _ in range(7):
        running.run_epoch()
    # Within the second source: the snapshot has watermarks of its two splits, and none of the first source's.
    snapshot = running.snapshot()
    env = Env.get_execution_environment().set_parallelism(parallelism)
    stream = env.from_source(source, strategy).uid("source")
    stream.key_by(lambda _: 0).process(Times()).uid("times").sink_to(sink).uid("sink")
    rest = LocalJob(env, None, lambda: 10, snapshot, running.storage)
    while not rest.is_finished:
        rest.run_epoch()
    seen = dict(sink.results())
    assert sorted(seen) == list(range(300))
    # No record is late, and a finished source does not hold back the watermark.
    assert all(watermark < value for value, watermark in seen.items())
    assert max(seen[v] for v in range(100, 200)) >= 99 and max(seen[v] for v in range(200, 300)) >= 199


def test_hybrid_source_rejects_an_unbounded_source_before_the_last(tmp_path: Path) -> None:
    builder = FileSource.for_record_stream_format(TEXT, str(tmp_path))
    for_ever = builder.monitor_continuously(Duration.of_seconds(1)).build()
    assert not chain(NumberSequenceSource(1, 2), for_ever).is_bounded
    assert chain(NumberSequenceSource(1, 2)).is_bounded
    with pytest.raises(InvalidProgramError, match=r"'Sequence Source' would never be read, because 'File Source'"):
        chain(for_ever, NumberSequenceSource(1, 2))


def test_hybrid_source_rejects_other_objects() -> None:
    with pytest.raises(InvalidProgramError, match="HybridSource takes a Source or an object with the methods"):
        HybridSource.builder([1, 2])


def test_hybrid_source_type_is_the_common_type(tmp_path: Path) -> None:
    text = lines(tmp_path / "file", 1)
    assert chain(text, text).produced_type == text.produced_type == Types.STRING()
    assert chain(text, NumberSequenceSource(1, 2)).produced_type is None


def test_hybrid_source_rejects_a_snapshot_of_other_sources() -> None:
    numbers = NumberSequenceSource(1, 2)
    position = chain(numbers, numbers).create_enumerator(1).snapshot()._replace(source=1)
    with pytest.raises(InvalidProgramError, match="another chain of sources than these 1"):
        chain(numbers).create_enumerator(1, position)
    with pytest.raises(InvalidProgramError, match="another chain"):
        chain(numbers).create_enumerator(1, numbers.create_enumerator(1).snapshot())


class Simple:
    """A SimpleDataSourceStreamReader: only one subtask can read it."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        end = min(start["at"] + 2, 6)
        return iter([(i,) for i in range(start["at"], end)]), {"at": end}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
        return iter([(i,) for i in range(start["at"], end["at"])])


def test_hybrid_source_with_a_spark_stream_reader_last() -> None:
    sink = CollectSink()
    running = job(chain(NumberSequenceSource(7, 9), Simple()), sink, parallelism=4, sizes=lambda: 2)
    for _ in range(6):
        running.run_epoch()
    assert sorted(sink.results()) == [*(f"({i},)" for i in range(6)), "7", "8", "9"]
    assert [v.parallelism for v in running.plan.vertices if v.is_source] == [1]
    assert not chain(NumberSequenceSource(1, 2), NumberSequenceSource(1, 2)).is_simple
