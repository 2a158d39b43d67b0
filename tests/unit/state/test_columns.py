"""Python values as typed columns, as JSON, and as text, which any value can be converted to."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Row
from millstream.datastream.window import TimeWindow
from millstream.state.columns import column, jsonable, text_of


@dataclass
class Point:
    """Has fields."""

    x: int
    y: float


class Unprintable:
    """Raises when it is printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None], "int64"),
        ([1, 2.5], "double"),
        ([True], "bool"),
        ([True, 1], "string"),
        (["a"], "string"),
        ([b"a"], "binary"),
        ([1, "a"], "string"),
        ([2**70, 1], "string"),
        ([datetime.date(2024, 1, 2)], "date32[day]"),
        ([datetime.datetime(2024, 1, 2)], "timestamp[us]"),
        ([datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)], "timestamp[us, tz=UTC]"),
        ([("a", 1), ("b", 2.5)], "struct<_1: string, _2: double>"),
        ([("a", 1), ("b", "c")], "struct<_1: string, _2: string>"),
        ([("a", 1), ("b",)], "string"),
        ([Row(a=1, b=None), Row(a=None, b="x")], "struct<a: int64, b: string>"),
        ([TimeWindow(0, 10)], "struct<start: int64, end: int64>"),
        ([Point(1, 2.0)], "struct<x: int64, y: double>"),
        ([[1], [], [None]], "list<item: int64>"),
        ([[]], "list<item: string>"),
        ([{"a": 1}, {"b": 2.5}], "map<string, double>"),
        ([{1: "a"}], "map<int64, string>"),
        ([{"a": 1}, {"b": []}], "map<string, string>"),
        ([{(1, 2): 3}], "string"),
        ([object()], "string"),
        ([None], "string"),
        ([], "string"),
    ],
)
def test_column_infers_the_arrow_type(values: list[Any], kind: str) -> None:
    array = column(values)
    assert str(array.type) == kind
    assert [v is None for v in array.to_pylist()] == [v is None for v in values]


def test_column_converts_mixed_tuple_fields_to_text() -> None:
    assert column([(1, "a"), (2, 3)]).to_pylist() == [{"_1": 1, "_2": '"a"'}, {"_1": 2, "_2": "3"}]


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=3)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=2)
        | st.frozensets(st.integers(), max_size=2)
    ),
    max_leaves=5,
)


@given(st.lists(values, max_size=4))
def test_column_text_and_json_accept_any_value(some: list[Any]) -> None:
    array = column(some)
    assert len(array) == len(some)
    array.validate(full=True)
    for value in some:
        text_of(value).encode()
        json.loads(json.dumps(jsonable(value), allow_nan=False))


def test_column_round_trips_lists_of_scalars() -> None:
    some = [[1, 2], [3], None, []]
    assert column(some).to_pylist() == some


def test_text_of_never_fails() -> None:
    assert text_of({"a": [1, "ü"]}) == '{"a": [1, "ü"]}'
    assert text_of(Point(1, 2.0)) == "Point(x=1, y=2.0)"
    assert text_of(Unprintable()) == f"<{__name__}.Unprintable>"
    assert text_of("\ud800").isascii()
    assert column(["\ud800", "a"]).type == pa.string()
    assert text_of(10**10000).startswith("<")
    endless: list[Any] = []
    endless.append(endless)
    assert text_of(endless) == "[[...]]"
