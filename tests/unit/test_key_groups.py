from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Row
from millstream.common.errors import MillstreamError
from millstream.state.key_groups import (
    default_max_parallelism,
    freeze,
    key_group,
    owned_groups,
    owner,
    stable_hash,
    thaw,
)


class Color(Enum):
    RED = 1


@dataclass(frozen=True)
class Point:
    x: int
    y: str


KEYS = [
    0, 1, -1, 2**70, 1.5, True, None, "", "a", "Ünï", b"", b"ab", (1, "a"), ("a", (None, 2.5)), [1, 2], Row("a", 1),
    dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 30), dt.time(1, 2), dt.timedelta(days=3), Decimal("1.50"),
    frozenset({1, "x"}), Color.RED, Point(1, "p"),
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
def test_equal_keys_hash_alike(alike: tuple[object, ...]) -> None:
    assert len({stable_hash(k) for k in alike}) == 1


def test_hash_does_not_depend_on_the_process() -> None:
    program = (
        "import sys; sys.path.insert(0, 'tests/unit');"
        "from test_key_groups import KEYS; from millstream.state.key_groups import stable_hash;"
        "print([stable_hash(k) for k in KEYS])"
    )
    seen = set()
    for seed in ("0", "1", "4242"):
        env = {"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1
    assert seen.pop().strip() == str([stable_hash(k) for k in KEYS])


def test_hash_is_the_same_in_every_release() -> None:
    # These numbers are in savepoints: they must never change.
    keys = ("a", 1, 2**40, -5, None, b"x", (1, "a"), 2.5, "Ünï", dt.date(2024, 2, 29))
    assert [stable_hash(k) for k in keys] == GOLDEN


@pytest.mark.parametrize("make", [str, int, lambda i: f"user-{i:08d}", lambda i: (i, "x"), lambda i: i * 128])
def test_groups_are_even(make: object) -> None:
    counts = Counter(key_group(make(i), 128) for i in range(20_000))  # type: ignore[operator]
    assert len(counts) == 128
    assert max(counts.values()) < 2 * 20_000 / 128


@given(st.integers(1, 200), st.integers(1, 200))
def test_every_group_has_one_owner(parallelism: int, max_parallelism: int) -> None:
    if parallelism > max_parallelism:
        parallelism = max_parallelism
    owned = [g for s in range(parallelism) for g in owned_groups(s, parallelism, max_parallelism)]
    assert owned == list(range(max_parallelism))
    for subtask in range(parallelism):
        for group in owned_groups(subtask, parallelism, max_parallelism):
            assert owner(group, parallelism, max_parallelism) == subtask


def test_default_max_parallelism_is_flinks() -> None:
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
def test_unhashable_keys_freeze_and_thaw(key: object) -> None:
    frozen = freeze(key)
    hash(frozen)
    assert thaw(frozen) == key
    assert stable_hash(frozen) == stable_hash(freeze(key))


def test_a_key_that_cannot_be_used_is_named() -> None:
    with pytest.raises(MillstreamError, match="generator"):
        stable_hash(x for x in ())
