"""All kinds of state against a model: both backends, TTL, restarts in other processes, changes of backend."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Time
from millstream.common.errors import InvalidProgramError
from millstream.datastream import AggregateFunction
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.state import changelog
from millstream.state.backend import Backend
from millstream.state.keyed import KeyedState
from millstream.testing.clock import ManualClock
from millstream.testing.local_job import MemoryStorage

TTL = 10


class Longest(AggregateFunction):
    """Accumulates count and sum."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += 1
        accumulator[1] += value
        return accumulator

    def get_result(self, accumulator: list[int]) -> str:
        return f"{accumulator[1]}/{accumulator[0]}"

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [a + b for a, b in zip(acc_a, acc_b, strict=True)]


def descriptors(ttl: StateTtlConfig | None) -> list[Any]:
    result = [
        ValueStateDescriptor("value"),
        ListStateDescriptor("list"),
        MapStateDescriptor("map"),
        ReducingStateDescriptor("reducing", lambda a, b: a + b),
        AggregatingStateDescriptor("aggregating", Longest()),
    ]
    for descriptor in result:
        if ttl is not None:
            descriptor.enable_time_to_live(ttl)
    return result


class Model:
    """The expected contents of the states: plain dicts, with the time of each write."""

    def __init__(self, ttl: bool) -> None:
        self.ttl = ttl
        self.rows: dict[tuple[str, Any], Any] = {}

    def alive(self, stamp: int, now: int) -> bool:
        return not self.ttl or stamp + TTL > now

    def one(self, kind: str, key: Any, now: int) -> Any:
        value, stamp = self.rows.get((kind, key), (None, now))
        return value if self.alive(stamp, now) else None

    def many(self, kind: str, key: Any, now: int) -> list[Any]:
        return [e for e in self.rows.get((kind, key), []) if self.alive(e[-1], now)]


def apply(operation: tuple[Any, ...], states: dict[str, Any], model: Model, now: int) -> None:
    """Do one operation on the states and on the model, and compare what they return."""
    name, key, a, b = operation
    rows = model.rows
    if name == "update":
        states["value"].update({"v": a})
        rows["value", key] = ({"v": a}, now)
    elif name == "clear":
        kind = ["value", "list", "map", "reducing", "aggregating"][a % 5]
        states[kind].clear()
        rows.pop((kind, key), None)
    elif name == "append":
        states["list"].add([a])
        rows["list", key] = [*model.many("list", key, now), ([a], now)]
    elif name == "replace":
        states["list"].update([a, b])
        rows["list", key] = [(a, now), (b, now)]
    elif name == "put":
        states["map"].put(a, b)
        rows["map", key] = [e for e in model.many("map", key, now) if e[0] != a] + [(a, b, now)]
    elif name == "remove":
        states["map"].remove(a)
        rows["map", key] = [e for e in model.many("map", key, now) if e[0] != a]
    elif name == "add":
        states["reducing"].add(a)
        before = model.one("reducing", key, now)
        rows["reducing", key] = (a if before is None else before + a, now)
        states["aggregating"].add(a)
        count, total = model.one("aggregating", key, now) or (0, 0)
        rows["aggregating", key] = ((count + 1, total + a), now)
    check(states, model, key, now)


def check(states: dict[str, Any], model: Model, key: Any, now: int) -> None:
    assert states["value"].value() == model.one("value", key, now)
    assert states["list"].get() == [e[0] for e in model.many("list", key, now)]
    assert dict(states["map"].items()) == {k: v for k, v, _ in model.many("map", key, now)}
    assert states["map"].is_empty() == (not model.many("map", key, now))
    for k, v, _ in model.many("map", key, now):
        assert k in states["map"]
        assert states["map"][k] == v
    assert states["reducing"].get() == model.one("reducing", key, now)
    aggregated = model.one("aggregating", key, now)
    assert states["aggregating"].get() == (None if aggregated is None else f"{aggregated[1]}/{aggregated[0]}")


keys = st.sampled_from([0, 1, "a", (1, "b"), None])
operations = st.tuples(
    st.sampled_from(["update", "clear", "append", "replace", "put", "remove", "add"]),
    keys,
    st.integers(0, 4),
    st.integers(0, 4),
)
# An epoch: its operations, the clock's advance, whether it is acknowledged, and the process that runs the next.
epochs = st.lists(
    st.tuples(
        st.lists(operations, max_size=8), st.integers(0, 6), st.booleans(), st.sampled_from(["same", "hashmap", "lmdb"])
    ),
    max_size=12,
)


@pytest.mark.parametrize("ttl", [False, True])
@settings(max_examples=100, deadline=None)
@given(epochs)
def test_state_kinds_match_model_in_every_backend(ttl: bool, plan: list[Any]) -> None:
    before, changelog.MAX_CHAIN = changelog.MAX_CHAIN, 4
    try:
        run_plan(ttl, plan)
    finally:
        changelog.MAX_CHAIN = before


def run_plan(ttl: bool, plan: list[Any]) -> None:
    clock, storage, model = ManualClock(), MemoryStorage(), Model(ttl)
    config = StateTtlConfig.new_builder(Time.milliseconds(TTL)).build() if ttl else None

    def process(backend: str) -> tuple[KeyedState, dict[str, Any]]:
        state = KeyedState("op", 0, storage, clock, Backend(backend))
        return state, {d.name: state.handle(d) for d in descriptors(config)}

    state, states = process("hashmap")
    version: str | None = None
    for number, (steps, later, acknowledged, following) in enumerate(plan):
        state.prepare(version)
        state.begin()
        saved = copy.deepcopy(model.rows)
        for operation in steps:
            state.cell.key = operation[1]
            apply(operation, states, model, clock())
        written = state.write_delta(number, f"a{number}")
        if acknowledged:
            version = written
        else:
            model.rows = saved
        clock.millis += later
        if following != "same":
            state, states = process(following)
    state, states = process("lmdb")
    state.prepare(version)
    for key in [0, 1, "a", (1, "b"), None]:
        state.cell.key = key
        check(states, model, key, clock())


def handle(descriptor: Any, clock: ManualClock | None = None) -> Any:
    state = KeyedState("op", 0, MemoryStorage(), clock or ManualClock())
    state.cell.key = "k"
    return state.handle(descriptor)


def test_state_stores_copies_of_values() -> None:
    value = handle(ValueStateDescriptor("v"))
    mine = {"n": [1]}
    value.update(mine)
    mine["n"].append(2)
    assert value.value() == {"n": [1]}
    value.value()["n"].append(3)
    assert value.value() == {"n": [1]}


def test_state_ttl_is_renewed_on_read_if_configured() -> None:
    clock = ManualClock()
    descriptor = ValueStateDescriptor("v")
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(10).update_ttl_on_read_and_write().build())
    value = handle(descriptor, clock)
    value.update(1)
    for clock.millis in (9, 18, 27):
        assert value.value() == 1
    clock.millis = 37
    assert value.value() is None


def test_state_ttl_returns_expired_value_once_if_configured() -> None:
    clock = ManualClock()
    descriptor = ValueStateDescriptor("v")
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(10).return_expired_if_not_cleaned_up().build())
    value = handle(descriptor, clock)
    value.update(1)
    clock.millis = 50
    assert (value.value(), value.value()) == (1, None)


def test_state_ttl_expires_collection_elements_separately() -> None:
    clock = ManualClock()
    config = StateTtlConfig.new_builder(10).build()
    listed, mapped = ListStateDescriptor("l"), MapStateDescriptor("m")
    for descriptor in (listed, mapped):
        descriptor.enable_time_to_live(config)
    state = KeyedState("op", 0, MemoryStorage(), clock)
    state.cell.key = "k"
    elements, entries = state.handle(listed), state.handle(mapped)
    for clock.millis in (0, 5):
        elements.add(clock.millis)
        entries.put(clock.millis, "x")
    clock.millis = 12
    assert elements.get() == [5]
    assert list(entries.keys()) == [5]


def test_state_ttl_removes_expired_rows_without_reads() -> None:
    clock, storage = ManualClock(), MemoryStorage()
    descriptor = ValueStateDescriptor("v")
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(10).cleanup_incrementally(5).build())
    state = KeyedState("op", 0, storage, clock)
    value, version = state.handle(descriptor), None
    for epoch in range(8):
        state.prepare(version)
        state.begin()
        for key in range(20) if epoch == 0 else [f"other {epoch}"]:
            state.cell.key = key
            value.update(1)
        version = state.write_delta(epoch, "a")
        clock.millis += 4
    state.prepare(version)
    left = {row for row, _ in state.rows("v")}
    assert not left & set(range(20))
    assert {"other 6", "other 7"} <= left


def test_state_ttl_rejects_zero() -> None:
    with pytest.raises(InvalidProgramError, match="must be above 0"):
        StateTtlConfig.new_builder(Time.seconds(0))


def test_state_descriptor_rejects_changed_type() -> None:
    from millstream.common import Types

    state = KeyedState("op", 0, MemoryStorage(), ManualClock())
    state.handle(ValueStateDescriptor("v", Types.INT()))
    with pytest.raises(InvalidProgramError, match="registered with type Integer.*String.*another name"):
        state.handle(ValueStateDescriptor("v", Types.STRING()))
