"""Input that is pending behind an exchange at the end of a slice delays nothing else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from millstream.checkpoint.snapshot import Snapshot
from millstream.common import Configuration, Duration, Time, WatermarkStrategy
from millstream.common.errors import InvalidProgramError
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.functions import (
    BroadcastProcessFunction,
    CoMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
)
from millstream.datastream.state import MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows, TumblingProcessingTimeWindows
from millstream.graph.stream_graph import operator_id_of
from millstream.operators.runtime.runtime_snapshot import decode
from millstream.testing import CollectSink, LocalEnvironment, LocalJob, ManualClock
from tests.support.slices import CALLS, CLOCK, lengths_of_epochs, program, slowly, start_anew


@pytest.fixture(autouse=True)
def _start_anew() -> None:
    start_anew()


def pending_input(job: LocalJob) -> int:
    """Return the number of records pending behind exchanges."""
    layouts = {e.id: e.layout for v in job.plan.vertices for e in v.in_edges}
    left = [decode(snapshot) for snapshot in job.execution._runtime_snapshots.values()]
    return sum(
        len(layouts[e].decode(b)) for one in left for (e, _), _, (_, _, bodies) in one.pending_blocks for b in bodies
    )


# --- one slow function behind an exchange


@pytest.mark.parametrize("exchange", ["key_by", "rebalance", "global", "custom"])
def test_time_slice_limits_epoch_behind_exchange(exchange: str) -> None:
    env, sink = program(), CollectSink()
    stream = env.from_collection(list(range(100)))
    shipped = {  # type: ignore[no-untyped-call]
        "key_by": lambda: stream.key_by(lambda x: x % 7),
        "rebalance": stream.rebalance,
        "global": stream.global_,
        "custom": lambda: stream.partition_custom(lambda key, n: key % n, lambda x: x),
    }[exchange]()
    shipped.map(slowly).sink_to(sink)
    lengths = lengths_of_epochs(LocalJob(env, CLOCK))
    assert max(lengths) <= 250 and sum(lengths) == 5000
    assert sink.results() == list(range(100))


def test_time_slice_is_shared_by_levels() -> None:
    env, sink = program(), CollectSink()
    slow = env.from_collection(list(range(20))).map(slowly).rebalance().map(slowly).rebalance().map(slowly)
    slow.sink_to(sink)
    lengths = lengths_of_epochs(LocalJob(env, CLOCK))
    assert max(lengths) <= 200 + 2 * 100 + 50
    assert sink.results() == list(range(20))


def test_source_is_assigned_no_splits_while_its_input_is_pending() -> None:
    env, sink = program(), CollectSink()
    env.from_source(NumberSequenceSource(0, 99)).key_by(lambda x: x % 3).map(slowly).sink_to(sink)
    job, max_pending = LocalJob(env, CLOCK, epoch_sizes=lambda: 30), 0
    while not job.is_finished:
        job.run_epoch()
        max_pending = max(max_pending, pending_input(job))
        assert bool(pending_input(job)) == bool(job.execution.sources_with_pending_input())
    assert 20 <= max_pending < 30
    assert sorted(sink.results()) == list(range(100))


def test_other_sources_are_read_while_input_is_pending() -> None:
    env, fast, slow = program(), CollectSink(), CollectSink()
    env.from_source(NumberSequenceSource(0, 99)).rebalance().map(slowly).sink_to(slow)
    env.from_source(NumberSequenceSource(0, 99)).rebalance().sink_to(fast)
    job = LocalJob(env, CLOCK, epoch_sizes=lambda: 50)
    for _ in range(3):
        job.run_epoch()
    assert len(fast.results()) == 100 and len(slow.results()) < 20
    job.run()
    assert slow.results() == list(range(100))


def test_slow_record_behind_exchange_delays_one_slice() -> None:
    env, sink = program(), CollectSink()
    env.from_collection(list(range(50))).key_by(lambda x: 0).map(_slow_once).sink_to(sink)
    assert lengths_of_epochs(LocalJob(env, CLOCK)) == [5000, 0]
    assert sink.results() == list(range(50))


def _slow_once(value: int) -> int:
    if value == 3:
        CLOCK.advance(5000)
    return value


def test_batch_mode_has_no_slices_behind_exchange() -> None:
    env, sink = program(**{"execution.runtime-mode": "BATCH"}), CollectSink()  # type: ignore[arg-type]
    env.from_collection(list(range(20))).rebalance().map(slowly).sink_to(sink)
    assert lengths_of_epochs(LocalJob(env, CLOCK)) == [1000]


# --- watermarks and pending input


class _Marks(KeyedProcessFunction):
    """Records the watermark at each record, and sets a timer at the record's time."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        slowly(value)
        ctx.timer_service().register_event_time_timer(value)
        yield "record", value, ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", timestamp, ctx.timer_service().current_watermark()


_MONOTONOUS = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda x, t: x)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_watermark_does_not_overtake_pending_input(parallelism: int, restarts: bool) -> None:
    env, sink = program(parallelism), CollectSink()
    stream = env.from_source(NumberSequenceSource(0, 89)).assign_timestamps_and_watermarks(_MONOTONOUS)
    stream.key_by(lambda x: x % 5).process(_Marks()).sink_to(sink)
    job = LocalJob(env, CLOCK, epoch_sizes=lambda: 10)
    while not job.is_finished:
        job.run_epoch()
        if restarts:
            job.restart_slots()
    results: list[tuple[str, int, int]] = sink.results()
    assert sorted(v for kind, v, _ in results if kind == "record") == list(range(90))
    assert sorted(v for kind, v, _ in results if kind == "timer") == list(range(90))
    assert all(mark < value for kind, value, mark in results if kind == "record")
    assert all(mark >= value for kind, value, mark in results if kind == "timer")


def test_pending_input_is_not_idle() -> None:
    env, sink = program(), CollectSink()
    strategy = _MONOTONOUS.with_idleness(Duration.of_millis(300))
    stream = env.from_collection(list(range(40))).rebalance().map(slowly).assign_timestamps_and_watermarks(strategy)
    beside = env.from_collection([1000]).assign_timestamps_and_watermarks(_MONOTONOUS)
    windows = stream.union(beside).key_by(lambda x: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    windows.reduce(lambda a, b: a + b).sink_to(sink)
    job = LocalJob(env, CLOCK)
    while not job.is_finished:
        job.run_epoch()
        # The clock advances between two epochs, for example while a checkpoint is written.
        CLOCK.advance(400)
    assert sink.results() == [sum(range(n, n + 10)) for n in (0, 10, 20, 30)] + [1000]


class _Seen(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 100)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.timer_service().current_processing_time() - timestamp


def test_timers_fire_while_operator_behind_exchange_is_slow() -> None:
    env, late, slow = program(), CollectSink(), CollectSink()
    numbers = env.from_source(NumberSequenceSource(0, 59))
    numbers.key_by(lambda x: x).process(_Seen()).sink_to(late)
    numbers.rebalance().map(slowly).sink_to(slow)
    LocalJob(env, CLOCK, epoch_sizes=lambda: 20).run()
    assert len(late.results()) >= 40 and max(late.results()) <= 250


class _Fired(ProcessWindowFunction):
    """Emits the delay of each window and its elements."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield context.current_processing_time() - context.window().end, list(elements)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_fire_on_time_behind_slow_map_and_exchange(parallelism: int) -> None:
    env, sink = program(parallelism), CollectSink()
    slow = env.from_collection(list(range(40))).rebalance().map(slowly)
    windows = slow.key_by(lambda x: 0).window(TumblingProcessingTimeWindows.of(Time.milliseconds(300)))
    windows.process(_Fired()).sink_to(sink)
    LocalJob(env, CLOCK).run()
    assert len(sink.results()) >= 4 and all(0 <= late <= 400 for late, _ in sink.results())
    values = [value for _, values in sink.results() for value in values]
    assert len(values) == len(set(values)) >= 30


class _Expiring(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen", None)
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(500)).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield value, count


@pytest.mark.parametrize("parallelism", [1, 2])
def test_state_expires_behind_slow_map_and_exchange(parallelism: int) -> None:
    env, sink = program(parallelism), CollectSink()
    slow = env.from_collection([1, 1, *range(2, 30), 1]).rebalance().map(slowly)
    slow.key_by(lambda x: x).process(_Expiring()).sink_to(sink)
    LocalJob(env, CLOCK).run()
    # The second record arrives before the state of the first expires, the last long after both expire.
    assert [count for value, count in sink.results() if value == 1] == [1, 2, 1]


# --- exactly once


def counting(env: StreamExecutionEnvironment, sink: CollectSink, records: int = 60) -> None:
    """Count records by key behind a slow function."""
    numbers = env.from_source(NumberSequenceSource(0, records - 1)).uid("source").rebalance().map(slowly).uid("slowly")
    pairs = numbers.map(lambda x: (x % 7, 1)).uid("pair").key_by(lambda t: t[0])
    pairs.map(slowly).uid("slow too").key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid(
        "sum"
    ).sink_to(sink).uid("sink")


def highest(results: list[tuple[int, int]], records: int = 60) -> dict[int, int]:
    assert len(set(results)) == len(results) == records
    return {key: max(n for k, n in results if k == key) for key, _ in results}


WANTED = Counter(n % 7 for n in range(60))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_pending_input_is_exactly_once_across_process_restarts(parallelism: int) -> None:
    env, sink = program(parallelism), CollectSink()
    counting(env, sink)
    job = LocalJob(env, CLOCK)
    while not job.is_finished:
        job.run_epoch()
        job.restart_slots()
    assert highest(sink.results()) == WANTED
    assert job.progress.epochs >= 4


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (2, 3), (3, 1), (1, 1), (3, 3)])
@pytest.mark.parametrize("epochs", [1, 3, 6])
def test_pending_input_is_restored_at_another_parallelism(before: int, after: int, epochs: int) -> None:
    sink = CollectSink()
    env = program(before)
    counting(env, sink)
    job = LocalJob(env, CLOCK, epoch_sizes=lambda: 40)
    for _ in range(epochs):
        job.run_epoch()
    assert pending_input(job)
    env = program(after)
    counting(env, sink)
    snapshot: Snapshot = job.snapshot()
    job = LocalJob(env, CLOCK, snapshot=snapshot, storage=job.storage)
    while not job.is_finished:
        job.run_epoch()
        job.restart_slots()
    assert highest(sink.results()) == WANTED


class _Erratic:
    """A clock that advances by a random amount with each read."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._now = 0

    def __call__(self) -> int:
        self._now += self._random.choice((0, 0, 0, 1, 40, 210))
        return self._now


@pytest.mark.parametrize("seed", range(30))
def test_pending_input_results_are_independent_of_slices_restarts_and_parallelism(seed: int) -> None:
    assert sorted(_windows(_Erratic(seed), Random(seed))) == sorted(_windows(ManualClock(), None))


def _windows(clock: Callable[[], int], random: Random | None) -> list[Any]:
    """Sums of event-time windows, with records out of order; processes die and the parallelism changes at random."""
    sink, draw = CollectSink(), Random(7)
    records = [(i % 5, 10 * i + draw.randrange(30), 1) for i in range(500)]

    def make(snapshot: Snapshot | None = None, storage: Any = None) -> LocalJob:
        env = program(1 if random is None else random.randint(1, 3))
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(3000))
        stream = (
            env.from_collection(records)
            .uid("source")
            .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda r, t: r[1]))
        )
        windows = stream.uid("marks").key_by(lambda r: r[0]).window(TumblingEventTimeWindows.of(Time.milliseconds(100)))
        summed = windows.reduce(lambda a, b: (a[0], max(a[1], b[1]), a[2] + b[2])).uid("windows")
        summed.rebalance().map(lambda r: r).uid("map").sink_to(sink).uid("sink")
        return LocalJob(env, clock, epoch_sizes=lambda: 200, snapshot=snapshot, storage=storage)

    job = make()
    while not job.is_finished:
        job.run_epoch()
        if random is not None and random.random() < 0.2:
            job.restart_slots()
        if random is not None and not job.is_finished and random.random() < 0.1:
            job = make(job.snapshot(), job.storage)
    results: list[Any] = sink.results()
    return results


class _Counting(KeyedProcessFunction):
    """Counts each key; key 0 is so slow that its subtask ends long after the others."""

    def open(self, runtime_context: RuntimeContext) -> None:
        CALLS.append("open")
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", None))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update((self.seen.value() or 0) + 1)
        if value == 0:
            slowly(value)
        return iter(())


def _counting(parallelism: int) -> StreamExecutionEnvironment:
    env = program(parallelism)
    stream = env.from_collection([*range(40), *[0] * 30]).uid("source")
    stream.key_by(lambda x: x).process(_Counting()).uid("counting").sink_to(CollectSink()).uid("sink")
    return env


@pytest.mark.parametrize("parallelism", [2, 3])
def test_checkpoint_contains_state_of_finished_subtasks(parallelism: int) -> None:
    job = LocalJob(_counting(2), CLOCK)
    job.run_epoch()
    for _ in range(3):
        CALLS.clear()
        # As another job, which must take ownership of the state.
        job = LocalJob(_counting(parallelism), CLOCK, snapshot=job.snapshot(), storage=job.storage)
        job.run_epoch()
        assert job.execution.owns_state and not job.is_finished
    # Functions without remaining work are not opened.
    assert CALLS == ["open"]
    job.run()
    assert dict(job.state_rows("seen")) == {**dict.fromkeys(range(1, 40), 1), 0: 31}


def test_savepoint_contains_state_of_finished_subtasks() -> None:
    job = LocalJob(_counting(2), CLOCK)
    job.run_epoch()
    for directory in ("first", "second"):
        job.run_tasks(job.execution.tasks({}, frozenset(), slice=0.2, checkpoint=1, savepoint=directory))
        subtasks = job.savepoint().vertices[operator_id_of("counting")].subtasks
        parts = [part.file for subtask in subtasks for part in subtask.parts.values()]
        # A second savepoint does not name the files of the first.
        assert len(parts) == 2 and all(f"{directory}/{file}" in job.storage.files for file in parts)
    assert not job.is_finished


@pytest.mark.parametrize("parallelism", [2, 3])
def test_next_checkpoint_contains_held_state_of_finishing_subtasks(parallelism: int) -> None:
    job = LocalJob(_counting(2), CLOCK)
    job.run_epoch(writes_state=False)
    # One of the counters has ended by now.
    written = len(job.storage.files)
    job.run_epoch(writes_state=False)
    assert len(job.storage.files) == written and not job.is_finished
    with pytest.raises(AssertionError, match="are in no file"):
        job.snapshot()
    job.run_epoch()
    assert not job.is_finished
    job = LocalJob(_counting(parallelism), CLOCK, snapshot=job.snapshot(), storage=job.storage)
    job.run()
    assert dict(job.state_rows("seen")) == {**dict.fromkeys(range(1, 40), 1), 0: 31}


def test_savepoint_contains_held_state_of_finishing_subtasks() -> None:
    job = LocalJob(_counting(2), CLOCK)
    job.run_epoch(writes_state=False)
    job.run_epoch(writes_state=False)
    job.run_tasks(job.execution.tasks({}, frozenset(), slice=0.2, checkpoint=1, savepoint="there"))
    subtasks = job.savepoint().vertices[operator_id_of("counting")].subtasks
    assert [len(subtask.parts) for subtask in subtasks] == [1, 1]
    assert not job.is_finished


def test_restore_rejects_removed_operator_with_pending_input() -> None:
    env = program()
    counting(env, CollectSink())
    job = LocalJob(env, CLOCK)
    job.run_epoch()
    assert pending_input(job)
    env = program()
    env.from_source(NumberSequenceSource(0, 59)).uid("source").sink_to(CollectSink()).uid("sink")
    with pytest.raises(InvalidProgramError, match="matches no operator of the program"):
        LocalJob(env, CLOCK, snapshot=job.snapshot(), storage=job.storage)


def test_pending_input_reaches_operator_chained_after_restore() -> None:
    sink = CollectSink()

    def make(apart: bool, **about: Any) -> LocalJob:
        env = program()
        numbers = env.from_source(NumberSequenceSource(-100, -71)).uid("source").map(lambda x: x + 100).uid("hundred")
        (numbers.rebalance() if apart else numbers).map(slowly).uid("slowly").sink_to(sink).uid("sink")
        return LocalJob(env, CLOCK, **about)

    job = make(True)
    job.run_epoch()
    assert pending_input(job)
    job = make(False, snapshot=job.snapshot(), storage=job.storage)
    assert len(job.plan.vertices) == 1
    lengths = lengths_of_epochs(job)
    assert sink.results() == list(range(30)) and max(lengths) <= 250


def test_failed_epoch_behind_exchange_restarts_from_previous_epoch_end() -> None:
    env, sink = program(), CollectSink()
    env.from_collection(list(range(30))).rebalance().map(_failing_once).map(slowly).sink_to(sink)
    LocalJob(env, CLOCK).run(restarts=1)
    assert sink.results() == list(range(30)) and CALLS == [14]


def _failing_once(value: int) -> int:
    if value == 14 and not CALLS:
        CALLS.append(value)
        raise ValueError("once")
    return value


# --- two inputs


class _Both(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return slowly(("first", value))

    def map2(self, value: Any) -> Any:
        return "second", value


def test_second_input_interleaves_with_slow_first_input() -> None:
    env, sink = program(), CollectSink()
    first, second = (env.from_source(NumberSequenceSource(0, n)) for n in (39, 3))
    first.rebalance().connect(second.rebalance()).map(_Both()).sink_to(sink)
    LocalJob(env, CLOCK).run()
    # Like Flink, it alternates between pending input of the two.
    assert sink.results()[:8] == [(kind, n) for n in range(4) for kind in ("first", "second")]
    assert sink.results()[8:] == [("first", n) for n in range(4, 40)]


def test_second_input_arriving_later_does_not_wait_for_first() -> None:
    env, sink = program(), CollectSink()
    first = env.from_source(NumberSequenceSource(0, 99))
    second = env.from_source(NumberSequenceSource(0, 9))
    first.rebalance().connect(second.rebalance()).map(_Both()).sink_to(sink)
    # The second input has one record per epoch.
    sizes = iter([100, *[1] * 1000])
    job = LocalJob(env, CLOCK, epoch_sizes=lambda: next(sizes))
    job.run_epoch()
    lengths_of_epochs(job)
    second_at = [i for i, (kind, _) in enumerate(sink.results()) if kind == "second"]
    assert second_at[-1] < 60


RULES = MapStateDescriptor("rules")


class _Apply(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield slowly(value), len(list(ctx.get_broadcast_state(RULES).keys()))

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES)[value] = value


class _KeyedApply(KeyedBroadcastProcessFunction):
    process_element = _Apply.process_element
    process_broadcast_element = _Apply.process_broadcast_element


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_broadcast_input_is_processed_first_at_start(mode: str, keyed: bool) -> None:
    env, sink = program(2, **{"execution.runtime-mode": mode}), CollectSink()
    events, rules = env.from_source(NumberSequenceSource(0, 19)), env.from_source(NumberSequenceSource(0, 9))
    broadcast = rules.broadcast(RULES)
    if keyed:
        events.key_by(lambda x: x).connect(broadcast).process(_KeyedApply()).sink_to(sink)
    else:
        events.rebalance().connect(broadcast).process(_Apply()).sink_to(sink)
    LocalJob(env, CLOCK).run()
    assert sorted(sink.results()) == [(n, 10) for n in range(20)]


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_broadcast_input_is_processed_completely_first_in_batch(keyed: bool, restarts: bool) -> None:
    env, sink = program(2, **{"execution.runtime-mode": "BATCH"}), CollectSink()
    events, rules = env.from_source(NumberSequenceSource(0, 19)), env.from_source(NumberSequenceSource(0, 59))
    broadcast = rules.broadcast(RULES)
    if keyed:
        events.key_by(lambda x: x).connect(broadcast).process(_KeyedApply()).sink_to(sink)
    else:
        events.rebalance().connect(broadcast).process(_Apply()).sink_to(sink)
    job = LocalJob(env, CLOCK, epoch_sizes=lambda: 7)
    while not job.is_finished:
        job.run_epoch()
        if restarts:
            job.restart_slots()
    assert sorted(sink.results()) == [(n, 60) for n in range(20)]
    assert job.progress.epochs < 20


def test_broadcast_source_joined_with_itself_is_read_to_end_in_batch() -> None:
    env, sink = program(2, **{"execution.runtime-mode": "BATCH"}), CollectSink()
    numbers = env.from_source(NumberSequenceSource(0, 29))
    numbers.rebalance().connect(numbers.broadcast(RULES)).process(_Apply()).sink_to(sink)
    LocalJob(env, CLOCK, epoch_sizes=lambda: 4).run()
    assert sorted(sink.results()) == [(n, 30) for n in range(30)]


def test_broadcast_input_is_equal_in_all_subtasks_at_epoch_end() -> None:
    env, sink = program(2), CollectSink()
    events, rules = env.from_source(NumberSequenceSource(0, 199)), env.from_source(NumberSequenceSource(0, 59))
    events.rebalance().connect(rules.broadcast(RULES)).process(_Apply()).sink_to(sink)
    job = LocalJob(env, CLOCK, epoch_sizes=lambda: 10)
    job.run_epoch()
    seen = 0
    while pending_input(job):
        job.run_epoch()
        counts = Counter(key for key, _ in job.state_rows("rules"))
        assert set(counts.values()) <= {2}
        seen += 1
    assert seen >= 2


def test_broadcast_input_in_union_is_never_pending() -> None:
    env, sink = program(2), CollectSink()
    plain, all_over = env.from_source(NumberSequenceSource(0, 39)), env.from_source(NumberSequenceSource(100, 115))
    plain.rebalance().union(all_over.broadcast()).map(slowly).sink_to(sink)
    job = LocalJob(env, CLOCK, epoch_sizes=lambda: 4)
    while not job.is_finished:
        job.run_epoch()
        assert set(Counter(n for n in sink.results() if n >= 100).values()) == {2}
    assert sorted(n for n in sink.results() if n < 100) == list(range(40))


# --- with a job master


def sleepy(value: Any) -> Any:
    time.sleep(0.02)
    return value


def test_savepoint_and_cancel_do_not_wait_for_slow_input_behind_exchange(tmp_path: Any) -> None:
    sink = CollectSink()

    def start(**settings: str) -> Any:
        env = LocalEnvironment(Configuration.from_dict({"millstream.epoch.slice": "60 ms", **settings}))
        numbers = env.from_collection(list(range(100))).uid("source")
        numbers.key_by(lambda x: 0).map(sleepy).uid("map").sink_to(sink).uid("sink")
        return env.execute_async("slow")

    job = start()
    time.sleep(0.4)
    began = time.monotonic()
    location = job.stop_with_savepoint(False, str(tmp_path)).result()
    job.get_job_execution_result().result()
    assert time.monotonic() - began < 0.6
    assert 0 < len(sink.results()) < 100
    start(**{"execution.state-recovery.path": location}).get_job_execution_result().result()
    assert sink.results() == list(range(100))


def test_drain_processes_pending_input(tmp_path: Any) -> None:
    env, sink = LocalEnvironment(Configuration.from_dict({"millstream.epoch.slice": "60 ms"})), CollectSink()
    env.from_collection(list(range(60))).key_by(lambda x: 0).map(sleepy).sink_to(sink)
    job = env.execute_async("slow")
    time.sleep(0.3)
    job.stop_with_savepoint(True, str(tmp_path)).result()
    job.get_job_execution_result().result()
    assert sink.results() == list(range(60))
