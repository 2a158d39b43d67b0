"""Append buffers of every type contain the added values, and ranges of them are immutable."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.sql.columns import append_buffer
from millstream.sql.columns.append_buffer import GrowingColumn
from millstream.state.changelog import MAX_CHAIN, MIN_FILE, Chain, FileRef

_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.timestamp("ms"): st.integers(0, 2**40),
    pa.decimal128(10, 2): st.integers(-(10**9), 10**9).map(lambda n: Decimal(n) / 100),
    pa.string(): st.text(max_size=9),
    pa.large_string(): st.text(max_size=9),
    pa.binary(): st.binary(max_size=9),
    pa.bool_(): st.booleans(),
    pa.null(): st.none(),
    pa.list_(pa.int32()): st.lists(st.integers(0, 9), max_size=3),
}


@given(data=st.data())
@pytest.mark.parametrize("kind", _VALUES, ids=str)
def test_growing_column_contains_the_added_values(kind: pa.DataType, data: st.DataObject) -> None:
    column, added, shown = GrowingColumn(kind), [], []
    for _ in range(data.draw(st.integers(0, 6), label="batches")):
        values = data.draw(st.lists(st.none() | _VALUES[kind], max_size=20), label="values")
        before = data.draw(st.integers(0, len(values)), label="left out")
        # A slice of an array: its values do not start at its buffer's start.
        column.extend(pa.array(values, kind)[before:])
        added += pa.array(values, kind)[before:].to_pylist()
        shown.append((column.range(0, len(added)), list(added)))
    for array, values in shown:
        array.validate(full=True)
        assert array.to_pylist() == values
    rows = data.draw(st.lists(st.integers(0, len(added) - 1), max_size=20), label="rows") if added else []
    assert column.take(np.array(rows, np.int64)).to_pylist() == [added[row] for row in rows]


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.list_(pa.int64())], ids=str)
def test_growing_column_chunks_stay_below_the_arrow_limit(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_buffer, "_MAX_BYTES", 100)
    monkeypatch.setattr(append_buffer, "_MAX_MERGED", 1)
    values = [None if i % 7 == 3 else [i] if pa.types.is_list(kind) else i for i in range(300)]
    column = GrowingColumn(kind)
    for start in range(0, 300, 5):
        some = pa.array(values[start : start + 5], pa.list_(pa.int64()) if pa.types.is_list(kind) else pa.int64())
        column.extend(some.cast(kind))
    assert column.range(13, 222).cast(pa.array(values).type).to_pylist() == values[13:222]
    rows = np.array([299, 0, 10, 10, 150])
    assert column.take(rows).cast(pa.array(values).type).to_pylist() == [values[row] for row in rows]


def test_growing_column_ranges_are_immutable() -> None:
    column = GrowingColumn(pa.int64())
    column.extend(pa.array([1, 2, 3]))
    before = column.range(0, 3)
    column.replace(pa.array([7, 8, 9]))
    column.extend(pa.array([10]))
    assert (before.to_pylist(), column.range(0, 4).to_pylist()) == ([1, 2, 3], [7, 8, 9, 10])


def _chain(*sizes: int) -> Chain:
    return Chain([FileRef(f"{i}", size, i == 0) for i, size in enumerate(sizes)])


def test_changelog_rebase_skips_append_only_rows() -> None:
    mb = 1 << 20
    changing = _chain(mb, mb, mb, mb)
    assert changing.wants_rebase(), "the size of the state is unknown"
    assert changing.wants_rebase(live=mb), "the same rows each time"
    assert not changing.wants_rebase(live=4 * mb), "other rows each time"
    assert not _chain(mb, mb, mb).wants_rebase(live=mb), "it is not worth it yet"


def test_changelog_chain_length_follows_the_state_size() -> None:
    assert _chain(*[1] * MAX_CHAIN).wants_rebase()
    assert not _chain(*[1] * MAX_CHAIN).wants_rebase(live=(MAX_CHAIN + 1) * MIN_FILE)
    assert _chain(*[1] * (MAX_CHAIN + 1)).wants_rebase(live=(MAX_CHAIN + 1) * MIN_FILE)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.bool_(), pa.list_(pa.int64())], ids=str)
def test_growing_column_returns_the_requested_nulls_after_empty_values(kind: pa.DataType) -> None:
    column = GrowingColumn(kind)
    for _ in range(3):
        column.extend(pa.nulls(0, kind))
    assert column.take(pa.array([None, None], pa.int64())) == pa.nulls(2, kind)
    column.extend(pa.nulls(1, kind))
    column.replace(pa.nulls(0, kind))
    assert column.take(pa.array([None, None], pa.int64())) == pa.nulls(2, kind)
