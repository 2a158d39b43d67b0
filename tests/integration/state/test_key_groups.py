from __future__ import annotations

import datetime as dt
import ipaddress
import pathlib
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import attrs
import numpy as np
import pandas as pd
import pydantic
import pydantic.v1
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Row
from millstream.common.errors import MillstreamError
from millstream.operators.windows.windows import CountWindow, GlobalWindow, TimeWindow, Window
from millstream.state.key_groups import (
    default_max_parallelism,
    freeze,
    hashable,
    key_group,
    owned_groups,
    owner,
    stable_hash,
    thaw,
)
from millstream.state.lmdb_base import LmdbStore


class Color(Enum):
    RED = 1


class Access(Flag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Point:
    x: int
    y: str


@dataclass(frozen=True)
class Tagged:
    name: str
    tags: frozenset[str]
    note: str = field(default="", compare=False)


@attrs.frozen
class City:
    name: str = attrs.field(eq=str.lower)
    tags: frozenset[str] = frozenset()
    note: str = attrs.field(default="", eq=False)


class Account(pydantic.BaseModel, frozen=True):
    name: str
    tags: frozenset[str] = frozenset()


class Root(pydantic.RootModel[str], frozen=True):
    pass


class OldAccount(pydantic.v1.BaseModel):
    name: str
    tags: frozenset[str] = frozenset()

    class Config:
        frozen = True


@attrs.frozen(eq=False)
class Town:
    """An attrs class with a hand-written __eq__."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Town) and other.name.lower() == self.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


@dataclass(frozen=True)
class Compared:
    """A dataclass with a hand-written __eq__ that has the steps of a generated one, over another attribute."""

    name: str

    @property
    def lower(self) -> str:
        return self.name.lower()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is self.__class__:
            return (self.lower,) == (other.lower,)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.lower)


class ByHash:
    """Has its own equality, and a consistent __hash__."""

    def __init__(self, name: str, tags: frozenset[str]) -> None:
        self.name, self.tags, self.cached = name, tags, object()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByHash) and (other.name.lower(), other.tags) == (self.name.lower(), self.tags)

    def __hash__(self) -> int:
        return hash((self.name.lower(), hash(self.tags)))


class ByClass:
    """Has a __hash__ with a default value, and a cell that holds its class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByClass) and other.name == self.name

    def __hash__(self, more: str = "more") -> int:
        return hash((__class__.__qualname__, more, self.name))  # type: ignore[name-defined]


class ByStableKey:
    __slots__ = ("name", "seen")

    def __init__(self, name: str, seen: int) -> None:
        self.name, self.seen = name, seen

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByStableKey) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name) ^ 1

    def __stable_key__(self) -> object:
        return self.name


@dataclass(frozen=True)
class Measured:
    """A dataclass that defines its own stable key."""

    name: str
    value: float = field(compare=False)

    def __stable_key__(self) -> object:
        return self.name


class Lowered(str):
    """A text with its own equality and stable key."""

    def __stable_key__(self) -> object:
        return self.lower()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lowered) and other.lower() == self.lower()

    def __hash__(self) -> int:
        return hash(self.lower())


@dataclass(frozen=True)
class CaseInsensitive:
    """A dataclass with a hand-written __eq__."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CaseInsensitive) and other.name.lower() == self.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())


@dataclass(eq=False)
class ByIdentity:
    x: int


class HashAlone:
    """Hashes by value, and compares by identity."""

    def __hash__(self) -> int:
        return hash("all")


class EqualAlone:
    """Compares by value, and hashes by identity."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EqualAlone)

    __hash__ = object.__hash__


class Unknown:
    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name) ^ hash("unknown")


class Backwards(str):
    """A text with its own equality, and the hash of texts."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backwards) and other[::-1] == self[::-1]

    __hash__ = str.__hash__


class Name(str):
    pass


class Coded(str):
    def __stable_key__(self) -> object:
        return len(self)


class Stamp(dt.datetime):
    pass


def spelled(text: str) -> str:
    """Return another string object with the same text."""
    return "".join(list(text))


PLUS_ONE = dt.timezone(dt.timedelta(hours=1))
# Pairs of equal keys that are different objects and share no strings.
EQUAL = [
    (Tagged("ab", frozenset({"x", "yy"}), "1"), Tagged(spelled("ab"), frozenset({"yy", "x"}), "2")),
    (City("Ulm", frozenset({"x", "yy"}), "1"), City("ULM", frozenset({"yy", "x"}), "2")),
    (Account(name="ab", tags=frozenset({"x", "yy"})), Account(name=spelled("ab"), tags=frozenset({"yy", "x"}))),
    (Root("ab"), Root(spelled("ab"))),
    (OldAccount(name="ab", tags={"x", "yy"}), OldAccount(name=spelled("ab"), tags={"yy", "x"})),  # type: ignore[arg-type]
    (Town("Ulm"), Town("ULM")),
    (Compared("Ab"), Compared("aB")),
    (ByHash("Ab", frozenset({"x", "yy"})), ByHash("aB", frozenset({"yy", "x"}))),
    (ByClass("ab"), ByClass(spelled("ab"))),
    (ByStableKey("ab", 1), ByStableKey(spelled("ab"), 2)),
    (Measured("ab", 1.0), Measured(spelled("ab"), 2.0)),
    (Lowered("Ab"), Lowered("aB")),
    (CaseInsensitive("Ab"), CaseInsensitive("aB")),
    (Name("ab"), "ab"),
    (Stamp(2024, 1, 1, 12, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 13, tzinfo=PLUS_ONE)),
    (dt.datetime(2024, 10, 27, 2, 30, fold=0), dt.datetime(2024, 10, 27, 2, 30, fold=1)),
    (
        dt.datetime(2024, 10, 27, 2, 30, fold=0, tzinfo=ZoneInfo("Europe/Berlin")),
        dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
    ),
    (dt.time(12, tzinfo=dt.UTC), dt.time(13, tzinfo=PLUS_ONE)),
    (Access.READ | Access.WRITE, Access(3)),
    (Decimal("1.0"), Decimal("1.00")),
    (Fraction(1, 2), 0.5),
    (range(3, 3), range(0)),
    (range(0, 3, 2), range(0, 4, 2)),
    (ipaddress.ip_address("10.0.0.1"), ipaddress.IPv4Address(0x0A000001)),
    (ipaddress.ip_network("10.0.0.0/8"), ipaddress.IPv4Network((0x0A000000, 8))),
    (ipaddress.ip_interface("10.0.0.1/8"), ipaddress.IPv4Interface((0x0A000001, 8))),
    (ipaddress.ip_interface("::1/64"), ipaddress.IPv6Interface((1, 64))),
    (dt.timezone(dt.timedelta(hours=1), "CET"), PLUS_ONE),
    (pathlib.PurePosixPath("a/b"), pathlib.PurePosixPath("a") / spelled("b")),
    (pathlib.PureWindowsPath("A/b"), pathlib.PureWindowsPath("a\\B")),
    (np.float32(0.5), 0.5),
    (np.str_("ab"), "ab"),
    (np.datetime64("2024-01-01"), np.datetime64("2024-01-01T00", "h")),
    (np.timedelta64(1, "h"), np.timedelta64(3600 * 10**9, "ns")),
    (pd.Timestamp("2024-01-01 12:30"), dt.datetime(2024, 1, 1, 12, 30)),
    (pd.Timestamp("2024-01-01 12:30", tz="UTC"), pd.Timestamp("2024-01-01 13:30", tz="Europe/Berlin")),
    (pd.Timedelta("90min"), dt.timedelta(minutes=90)),
    (bytearray(b"ab"), b"ab"),
    ({0: 31, 1: 0}, {1: 0, 0: 31}),
    ({"a": {"b", "cc"}}, {"a": {"cc", "b"}}),
]

KEYS = [
    *(key for pair in EQUAL for key in pair),
    0, 1, -1, 2**70, 1.5, True, None, "", "a", "Ünï", b"", b"ab", (1, "a"), ("a", (None, 2.5)), [1, 2], Row("a", 1),
    dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30), dt.time(1, 2), dt.timedelta(days=3), Decimal("1.50"),
    frozenset({1, "x"}), Color.RED, Point(1, "p"), Point,
]  # fmt: skip


GOLDEN = [3904355907, 1, 256, 4, 2654435769, 2363233923, 3904356899, 268435458, 2079778772, 738945]


@pytest.mark.parametrize(
    "alike",
    [
        (1, 1.0, True, Decimal(1)),
        (0, 0.0, -0.0, False),
        ((1, "a"), (1.0, "a")),
        ([1, 2], [1.0, 2.0]),
        (Row(1, "a"), Row(1.0, "a")),
        (
            dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC),
            dt.datetime(2024, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        ),
        (float("nan"), float("nan")),
    ],
)
def test_stable_hash_agrees_for_equal_keys(alike: tuple[object, ...]) -> None:
    assert len({stable_hash(k) for k in alike}) == 1


@pytest.mark.parametrize(("one", "other"), EQUAL, ids=lambda key: type(key).__name__)
def test_stable_hash_agrees_for_equal_objects(one: Any, other: Any) -> None:
    assert one == other
    assert stable_hash(one) == stable_hash(other)
    # State finds one row for both.
    assert {hashable(one): "state"}[hashable(other)] == "state"
    assert stable_hash(hashable(one)) == stable_hash(hashable(other))
    # Also for copies from another process.
    assert stable_hash(pickle.loads(pickle.dumps(one))) == stable_hash(one)


@pytest.mark.parametrize(("one", "other"), EQUAL, ids=lambda key: type(key).__name__)
def test_lmdb_reads_row_of_equal_key(one: Any, other: Any, tmp_path: pathlib.Path) -> None:
    table = LmdbStore(str(tmp_path)).table()
    table.update({hashable(one): "state"})
    assert table.get(hashable(other)) == "state"
    table.update({hashable(other): "more"})
    assert len(table) == 1


@pytest.mark.parametrize(("one", "other"), [([1], (1,)), ({1: 2}, ((1, 2),)), ({1: 2}, [(1, 2)])])
def test_hashable_differs_for_unequal_keys(one: Any, other: Any) -> None:
    assert hashable(one) != hashable(other)
    assert hashable(other) != hashable(one)


@pytest.mark.parametrize(
    "key", [ByIdentity(1), (1, ByIdentity(1)), HashAlone(), EqualAlone(), object(), frozenset([object()])]
)
def test_stable_hash_rejects_objects_compared_by_identity(key: Any) -> None:
    with pytest.raises(MillstreamError, match="is equal to no other: the class has no __eq__ and __hash__ by value"):
        stable_hash(key)


def test_stable_hash_uses_stable_key_of_subclass() -> None:
    assert stable_hash(Coded("abc")) == stable_hash(3)


@pytest.mark.parametrize("kind", [Unknown, Backwards])
def test_stable_hash_rejects_class_with_unknown_comparison(kind: type) -> None:
    with pytest.raises(MillstreamError, match=f"A key of class {kind.__name__} .* from a method __stable_key__"):
        stable_hash(kind("a"))


class Day(Window):
    """A user-defined window, like PyFlink's."""

    def __init__(self, day: int) -> None:
        self.day = day

    def max_timestamp(self) -> int:
        return self.day

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Day) and other.day == self.day

    def __hash__(self) -> int:
        return self.day * 31


@pytest.mark.parametrize("make", [lambda: Day(3), GlobalWindow, lambda: TimeWindow(0, 9), lambda: CountWindow(2)])
def test_stable_hash_agrees_for_equal_windows(make: Callable[[], Window]) -> None:
    assert stable_hash(("a", make())) == stable_hash(("a", make()))


def test_stable_hash_agrees_across_processes() -> None:
    program = (
        f"import sys; sys.path[:0] = {sys.path!r};"
        f"from {__name__} import KEYS; from millstream.state.key_groups import stable_hash;"
        "print([stable_hash(k) for k in KEYS])"
    )
    seen = set()
    for seed in ("0", "1", "4242"):
        env = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1
    assert seen.pop().strip() == str([stable_hash(k) for k in KEYS])


def test_stable_hash_equals_recorded_values() -> None:
    # These numbers are in savepoints: they must never change.
    keys = ("a", 1, 2**40, -5, None, b"x", (1, "a"), 2.5, "Ünï", dt.date(2024, 2, 29))
    assert [stable_hash(k) for k in keys] == GOLDEN


@pytest.mark.parametrize("make", [str, int, lambda i: f"user-{i:08d}", lambda i: (i, "x"), lambda i: i * 128])
def test_key_groups_spread_keys_evenly(make: object) -> None:
    counts = Counter(key_group(make(i), 128) for i in range(20_000))  # type: ignore[operator]
    assert len(counts) == 128
    assert max(counts.values()) < 2 * 20_000 / 128


@given(st.integers(1, 200), st.integers(1, 200))
def test_key_group_has_one_owner(parallelism: int, max_parallelism: int) -> None:
    if parallelism > max_parallelism:
        parallelism = max_parallelism
    owned = [g for s in range(parallelism) for g in owned_groups(s, parallelism, max_parallelism)]
    assert owned == list(range(max_parallelism))
    for subtask in range(parallelism):
        for group in owned_groups(subtask, parallelism, max_parallelism):
            assert owner(group, parallelism, max_parallelism) == subtask


def test_default_max_parallelism_equals_flinks() -> None:
    assert [default_max_parallelism(p) for p in (1, 2, 85, 86, 100, 128, 30_000)] == [
        128,
        128,
        128,
        256,
        256,
        256,
        32768,
    ]


@pytest.mark.parametrize("key", [[1, [2, "a"]], {"a": [1]}, ([1], 2), [{"x": 1}]])
def test_hashable_restores_unhashable_keys(key: object) -> None:
    frozen = freeze(key)
    hash(frozen)
    assert thaw(frozen) == key
    assert stable_hash(frozen) == stable_hash(freeze(key))


def test_key_error_names_unusable_key() -> None:
    with pytest.raises(MillstreamError, match="generator"):
        stable_hash(x for x in ())  # type: ignore[var-annotated]
