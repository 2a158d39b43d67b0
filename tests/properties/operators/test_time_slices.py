"""Epochs are time slices: pending input is read in the next slice, and timers fire in between."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millstream.checkpoint.snapshot import Snapshot
from millstream.common import Configuration, Duration, Time, WatermarkStrategy
from millstream.common.errors import InvalidProgramError
from millstream.connectors.files.source import FileSource
from millstream.datastream import AsyncDataStream, DataStream, OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.hybrid_source import HybridSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.functions import AsyncFunction, KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import StateTtlConfig, ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from millstream.formats.file_format import StreamFormat
from millstream.operators import watermarks
from millstream.operators.runtime.runtime_snapshot import decode
from millstream.operators.runtime.split_input import OpenSplitRange, PendingSplitRanges
from millstream.operators.runtime.subtask_input import ChunkSizer
from millstream.runtime_services import wall_clock
from millstream.testing import CollectSink, LocalEnvironment, LocalJob, ManualClock
from tests.support.slices import CALLS, CLOCK, lengths_of_epochs, program, slowly, start_anew


@pytest.fixture(autouse=True)
def _start_anew() -> None:
    start_anew()


def read(env: StreamExecutionEnvironment, source: Source, watermarks: Any = None) -> DataStream:
    return env.from_source(source, watermarks or WatermarkStrategy.no_watermarks(), "source").uid("source")


# --- consecutive epochs


def test_time_slice_limits_epoch() -> None:
    env, sink = program(), CollectSink()
    env.from_collection(list(range(100))).map(slowly).sink_to(sink)
    lengths = lengths_of_epochs(LocalJob(env, CLOCK))
    assert max(lengths) <= 250 and sum(lengths) == 5000
    assert sink.results() == list(range(100))


def test_time_slice_exceeded_by_one_slow_record_once() -> None:
    env, sink = program(), CollectSink()
    env.from_collection(list(range(50))).map(_slow_once).sink_to(sink)
    lengths = lengths_of_epochs(LocalJob(env, CLOCK))
    assert lengths == [5000, 0]
    assert sink.results() == list(range(50))


def _slow_once(value: int) -> int:
    if value == 3:
        CLOCK.advance(5000)
    return value


def test_time_slice_limits_slow_generator_source() -> None:
    env, sink = program(), CollectSink()
    read(env, DataGeneratorSource(slowly, count=20)).sink_to(sink)
    assert max(lengths_of_epochs(LocalJob(env, CLOCK))) <= 250
    assert sink.results() == list(range(20))


def test_time_slice_is_unlimited_in_batch() -> None:
    env, sink = program(**{"execution.runtime-mode": "BATCH"}), CollectSink()  # type: ignore[arg-type]
    env.from_collection(list(range(20))).map(slowly).sink_to(sink)
    assert lengths_of_epochs(LocalJob(env, CLOCK)) == [1000]


def test_time_slice_option_rejects_zero() -> None:
    env = program(**{"millstream.epoch.slice": "0 ms"})  # type: ignore[arg-type]
    env.from_collection([1]).print()
    with pytest.raises(InvalidProgramError, match=r"millstream\.epoch\.slice is .* it must be at least 1 ms"):
        LocalJob(env)


def test_time_slice_remainder_is_not_read_again_in_same_process() -> None:
    env, sink = program(), CollectSink()
    read(env, _Batches([[1, 2, 3], [4, 5, 6, 7], [8, 9]])).map(slowly).sink_to(sink)
    LocalJob(env, CLOCK).run()
    assert sink.results() == list(range(1, 10))
    assert CALLS == ["read 0", "read 1", "read 2"]


def test_time_slice_splits_batches_of_any_type() -> None:
    env, sink = program(), CollectSink()
    batches: list[Any] = [deque(range(7)), dict.fromkeys(range(7, 12)), (12, 13), range(14, 20), [], [20]]
    read(env, _Batches(batches)).map(slowly).sink_to(sink)
    LocalJob(env, CLOCK).run()
    assert sink.results() == list(range(21))


class _Batches(Source[int]):
    """One split with batches of any type; each read of a batch is recorded."""

    is_bounded = True

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Once(restored or False)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _BatchReader(self._batches)


class _Once(SplitEnumerator):
    def __init__(self, is_assigned: bool) -> None:
        self._is_assigned = is_assigned

    def poll(self, budget: int, now: float) -> SplitAssignment:
        first, self._is_assigned = not self._is_assigned, True
        return SplitAssignment({0: ["all"]} if first else {})

    def is_finished(self) -> bool:
        return self._is_assigned

    def snapshot(self) -> bool:
        return self._is_assigned


class _BatchReader(SourceReader):
    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def read(self, split_range: Any) -> Iterator[Any]:
        for i, batch in enumerate(self._batches):
            CALLS.append(f"read {i}")
            yield batch


# --- time


class _Alarm(KeyedProcessFunction):
    """Sets a timer 100 ms ahead for every record, and emits its delay."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 100)
        yield "record", value

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "late", ctx.timer_service().current_processing_time() - timestamp


def test_timers_behind_slow_records_fire_within_slice() -> None:
    env, sink = program(), CollectSink()
    env.from_collection(list(range(40))).map(slowly).key_by(lambda x: x).process(_Alarm()).sink_to(sink)
    LocalJob(env, CLOCK).run()
    late = [value for kind, value in sink.results() if kind == "late"]
    assert len(late) >= 32 and max(late) <= 250


def test_timers_fire_in_order_between_slow_records() -> None:
    env, sink = program(), CollectSink()
    env.from_collection(list(range(10))).key_by(lambda x: x).process(_SlowAlarm()).sink_to(sink)
    LocalJob(env, CLOCK).run()
    expected = "record 0, record 1, timer 100, record 2, timer 150, record 3, timer 200, record 4"
    assert ", ".join(sink.results()[:8]) == expected


class _SlowAlarm(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(CLOCK() + 100)
        slowly(value)
        yield f"record {value}"

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield f"timer {timestamp}"


def test_processing_time_window_fires_after_its_last_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the real clock: a record of the window's last millisecond still belongs to it, and no window fires twice."""
    CALLS.append(0.0)
    monkeypatch.setattr("millstream.runtime_services.time.time", lambda: CALLS[-1])
    env, sink = program(), CollectSink()
    windows = env.from_collection([1, 2, 3]).map(lambda x: x).key_by(lambda x: 0)
    windows.window(TumblingProcessingTimeWindows.of(Time.seconds(1))).reduce(lambda a, b: a + b).sink_to(sink)
    job, wakes = LocalJob(env, wall_clock, epoch_sizes=lambda: 1), []
    for now in (0.998, 0.9995, 1.0):
        CALLS.append(now)
        job.run_epoch()
        wakes.append(job.next_wake)
    assert sink.results() == [3]
    assert wakes[:2] == [1000, 1000]


def test_state_expires_between_slow_records() -> None:
    env, sink = program(), CollectSink()
    env.from_collection(list(range(40))).map(slowly).key_by(lambda x: x % 10).process(_Seen()).sink_to(sink)
    LocalJob(env, CLOCK).run()
    # The same key returns after half a second; its state expires after 300 ms.
    assert set(sink.results()) == {1}


class _Seen(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen", None)
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(300)).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield count


def test_split_with_slow_records_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    marked: list[int] = []
    monkeypatch.setattr(watermarks._Split, "mark_idle", lambda self: marked.append(CLOCK()))
    for shuffled in (False, True):
        env, numbers = program(), NumberSequenceSource(1, 8)
        stream = read(env, numbers).rebalance() if shuffled else read(env, numbers)
        stream.map(slowly).assign_timestamps_and_watermarks(_IDLE).sink_to(CollectSink())
        LocalJob(env, CLOCK).run()
    assert marked == []


def test_split_waiting_for_another_split_is_not_idle() -> None:
    env, late = program(), OutputTag("late")
    read(env, _TwoSplits(), _IDLE).map(slowly).key_by(lambda x: 0).window(
        TumblingEventTimeWindows.of(Time.milliseconds(5))
    ).side_output_late_data(late).reduce(lambda a, b: a).get_side_output(late).sink_to(sink := CollectSink())
    job = LocalJob(env, CLOCK, epoch_sizes=lambda: 30)
    for _ in range(40):
        job.run_epoch()
    assert sink.results() == []


_IDLE = (
    WatermarkStrategy.for_monotonous_timestamps()
    .with_timestamp_assigner(lambda x, t: x)
    .with_idleness(Duration.of_millis(120))
)


class _TwoSplits(NumberSequenceSource):
    """The same numbers in each of two splits, which one subtask reads in sequence."""

    def __init__(self) -> None:
        super().__init__(0, 199)

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Doubled()


class _Doubled(SplitEnumerator):
    def __init__(self) -> None:
        self._position = 0

    def poll(self, budget: int, now: float) -> SplitAssignment:
        # First one record of each split, so that both are known.
        position, self._position = self._position, self._position + (budget if self._position else 1)
        return SplitAssignment({0: [(split, position, self._position, False) for split in (0, 1)]})

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> int:
        return self._position


def test_async_requests_run_concurrently_across_slices() -> None:
    env, sink = program(), CollectSink()
    numbers = env.from_collection(list(range(400)))
    AsyncDataStream.unordered_wait(numbers, _Request(), Time.seconds(10), capacity=100).sink_to(sink)
    began = time.monotonic()
    LocalJob(env, lambda: int(time.monotonic() * 1000)).run()
    assert sorted(sink.results()) == list(range(400))
    assert time.monotonic() - began < 2


class _Request(AsyncFunction):
    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(0.05)
        return [value]


# --- exactly once


def collection(path: Path) -> Callable[[StreamExecutionEnvironment], DataStream]:
    return lambda env: env.from_collection(list(range(60))).uid("source").map(slowly).uid("slowly").set_parallelism(1)


def sequence(path: Path) -> Callable[[StreamExecutionEnvironment], DataStream]:
    return lambda env: read(env, NumberSequenceSource(0, 59)).map(slowly).uid("slowly")


def generator(path: Path) -> Callable[[StreamExecutionEnvironment], DataStream]:
    return lambda env: read(env, DataGeneratorSource(lambda i: i, count=60)).map(slowly).uid("slowly")


def files(path: Path) -> Callable[[StreamExecutionEnvironment], DataStream]:
    for i in range(3):
        (path / f"{i}.txt").write_text("".join(f"{n}\n" for n in range(20 * i, 20 * i + 20)))
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path)).build()
    return lambda env: read(env, source).map(slowly).uid("slowly").map(int).uid("int")


def hybrid(path: Path) -> Callable[[StreamExecutionEnvironment], DataStream]:
    source = HybridSource.builder(NumberSequenceSource(0, 29)).add_source(NumberSequenceSource(30, 59)).build()
    return lambda env: read(env, source).map(slowly).uid("slowly")


SOURCES = [collection, sequence, generator, files, hybrid]


def counting(stream: DataStream, sink: CollectSink) -> None:
    """Count records by key."""
    pairs = stream.map(lambda x: (x % 7, 1)).uid("pair").key_by(lambda t: t[0])
    pairs.reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sum").sink_to(sink).uid("sink")


def highest(results: list[tuple[int, int]]) -> dict[int, int]:
    assert len(set(results)) == len(results) == 60
    return {key: max(n for k, n in results if k == key) for key, _ in results}


WANTED = Counter(n % 7 for n in range(60))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_time_slices_are_exactly_once_across_process_restarts(
    source: Callable[..., Any], parallelism: int, tmp_path: Path
) -> None:
    env, sink = program(parallelism), CollectSink()
    counting(source(tmp_path)(env), sink)
    job = LocalJob(env, CLOCK)
    while not job.is_finished:
        job.run_epoch()
        job.restart_slots()
    assert highest(sink.results()) == WANTED
    assert job.progress.epochs >= 4


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 1), (3, 3)])
def test_pending_split_ranges_are_restored_at_another_parallelism(
    source: Callable[..., Any], before: int, after: int, tmp_path: Path
) -> None:
    make, sink = source(tmp_path), CollectSink()
    env = program(before)
    counting(make(env), sink)
    job = LocalJob(env, CLOCK)
    for _ in range(2):
        job.run_epoch()
    assert job.execution.sources_with_pending_input()
    env = program(after)
    counting(make(env), sink)
    snapshot: Snapshot = job.snapshot()
    job = LocalJob(env, CLOCK, snapshot=snapshot, storage=job.storage)
    # The position of the watermark of its split.
    head: Any = job.plan.vertices[0].head.operator
    snapshots = {
        subtask: decode(c)
        for (v, subtask), c in job.execution._runtime_snapshots.items()
        if v == job.plan.vertices[0].id
    }
    splits = [(split, subtask) for subtask, left in snapshots.items() for split, _, _ in left.pending_ranges]
    assert splits and all(
        subtask == head.source.subtask_of(split, len(snapshots)) for split, subtask in splits if split is not None
    )
    job.run()
    assert highest(sink.results()) == WANTED


def test_failed_epoch_restarts_from_previous_slice_end() -> None:
    env, sink = program(), CollectSink()
    env.from_collection(list(range(30))).map(_failing_once).map(slowly).sink_to(sink)
    LocalJob(env, CLOCK).run(restarts=1)
    assert sink.results() == list(range(30))


def _failing_once(value: int) -> int:
    if value == 14 and not CALLS:
        CALLS.append(value)
        raise ValueError("once")
    return value


def test_pending_split_ranges_ignore_failed_epoch_in_same_process() -> None:
    reader, unfinished = _BatchReader([[1, 2, 3], [4]]), PendingSplitRanges()
    split_range = OpenSplitRange(reader, None, "all", 0)
    assert split_range.batch() == [1, 2, 3] and split_range.advance(1) == 1
    unfinished.leave([split_range])
    for _ in range(2):
        [split_range] = unfinished.open(reader)
        assert split_range.read == 1
        batch = split_range.batch()
        assert batch is not None and batch[split_range.offset :] == [2, 3]
        split_range.advance(len(batch))
        assert split_range.batch() == [4]


class _RandomClock:
    """A clock that advances by a random amount with each read."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._now = 0

    def __call__(self) -> int:
        self._now += self._random.choice((0, 0, 0, 1, 40, 210))
        return self._now


@pytest.mark.parametrize("seed", range(30))
def test_time_slice_results_are_independent_of_slice_ends(seed: int) -> None:
    parallelism = 1 + seed % 3
    sliced, unsliced = (windows_of(clock, parallelism) for clock in (_RandomClock(seed), ManualClock()))
    assert sorted(sliced.sink.results()) == sorted(unsliced.sink.results())
    assert sliced.job.progress.epochs > unsliced.job.progress.epochs


class windows_of:
    """Sums of event-time windows, with records out of order; processes die at random."""

    def __init__(self, clock: Callable[[], int], parallelism: int) -> None:
        env, self.sink = program(parallelism), CollectSink()
        random = Random(parallelism)
        records = [(i % 5, 10 * i + random.randrange(30), 1) for i in range(500)]
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(3000))
        stream = env.from_collection(records).assign_timestamps_and_watermarks(
            strategy.with_timestamp_assigner(lambda r, t: r[1])
        )
        windows = stream.key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        windows.reduce(lambda a, b: (a[0], max(a[1], b[1]), a[2] + b[2])).sink_to(self.sink)
        self.job = LocalJob(env, clock, epoch_sizes=lambda: 200)
        while not self.job.is_finished:
            self.job.run_epoch()
            if random.random() < 0.2:
                self.job.restart_slots()


# --- with a job master


def sleepy(value: Any) -> Any:
    time.sleep(0.02)
    return value


def test_savepoint_and_cancel_do_not_wait_for_slow_input(tmp_path: Path) -> None:
    config = Configuration.from_dict({"millstream.epoch.slice": "100 ms", "execution.checkpointing.interval": "50 ms"})
    env, sink = LocalEnvironment(config), CollectSink()
    env.from_collection(list(range(1000))).map(sleepy).sink_to(sink)
    job = env.execute_async("slow")
    time.sleep(0.5)
    began = time.monotonic()
    job.trigger_savepoint(str(tmp_path)).result()
    assert time.monotonic() - began < 0.6
    began = time.monotonic()
    job.cancel().result()
    assert time.monotonic() - began < 0.6
    # Output counts with the checkpoints taken meanwhile.
    assert 0 < len(sink.results()) < 100


def test_savepoint_within_slow_input_is_restored(tmp_path: Path) -> None:
    sink = CollectSink()

    def start(**settings: str) -> Any:
        env = LocalEnvironment(Configuration.from_dict({"millstream.epoch.slice": "60 ms", **settings}))
        env.from_collection(list(range(100))).uid("source").map(sleepy).uid("map").sink_to(sink).uid("sink")
        return env.execute_async("slow")

    job = start()
    time.sleep(0.4)
    location = job.stop_with_savepoint(False, str(tmp_path)).result()
    job.get_job_execution_result().result()
    assert 0 < len(sink.results()) < 100
    start(**{"execution.state-recovery.path": location}).get_job_execution_result().result()
    assert sink.results() == list(range(100))


def test_drain_reads_assigned_splits(tmp_path: Path) -> None:
    config = Configuration.from_dict({"millstream.epoch.slice": "60 ms"})
    env, sink = LocalEnvironment(config), CollectSink()
    env.from_collection(list(range(120))).map(sleepy).sink_to(sink)
    job = env.execute_async("slow")
    time.sleep(0.3)
    job.stop_with_savepoint(True, str(tmp_path)).result()
    job.get_job_execution_result().result()
    # All splits are assigned at once: the environment reads a bounded source as a whole.
    assert sink.results() == list(range(120))


def test_restart_within_split_range_is_exactly_once() -> None:
    env, sink = (
        LocalEnvironment(Configuration.from_dict({"millstream.epoch.slice": "60 ms"}), restarts=1),
        CollectSink(),
    )
    env.from_collection(list(range(40))).map(_failing_once).map(sleepy).sink_to(sink)
    env.execute()
    assert sink.results() == list(range(40)) and CALLS == [14]


# --- chunk sizes


def test_chunk_sizer_targets_short_chunks() -> None:
    for cost in (1e-8, 1e-6, 1e-5, 1e-3, 1.0):
        now = [0.0]
        pace = ChunkSizer(lambda now=now: now[0])  # type: ignore[misc]
        pace.begin()
        longest = 0.0
        for _ in range(100):
            size = pace.size
            now[0] += size * cost
            longest = max(longest, size * cost)
            pace.finish(size)
        assert longest <= max(0.0002, cost) and (size == 1 or size * cost >= 0.00004 or size == 2048)


def test_chunk_sizer_shrinks_when_records_get_slow() -> None:
    now = [0.0]
    pace = ChunkSizer(lambda: now[0])
    for cost in [1e-7] * 20 + [0.5]:
        now[0] += pace.size * cost
        pace.finish(pace.size)
    assert pace.size == 1
