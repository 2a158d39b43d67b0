"""Constraints before a sink: NOT NULL and lengths, of columns and of nested fields."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millstream.common.errors import MillstreamError
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.operators.io.constraints import ConstraintOperator, constraints_of
from millstream.table import DataTypes, StreamTableEnvironment
from millstream.testing import LocalEnvironment, ValuesTable

_ROWS, _ALL = "ROWS", "ROWS_AND_COLLECTIONS"
_NULL = "is NOT NULL, however, a null value is being written into it"


def _written(column: str, values: list[Any], **options: str) -> list[Any]:
    """Return the values of a column that reach a sink; the source declares no nullability or lengths."""
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    for name in ("not_null", "type_length", "nested_constraint"):
        if name in options:
            t_env.get_config().set(f"table.exec.sink.{name.replace('_', '-')}-enforcer", options[name])
    # All values arrive as a slice of one batch, after a row that a filter drops.
    source, sink = ValuesTable([(0, None), *enumerate(values, 1)], batch_rows=len(values) + 1), ValuesTable()
    t_env.execute_sql(f"CREATE TABLE s (i INT, v {column.replace(' NOT NULL', '')}) WITH {source.options}")
    t_env.execute_sql(f"CREATE TABLE k (v {column}) WITH {sink.options}")
    t_env.execute_sql("INSERT INTO k SELECT v FROM s WHERE i > 0").wait()
    return [value for (value,) in sink.final()]


@pytest.mark.parametrize(
    ("column", "values", "nested", "expected"),
    [
        ("INT NOT NULL", [1, None], "IGNORE", [1]),
        ("ROW<a INT NOT NULL>", [(1,), None, (None,)], "IGNORE", [(1,), None, (None,)]),
        ("ROW<a INT NOT NULL>", [(1,), None, (None,)], _ROWS, [(1,), None]),
        (
            "ROW<a INT, b ROW<c INT NOT NULL>>",
            [(1, (None,)), (None, None), (2, (3,))],
            _ROWS,
            [(None, None), (2, (3,))],
        ),
        ("ARRAY<INT NOT NULL>", [[1, None], None, [], [2, 3]], _ROWS, [[1, None], None, [], [2, 3]]),
        ("ARRAY<INT NOT NULL>", [[1, None], None, [], [2, 3]], _ALL, [None, [], [2, 3]]),
        ("ARRAY<ROW<a INT NOT NULL>>", [[(1,), None], [(1,), (None,)]], _ALL, [[(1,), None]]),
        ("MAP<INT, INT NOT NULL>", [{1: 2, 3: None}, None, {}, {4: 5}], _ALL, [None, {}, {4: 5}]),
        ("MAP<INT, ARRAY<INT NOT NULL>>", [{1: [None]}, {2: [3]}, {4: None}], _ALL, [{2: [3]}, {4: None}]),
        ("ROW<a ARRAY<INT NOT NULL>>", [([None],), ([1],), None], _ALL, [([1],), None]),
    ],
)
def test_not_null_enforcer_drops_rows_with_nested_nulls(
    column: str, values: list[Any], nested: str, expected: list[Any]
) -> None:
    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(v) for v in value]
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        return value if value is None or isinstance(value, int) else tuple(plain(v) for v in value)

    written = [plain(v) for v in _written(column, values, not_null="DROP", nested_constraint=nested)]
    assert sorted(written, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize(
    ("column", "value", "error_text"),
    [
        ("INT NOT NULL", None, f"Column 'v' {_NULL}"),
        ("ROW<a ROW<b INT NOT NULL>>", ((None,),), f"Column 'v.a.b' {_NULL}"),
        ("ARRAY<INT NOT NULL>", [1, None], rf"Column 'v\[1\]' {_NULL}"),
        ("ARRAY<ROW<a INT NOT NULL>>", [(1,), (2,), (None,)], rf"Column 'v\[2\].a' {_NULL}"),
        ("MAP<INT, INT NOT NULL>", {1: None}, rf"Column 'v\[value\]' {_NULL}"),
        ("ROW<a CHAR(2)>", ("x",), r"Column 'v.a' is CHAR\(2\), however, a string of length 1 is being written"),
        ("ARRAY<VARCHAR(2)>", ["ab", "abc"], r"Column 'v\[1\]' is VARCHAR\(2\), however, a string of length 3 is"),
        ("MAP<VARBINARY(1), INT>", {b"ab": 1}, r"Column 'v\[key\]' is VARBINARY\(1\), however, a string of length 2"),
    ],
)
def test_constraint_error_names_the_nested_column(column: str, value: Any, error_text: str) -> None:
    # The value follows valid values of its batch.
    values = [value] if value is None else [{} if isinstance(value, dict) else [] if isinstance(value, list) else None]  # type: ignore[list-item]
    with pytest.raises(MillstreamError, match=error_text):
        _written(column, [*values, value], type_length="ERROR", nested_constraint=_ALL)


def test_length_enforcer_trims_and_pads_fields_of_rows() -> None:
    column = "ROW<a CHAR(3), b ROW<c VARCHAR(1), d BINARY(2)>>"
    values = [("x", ("yz", b"\1")), None, ("long", None)]
    written = _written(column, values, type_length="TRIM_PAD", nested_constraint=_ROWS)
    assert {v and (v[0], v[1] and tuple(v[1])) for v in written} == {("x  ", ("y", b"\1\0")), None, ("lon", None)}
    untouched = _written(column, values, type_length="TRIM_PAD")
    assert {v and v[0] for v in untouched} == {"x", None, "long"}


def test_length_enforcer_rejects_trimming_in_collections() -> None:
    with pytest.raises(ValidationException, match="Trimming and/or padding is not supported if constraint checking"):
        _written("ARRAY<CHAR(2)>", [["x"]], type_length="TRIM_PAD", nested_constraint=_ALL)


def test_nested_enforcer_rejects_unknown_modes() -> None:
    with pytest.raises(TableException, match="Could not parse value 'SOME' .* It is one of IGNORE, ROWS, ROWS_AND_"):
        _written("INT", [1], nested_constraint="SOME")


def test_not_null_enforcer_checks_columns_declared_not_null() -> None:
    t_env = StreamTableEnvironment.create(LocalEnvironment())
    t_env.execute_sql(f"CREATE TABLE s (a INT NOT NULL) WITH {ValuesTable([(None,)]).options}")
    t_env.execute_sql(f"CREATE TABLE k (a INT NOT NULL) WITH {ValuesTable().options}")
    with pytest.raises(MillstreamError, match=f"Column 'a' {_NULL}"):
        t_env.execute_sql("INSERT INTO k SELECT a FROM s").wait()


def test_constraints_ignore_values_below_a_null_row() -> None:
    """Arrow may keep values below a null."""
    missing = pa.array([True, False, False])
    lists = pa.ListArray.from_arrays([0, 1, 3, 4], pa.array([None, None, 1, 2], pa.int32()), mask=missing)
    rows = pa.StructArray.from_arrays([pa.array([None, None, 3], pa.int32())], ["a"], mask=missing)
    array, row = DataTypes.ARRAY(DataTypes.INT(False)), DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT(False))])
    options = {
        "table.exec.sink.not-null-enforcer": "DROP",
        "table.exec.sink.nested-constraint-enforcer": "ROWS_AND_COLLECTIONS",
    }
    for column, kind, last in ((lists, array, [2]), (rows, row, {"a": 3})):
        (result,) = ConstraintOperator(constraints_of([("v", kind)], options)).process(Batch([column], None, 3))
        assert result.columns[0].to_pylist() == [None, last]
