"""Channel selection of each partitioner, as Flink documents it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millstream.common import Types
from millstream.common.errors import JobExecutionError
from millstream.datastream import (
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    Partitioner,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.state import ValueStateDescriptor

Env = StreamExecutionEnvironment
Collect = Callable[[DataStream], list[Any]]
pytestmark = pytest.mark.spark


class Where(MapFunction[Any, Any]):
    """Adds the subtask index to a record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return (*value, self.subtask) if isinstance(value, tuple) else (value, self.subtask)


def routed(
    env: Env, up: int, down: int, partition: Callable[[DataStream], DataStream], n: int = 12
) -> Iterator[tuple[int, int, int]]:
    """Yield (value, sender, receiver)."""
    stream = env.from_source(NumberSequenceSource(0, n * up - 1)).set_parallelism(up).map(Where()).set_parallelism(up)
    yield from partition(stream).map(Where()).set_parallelism(down).execute_and_collect()


@pytest.mark.parametrize(("up", "down"), [(1, 3), (3, 2)])
def test_rebalance_is_round_robin(env: Env, up: int, down: int) -> None:
    by_sender: dict[int, list[int]] = defaultdict(list)
    for _, sender, receiver in sorted(routed(env, up, down, lambda s: s.rebalance())):
        by_sender[sender].append(receiver)
    for receivers in by_sender.values():
        assert receivers == [(receivers[0] + i) % down for i in range(12)]


@pytest.mark.parametrize(("up", "down", "expected"), [
    (2, 4, {0: [0, 1], 1: [2, 3]}),
    (4, 2, {0: [0], 1: [0], 2: [1], 3: [1]}),
    (2, 3, {0: [0, 1], 1: [2]}),
])  # fmt: skip
def test_rescale_is_round_robin_within_local_group(
    env: Env, up: int, down: int, expected: dict[int, list[int]]
) -> None:
    by_sender: dict[int, list[int]] = defaultdict(list)
    for _, sender, receiver in sorted(routed(env, up, down, lambda s: s.rescale())):
        by_sender[sender].append(receiver)
    assert by_sender == {s: [t[i % len(t)] for i in range(12)] for s, t in expected.items()}


def test_forward_global_and_broadcast_choose_documented_channels(env: Env) -> None:
    assert all(s == r for _, s, r in routed(env, 2, 2, lambda s: s.forward()))
    assert {r for _, _, r in routed(env, 2, 3, lambda s: s.global_())} == {0}
    seen = Counter((v, r) for v, _, r in routed(env, 2, 3, lambda s: s.broadcast()))
    assert seen == {(v, r): 1 for v in range(24) for r in range(3)}


def test_shuffle_is_even(env: Env) -> None:
    counts = Counter(r for _, _, r in routed(env, 2, 3, lambda s: s.shuffle(), n=3000))
    assert set(counts) == {0, 1, 2}
    assert all(1700 < c < 2300 for c in counts.values())


class ByTens(Partitioner[int]):
    def partition(self, key: int, num_partitions: int) -> int:
        return key // 10 % num_partitions


def test_partition_custom_chooses_returned_channel(env: Env) -> None:
    for partitioner in (ByTens(), lambda key, n: key // 10 % n):
        results = routed(env, 1, 3, lambda s, p=partitioner: s.partition_custom(p, lambda t: t[0]), n=30)  # type: ignore[misc]
        assert all(r == v // 10 % 3 for v, _, r in results)


@pytest.mark.parametrize("index", [3, -1, "0"])
def test_partition_custom_error_names_index_out_of_range(env: Env, index: Any) -> None:
    def lost(key: int, n: int) -> Any:
        return index

    with pytest.raises(JobExecutionError, match=r"Partitioner .*lost returned .* for key 0.*from 0 to 2") as e:
        list(routed(env, 1, 3, lambda s: s.partition_custom(lost, lambda t: t[0])))
    assert "record: (0, 0)" in str(e.value)


def test_key_by_groups_equal_keys_and_uses_all_subtasks(env: Env, collect: Collect) -> None:
    stream = env.from_source(NumberSequenceSource(0, 9_999)).map(lambda x: f"key {x % 500}").key_by(lambda k: k)
    owners: dict[str, set[int]] = defaultdict(set)
    for key, subtask in collect(stream.map(Where()).set_parallelism(3)):
        owners[key].add(subtask)
    assert all(len(o) == 1 for o in owners.values())
    assert {s for o in owners.values() for s in o} == {0, 1, 2}


def test_slot_groups_run_with_a_skipped_level(env: Env, collect: Collect) -> None:
    source = env.from_source(NumberSequenceSource(1, 10))
    late = (
        source.key_by(lambda x: x % 3).sum().slot_sharing_group("other").key_by(lambda x: 0).map(lambda x: ("late", x))
    )
    stream = source.map(lambda x: ("early", x)).rebalance().union(late.rebalance()).map(lambda t: t)
    counts = Counter(kind for kind, _ in collect(stream))
    assert counts == {"early": 10, "late": 10}


class Last(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield ctx.get_current_key(), count


@pytest.mark.parametrize("epoch_records", [1, 1000])
def test_key_by_accepts_unhashable_keys(env: Env, collect: Collect, epoch_records: int) -> None:
    """Lists and dicts as keys, read from the record or computed from it."""
    env.get_configuration().set_integer("millstream.epoch.max-records", epoch_records)
    records = [([i % 3], {"k": i % 2}, 1) for i in range(12)]

    def stream() -> DataStream:
        return env.from_collection(records)

    add = stream().key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1], a[2] + b[2]))
    assert sorted((k, n) for [k], _, n in collect(add)) == [(k, n) for k in range(3) for n in (1, 2, 3, 4)]
    by_dict = collect(stream().key_by(lambda t: t[1]).process(Last()))
    assert sorted((k["k"], n) for k, n in by_dict) == [(k, n) for k in range(2) for n in range(1, 7)]
    results = collect(stream().key_by(lambda t: [t[0], t[1]]).process(Last()))
    assert sorted((a, b["k"], n) for ([a], b), n in results) == [
        (a, b, n) for a in range(3) for b in range(2) for n in (1, 2)
    ]
