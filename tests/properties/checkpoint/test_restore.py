"""A job killed at any snapshot and restored at any parallelism and backend equals an uninterrupted job."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.checkpoint.restore import is_same_graph
from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.common.errors import InvalidProgramError
from millstream.common.time import Duration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.functions import (
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.testing import CollectSink, LocalJob, save_savepoint, start_from

Env = StreamExecutionEnvironment
COUNT = 400


def event(i: int) -> tuple[int, int, int]:
    """Key, value, time: keys with several kinds of hashes, times slightly out of order."""
    return (i * 7919) % 11, i, i * 10 + (i * 31) % 50


def key(e: Any) -> Any:
    """Keys other than plain numbers: tuples, strings, lists and dicts must find their key group after a restore."""
    k = e[0]
    return [k, str(k), (k, "x"), [k, 1], {"k": k}][k % 5]


def events(env: Env) -> Any:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(60))
    source = env.from_source(NumberSequenceSource(0, COUNT - 1)).map(event)
    return source.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda e, _: e[2])).uid("marks")


class _Everything(KeyedProcessFunction):
    """All kinds of state and timers, in one function."""

    def open(self, runtime_context: Any) -> None:
        c = runtime_context
        self.value = c.get_state(ValueStateDescriptor("value"))
        self.list = c.get_list_state(ListStateDescriptor("list"))
        self.map = c.get_map_state(MapStateDescriptor("map"))
        self.sum = c.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b))
        self.mean = c.get_aggregating_state(AggregatingStateDescriptor("mean", _Mean()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        n = (self.value.value() or 0) + 1
        self.value.update(n)
        self.list.add(value[1])
        if n % 7 == 0:
            self.list.update(self.list.get()[-3:])
        self.map.put(value[1] % 5, n)
        if n % 11 == 0:
            self.map.remove(n % 5)
        self.sum.add(value[1])
        self.mean.add(value[1])
        ctx.timer_service().register_event_time_timer(value[2] + 300)
        if value[1] % 3 == 0:
            ctx.timer_service().delete_event_time_timer(value[2] + 300)
        yield value[0], "each", n

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), "timer", timestamp


class _Mean:
    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return a[0] + b[0], a[1] + b[1]


class _Last(KeyedProcessFunction):
    """Emits all its state when the input ends."""

    def open(self, runtime_context: Any) -> None:
        self.all = _Everything()
        self.all.open(runtime_context)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        for _ in self.all.process_element(value, ctx):
            pass
        ctx.timer_service().register_event_time_timer(1 << 50)
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if timestamp == 1 << 50:
            a = self.all
            yield ctx.get_current_key(), a.value.value(), a.list.get(), sorted(a.map.items()), a.sum.get(), a.mean.get()


def process(env: Env) -> Any:
    return events(env).key_by(key).process(_Everything()).uid("all")


def latest(env: Env) -> Any:
    # One split, so that the order of a key's records does not depend on how it is read.
    source = env.from_collection([event(i) for i in range(COUNT)])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    return source.assign_timestamps_and_watermarks(strategy).set_parallelism(1).key_by(key).process(_Last()).uid("kept")


def tumbling(env: Env) -> Any:
    windows = events(env).map(lambda e: (key(e), e[1], e[2])).key_by(lambda e: e[0])
    return windows.window(TumblingEventTimeWindows.of(200)).reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))


def sliding(env: Env) -> Any:
    windows = events(env).key_by(lambda e: e[0]).window(SlidingEventTimeWindows.of(300, 100))
    return windows.aggregate(_Counting())


def sessions(env: Env) -> Any:
    windows = events(env).key_by(lambda e: e[0]).window(EventTimeSessionWindows.with_gap(150))
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))


def late_sessions(env: Env) -> Any:
    windows = events(env).key_by(lambda e: e[0]).window(EventTimeSessionWindows.with_gap(150)).allowed_lateness(1)
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1], max(a[2], b[2])))


class _Counting:
    def create_accumulator(self) -> Any:
        return (None, 0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return value[0], accumulator[1] + value[1], accumulator[2] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return a[0], a[1] + b[1], a[2] + b[2]


class _Join(KeyedCoProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.left = runtime_context.get_state(ValueStateDescriptor("left"))

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.left.update((self.left.value() or 0) + value[1])
        return iter(())

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer_service().register_event_time_timer(1 << 40)
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), self.left.value()


def connected(env: Env) -> Any:
    left, right = events(env), env.from_source(NumberSequenceSource(0, 99)).map(event)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    right = right.assign_timestamps_and_watermarks(strategy)
    return left.key_by(lambda e: e[0]).connect(right.key_by(lambda e: e[0])).process(_Join()).uid("join")


RULES = MapStateDescriptor("rules", Types.INT(), Types.INT())


class _Ruled(KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value[0], 1

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put(value, value * 2)
        if value == 39:
            yield "rules", sorted(ctx.get_broadcast_state(RULES).items())


def broadcast(env: Env) -> Any:
    rules = env.from_collection(list(range(40))).broadcast(RULES)
    return events(env).key_by(lambda e: e[0]).connect(rules).process(_Ruled()).uid("ruled")


PROGRAMS: dict[str, Callable[[Env], Any]] = {
    f.__name__: f for f in (process, latest, tumbling, sliding, sessions, late_sessions, connected, broadcast)
}


def environment(parallelism: int, backend: str = "hashmap") -> Env:
    env = Env.get_execution_environment(Configuration.from_dict({"state.backend.type": backend}))
    return env.set_parallelism(parallelism)


def seen(results: list[Any], name: str) -> Any:
    """Return the comparable part: every subtask emits broadcast results once."""
    shown = Counter(repr(r) for r in results)
    return set(shown) if name == "broadcast" else shown


def uninterrupted(name: str) -> Any:
    env, sink = environment(2), CollectSink()
    PROGRAMS[name](env).sink_to(sink)
    LocalJob(env).run()
    assert sink.results()
    return seen(sink.results(), name)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PROGRAMS)
def test_restore_equals_uninterrupted_run_at_any_parallelism(name: str, seed: int) -> None:
    dice = random.Random(f"{name}{seed}")
    sink, snapshot, storage, finished = CollectSink(), None, None, False
    while not finished:
        backend = dice.choice(["hashmap", "hashmap", "lmdb"])
        env = environment(dice.choice([1, 2, 3, 5]), backend)
        PROGRAMS[name](env).sink_to(sink)
        job = LocalJob(env, epoch_sizes=lambda: dice.randint(1, 60), snapshot=snapshot, storage=storage)
        for _ in range(dice.randint(1, 5)):
            if not job.is_finished:
                job.run_epoch(flush=True)
        finished, snapshot, storage = job.is_finished, job.snapshot(), job.storage
    assert seen(sink.results(), name) == uninterrupted(name)


def test_restore_of_changed_program_keeps_matching_state() -> None:
    sink = CollectSink()
    env = environment(2)
    process(env).sink_to(sink)
    job = LocalJob(env, epoch_sizes=lambda: 50)
    job.run_epoch()
    job.run_epoch()
    # One more operator before, one more after, another order, no chaining.
    env = environment(3).disable_operator_chaining()
    changed = env.from_source(NumberSequenceSource(0, COUNT - 1)).map(lambda i: i).map(event)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(60))
    marked = changed.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda e, _: e[2])).uid("marks")
    marked.key_by(key).process(_Everything()).uid("all").filter(lambda r: True).sink_to(sink)
    restored = LocalJob(env, epoch_sizes=lambda: 50, snapshot=job.snapshot(), storage=job.storage)
    assert not is_same_graph(job.snapshot(), restored.plan)
    restored.run()
    assert seen(sink.results(), "process") == uninterrupted("process")


def test_restore_rejects_state_without_operator_by_name() -> None:
    env = environment(1)
    process(env).sink_to(CollectSink())
    job = LocalJob(env, epoch_sizes=lambda: 50)
    job.run_epoch()
    env = environment(1)
    env.from_source(NumberSequenceSource(0, 10)).sink_to(CollectSink())
    with pytest.raises(InvalidProgramError, match=r"uid 'all'.*--allow-non-restored-state"):
        LocalJob(env, snapshot=job.snapshot(), storage=job.storage)


class _Buffering(MapFunction):
    """Holds elements in both kinds of operator state."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.split = store.get_list_state(ListStateDescriptor("split"))
        self.union = store.get_union_list_state(ListStateDescriptor("union"))
        self.restored = context.is_restored()
        self.mine = list(self.split.get())
        self.all = list(self.union.get())

    def snapshot_state(self, context: Any) -> None:
        self.split.update(self.mine)
        self.union.update(self.mine)

    def map(self, value: Any) -> Any:
        self.mine.append(value)
        return self.restored, sorted(self.all), sorted(self.mine)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_restore_redistributes_operator_state_at_new_parallelism(parallelism: int) -> None:
    def program(env: Env, sink: CollectSink) -> None:
        env.from_source(NumberSequenceSource(0, 19)).uid("numbers").map(_Buffering()).uid("buffer").sink_to(sink)

    env, sink = environment(2), CollectSink()
    program(env, sink)
    job = LocalJob(env, epoch_sizes=lambda: 3)
    job.run_epoch()
    assert not any(restored for restored, _, _ in sink.results())
    env, sink = environment(parallelism), CollectSink()
    program(env, sink)
    restored = LocalJob(env, epoch_sizes=lambda: 1, snapshot=job.snapshot(), storage=job.storage)
    restored.run_epoch()
    first = sink.results()
    # Every subtask received the whole union list; each element of the split list went to one subtask.
    assert all(restored and union == [0, 1, 2, 10, 11, 12] for restored, union, _ in first)
    assigned = [v for mine in {tuple(m[:-1]): m for _, _, m in first}.values() for v in mine]
    if parallelism == 1:
        assert set(assigned) == {0, 1, 2, 3, 10, 11, 12, 13}
    else:
        # The third subtask reads no split, so its restored state does not show.
        assert (
            Counter(assigned)[0] <= 1 and len([v for v in assigned if v in (0, 1, 2, 10, 11, 12)]) == 12 // parallelism
        )


class _StatefulFunction(KeyedProcessFunction):
    def __init__(self, expires: bool) -> None:
        self.expires = expires

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("last")
        if self.expires:
            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
        self.last = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield self.last.value()
        self.last.update(value)


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True), (True, True), (False, False)])
def test_restore_rejects_added_or_removed_ttl(before: bool, after: bool, tmp_path: Path) -> None:
    def program(expires: bool) -> Env:
        env = environment(1)
        numbers = env.from_collection([1, 2, 3, 4]).uid("numbers").key_by(lambda v: 0)
        numbers.process(_StatefulFunction(expires)).uid("remembering").sink_to(CollectSink())
        return env

    job = LocalJob(program(before), epoch_sizes=lambda: 2)
    job.run_epoch()
    restored = start_from(program(after), save_savepoint(job, tmp_path))
    if before == after:
        restored.run()
        return
    with pytest.raises(Exception, match="State 'last' has (a|no) time to live, but had"):
        restored.run()
