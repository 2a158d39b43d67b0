"""Key index lookups, key hashes, and constants as columns."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.sql.columns.index import first_rows, index_for
from millstream.sql.columns.keys import hashes
from millstream.sql.columns.numpy_arrays import constants, from_python
from millstream.state.key_groups import stable_hash

_SHORT = ["", "a", "a\0", "é", "日本語", "fifteen bytes!!", None]
_TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=30)


@pytest.mark.parametrize("seed", range(40))
def test_key_index_finds_added_keys(seed: int) -> None:
    r = Random(seed)
    kinds = r.choice([[pa.string()], [pa.string(), pa.int32()], [pa.float32(), pa.string(), pa.timestamp("ms")]])
    zeros = [0] * (len(kinds) - 1)
    position = kinds.index(pa.string())
    # The first long text arrives late, or never.
    words = [*_SHORT, *(f"k{i}" for i in range(50))]
    index, key_ids = index_for(kinds), dict[Any, int]()

    def key() -> tuple[Any, ...]:
        others: list[Any] = [r.choice([0, 1, None]) for _ in zeros]
        return (*others[:position], r.choice(words), *others[position:])

    def columns(keys: list[tuple[Any, ...]]) -> list[pa.Array]:
        # After a row outside the slice.
        return [from_python([None, *(k[i] for k in keys)], kind).slice(1) for i, kind in enumerate(kinds)]

    count = 0
    for step in range(12):
        if step == 8 and seed % 2:
            words += ["sixteen bytes!!!", "x" * 100]
        values = [key() for _ in range(r.randrange(1, 40))]
        candidates = [key() for _ in range(5)]
        expected_key_ids = index.find(columns(candidates), 5)
        assert expected_key_ids.tolist() == [key_ids.get(v, -1) for v in candidates]
        given_key_ids, new = index.find_or_add(columns(values), len(values))
        expected_new = []
        for row, value in enumerate(values):
            if value not in key_ids:
                key_ids[value] = count
                count += 1
                expected_new.append(row)
        assert given_key_ids.tolist() == [key_ids[v] for v in values]
        assert new.tolist() == expected_new
        removed = r.sample(list(key_ids), min(3, len(key_ids)))
        index.remove(np.array([key_ids.pop(v) for v in removed]), columns(removed))


@given(_TEXTS, st.integers(0, 3))
def test_key_hashes_of_strings_match_datastream(values: list[Any], skipped: int) -> None:
    column = pa.array([*["xy"] * skipped, *values], pa.string()).slice(skipped)
    assert hashes([column], len(values)).tolist() == [stable_hash(v) for v in values]


@given(st.lists(st.integers(0, 9), max_size=40))
def test_first_rows_returns_first_occurrences(key_ids: list[int]) -> None:
    expected = [i for i, key_id in enumerate(key_ids) if key_id not in key_ids[:i]]
    assert first_rows(np.array(key_ids, np.int64), np.empty(10, np.int64)).tolist() == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, -3], pa.int32()),
        ([1.5, None], pa.float64()),
        (["a", None, "", "日本"], pa.string()),
        ([True, None, False], pa.bool_()),
        ([5, None], pa.timestamp("ms", "UTC")),
        ([b"x", None], pa.binary()),
        ([None, None], pa.int64()),
    ],
)
def test_constants_equal_converted_columns(values: list[Any], kind: pa.DataType) -> None:
    assert constants(values, kind).equals(from_python(values, kind))
