"""Every value that can be pickled can be sent and stored, also where pickle's fast mode fails."""

from __future__ import annotations

import collections
import datetime as dt
import pickle
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Instant, Row, Types
from millstream.common.errors import InvalidProgramError
from millstream.common.pickles import dump
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.jobmaster.engine import EpochFailed
from millstream.operators.runtime.blocks import Layout
from millstream.state.changelog import FileHeader, encode, sections
from millstream.state.kinds import VALUE
from millstream.state.table import BY_KEY
from millstream.testing import LocalEnvironment


class Colour(Enum):
    RED = "red"


class Right(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Node:
    value: Any
    children: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Fixed:
    value: Any


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


class Reduced(Slotted):
    """Defines its own __reduce__."""

    __slots__ = ()

    def __reduce__(self) -> Any:
        return Reduced, (self.value,)


class Special(dict[Any, Any]):
    """A subclass of dict with list items."""


ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.decimals(allow_nan=False),
    st.fractions(),
    st.datetimes(),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from([Colour.RED, Right.READ | Right.WRITE, Instant(1, 2), ..., int, len, range(3)]),
)
HASHABLE = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.frozensets(inner, max_size=4),
        st.builds(Point, inner, inner),
        st.builds(Fixed, inner),
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.one_of(ATOMS, HASHABLE),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(collections.deque),
        st.sets(HASHABLE, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4),
        st.dictionaries(HASHABLE, inner, max_size=4).map(collections.OrderedDict),
        st.dictionaries(HASHABLE, inner, max_size=4).map(Special),
        st.dictionaries(st.text(max_size=2), st.integers(), max_size=4).map(collections.Counter),
        st.builds(Node, inner, st.lists(inner, max_size=2)),
        st.builds(Slotted, inner),
        st.builds(Reduced, inner),
        st.builds(Row, inner, inner),
        inner.map(lambda v: bytearray(repr(v)[:5].encode())),
    ),
    max_leaves=20,
)


@settings(max_examples=300)
@given(st.lists(VALUES, max_size=4), st.integers(1, 120), st.booleans())
def test_dump_round_trips_values(values: list[Any], times: int, shared: bool) -> None:
    many = values * times if shared else [pickle.loads(pickle.dumps(v)) for v in values * times]
    assert pickle.loads(dump(many)) == many


@pytest.mark.parametrize("count", [1, 48, 49, 50, 51, 200, 5000])
@pytest.mark.parametrize(
    "make",
    [
        lambda i: frozenset([i]),
        lambda i: {i: frozenset([i])},
        lambda i: (i, frozenset([frozenset([i])])),
        lambda i: Fixed(frozenset()),
        lambda i: {i},
        lambda i: [[i]],
    ],
)
def test_dump_round_trips_many_frozensets(make: Any, count: int) -> None:
    values = [make(i) for i in range(count)]
    assert pickle.loads(dump(values)) == values
    block = Layout(False, False).block_of((None, v, None) for v in values)
    assert [v for _, v, _ in Layout(False, False).decode(block.encode()).records()] == values
    rows = sections("t", VALUE, BY_KEY, ((i, v) for i, v in enumerate(values)))
    assert b"".join(encode(FileHeader("op", 0, 1, True, []), rows))


def nested(depth: int) -> Any:
    value: Any = []
    for i in range(depth):
        value = [value] if i % 2 else {"in": value}
    return value


@pytest.mark.parametrize("depth", [10, 60, 150])
def test_dump_round_trips_deeply_nested_values(depth: int) -> None:
    assert pickle.loads(dump([nested(depth)] * 3)) == [nested(depth)] * 3


def test_dump_round_trips_recursive_values() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    again = pickle.loads(dump([loop, frozenset([1])]))[0]
    assert again[1] is again
    ring = Node(1)
    ring.children.append({"parent": ring, "sets": [frozenset([i]) for i in range(99)]})
    copy = pickle.loads(dump(ring))
    assert copy.children[0]["parent"] is copy


def test_dump_round_trips_numpy_arrays() -> None:
    np = pytest.importorskip("numpy")
    values = [(np.arange(i % 7), np.float32(i), frozenset([i])) for i in range(200)]
    for (a, b, c), (x, y, z) in zip(values, pickle.loads(dump(values)), strict=True):
        assert (a == x).all() and (b, c) == (y, z)


PLAIN = [Decimal("1.5"), Fraction(1, 3), dt.datetime(2024, 1, 2, tzinfo=dt.UTC), UUID(int=5), Colour.RED]


class Keep(KeyedProcessFunction):
    """Stores sets in two kinds of state."""

    def open(self, runtime_context: Any) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY()))
        pickled = Types.PICKLED_BYTE_ARRAY()
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", pickled, pickled))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.value.update(frozenset([value]))
        self.map.put(frozenset([value]), (value, *PLAIN))
        yield frozenset([value])


def test_job_of_frozensets_survives_exchange_and_state() -> None:
    env = LocalEnvironment(restarts=1)
    sets = env.from_collection(range(300)).map(lambda v: v).rebalance().key_by(lambda v: v).process(Keep())
    assert sorted(min(v) for v in sets.execute_and_collect()) == list(range(300))


class KeepsAGenerator(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.value.update(i for i in range(3))
        yield value


def test_unpicklable_state_fails_job_without_restart() -> None:
    env = LocalEnvironment(restarts=5)
    stream = env.from_collection([1]).key_by(lambda v: v).process(KeepsAGenerator())
    with pytest.raises(EpochFailed, match="A value of class generator can be neither sent nor kept in state") as failed:
        list(stream.execute_and_collect())
    assert failed.value.unrecoverable


def test_unpicklable_section_error_names_state() -> None:
    rows = sections("count", VALUE, BY_KEY, [(1, (i for i in range(3)))])
    with pytest.raises(InvalidProgramError, match="State 'count' holds an object that cannot be pickled"):
        b"".join(encode(FileHeader("op", 0, 1, True, []), rows))
