from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from millstream.common import Instant, Row, RowKind, Types
from millstream.common.errors import TypeMismatchError
from millstream.common.java_text import java_number
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.sql.columns.value_text import java_double, java_float
from millstream.testing import LocalEnvironment


def fit(type_info: TypeInformation, value: Any) -> Any:
    convert = type_info.converter()
    return value if convert is None else convert(value)


@pytest.mark.parametrize(
    ("type_info", "value", "expected"),
    [
        (Types.BYTE(), -128, -128),
        (Types.SHORT(), 32_767, 32_767),
        (Types.INT(), -(2**31), -(2**31)),
        (Types.INT(), True, 1),
        (Types.LONG(), -(2**63), -(2**63)),
        (Types.FLOAT(), 0.1, 0.10000000149011612),
        (Types.FLOAT(), 1e300, float("inf")),
        (Types.DOUBLE(), 1, 1.0),
        (Types.BOOLEAN(), 0, False),
        (Types.CHAR(), "x", "x"),
        (Types.STRING(), None, None),
        (Types.BIG_INT(), 2**80, 2**80),
        (Types.BIG_DEC(), 3, Decimal(3)),
        (Types.SQL_DATE(), dt.date(2024, 1, 2), dt.date(2024, 1, 2)),
        (Types.INSTANT(), Instant(1, 2), Instant(1, 2)),
        (Types.TUPLE([Types.INT(), Types.STRING()]), [7, "a"], (7, "a")),
        (Types.ROW([Types.INT(), Types.STRING()]), (1, "a"), Row(f0=1, f1="a")),
        (Types.ROW_NAMED(["a"], [Types.INT()]), {"a": 7}, Row(a=7)),
        (Types.LIST(Types.SHORT()), (1, 2), [1, 2]),
        (Types.MAP(Types.STRING(), Types.INT()), {"a": True}, {"a": 1}),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), bytearray(b"ab"), b"ab"),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [-1, 1], b"\xff\x01"),
        (Types.BASIC_ARRAY(Types.STRING()), ("a",), ["a"]),
        (Types.PICKLED_BYTE_ARRAY(), {1, 2}, {1, 2}),
    ],
)
def test_typeinfo_coerces_values(type_info: TypeInformation, value: Any, expected: Any) -> None:
    result = fit(type_info, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.STRING(), 1),
        (Types.INT(), "1"),
        (Types.INT(), float("nan")),
        (Types.BYTE(), 128),
        (Types.SHORT(), -32_769),
        (Types.INT(), 8_589_934_599),
        (Types.LONG(), 2**63),
        (Types.TUPLE([Types.INT()]), (2**31,)),
        (Types.LIST(Types.BYTE()), [300]),
        (Types.PRIMITIVE_ARRAY(Types.BYTE()), [256]),
        (Types.DOUBLE(), "x"),
        (Types.BOOLEAN(), "true"),
        (Types.CHAR(), "ab"),
        (Types.TUPLE([Types.INT()]), (1, 2)),
        (Types.TUPLE([Types.INT()]), 1),
        (Types.ROW_NAMED(["a"], [Types.INT()]), {"b": 1}),
        (Types.LIST(Types.INT()), "abc"),
        (Types.MAP(Types.STRING(), Types.INT()), [1]),
        (Types.SQL_TIMESTAMP(), "2024-01-01"),
    ],
)
def test_typeinfo_rejects_values_that_cannot_be_coerced(type_info: TypeInformation, value: Any) -> None:
    with pytest.raises(TypeMismatchError, match="fit|field"):
        fit(type_info, value)


@pytest.mark.parametrize(
    ("type_info", "value", "text"),
    [
        (Types.ROW([Types.STRING(), Types.INT()]), Row("a", 0), "+I[a, 0]"),
        (Types.TUPLE([Types.STRING(), Types.INT()]), ("a", 0), "(a,0)"),
        (Types.BOOLEAN(), True, "true"),
        (Types.STRING(), None, "null"),
        (Types.MAP(Types.STRING(), Types.INT()), {"k": 1}, "{k=1}"),
        (Types.LIST(Types.INT()), [1, 2], "[1, 2]"),
    ],
)
def test_typeinfo_formats_values_as_flink_does(type_info: TypeInformation, value: Any, text: str) -> None:
    assert type_info.format(value) == text


XY = Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.INT()])


@pytest.mark.parametrize(
    ("type_info", "value", "expected"),
    [
        (XY, Row(y=2, x=1), Row(x=1, y=2)),
        (XY, Row(1, 2), Row(x=1, y=2)),
        (Types.ROW([Types.INT(), Types.INT()]), Row(f1=2, f0=1), Row(f0=1, f1=2)),
        (Types.ROW_NAMED(["a", "b"], [Types.INT(), XY]), Row(b=Row(y=2, x=1), a=3), Row(a=3, b=Row(x=1, y=2))),
        (Types.LIST(XY), [Row(y=2, x=1)], [Row(x=1, y=2)]),
        (Types.MAP(Types.STRING(), XY), {"k": Row(y=2, x=1)}, {"k": Row(x=1, y=2)}),
        (Types.TUPLE([Types.INT(), XY]), (5, Row(y=2, x=1)), (5, Row(x=1, y=2))),
    ],
)
def test_row_type_coerces_named_rows_by_field_name(type_info: TypeInformation, value: Any, expected: Any) -> None:
    assert str(fit(type_info, value)) == str(expected)


@pytest.mark.parametrize("row", [Row(a=1, b=2), Row(x=1, b=2), Row(x=1), Row(x=1, y=2, z=3)])
def test_row_type_rejects_rows_with_other_field_names(row: Row) -> None:
    with pytest.raises(TypeMismatchError, match="does not fit the type RowTypeInfo"):
        fit(XY, row)


def test_typeinfo_accepts_numpy_scalars() -> None:
    np = pytest.importorskip("numpy")
    cases = [
        (Types.BOOLEAN(), np.bool_(True), True),
        (Types.INT(), np.int64(5), 5),
        (Types.LONG(), np.uint8(5), 5),
        (Types.FLOAT(), np.float32(1.5), 1.5),
        (Types.DOUBLE(), np.int32(3), 3.0),
        (Types.BIG_DEC(), np.int64(3), Decimal(3)),
        (Types.STRING(), np.str_("a"), "a"),
        (Types.CHAR(), np.str_("a"), "a"),
    ]
    for type_info, value, expected in cases:
        result = fit(type_info, value)
        assert result == expected
        assert type(result) is type(expected)
    for type_info, value in [
        (Types.INT(), np.float64("nan")),
        (Types.SHORT(), np.int64(2**20)),
        (Types.INT(), np.zeros(2)),
    ]:
        with pytest.raises(TypeMismatchError):
            fit(type_info, value)


def test_row_type_text_shows_explicit_names_and_stream_type_shows_all() -> None:
    row = Types.ROW([Types.INT(), Types.LIST(Types.ROW([Types.STRING()]))])
    assert str(row) == "RowTypeInfo(Integer, ListTypeInfo<RowTypeInfo(String)>)"
    text = "RowTypeInfo(f0: Integer, f1: ListTypeInfo<RowTypeInfo(f0: String)>)"
    assert str(LocalEnvironment().from_collection([(1, [])], row).get_type()) == text
    # The type text in checkpoints is unchanged.
    assert ValueStateDescriptor("s", row).type_text() == text
    assert MapStateDescriptor("s", Types.INT(), row).type_text() == f"Integer -> {text}"


def test_type_arguments_reject_other_objects() -> None:
    numbers = LocalEnvironment().from_collection([1])
    calls: list[Callable[[Any], object]] = [
        lambda t: LocalEnvironment().from_collection([1], t),
        lambda t: numbers.map(str, t),
        lambda t: numbers.key_by(str, t),
        lambda t: ValueStateDescriptor("s", t),
        lambda t: MapStateDescriptor("s", t, Types.INT()),
        lambda t: Types.LIST(t),
        lambda t: Types.MAP(Types.INT(), t),
        lambda t: Types.TUPLE([Types.INT(), t]),
        lambda t: Types.ROW([t]),
    ]
    for give in calls:
        with pytest.raises(TypeError, match=r": Types\.LONG lacks its parentheses, write Types\.LONG\(\)\."):
            give(Types.LONG)
        with pytest.raises(TypeError, match=r": a type is for example Types\.INT\(\), not <class 'int'>\."):
            give(int)


def test_typeinfo_equality_hash_and_text() -> None:
    assert Types.ROW([Types.INT()]) == Types.ROW_NAMED(["f0"], [Types.INT()])
    assert Types.INT() != Types.LONG()
    assert len({Types.TUPLE([Types.INT()]), Types.TUPLE([Types.INT()])}) == 1
    assert str(Types.TUPLE([Types.STRING(), Types.INT()])) == "TupleTypeInfo(String, Integer)"
    assert str(Types.PICKLED_BYTE_ARRAY()) == "PickledByteArrayTypeInfo"


class TestRow:
    def test_row_fields_by_index_name_and_attribute(self) -> None:
        row = Row(name="a", n=1)
        assert (row[0], row["name"], row.name, list(row), len(row)) == ("a", "a", "a", ["a", 1], 2)
        row["n"] = 2
        row.name = "b"
        assert row.as_dict() == {"name": "b", "n": 2}

    def test_row_unknown_field_error_lists_the_fields(self) -> None:
        with pytest.raises(ValueError, match="no field 'x'.*name, n"):
            Row(name="a", n=1)["x"]
        with pytest.raises(AttributeError, match="no field 'x'"):
            _ = Row(name="a").x

    def test_row_equality_hash_and_pickle(self) -> None:
        row = Row(a=1, b=[2])
        row.set_row_kind(RowKind.DELETE)
        again = pickle.loads(pickle.dumps(row))
        assert again == row
        assert again.get_row_kind() is RowKind.DELETE
        assert hash(Row("a", 1)) == hash(Row("a", 1))
        assert Row(1) != Row(2)

    def test_row_text(self) -> None:
        assert str(Row(f0=1)) == "Row(f0=1)"
        assert str(Row("a", 2)) == "<Row('a', 2)>"

    def test_row_rejects_mixed_names_and_positions(self) -> None:
        with pytest.raises(ValueError, match="not both"):
            Row(1, a=2)


# Recorded from Double.toString and Float.toString of JDK 25; JDK 17 writes some with superfluous digits.
@pytest.mark.parametrize(
    ("value", "narrow", "text"),
    [
        (5e-324, False, "4.9E-324"),
        (1e-323, False, "9.9E-324"),
        (2e23, False, "2.0E23"),
        (8.41e21, False, "8.41E21"),
        (4.030184897929827e17, False, "4.030184897929827E17"),
        (1.7976931348623157e308, False, "1.7976931348623157E308"),
        (9e-5, False, "9.0E-5"),
        (1e7, False, "1.0E7"),
        (-0.0, False, "-0.0"),
        (1.401298464324817e-45, True, "1.4E-45"),
        (3.4028234663852886e38, True, "3.4028235E38"),
        (1e39, True, "Infinity"),
        (float("nan"), True, "NaN"),
        (0.10000000149011612, True, "0.1"),
        (16777216.0, True, "1.6777216E7"),
    ],
)
def test_java_number_writes_the_digits_of_java(value: float, narrow: bool, text: str) -> None:
    assert java_number(value, narrow) == text
    if abs(value) != 1e39:
        assert (java_float if narrow else java_double)(value) == text
