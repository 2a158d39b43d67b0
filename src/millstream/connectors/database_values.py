"""Values as database drivers return them, converted to a column's type; shared by the JDBC and CDC connectors."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from collections.abc import Callable, Sequence

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.formats.column_text import parser
from millstream.sql import types as t

__all__ = ["read_values"]

_MIDNIGHT = dt.datetime(1970, 1, 1)


def _reader_of(kind: t.DataType) -> Callable[[Value], Value]:
    """Return a function that converts a driver's value to a column's type."""
    if isinstance(kind, (t.CharType, t.VarCharType)):
        return _text
    if isinstance(kind, (t.BinaryType, t.VarBinaryType)):
        return lambda value: value.encode() if isinstance(value, str) else bytes(value)
    if isinstance(kind, t.BooleanType):
        return lambda value: bool(int.from_bytes(value)) if isinstance(value, bytes) else bool(value)
    if isinstance(kind, t.IntegralType):
        return int
    if isinstance(kind, (t.FloatType, t.DoubleType)):
        return float
    if isinstance(kind, t.DecimalType):
        return lambda value: value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(value))
    if isinstance(kind, t.ArrayType):
        inner = _reader_of(kind.element_type)
        return lambda value: [None if v is None else inner(v) for v in value]
    return _timed(kind)


def _timed(kind: t.DataType) -> Callable[[Value], Value]:
    parse = parser(kind, "SQL")

    def read(value: Value) -> Value:
        if isinstance(value, str):
            return parse(value)
        if isinstance(kind, t.DateType) and isinstance(value, dt.datetime):
            return value.date()
        if isinstance(kind, t.TimeType) and isinstance(value, dt.timedelta):
            # From MySQL.
            return (_MIDNIGHT + value).time()
        if isinstance(kind, t.TimestampType):
            if not isinstance(value, dt.datetime):
                return dt.datetime.combine(value, dt.time())
            return value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo is not None else value
        return value

    return read


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode()
    return str(value)


def read_values(values: Sequence[Value], name: str, kind: t.DataType) -> list[Value]:
    """Convert a driver's values to those of a column."""
    read = _reader_of(kind)
    converted = []
    for value in values:
        try:
            converted.append(None if value is None else read(value))
        except (ValueError, TypeError, ArithmeticError, AttributeError) as e:
            raise MillstreamError(
                f"The value {value!r} of column '{name}' is not of type {kind} ({e}): declare the column with "
                "its type in the database."
            ) from None
    return converted
