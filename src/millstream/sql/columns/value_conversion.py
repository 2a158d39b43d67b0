"""Conversion between Python values and columns, for `from_elements`, `collect()` and user functions."""

from __future__ import annotations

import array
import datetime as dt
import decimal
import pickle
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.aliases import Value
from millstream.common.errors import TypeMismatchError
from millstream.common.time import Instant
from millstream.common.types import Row
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.zones import zone_named

_Convert = Callable[[Value], Value]

_HALF_UP = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
_EPOCH = dt.datetime(1970, 1, 1)
_UTC = dt.UTC

# --- from Python


def to_column(values: Sequence[Value], kind: t.DataType, zone: str = "UTC") -> pa.Array:
    """Return a column of Python values.

    Args:
        values: Python values of the type; None is null.
        kind: the type of the column.
        zone: the time zone of naive datetimes, for TIMESTAMP_LTZ.

    Raises:
        TypeMismatchError: a value is not of that type.

    Example:
        >>> to_column([1, None], t.DataTypes.INT()).to_pylist()
        [1, None]
    """
    convert = _into(kind, zone)
    target = arrow_type(kind)
    try:
        prepared = values if convert is None else [None if v is None else convert(v) for v in values]
        return pa.array(prepared, target)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError, decimal.DecimalException) as e:
        raise _explained(values, kind, zone) or e from None


def _explained(values: Sequence[Value], kind: t.DataType, zone: str) -> TypeMismatchError | None:
    """Return the error for the first value that does not have the type."""
    convert = _into(kind, zone)
    target = arrow_type(kind)
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            pa.array([value if convert is None else convert(value)], target)
        except Exception:
            shown = repr(value)
            shown = shown if len(shown) <= 200 else f"{shown[:200]}..."
            return TypeMismatchError(
                f"The value {shown} of type {type(value).__name__} (row {row + 1}) is not one of type {kind}."
            )
    return None


def _into(kind: t.DataType, zone: str) -> _Convert | None:
    """Return the conversion of Python values for Arrow; None if Arrow takes them as they are."""
    make = _INTO.get(type(kind))
    if make is not None:
        return make(kind, zone)
    if isinstance(kind, t.UserDefinedType):
        return kind.serialize
    return None


def _into_text(kind: t.DataType, zone: str) -> _Convert | None:
    return _text


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise TypeError("not a str")
    return value


def _into_decimal(kind: t.DataType, zone: str) -> _Convert:
    assert isinstance(kind, t.DecimalType)
    unit = decimal.Decimal(1).scaleb(-kind.scale)
    limit = decimal.Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: Value) -> decimal.Decimal | None:
        if isinstance(value, bool) or not isinstance(value, (int, decimal.Decimal)):
            raise TypeError("not a Decimal")
        rounded = decimal.Decimal(value).quantize(unit, context=_HALF_UP)
        # As in a CAST: overflow gives null.
        return rounded if abs(rounded) < limit else None

    return convert


def _into_date(kind: t.DataType, zone: str) -> _Convert:
    def convert(value: Value) -> dt.date:
        if not isinstance(value, dt.date):
            raise TypeError("not a date")
        return value.date() if isinstance(value, dt.datetime) else value

    return convert


def _into_timestamp(kind: t.DataType, zone: str) -> _Convert:
    assert isinstance(kind, t.TimestampType)
    truncate = _truncation(kind.precision)

    def convert(value: Value) -> int:
        if not isinstance(value, dt.datetime):
            raise TypeError("not a datetime")
        return truncate(_nanoseconds(value.replace(tzinfo=None) - _EPOCH))

    return convert


def _into_instant(kind: t.DataType, zone: str) -> _Convert:
    assert isinstance(kind, t.LocalZonedTimestampType)
    truncate = _truncation(kind.precision)
    session = zone_named(zone)

    def convert(value: Value) -> int:
        if isinstance(value, Instant):
            return truncate(value.seconds * 1_000_000_000 + value.nanos)
        if not isinstance(value, dt.datetime):
            raise TypeError("not a datetime")
        aware = value if value.tzinfo is not None else value.replace(tzinfo=session)
        return truncate(_nanoseconds(aware.astimezone(_UTC).replace(tzinfo=None) - _EPOCH))

    return convert


def _nanoseconds(length: dt.timedelta) -> int:
    return ((length.days * 86400 + length.seconds) * 1_000_000 + length.microseconds) * 1000


def _truncation(precision: int) -> Callable[[int], int]:
    """Return the function that truncates nanoseconds to a precision, in the unit of the column."""
    digit = 10 ** (9 - precision)
    unit = 1_000_000 if precision <= 3 else 1000 if precision <= 6 else 1
    return lambda nanoseconds: nanoseconds // digit * digit // unit


def _into_length(kind: t.DataType, zone: str) -> _Convert:
    def convert(value: Value) -> int:
        if isinstance(value, dt.timedelta):
            return _nanoseconds(value) // 1_000_000
        return int(value)

    return convert


def _into_list(kind: t.DataType, zone: str) -> _Convert:
    assert isinstance(kind, t.ArrayType)
    inner = _into(kind.element_type, zone)

    def convert(value: Value) -> list[Value]:
        if isinstance(value, (str, bytes, dict)):
            raise TypeError("not a list")
        if inner is None:
            return list(value)
        return [None if v is None else inner(v) for v in value]

    return convert


def _into_map(kind: t.DataType, zone: str) -> _Convert:
    assert isinstance(kind, t.MapType)
    return _pairs(_into(kind.key_type, zone) or _same, _into(kind.value_type, zone) or _same)


def _into_multiset(kind: t.DataType, zone: str) -> _Convert:
    assert isinstance(kind, t.MultisetType)
    return _pairs(_into(kind.element_type, zone) or _same, _same)


def _same(value: Value) -> Value:
    return value


def _pairs(of_key: _Convert, of_value: _Convert) -> _Convert:
    def convert(value: Value) -> list[tuple[Value, Value]]:
        items = value.items()
        return [(of_key(k), None if v is None else of_value(v)) for k, v in items]

    return convert


def _into_row(kind: t.DataType, zone: str) -> _Convert:
    assert isinstance(kind, t.RowType)
    inner = [_into(f, zone) or _same for f in kind.field_types()]
    names = kind.names

    def convert(value: Value) -> tuple[Value, ...]:
        if isinstance(value, dict):
            value = [value.get(name) for name in names]
        elif isinstance(value, Row):
            field_names = names_of(value)
            by_name = field_names is not None and set(field_names) == set(names)
            value = [value[n] for n in names] if by_name else list(value)
        elif not isinstance(value, (tuple, list)):
            if not hasattr(value, "__dict__"):
                raise TypeError("not a Row")
            value = [vars(value).get(name) for name in names]
        if len(value) != len(inner):
            raise TypeError("not as many fields")
        return tuple(None if v is None else f(v) for f, v in zip(inner, value, strict=True))

    return convert


_INTO: dict[type[t.DataType], Callable[[t.DataType, str], _Convert | None]] = {
    t.CharType: _into_text,
    t.VarCharType: _into_text,
    t.DecimalType: _into_decimal,
    t.DateType: _into_date,
    t.TimestampType: _into_timestamp,
    t.LocalZonedTimestampType: _into_instant,
    t.DayTimeIntervalType: _into_length,
    t.ArrayType: _into_list,
    t.MapType: _into_map,
    t.MultisetType: _into_multiset,
    t.RowType: _into_row,
    t.RawType: lambda kind, zone: pickle.dumps,
}

# --- to Python


# Conversion by way of numpy takes a tenth of the time, but Arrow imports pandas for it, if installed.
_FEW = 1 << 10


def to_python(column: pa.Array, kind: t.DataType, zone: str | None = "UTC") -> list[Value]:
    """Return the Python values of a column, for `collect()` and user functions.

    Args:
        column: of the Arrow type of `kind`.
        kind: its type.
        zone: the time zone of datetimes for TIMESTAMP_LTZ; None for Instants, which streams have.

    Example:
        >>> to_python(pa.array([1, None], pa.int32()), t.DataTypes.INT())
        [1, None]
    """
    if isinstance(kind, (t.IntegralType, t.FloatType, t.DoubleType, t.YearMonthIntervalType)):
        return _numbers(column)
    convert = _from(kind, zone)
    plain = _storable(column, kind).to_pylist()
    return plain if convert is None else [None if v is None else convert(v) for v in plain]


def _numbers(column: pa.Array) -> list[Value]:
    if len(column) < _FEW:
        return column.to_pylist()  # type: ignore[no-any-return]
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False).tolist()
    for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
        values[row] = None
    return values  # type: ignore[no-any-return]


def _storable(column: pa.Array, kind: t.DataType) -> pa.Array:
    """Return the column with times as numbers, where Arrow's own Python values do not suffice."""
    if isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        return column.cast(pa.int64())
    if isinstance(kind, (t.ArrayType, t.MapType, t.MultisetType, t.RowType)):
        return column.cast(stored_type(column.type))
    return column


def stored_type(kind: pa.DataType) -> pa.DataType:
    """Return an Arrow type with integers instead of timestamps, at any depth."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(stored_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(stored_type(kind.key_type), stored_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, stored_type(f.type)) for f in kind])
    return kind


def _from(kind: t.DataType, zone: str | None) -> _Convert | None:
    make = _FROM.get(type(kind))
    if make is not None:
        return make(kind, zone)
    if isinstance(kind, t.UserDefinedType):
        return kind.deserialize
    return None


def _from_timestamp(kind: t.DataType, zone: str | None) -> _Convert:
    assert isinstance(kind, t.TimestampType)
    unit = _microseconds_of(kind.precision)
    return lambda value: _EPOCH + dt.timedelta(microseconds=unit(value))


def _microseconds_of(precision: int) -> Callable[[int], int]:
    if precision <= 3:
        return lambda value: value * 1000
    return (lambda value: value) if precision <= 6 else (lambda value: value // 1000)


def _from_instant(kind: t.DataType, zone: str | None) -> _Convert:
    assert isinstance(kind, t.LocalZonedTimestampType)
    if zone is None:
        size = 10 ** (3 if kind.precision <= 3 else 6 if kind.precision <= 6 else 9)
        return lambda value: Instant(value // size, value % size * (1_000_000_000 // size))
    unit = _microseconds_of(kind.precision)
    session = zone_named(zone)
    start = _EPOCH.replace(tzinfo=_UTC)
    return lambda value: (start + dt.timedelta(microseconds=unit(value))).astimezone(session)


def _from_length(kind: t.DataType, zone: str | None) -> _Convert:
    return lambda value: dt.timedelta(milliseconds=value)


def _from_list(kind: t.DataType, zone: str | None) -> _Convert | None:
    assert isinstance(kind, t.ArrayType)
    inner = _from(kind.element_type, zone)
    if inner is None:
        return None
    return lambda value: [None if v is None else inner(v) for v in value]


def _from_map(kind: t.DataType, zone: str | None) -> _Convert:
    assert isinstance(kind, t.MapType)
    return _dictionary(_key(kind.key_type, zone), _from(kind.value_type, zone) or _same)


def _from_multiset(kind: t.DataType, zone: str | None) -> _Convert:
    assert isinstance(kind, t.MultisetType)
    return _dictionary(_key(kind.element_type, zone), _same)


def _key(kind: t.DataType, zone: str | None) -> _Convert:
    """Return the conversion to dict keys; arrays become tuples, since lists cannot be keys."""
    convert = _from(kind, zone) or _same
    return (lambda value: tuple(convert(value))) if isinstance(kind, t.ArrayType) else convert


def _dictionary(of_key: _Convert, of_value: _Convert) -> _Convert:
    return lambda pairs: {of_key(k): None if v is None else of_value(v) for k, v in pairs}


def _from_row(kind: t.DataType, zone: str | None) -> _Convert:
    assert isinstance(kind, t.RowType)
    inner = [_from(f, zone) or _same for f in kind.field_types()]
    names = tuple(kind.names)

    def convert(value: dict[str, Value]) -> Row:
        return Row.of(names, [None if v is None else f(v) for f, v in zip(inner, value.values(), strict=True)])

    return convert


_FROM: dict[type[t.DataType], Callable[[t.DataType, str | None], _Convert | None]] = {
    t.TimestampType: _from_timestamp,
    t.LocalZonedTimestampType: _from_instant,
    t.DayTimeIntervalType: _from_length,
    t.ArrayType: _from_list,
    t.MapType: _from_map,
    t.MultisetType: _from_multiset,
    t.RowType: _from_row,
    t.RawType: lambda kind, zone: pickle.loads,
}

# --- type inference

_INFERRED: list[tuple[type[Value], Callable[[], t.DataType]]] = [
    (bool, t.DataTypes.BOOLEAN),
    (int, t.DataTypes.BIGINT),
    (float, t.DataTypes.DOUBLE),
    (str, t.DataTypes.STRING),
    (bytes, t.DataTypes.BYTES),
    (bytearray, t.DataTypes.BYTES),
    (decimal.Decimal, lambda: t.DataTypes.DECIMAL(38, 18)),
    (dt.datetime, lambda: t.DataTypes.TIMESTAMP_LTZ(6)),
    (dt.date, t.DataTypes.DATE),
    (dt.time, lambda: t.DataTypes.TIME(0)),
    (dt.timedelta, lambda: t.DataTypes.INTERVAL(t.DataTypes.DAY(), t.DataTypes.SECOND(3))),
    (Instant, lambda: t.DataTypes.TIMESTAMP_LTZ(9)),
]


_ARRAYS: dict[str, Callable[[], t.DataType]] = {
    "u": lambda: t.DataTypes.CHAR(1),
    "f": t.DataTypes.FLOAT,
    "d": t.DataTypes.DOUBLE,
    "b": t.DataTypes.TINYINT,
    "B": t.DataTypes.SMALLINT,
    "h": t.DataTypes.SMALLINT,
    "H": t.DataTypes.INT,
    "i": t.DataTypes.INT,
    "I": t.DataTypes.BIGINT,
    "l": t.DataTypes.BIGINT,
    "q": t.DataTypes.BIGINT,
}


def inferred_type(value: Value) -> t.DataType:
    """Return the type that `from_elements` infers for a value.

    Raises:
        TypeMismatchError: no type is known for the value.
    """
    if value is None:
        return t.DataTypes.NULL()
    for python, kind in _INFERRED:
        if isinstance(value, python):
            return kind()
    own = getattr(value, "__UDT__", None)
    if isinstance(own, t.UserDefinedType):
        return own
    if isinstance(value, dict):
        keys = merged_types([inferred_type(k) for k in value]).not_null()
        return t.DataTypes.MAP(keys, merged_types([inferred_type(v) for v in value.values()]))
    if isinstance(value, (Row, tuple)):
        return inferred_row(value)
    if isinstance(value, (list, np.ndarray)):
        return t.DataTypes.ARRAY(merged_types([inferred_type(v) for v in value]))
    if isinstance(value, array.array) and value.typecode in _ARRAYS:
        return t.DataTypes.ARRAY(_ARRAYS[value.typecode]().not_null())
    if hasattr(value, "__dict__") and vars(value):
        return inferred_row(Row(**dict(sorted(vars(value).items()))))
    raise TypeMismatchError(f"No type is known for {value!r} of type {type(value).__name__}: pass a schema.")


def inferred_row(value: Row | tuple[Value, ...], names: Sequence[str] | None = None) -> t.RowType:
    """Return the type of a row; unnamed fields are called _1, _2, ..."""
    field_names = names_of(value) if isinstance(value, Row) else getattr(value, "_fields", None)
    all_names = list(names or field_names or [])
    all_names += [f"_{i + 1}" for i in range(len(all_names), len(value))]
    fields = [t.RowField(n, inferred_type(v)) for n, v in zip(all_names, value, strict=True)]
    return t.RowType(fields)


def names_of(row: Row) -> list[str] | None:
    """Return the names of a row's fields, or None if they have none."""
    try:
        return list(row.as_dict())
    except TypeError:
        return None


def merged_types(types: Sequence[t.DataType]) -> t.DataType:
    """Return the common type of inferred types: they may differ in nullability and nested types."""
    merged: t.DataType = t.DataTypes.NULL()
    for kind in types:
        merged = _merged(merged, kind)
    return merged


def _merged(left: t.DataType, right: t.DataType) -> t.DataType:
    if isinstance(left, t.NullType) or left == right:
        return right
    if isinstance(right, t.NullType):
        return left
    if isinstance(left, t.ArrayType) and isinstance(right, t.ArrayType):
        return t.ArrayType(_merged(left.element_type, right.element_type))
    if isinstance(left, t.MapType) and isinstance(right, t.MapType):
        return t.MapType(_merged(left.key_type, right.key_type), _merged(left.value_type, right.value_type))
    if isinstance(left, t.RowType) and isinstance(right, t.RowType):
        other_types = {f.name: f.data_type for f in right}
        fields = [t.RowField(f.name, _merged(f.data_type, other_types.pop(f.name, t.NullType()))) for f in left]
        return t.RowType(fields + [t.RowField(n, k) for n, k in other_types.items()])
    raise TypeMismatchError(f"Values of the types {left} and {right} are in one column: pass a schema.")
