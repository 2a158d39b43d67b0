"""The contract of custom sources: the documented example, rate limits, lag, alignment, end of input."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from glob import glob
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Duration, WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import ProcessFunction
from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.jobmaster.machine.flow import RateLimit
from millstream.testing import CollectSink, LocalEnvironment, ManualClock
from tests.support.helpers import wait_until
from tests.support.paths import DOCS

DOCS = DOCS / "reference" / "connectors" / "index.md"


@pytest.fixture(scope="module")
def log_files() -> Any:
    """Return the source of the documentation."""
    match = re.search(r"```python\n(class LogFiles.*?)```", DOCS.read_text(), re.DOTALL)
    assert match is not None
    names: dict[str, Any] = {
        "Source": Source,
        "SplitEnumerator": SplitEnumerator,
        "SourceReader": SourceReader,
        "SplitAssignment": SplitAssignment,
        "glob": glob,
        "islice": islice,
    }
    assert len([line for line in match[1].splitlines() if line.strip()]) <= 30
    exec(match[1], names)
    return names["LogFiles"]


def append(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def test_documented_source_reads_growing_and_new_files(log_files: Any, tmp_path: Path) -> None:
    append(tmp_path / "a.log", "a1\na2\nhal")
    sink = CollectSink()
    env = LocalEnvironment()
    env.set_parallelism(2)
    env.from_source(log_files(f"{tmp_path}/*.log"), WatermarkStrategy.no_watermarks(), "logs").sink_to(sink)
    job = env.execute_async()
    wait_until(lambda: sorted(sink.results()) == ["a1", "a2"])
    append(tmp_path / "b.log", "b1\n")
    append(tmp_path / "a.log", "f\n")
    wait_until(lambda: sorted(sink.results()) == ["a1", "a2", "b1", "half"])
    job.cancel().result()


def test_documented_source_replays_from_checkpoint(log_files: Any, tmp_path: Path) -> None:
    append(tmp_path / "a.log", "".join(f"{i}\n" for i in range(50)))
    failed = tmp_path / "failed"

    def fails_once(line: str) -> str:
        if line == "60" and not failed.exists():
            failed.touch()
            raise ValueError("once")
        return line

    settings = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms"}
    env = LocalEnvironment(Configuration.from_dict(settings))
    env.enable_checkpointing(20)
    sink = CollectSink()
    logs = env.from_source(log_files(f"{tmp_path}/*.log"), WatermarkStrategy.no_watermarks(), "logs")
    logs.map(fails_once).sink_to(sink)
    job = env.execute_async()
    wait_until(lambda: len(sink.results()) == 50)
    append(tmp_path / "a.log", "".join(f"{i}\n" for i in range(50, 100)))
    wait_until(lambda: len(sink.results()) >= 100)
    job.cancel().result()
    assert failed.exists() and sorted(map(int, sink.results())) == list(range(100))


class _Number(TimestampAssigner):
    def extract_timestamp(self, value: str, record_timestamp: int) -> int:
        return int(value)


class _Watermarks(ProcessFunction):
    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterator[int]:
        yield ctx.timer_service().current_watermark()


def test_source_watermark_is_minimum_of_splits(log_files: Any, tmp_path: Path) -> None:
    append(tmp_path / "fast.log", "1000\n9000\n")
    append(tmp_path / "slow.log", "5\n")
    env, sink = LocalEnvironment(), CollectSink()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Number())
    env.from_source(log_files(f"{tmp_path}/*.log"), strategy, "logs").process(_Watermarks()).sink_to(sink)
    job = env.execute_async()
    wait_until(lambda: len(sink.results()) == 3)
    append(tmp_path / "fast.log", "9001\n")
    wait_until(lambda: len(sink.results()) == 4)
    append(tmp_path / "slow.log", "9002\n9003\n")
    wait_until(lambda: len(sink.results()) == 6)
    append(tmp_path / "slow.log", "9004\n")
    wait_until(lambda: len(sink.results()) == 7)
    job.cancel().result()
    assert sink.results()[3] == 4 and sink.results()[6] == 9000


def test_source_at_most_limits_rate() -> None:
    env, sink = LocalEnvironment(), CollectSink()
    env.set_parallelism(2)
    env.from_source(NumberSequenceSource(1, 100).at_most(200)).sink_to(sink)
    began = time.monotonic()
    env.execute()
    assert time.monotonic() - began >= 0.45 and sorted(sink.results()) == list(range(1, 101))


def test_rate_limit_allows_rate_in_any_second() -> None:
    limit, n_allowed = RateLimit(per_second=1000, subtasks=4), 0
    for step in range(1, 10_001):
        n_allowed += 4 * limit.allowed(10**9, step / 1000)
    assert 9900 <= n_allowed <= 10_000
    # A pause of a minute does not allow a minute's records.
    assert 4 * limit.allowed(10**9, 70.0) <= 1000
    # The unused part of a small budget carries over.
    small = RateLimit(per_second=1000, subtasks=1)
    assert [small.allowed(100, now) for now in (0.0, 0.5, 0.5, 0.5)] == [0, 100, 100, 100]
    slow = RateLimit(per_second=0.5, subtasks=1)
    assert [slow.allowed(10**9, float(now)) for now in range(7)] == [0, 0, 1, 0, 1, 0, 1]


def test_source_at_most_rejects_invalid_rate() -> None:
    with pytest.raises(InvalidProgramError, match="a rate must be above 0"):
        NumberSequenceSource(1, 2).at_most(0)
    with pytest.raises(InvalidProgramError, match="set it for the HybridSource instead"):
        HybridSource.builder(NumberSequenceSource(1, 2).at_most(1))


def _rest(source: NumberSequenceSource, left: Any) -> list[int]:
    """Return the numbers that a job reads after restoring an enumerator state."""
    enumerator, reader = source.create_enumerator(2, left), source.create_reader(0, 2)
    numbers_read: list[int] = []
    while not enumerator.is_finished():
        for split_ranges in enumerator.poll(10, 0.0).split_ranges.values():
            numbers_read += [n for split_range in split_ranges for numbers in reader.read(split_range) for n in numbers]
    return sorted(numbers_read)


def test_number_sequence_restores_remaining_range_only() -> None:
    begun = NumberSequenceSource(1, 100).create_enumerator(2)
    begun.poll(10, 0.0)
    left = [*range(11, 51), *range(61, 101)]
    for same_or_wider in ((1, 100), (-5, 1000), (11, 100)):
        assert _rest(NumberSequenceSource(*same_or_wider), begun.snapshot()) == left
    for other in ((1, 99), (12, 100), (200, 300)):
        with pytest.raises(InvalidProgramError, match=r"the checkpoint has the unread numbers from \d+ to \d+, .*uid"):
            NumberSequenceSource(*other).create_enumerator(2, begun.snapshot())


class _Endless(Source[int]):
    is_bounded = True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Nothing()

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        raise AssertionError


class _Nothing(SplitEnumerator):
    def poll(self, budget: int, now: float) -> SplitAssignment:
        return SplitAssignment({})

    def snapshot(self) -> None:
        return None


def test_bounded_source_requires_is_finished() -> None:
    env = LocalEnvironment()
    env.from_source(_Endless()).print()
    with pytest.raises(InvalidProgramError, match=r"_Nothing does not report its end: implement is_finished"):
        env.execute()


class _Opened(_Nothing):
    """Counts open enumerators."""

    count = 0

    def __init__(self) -> None:
        _Opened.count += 1

    def is_finished(self) -> bool:
        return True

    def close(self) -> None:
        _Opened.count -= 1


class _Opens(_Endless):
    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Opened()


class _FailsToOpen(_Endless):
    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        # The other enumerator is open, as a replication slot would be.
        raise OSError(f"no answer beside {_Opened.count}")


def test_sources_close_enumerators_opened_before_one_that_fails() -> None:
    env = LocalEnvironment()
    env.from_source(_Opens()).union(env.from_source(_FailsToOpen())).sink_to(CollectSink())
    with pytest.raises(JobExecutionError, match="no answer beside 1"):
        env.execute()
    assert _Opened.count == 0


# --- alignment


# The clock advances during a slow read.
CLOCK = ManualClock()


class _Lists(Source[tuple[str, int]]):
    """Named splits, each a list of timestamps that are assigned one at a time."""

    def __init__(self, splits: dict[str, list[int]], aligns: bool = True) -> None:
        self.splits, self.aligns_splits = splits, aligns

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _OneByOne(self, parallelism, restored or {})

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Times(self.splits)

    def subtask_of(self, split: Any, parallelism: int) -> int:
        return sorted(self.splits).index(split) % parallelism


class _OneByOne(SplitEnumerator):
    def __init__(self, source: _Lists, parallelism: int, positions: dict[str, int]) -> None:
        self._source, self._parallelism = source, parallelism
        self._positions = dict.fromkeys(source.splits, 0) | positions
        self._held: frozenset[str] = frozenset()

    def pause_splits(self, splits: Any) -> None:
        self._held = frozenset(splits)

    def poll(self, budget: int, now: float) -> SplitAssignment:
        split_ranges: dict[int, list[Any]] = {}
        for name, times in self._source.splits.items():
            position = self._positions[name]
            if position < len(times) and name not in self._held:
                if name == "slow":
                    CLOCK.advance(30)
                subtask = self._source.subtask_of(name, self._parallelism)
                split_ranges.setdefault(subtask, []).append((name, position))
                self._positions[name] += 1
        return SplitAssignment(split_ranges, limited=bool(split_ranges))

    def is_finished(self) -> bool:
        return all(self._positions[name] == len(times) for name, times in self._source.splits.items())

    def snapshot(self) -> Any:
        return dict(self._positions)


class _Times(SourceReader):
    def __init__(self, splits: dict[str, list[int]]) -> None:
        self._splits = splits

    def read(self, split_range: Any) -> Iterator[list[tuple[str, int]]]:
        name, position = split_range
        yield [(name, self._splits[name][position])]

    def split_of(self, split_range: Any) -> str:
        return str(split_range[0])

    def ends_split(self, split_range: Any) -> bool:
        name, position = split_range
        return bool(position + 1 == len(self._splits[name]))


class _Second(TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


def _aligned(drift: int) -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Second())
    return strategy.with_watermark_alignment("group", Duration.of_millis(drift))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_watermark_alignment_pauses_split_that_is_ahead(parallelism: int) -> None:
    """A subtask without splits, or with only finished ones, does not hold others back."""
    fast, slow = [i * 1000 for i in range(8)], [i * 100 for i in range(60)]
    env, sink = LocalEnvironment(), CollectSink()
    env.set_parallelism(parallelism)
    source = _Lists({"fast": fast, "short": [0], "slow": slow})
    env.from_source(source, _aligned(500), "lists").set_parallelism(parallelism).sink_to(sink).set_parallelism(1)
    env.execute()
    results = sink.results()
    assert sorted(results) == sorted([("short", 0), *(("fast", t) for t in fast), *(("slow", t) for t in slow)])
    for index, (name, t) in enumerate(results):
        if name == "fast" and t >= 2000:
            # The previous record was allowed; the others must have caught up by now.
            assert max(s for n, s in results[:index] if n == "slow") >= t - 1000 - 500 - 100


def test_watermark_alignment_of_whole_sources_does_not_deadlock() -> None:
    env, sink = LocalEnvironment(), CollectSink()
    env.set_parallelism(2)
    one = _Lists({"a": [0, 9000, 9001, 9002], "b": [0, 10, 20, 30]}, aligns=False)
    other = _Lists({"c": [0, 4000, 4001]}, aligns=False)
    env.from_source(one, _aligned(50), "one").sink_to(sink)
    env.from_source(other, _aligned(50), "other").sink_to(sink)
    env.execute_async().get_job_execution_result().result(20)
    assert len(sink.results()) == 11


class _Late(ProcessFunction):
    def process_element(self, value: tuple[str, int], ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield (*value, ctx.timer_service().current_watermark() >= value[1])


@pytest.mark.parametrize("aligns", [True, False])
def test_watermark_alignment_paused_split_does_not_become_idle(aligns: bool) -> None:
    """Otherwise the watermark would pass it, and its records would be late."""
    env, sink = LocalEnvironment(clock=CLOCK), CollectSink()
    env.set_parallelism(1)
    strategy = _aligned(50).with_idleness(Duration.of_millis(100))
    fast, slow = {"fast": [0, 5000, 6000]}, {"slow": [*range(20), 5_000_000, 5_000_001]}
    if aligns:
        stream = env.from_source(_Lists(fast | slow), strategy, "lists")
    else:
        sources = [_Lists(fast, aligns=False), _Lists(slow, aligns=False)]
        first, second = (env.from_source(s, strategy, f"list {i}") for i, s in enumerate(sources))
        stream = first.union(second)
    stream.process(_Late()).sink_to(sink)
    env.execute()
    results = sink.results()
    assert len(results) == 25 and results.index(("fast", 6000, False)) > results.index(("slow", 19, False))
