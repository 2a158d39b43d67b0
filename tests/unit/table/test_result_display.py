"""The rows that notebooks show: the last ones of a result, or those after all changes."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.types import Row
from millstream.datastream.live_view import LastValues
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.schema import Field, Fields
from millstream.table import DataTypes
from millstream.table.result_display import LastRows, MaterializedRows

FIELDS = Fields((Field("k", DataTypes.STRING()), Field("c", DataTypes.BIGINT())))
BOOLEANS = st.booleans()
Point = namedtuple("Point", ["x", "y"])


def batch_of(changes: Sequence[tuple[int, str, int]]) -> Batch:
    keys = to_column([k for _, k, _ in changes], DataTypes.STRING())
    counts = to_column([c for _, _, c in changes], DataTypes.BIGINT())
    return Batch([keys, counts], np.array([kind for kind, _, _ in changes], np.int8))


def test_last_rows_keep_end_of_batches() -> None:
    rows = LastRows(FIELDS, "UTC", 3)
    assert rows.add(batch_of([(INSERT, "a", 1)])) == 1
    assert rows.shown().note == ""
    assert rows.add(batch_of([(INSERT, "b", i) for i in range(100)])) == 100
    assert rows.shown().rows == [("b", "97"), ("b", "98"), ("b", "99")]
    assert rows.shown().note == "the last 3 rows"
    rows.add(batch_of([(INSERT, "c", 1)]))
    assert rows.shown().rows == [("b", "98"), ("b", "99"), ("c", "1")]


def test_materialized_rows_update_in_place() -> None:
    rows = MaterializedRows(FIELDS, "UTC", 10)
    rows.add(batch_of([(INSERT, "a", 1), (INSERT, "b", 1), (INSERT, "c", 1)]))
    rows.add(batch_of([(UPDATE_BEFORE, "a", 1), (UPDATE_AFTER, "a", 2), (DELETE, "b", 1), (INSERT, "d", 1)]))
    assert rows.shown().rows == [("a", "2"), ("c", "1"), ("d", "1")]
    assert rows.shown().note == ""


def test_materialized_rows_show_last_changed_of_many() -> None:
    rows = MaterializedRows(FIELDS, "UTC", 2)
    rows.add(batch_of([(INSERT, k, 1) for k in "abcd"]))
    rows.add(batch_of([(UPDATE_BEFORE, "a", 1), (UPDATE_AFTER, "a", 2)]))
    assert rows.shown().rows == [("a", "2"), ("d", "1")]
    assert rows.shown().note == "the 2 of 4 rows that changed last"


def test_materialized_rows_are_bounded() -> None:
    rows = MaterializedRows(FIELDS, "UTC", 2, max_kept=3)
    rows.add(batch_of([(INSERT, k, 1) for k in "abcde"]))
    # The first ones are no longer kept.
    rows.add(batch_of([(UPDATE_BEFORE, "a", 1), (UPDATE_AFTER, "a", 2), (DELETE, "b", 1)]))
    assert rows.shown().rows == [("e", "1"), ("a", "2")]
    assert rows.shown().note == "the 2 of more than 3 rows that changed last"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=30), st.data())
def test_materialized_rows_equal_multiset_of_changes(inserted: list[tuple[str, int]], data: st.DataObject) -> None:
    rows, remaining = MaterializedRows(FIELDS, "UTC", 100), list[tuple[str, int]]()
    for row in inserted:
        changes = [(INSERT, *row)]
        if data.draw(BOOLEANS) and remaining:
            old = remaining.pop(data.draw(st.integers(0, len(remaining) - 1)))
            updates = data.draw(BOOLEANS)
            changes = [(UPDATE_BEFORE if updates else DELETE, *old), (UPDATE_AFTER if updates else INSERT, *row)]
        remaining.append(row)
        rows.add(batch_of(changes))
    assert sorted(map(tuple, rows.shown().rows)) == sorted((k, str(c)) for k, c in remaining)


@pytest.mark.parametrize(
    ("values", "names", "rows"),
    [
        ([Point(1, "a"), Point(2, "b")], ("x", "y"), [["1", "a"], ["2", "b"]]),
        ([Row(x=1, y=2)], ("x", "y"), [["1", "2"]]),
        ([Row(1, 2)], ["record"], [["<Row(1, 2)>"]]),
        ([Point(1, "a"), 7], ["record"], [["Point(x=1, y='a')"], ["7"]]),
        ([(1, 2)], ["record"], [["(1, 2)"]]),
        (["a" * 300], ["record"], [["a" * 200 + "..."]]),
        ([], ["record"], []),
    ],
    ids=["named tuples", "named rows", "rows", "mixed", "tuples", "long", "none"],
)
def test_last_values_show_columns_of_equal_names(
    values: list[object], names: Sequence[str], rows: list[list[str]]
) -> None:
    kept = LastValues(5)
    for value in values:
        assert kept.add(value) == 1
    assert kept.shown().names == names
    assert kept.shown().rows == rows


def test_shown_rows_are_escaped_html() -> None:
    kept = LastValues(2)
    for value in ("<b>", "c", "d"):
        kept.add(value)
    assert kept.shown().note == "the last 2 records"
    kept.add("<b>")
    assert "<td>&lt;b&gt;</td>" in kept.shown().html()
