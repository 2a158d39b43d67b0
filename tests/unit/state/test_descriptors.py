"""State is checked on write: a value must fit the declared type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.common import Row, Time, Types
from millstream.common.errors import TypeMismatchError
from millstream.datastream.functions import AggregateFunction
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.state.keyed import KeyedState
from millstream.testing.local_job import MemoryStorage

XY = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])


class Last(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, a: Any, b: Any) -> Any:
        return b


def handle(descriptor: Any, ttl: bool) -> Any:
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    state = KeyedState("op", 0, MemoryStorage(), lambda: 0)
    state.cell.key = "k"
    return state.handle(descriptor)


Write = Callable[[Any, Any], None]
STATES: list[tuple[Callable[[Any], Any], Write, Callable[[Any], Any]]] = [
    (lambda t: ValueStateDescriptor("s", t), lambda s, v: s.update(v), lambda s: s.value()),
    (lambda t: ListStateDescriptor("s", t), lambda s, v: s.add(v), lambda s: s.get()[0]),
    (lambda t: ListStateDescriptor("s", t), lambda s, v: s.add_all([v]), lambda s: s.get()[0]),
    (lambda t: ListStateDescriptor("s", t), lambda s, v: s.update([v]), lambda s: s.get()[0]),
    (lambda t: MapStateDescriptor("s", Types.STRING(), t), lambda s, v: s.put("a", v), lambda s: s.get("a")),
    (lambda t: MapStateDescriptor("s", Types.STRING(), t), lambda s, v: s.put_all({"a": v}), lambda s: s["a"]),
    (lambda t: MapStateDescriptor("s", t, Types.STRING()), lambda s, v: s.put(v, "a"), lambda s: next(iter(s.keys()))),
    (lambda t: ReducingStateDescriptor("s", lambda a, b: b, t), lambda s, v: s.add(v), lambda s: s.get()),
    (lambda t: AggregatingStateDescriptor("s", Last(), t), lambda s, v: s.add(v), lambda s: s.get()),
]


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize(("describe", "write", "read"), STATES)
def test_state_rejects_a_value_of_another_type_by_state_name(describe: Any, write: Write, read: Any, ttl: bool) -> None:
    for type_info, value in [(Types.INT(), "text"), (Types.INT(), 2**31), (Types.STRING(), 1), (XY, Row(x=1, z=2))]:
        state = handle(describe(type_info), ttl)
        with pytest.raises(TypeMismatchError, match=r"tate 's': the value .* does not fit the type"):
            write(state, value)


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize(("describe", "write", "read"), STATES)
def test_state_stores_the_coerced_value(describe: Any, write: Write, read: Any, ttl: bool) -> None:
    for type_info, value, stored in [
        (Types.INT(), 7, 7),
        (Types.INT(), True, 1),
        (Types.BIG_INT(), 2**80, 2**80),
        (Types.STRING(), "a", "a"),
        (Types.DOUBLE(), 1, 1.0),
        (XY, Row(y=2, x=1), Row(x=1, y=2)),
        (None, "anything", "anything"),
        (Types.PICKLED_BYTE_ARRAY(), ("a", 1), ("a", 1)),
    ]:
        state = handle(describe(type_info), ttl)
        write(state, value)
        assert repr(read(state)) == repr(stored)
        assert state.get_internal_state() is state


def test_state_descriptor_types() -> None:
    assert ValueStateDescriptor("s", Types.INT()).type_info == Types.INT()
    assert ListStateDescriptor("s", Types.INT()).type_info == Types.LIST(Types.INT())
    assert MapStateDescriptor("s", Types.INT(), XY).type_info == Types.MAP(Types.INT(), XY)
    assert ReducingStateDescriptor("s", lambda a, b: a, Types.INT()).type_info == Types.INT()
    assert AggregatingStateDescriptor("s", Last(), Types.INT()).type_info == Types.INT()
    # The type text in savepoints is unchanged.
    assert ListStateDescriptor("s", Types.INT()).type_text() == "Integer"
    assert MapStateDescriptor("s", Types.INT(), Types.STRING()).type_text() == "Integer -> String"


@pytest.mark.parametrize("ttl", [False, True])
def test_map_state_none_value_is_listed_but_not_contained(ttl: bool) -> None:
    state = handle(MapStateDescriptor("s", Types.STRING(), Types.STRING()), ttl)
    state.put("a", None)
    state.put("b", "x")
    assert (state.contains("a"), "a" in state, state.get("a")) == (False, False, None)
    assert (state.contains("b"), "b" in state, state.contains("c")) == (True, True, False)
    assert list(state.items()) == [("a", None), ("b", "x")]
    assert not state.is_empty()
