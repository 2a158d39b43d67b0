"""Timers, watermarks, state and async requests that need real processes and clocks."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.checkpoint.store import list_checkpoints, open_checkpoint
from millstream.common import Configuration, Duration, Time, WatermarkStrategy
from millstream.common.errors import InvalidProgramError, JobExecutionError
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    BroadcastProcessFunction,
    CheckpointedFunction,
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.operators.runtime.runtime_snapshot import has_requests
from millstream.state.backend import Backend
from millstream.testing import CollectSink
from tests.support.backend_programs import EmitOperator, running, windows
from tests.support.helpers import PushedReader, job_of, restart_at_once, slot_processes, wait_until

Env = StreamExecutionEnvironment
Collect = Callable[[DataStream], list[Any]]
pytestmark = pytest.mark.spark

BY_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])


class Numbers(PushedReader):
    """Emits consecutive numbers, at most `limit` per epoch."""

    limit = 1 << 30

    def skip(self, count: int) -> None:
        """Skip numbers: the next one is higher by the argument."""
        self.skipped = (self.available, count)

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        offset = 0 if start is None else start["at"]
        return {"at": min(self.available, offset + self.limit)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
        after, count = getattr(self, "skipped", (1 << 60, 0))
        result = super().partitions(start, end)
        # After a failure one epoch may hold earlier and higher numbers.
        parts = [p for a, b in result for p in ((a, min(b, after), 0), (max(a, after), b, count))]
        return [p for p in parts if p[0] < p[1]]

    def read(self, partition: Any) -> Iterator[Any]:
        start, end, more = partition
        yield from range(start + more, end + more)


def kill_slots() -> None:
    for process in slot_processes():
        os.kill(process.pid, signal.SIGKILL)


# --- timers


class TimerFunction(KeyedProcessFunction):
    """Sets a timer far ahead and stores what it was set for."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.add(value[1])
        ctx.timer_service().register_event_time_timer(1000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, self.seen.get()


def test_timers_and_state_survive_process_death(env: Env) -> None:
    restart_at_once(env)
    reader, sink = Numbers(), CollectSink()
    events = env.from_source(reader).set_parallelism(1).map(lambda i: (f"k{i % 3}", i)).set_parallelism(1)
    marked = events.assign_timestamps_and_watermarks(BY_TIME).set_parallelism(1)
    marked.key_by(lambda e: e[0]).process(TimerFunction()).sink_to(sink)
    client = env.execute_async()
    for pushed in (6, 12):
        reader.push(6)
        wait_until(lambda pushed=pushed: _records(client) >= pushed)  # type: ignore[misc]
        kill_slots()
    reader.skip(2000)
    reader.push(1)
    wait_until(lambda: len(sink.results()) == 3)
    client.cancel().result(10)
    # The record that advances the time, 2012, belongs to k2.
    expected = {f"k{k}": list(range(k, 12, 3)) for k in range(3)}
    expected["k2"].append(2012)
    assert sorted(sink.results()) == [(key, 1000, seen) for key, seen in expected.items()]


def _records(client: Any) -> int:
    return int(job_of(client).view.progress.records_in(v.id for v in job_of(client).view.plan.vertices if v.is_source))


class Alarm(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 300)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), ctx.timer_service().current_processing_time() - timestamp


def test_processing_time_timers_fire_without_input(env: Env) -> None:
    reader, sink = Numbers(), CollectSink()
    env.from_source(reader).key_by(lambda i: i % 2).process(Alarm()).sink_to(sink)
    client = env.execute_async()
    reader.push(2)
    wait_until(lambda: len(sink.results()) == 2)
    client.cancel().result(10)
    assert sorted(k for k, _ in sink.results()) == [0, 1]
    # Late by an epoch or two, not by a poll of the source.
    assert all(0 <= late < 1000 for _, late in sink.results())


class Bounds(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[tuple[int, int, int, int]]:
        window = context.window()
        yield window.start, window.end, len(elements), context.current_processing_time()


def test_processing_time_windows_fire_at_their_end(env: Env) -> None:
    numbers = env.from_source(DataGeneratorSource(lambda i: i, rate_per_second=100))
    windowed = numbers.key_by(lambda i: "all").window(TumblingProcessingTimeWindows.of(Time.milliseconds(500)))
    results: Any = windowed.process(Bounds()).execute_and_collect(limit=3)
    starts = [start for start, _, _, _ in results]
    assert starts == sorted(set(starts))
    for start, end, count, fired_at in results:
        assert start % 500 == 0
        assert end == start + 500
        assert count >= 1
        assert fired_at >= end


# --- watermarks


def test_watermark_ignores_idle_source(env: Env) -> None:
    busy, silent, sink = Numbers(), Numbers(), CollectSink()
    strategy = BY_TIME.with_idleness(Duration.of_millis(300))

    def marked(reader: Numbers) -> DataStream:
        events = env.from_source(reader).set_parallelism(1).map(lambda i: ("a", i * 10)).set_parallelism(1)
        return events.assign_timestamps_and_watermarks(strategy).set_parallelism(1)

    both = marked(busy).union(marked(silent))
    windowed = both.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(50))
    windowed.reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(sink)
    client = env.execute_async()
    silent.push(1)
    busy.push(20)
    # The silent source's only record is at 0: no window fires until the source is idle.
    wait_until(lambda: len(sink.results()) == 3)
    client.cancel().result(10)
    assert [n for _, n in sink.results()] == [0 + 0 + 10 + 20 + 30 + 40, 350, 600]


def test_aligned_source_waits_for_slower_source(env: Env) -> None:
    slow, fast, sink = Numbers(), Numbers(), CollectSink()
    strategy = BY_TIME.with_watermark_alignment("group", Duration.of_millis(100))
    for name, reader in (("slow", slow), ("fast", fast)):
        events = env.from_source(reader, WatermarkStrategy.no_watermarks(), name).set_parallelism(1)
        named = events.map(lambda i, name=name: (name, i * 10)).set_parallelism(1)  # type: ignore[misc]
        named.assign_timestamps_and_watermarks(strategy).set_parallelism(1).sink_to(sink)
    client = env.execute_async()
    fast.limit = slow.limit = 10
    slow.push(1)
    fast.push(1)
    wait_until(lambda: len(sink.results()) == 2)
    fast.push(60)
    time.sleep(1.5)
    ahead = max(t for name, t in sink.results() if name == "fast")
    assert 100 <= ahead <= 300
    slow.push(100)
    wait_until(lambda: sum(name == "fast" for name, _ in sink.results()) == 61)
    client.cancel().result(10)


# --- operator state and broadcast state

RULES = MapStateDescriptor("rules")


class Rated(BroadcastProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        yield value, ctx.get_broadcast_state(RULES).get("factor")

    def process_broadcast_element(self, value: tuple[str, int], ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(*value)


def test_broadcast_state_reaches_every_subtask_and_survives_process_death(env: Env) -> None:
    restart_at_once(env)
    rules, numbers, sink = Numbers(), Numbers(), CollectSink()
    broadcast = env.from_source(rules).map(lambda i: ("factor", i + 10)).broadcast(RULES)
    env.from_source(numbers).rebalance().connect(broadcast).process(Rated()).sink_to(sink)
    client = env.execute_async()
    rules.push(3)
    wait_until(lambda: _records(client) >= 3)
    kill_slots()
    numbers.push(8)
    wait_until(lambda: len(sink.results()) == 8)
    client.cancel().result(10)
    assert sorted(sink.results()) == [(i, 12) for i in range(8)]


class Resettable(KeyedBroadcastProcessFunction):
    SUM = ValueStateDescriptor("sum")

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(self.SUM)

    def process_element(self, value: tuple[str, int], ctx: Any) -> None:
        self.sum.update((self.sum.value() or 0) + value[1])

    def process_broadcast_element(self, value: str, ctx: Any) -> Iterator[Any]:
        keys = []
        ctx.apply_to_keyed_state(self.SUM, lambda key, state: keys.append((key, state.value())))
        ctx.apply_to_keyed_state(self.SUM, lambda key, state: state.clear())
        yield from keys


def test_broadcast_side_reads_state_of_every_key(env: Env) -> None:
    commands, events, sink = Numbers(), Numbers(), CollectSink()
    broadcast = env.from_source(commands).broadcast(RULES)
    keyed = env.from_source(events).map(lambda i: (f"k{i % 4}", i)).key_by(lambda e: e[0])
    keyed.connect(broadcast).process(Resettable()).sink_to(sink)
    client = env.execute_async()
    events.push(8)
    wait_until(lambda: _records(client) >= 8)
    commands.push(1)
    wait_until(lambda: len(sink.results()) == 4)
    commands.push(1)
    wait_until(lambda: _records(client) >= 10)
    client.cancel().result(10)
    assert sorted(sink.results()) == [(f"k{k}", k + k + 4) for k in range(4)]


class Buffering(MapFunction, CheckpointedFunction):
    """Counts in an attribute that it snapshots and restores."""

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("count"))
        self.restored = context.is_restored()
        self.count = sum(self.state.get())

    def snapshot_state(self, context: Any) -> None:
        self.state.update([self.count])

    def map(self, value: int) -> Any:
        self.count += 1
        return self.restored, self.count


def test_operator_state_survives_process_death(env1: Env) -> None:
    restart_at_once(env1)
    reader, sink = Numbers(), CollectSink()
    env1.from_source(reader).map(Buffering()).sink_to(sink)
    client = env1.execute_async()
    reader.push(3)
    wait_until(lambda: len(sink.results()) == 3)
    kill_slots()
    reader.push(2)
    wait_until(lambda: len(sink.results()) == 5)
    client.cancel().result(10)
    assert sink.results() == [(False, 1), (False, 2), (False, 3), (True, 4), (True, 5)]


class Expiring(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("count")
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(400)).build())
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield count


def test_state_ttl_expires_by_wall_clock(env1: Env) -> None:
    reader, sink = Numbers(), CollectSink()
    env1.from_source(reader).key_by(lambda i: 0).process(Expiring()).sink_to(sink)
    client = env1.execute_async()
    reader.push(2)
    wait_until(lambda: len(sink.results()) == 2)
    time.sleep(0.6)
    reader.push(1)
    wait_until(lambda: len(sink.results()) == 3)
    client.cancel().result(10)
    assert sink.results() == [1, 2, 1]


# --- a state larger than its worker's memory


class Profile(KeyedProcessFunction):
    """Stores a kilobyte per key in a process whose memory limit is less than half of that."""

    # In addition to the memory of the forked daemon: 45 MB of data, or 149 MB if the daemon had loaded SQL for a
    # batch job before the fork. Spark usually reuses older processes, but not always.
    MORE = 205 << 20

    def open(self, runtime_context: RuntimeContext) -> None:
        with open("/proc/self/status") as file:
            kilobytes = next(int(line.split()[1]) for line in file if line.startswith("VmData:"))
        limit = (kilobytes << 10) + self.MORE
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        self.profile = runtime_context.get_state(ValueStateDescriptor("profile"))

    def process_element(self, value: int, ctx: Any) -> Iterator[int]:
        before = self.profile.value()
        self.profile.update(f"{value:01000}")
        if before is not None:
            yield value - int(before)


@pytest.mark.timeout(300)
def test_lmdb_holds_many_keys_in_little_memory(config: Configuration) -> None:
    config.set_string("state.backend.type", "rocksdb").set_integer("millstream.epoch.max-records", 20_000)
    env = Env.get_execution_environment(config)
    keys, again = 1_000_000, 10_000
    numbers = env.from_source(NumberSequenceSource(0, keys + again - 1)).set_parallelism(1)
    differences = numbers.key_by(lambda i: i % keys).process(Profile())
    assert list(differences.execute_and_collect()) == [keys] * again


@pytest.mark.parametrize(
    ("settings", "backend"),
    [
        ({}, Backend.HASHMAP),
        ({"state.backend.type": "HashMap"}, Backend.HASHMAP),
        ({"state.backend": "filesystem"}, Backend.HASHMAP),
        ({"state.backend.type": "RocksDB"}, Backend.LMDB),
        ({"state.backend": "rocksdb"}, Backend.LMDB),
    ],
    ids=str,
)
def test_operators_and_slots_use_configured_backend(
    config: Configuration, settings: dict[str, str], backend: Backend
) -> None:
    config.add_all(Configuration.from_dict(settings))
    env, sink = Env.get_execution_environment(config), CollectSink()
    for stream in windows(env):
        stream.sink_to(sink)
    env.execute()
    assert set(sink.results()) == running(backend)


def test_unknown_backend_is_rejected(config: Configuration) -> None:
    env = Env.get_execution_environment(config.set_string("state.backend", "rocks"))
    with pytest.raises(InvalidProgramError, match=r"state.backend.type is 'rocks': it must be 'hashmap' or 'lmdb'"):
        list(env.from_collection([1]).execute_and_collect())


def test_rescaled_job_keeps_its_backend(config: Configuration) -> None:
    env, sink = Env.get_execution_environment(config), CollectSink()
    stamped = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v)
    values = env.from_source(DataGeneratorSource(lambda i: i, None, 500), stamped)
    tumbling = values.key_by(lambda v: v % 4).window(TumblingEventTimeWindows.of(50))
    tumbling.reduce(lambda a, b: b, EmitOperator("tumbling")).sink_to(sink)
    job = env.execute_async()
    wait_until(lambda: bool(sink.results()))
    env.get_configuration().set_string("state.backend.type", "rocksdb")
    job.rescale(1).result()
    before = len(sink.results())
    wait_until(lambda: len(sink.results()) > before)
    job.cancel().result()
    assert set(sink.results()) == {("tumbling", "PaneOperator", "dict")}


# --- async requests


class Lookup(AsyncFunction):
    """Answers after the record's value in ms; -1 never, -2 with an error."""

    def __init__(self) -> None:
        self.attempts: dict[int, int] = {}

    async def async_invoke(self, value: int) -> list[Any]:
        self.attempts[value] = self.attempts.get(value, 0) + 1
        if value == -2 and self.attempts[value] < 3:
            raise OSError("not yet")
        await asyncio.sleep(60 if value == -1 else max(value, 0) / 1000)
        return [(value, self.attempts[value])]

    def timeout(self, value: int) -> list[Any]:
        return [(value, "too late")]


def test_async_wait_is_ordered_or_unordered_with_timeout_and_retry(env1: Env, collect: Collect) -> None:
    def delays() -> DataStream:
        return env1.from_collection([300, 1, 100])

    ordered = AsyncDataStream.ordered_wait(delays(), Lookup(), Time.seconds(5))
    assert [v for v, _ in collect(ordered)] == [300, 1, 100]
    unordered = AsyncDataStream.unordered_wait(delays(), Lookup(), Time.seconds(5))
    assert [v for v, _ in collect(unordered)] == [1, 100, 300]
    one_at_a_time = AsyncDataStream.unordered_wait(delays(), Lookup(), Time.seconds(5), capacity=1)
    assert [v for v, _ in collect(one_at_a_time)] == [300, 1, 100]
    late = AsyncDataStream.ordered_wait(env1.from_collection([-1, 5]), Lookup(), Time.milliseconds(300))
    assert collect(late) == [(-1, "too late"), (5, 1)]
    retry = AsyncRetryStrategy.fixed_delay(5, 10, None, lambda e: isinstance(e, OSError))
    again = AsyncDataStream.ordered_wait_with_retry(env1.from_collection([-2]), Lookup(), Time.seconds(5), retry)
    assert collect(again) == [(-2, 3)]


class Wrong(AsyncFunction):
    async def async_invoke(self, value: int) -> Any:
        return value


def test_async_error_names_operator_and_record(env1: Env, collect: Collect) -> None:
    with pytest.raises(
        JobExecutionError, match=r"should be of list type; Wrong gave 7 for 7[\s\S]*in operator 'Async Wait'"
    ):
        collect(AsyncDataStream.ordered_wait(env1.from_collection([7]), Wrong(), Time.seconds(1)))
    failing = AsyncDataStream.ordered_wait(env1.from_collection([-2]), Lookup(), Time.seconds(1))
    with pytest.raises(JobExecutionError, match="OSError: not yet"):
        collect(failing)


def test_async_results_do_not_overtake_watermarks(env1: Env, collect: Collect) -> None:
    events = env1.from_collection([(200, 1), (1, 5), (1, 11)]).assign_timestamps_and_watermarks(BY_TIME)
    slow = AsyncDataStream.unordered_wait(events, Later(), Time.seconds(5))
    sums = slow.key_by(lambda e: 0).window(TumblingEventTimeWindows.of(10)).reduce(lambda a, b: (a[0] + b[0], 0))
    assert [n for n, _ in collect(sums)] == [201, 1]


class Later(AsyncFunction):
    async def async_invoke(self, value: tuple[int, int]) -> list[Any]:
        await asyncio.sleep(value[0] / 1000)
        return [value]


class Gated(AsyncFunction):
    """Answers immediately, except for record 0, which waits for a file."""

    def __init__(self, gate: Path) -> None:
        self.gate = str(gate)

    async def async_invoke(self, value: int) -> list[Any]:
        print(f"requested {value}")
        while value == 0 and not os.path.exists(self.gate):
            await asyncio.sleep(0.01)
        return [value]


EXCHANGES = pytest.mark.parametrize("exchange", ["resident", "spark"])


@EXCHANGES
def test_slow_async_request_blocks_neither_records_nor_checkpoints(
    config: Configuration, tmp_path: Path, exchange: str, capfd: pytest.CaptureFixture[str]
) -> None:
    config.set_string("execution.checkpointing.dir", str(tmp_path))
    env = Env.get_execution_environment(config.set_string("millstream.exchange", exchange))
    env.enable_checkpointing(50)
    reader, sink, others = PushedReader(), CollectSink(), CollectSink()
    numbers = env.from_source(reader).map(lambda row: row[0])
    numbers.sink_to(others)
    keyed = numbers.key_by(lambda v: v % 2)
    AsyncDataStream.unordered_wait(keyed, Gated(tmp_path / "gate"), Time.seconds(100)).sink_to(sink)
    job = env.execute_async()
    reader.push(10)
    wait_until(lambda: set(sink.results()) == set(range(1, 10)))

    def checkpoint() -> int:
        (directory,) = (p for p in tmp_path.iterdir() if p.is_dir())
        return max([number for _, number in list_checkpoints(str(directory))], default=0)

    before = checkpoint()
    reader.push(10)
    wait_until(lambda: set(sink.results()) == set(range(1, 20)) and set(others.results()) == set(range(20)))
    wait_until(lambda: checkpoint() > before + 1)
    # There is no further input, and the result is still emitted.
    (tmp_path / "gate").touch()
    wait_until(lambda: sorted(sink.results()) == list(range(20)), 5)
    job.cancel().result(10)
    assert "requested 0" in capfd.readouterr().out


class Takes(AsyncFunction):
    async def async_invoke(self, value: int) -> list[Any]:
        await asyncio.sleep(0.2 + value % 7 / 40)
        return [value]


@EXCHANGES
def test_async_requests_in_flight_survive_kill_and_rescaling(
    config: Configuration, tmp_path: Path, exchange: str
) -> None:
    def start(parallelism: int, rate: int, count: int | None, saved: str | None) -> tuple[Any, CollectSink]:
        job_config = Configuration(config).set_string("millstream.exchange", exchange)
        if saved is not None:
            job_config.set_string("execution.state-recovery.path", saved)
        env, sink = Env.get_execution_environment(job_config).set_parallelism(parallelism), CollectSink()
        restart_at_once(env)
        numbers = env.from_source(DataGeneratorSource(lambda i: i, count, rate)).uid("numbers")
        keyed = numbers.key_by(lambda v: v % 5)
        AsyncDataStream.ordered_wait(keyed, Takes(), Time.seconds(10), 1000).uid("wait").sink_to(sink).uid("sink")
        return env.execute_async(), sink

    job, first = start(2, 200, None, None)
    wait_until(lambda: len(first.results()) > 30)
    slot_processes()[-1].kill()
    before = len(first.results())
    wait_until(lambda: len(first.results()) > before + 20)
    saved = job.stop_with_savepoint(False, str(tmp_path)).result(20)
    snapshot = open_checkpoint(saved).manifest.snapshot
    assert any(has_requests(s.runtime_snapshot) for v in snapshot.vertices.values() for s in v.subtasks)
    # More than the number of requests in flight.
    count = len(first.results()) + 1000
    job, second = start(3, 2000, count, saved)
    job.get_job_execution_result().result(30)
    assert sorted(first.results() + second.results()) == list(range(count))


# --- BATCH


class Ordered(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(100)
        ctx.timer_service().register_processing_time_timer(1 << 50)
        yield ctx.get_current_key(), value[1], ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), ctx.time_domain().name


def test_batch_sorts_each_key_and_fires_timers_at_its_end(env1: Env, collect: Collect) -> None:
    env1.set_runtime_mode(RuntimeExecutionMode.BATCH)
    events = env1.from_collection([("a", 3), ("b", 2), ("a", 1)]).assign_timestamps_and_watermarks(BY_TIME)
    results = collect(events.key_by(lambda e: e[0]).process(Ordered()))
    first = -(1 << 63)
    assert results == [
        *[("a", 1, first), ("a", 3, first), ("a", "EVENT_TIME"), ("a", "PROCESSING_TIME")],
        *[("b", 2, first), ("b", "EVENT_TIME"), ("b", "PROCESSING_TIME")],
    ]


# --- cache


def test_cached_stream_is_computed_once_and_keeps_timestamps(env1: Env, tmp_path: Path, collect: Collect) -> None:
    def record_event(event: Any) -> Any:
        with open(tmp_path / "computed", "a") as f:
            f.write("x")
        return event

    events = env1.from_collection([("a", 1), ("a", 12), ("a", 3)]).assign_timestamps_and_watermarks(BY_TIME)
    cached = events.map(record_event).cache()
    assert collect(cached.map(lambda e: e[1])) == [1, 12, 3]
    sums = cached.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(10))
    assert collect(sums.reduce(lambda a, b: (a[0], a[1] + b[1]))) == [("a", 4), ("a", 12)]
    assert (tmp_path / "computed").read_text() == "xxx"


def test_cache_requires_bounded_stream(env1: Env) -> None:
    endless = env1.from_source(DataGeneratorSource(lambda i: i)).cache()
    with pytest.raises(InvalidProgramError, match="needs a bounded stream"):
        endless.execute_and_collect()


# --- invalid input


class RaisingTrigger(EventTimeTrigger):  # type: ignore[type-arg]
    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> Any:
        raise RuntimeError("no trigger today")


class NoWindows(TumblingEventTimeWindows):  # type: ignore[type-arg]
    def assign_windows(self, element: Any, timestamp: int, context: Any) -> Any:
        return None


def test_window_error_names_raising_trigger_and_empty_assigner(env1: Env, collect: Collect) -> None:
    def keyed() -> Any:
        events = env1.from_collection([("a", 1)]).assign_timestamps_and_watermarks(BY_TIME)
        return events.key_by(lambda e: e[0])

    for windowed, message in (
        (keyed().window(TumblingEventTimeWindows.of(10)).trigger(RaisingTrigger()), "RuntimeError: no trigger today"),
        (keyed().window(NoWindows(10)), "returned None: it must return a list of windows"),
    ):
        with pytest.raises(JobExecutionError) as caught:
            collect(windowed.sum(1))
        assert message in str(caught.value)
        assert f"in operator '{windowed._assigner.__class__.__name__}'" in str(caught.value)
        assert "record: ('a', 1)" in str(caught.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: TumblingEventTimeWindows.of(0), "size of TumblingEventTimeWindows must be at least 1 ms"),
        (lambda: EventTimeSessionWindows.with_gap(-1), "gap of EventTimeSessionWindows must be at least 1 ms"),
        (lambda: SlidingEventTimeWindows.of(10, 0), "slide of SlidingEventTimeWindows must be at least 1 ms"),
    ],
)
def test_invalid_window_is_rejected(build: Any, message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        build()


class Keeping(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("x"))

    def map(self, value: Any) -> Any:
        return value


def test_keyed_state_is_rejected_on_unkeyed_stream(env1: Env, collect: Collect) -> None:
    with pytest.raises(JobExecutionError, match="uses keyed state 'x' but its input is not keyed"):
        collect(env1.from_collection([1]).map(Keeping()))


def test_bad_record_error_names_operator_and_record(env1: Env, collect: Collect) -> None:
    window = TumblingEventTimeWindows.of(10)
    untimed = env1.from_collection([("a", 1)]).key_by(lambda e: e[0]).window(window).sum(1)
    with pytest.raises(JobExecutionError) as caught:
        collect(untimed)
    text = str(caught.value)
    assert "TumblingEventTimeWindows(10, 0) needs records with timestamps and this one has none" in text
    assert "in operator 'TumblingEventTimeWindows'" in text
    assert "record: ('a', 1)" in text
    with pytest.raises(JobExecutionError) as caught:
        collect(env1.from_collection([("a", 1.5)]).assign_timestamps_and_watermarks(BY_TIME))
    text = str(caught.value)
    assert "The timestamp assigner returned 1.5 (float): it must return the event time in milliseconds" in text
    assert "record: ('a', 1.5)" in text


def test_key_error_names_unpicklable_key_and_record(env1: Env, collect: Collect) -> None:
    with pytest.raises(JobExecutionError) as caught:
        collect(env1.from_collection([1]).key_by(lambda v: (i for i in [v])).reduce(lambda a, b: a))
    text = str(caught.value)
    assert "A key of class generator is equal to no other" in text
    assert "record: 1" in text


class _Lateness(KeyedProcessFunction[int, int, Any]):
    """Sets a timer half a second ahead for every record and reports its lateness."""

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 500)
        yield "record", value

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "late", ctx.timer_service().current_processing_time() - timestamp


def _sleepy(value: int) -> int:
    time.sleep(0.05)
    return value


def test_timers_and_checkpoints_continue_during_slow_records(config: Configuration, tmp_path: Path) -> None:
    """Timers fire, checkpoints complete and a savepoint is taken while hundreds of slow records are in flight."""
    settings = {"millstream.epoch.slice": "200 ms", "execution.checkpointing.interval": "100 ms"}
    config = Configuration.from_dict({**config.to_dict(), **settings})
    sink = CollectSink()

    def start(**more: str) -> Any:
        env = Env.get_execution_environment(Configuration.from_dict({**config.to_dict(), **more})).set_parallelism(2)
        numbers = env.from_source(NumberSequenceSource(1, 300), WatermarkStrategy.no_watermarks(), "n").uid("n")
        slow = numbers.map(_sleepy).uid("slow")
        slow.key_by(lambda x: x).process(_Lateness()).uid("timers").sink_to(sink).uid("sink")
        return env.execute_async("slow")

    job = start()
    wait_until(lambda: sum(kind == "late" for kind, _ in sink.results()) > 10, 30)
    assert sum(kind == "record" for kind, _ in sink.results()) < 200
    location = job.stop_with_savepoint(False, str(tmp_path)).result()
    # The savepoint holds the slow records that are in flight; it does not wait for them.
    assert sum(kind == "record" for kind, _ in sink.results()) < 300
    job.get_job_execution_result().result()
    # Another process runs each slot.
    start(**{"execution.state-recovery.path": location}).get_job_execution_result().result()
    results = sink.results()
    assert sorted(value for kind, value in results if kind == "record") == list(range(1, 301))
    late = sorted(value for kind, value in results if kind == "late")
    assert late[len(late) // 2] < 1500


class _Fired(ProcessWindowFunction[Any, Any, Any, Any]):
    """Reports how late a window fires and its number of records."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
        yield context.current_processing_time() - context.window().end, len(list(elements))


class _Expiring(KeyedProcessFunction[int, int, Any]):
    """Counts in a state with a TTL of 300 ms."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen")
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(300)).build())
        self.seen = runtime_context.get_state(descriptor)

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield value, count


@pytest.mark.parametrize("exchange", ["resident", "spark"])
def test_windows_fire_and_state_expires_behind_slow_map(config: Configuration, exchange: str) -> None:
    """The map itself is behind an exchange that receives all records at once."""
    settings = {"millstream.exchange": exchange, "millstream.epoch.slice": "200 ms"}
    env = Env.get_execution_environment(Configuration.from_dict({**config.to_dict(), **settings})).set_parallelism(2)
    counts, fired = CollectSink(), CollectSink()
    # Sixty records for two subtasks: a key repeats after 750 ms, and the job takes twice that.
    slow = env.from_collection([n % 30 for n in range(60)]).rebalance().map(_sleepy)
    slow.key_by(lambda x: x).process(_Expiring()).sink_to(counts)
    windows = slow.key_by(lambda x: 0).window(TumblingProcessingTimeWindows.of(Time.milliseconds(300)))
    windows.process(_Fired()).sink_to(fired)
    env.execute()
    assert sorted(counts.results()) == sorted((n % 30, 1) for n in range(60))
    late = sorted(late for late, _ in fired.results())
    assert len(late) >= 2 and late[len(late) // 2] < 1000
    assert max(count for _, count in fired.results()) < 50


_RULES = MapStateDescriptor("rules")


class _SlowRules(KeyedBroadcastProcessFunction):
    """Sleeps for every record while a file exists and reports how many rules it knew."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
        if self.file.exists():
            time.sleep(0.05)
        yield "record", value, len(list(ctx.get_broadcast_state(_RULES).keys()))

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(_RULES)[value[0]] = True
        return iter(())


@pytest.mark.parametrize(("exchange", "patience"), [("resident", 1000), ("spark", 2500)])
def test_timers_rules_and_savepoint_continue_behind_slow_function(
    config: Configuration, tmp_path: Path, exchange: str, patience: int
) -> None:
    """All records reach the slow function in the first epoch: timers, rules, a savepoint and other jobs continue."""
    settings = {"millstream.exchange": exchange, "execution.checkpointing.interval": "100 ms"}
    config = Configuration.from_dict({**config.to_dict(), **settings})
    sink, late, rules, ticks = CollectSink(), CollectSink(), PushedReader(), PushedReader()
    is_slow = tmp_path / "slow"
    is_slow.touch()

    def start(parallelism: int, **more: str) -> Any:
        env = Env.get_execution_environment(Configuration.from_dict({**config.to_dict(), **more}))
        env.set_parallelism(parallelism)
        numbers = env.from_source(NumberSequenceSource(1, 900), WatermarkStrategy.no_watermarks(), "n").uid("n")
        ticking = env.from_source(ticks, WatermarkStrategy.no_watermarks(), "ticks").uid("ticks")
        ticking.key_by(lambda row: row[0]).process(_Lateness()).uid("timers").sink_to(late).uid("late")
        reported = env.from_source(rules, WatermarkStrategy.no_watermarks(), "rules").uid("rules").broadcast(_RULES)
        slow = numbers.key_by(lambda x: x % 20).connect(reported).process(_SlowRules(is_slow)).uid("slow")
        slow.sink_to(sink).uid("sink")
        return env.execute_async("slow")

    job = start(2)
    wait_until(lambda: len(sink.results()) > 4, 30)
    ticks.push(20)
    rules.push(1)
    wait_until(lambda: any(known for _, _, known in sink.results()), 10)
    wait_until(lambda: any(kind == "late" for kind, _ in late.results()), 10)
    other = Env.get_execution_environment(config).set_parallelism(1)
    assert list(other.from_collection([1, 2]).key_by(lambda x: x).map(lambda x: x + 1).execute_and_collect()) == [2, 3]
    location = job.stop_with_savepoint(False, str(tmp_path)).result()
    job.get_job_execution_result().result()
    lateness = sorted(value for kind, value in late.results() if kind == "late")
    assert lateness and lateness[len(lateness) // 2] < patience
    assert len(sink.results()) < 900
    is_slow.unlink()
    job = start(3, **{"execution.state-recovery.path": location})
    wait_until(lambda: len(sink.results()) >= 900, 30)
    job.cancel().result()
    assert sorted(value for _, value, _ in sink.results()) == list(range(1, 901))
    # Each key has seen the rule; records before it have not.
    by_key = [[known for _, value, known in sink.results() if value % 20 == key] for key in range(20)]
    assert all(known == sorted(known) for known in by_key)
