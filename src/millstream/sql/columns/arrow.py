"""The Arrow type of each SQL type."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from millstream.sql import types as t
from millstream.sql.errors import TableException

_SIMPLE: dict[type[t.DataType], pa.DataType] = {
    t.NullType: pa.null(),
    t.BooleanType: pa.bool_(),
    t.TinyIntType: pa.int8(),
    t.SmallIntType: pa.int16(),
    t.IntType: pa.int32(),
    t.BigIntType: pa.int64(),
    t.FloatType: pa.float32(),
    t.DoubleType: pa.float64(),
    t.CharType: pa.string(),
    t.VarCharType: pa.string(),
    t.BinaryType: pa.binary(),
    t.VarBinaryType: pa.binary(),
    t.DateType: pa.date32(),
    t.TimeType: pa.time32("ms"),
    t.YearMonthIntervalType: pa.int32(),
    t.DayTimeIntervalType: pa.int64(),
    t.RawType: pa.binary(),
}


def unit_of(precision: int) -> str:
    """Return Arrow's unit for timestamps of a precision."""
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


@lru_cache(maxsize=4096)
def arrow_type(kind: t.DataType) -> pa.DataType:
    """Return the Arrow type of a SQL type.

    Example:
        >>> from millstream.sql.types import DataTypes
        >>> arrow_type(DataTypes.TIMESTAMP_LTZ(3))
        TimestampType(timestamp[ms, tz=UTC])
    """
    simple = _SIMPLE.get(type(kind))
    if simple is not None:
        return simple
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.TimestampType):
        return pa.timestamp(unit_of(kind.precision))
    if isinstance(kind, t.LocalZonedTimestampType):
        return pa.timestamp(unit_of(kind.precision), "UTC")
    if isinstance(kind, t.ArrayType):
        return pa.list_(arrow_type(kind.element_type))
    if isinstance(kind, t.MapType):
        return pa.map_(arrow_type(kind.key_type), arrow_type(kind.value_type))
    if isinstance(kind, t.MultisetType):
        return pa.map_(arrow_type(kind.element_type), pa.int32())
    if isinstance(kind, t.RowType):
        return pa.struct([pa.field(f.name, arrow_type(f.data_type)) for f in kind])
    if isinstance(kind, t.UserDefinedType):
        return arrow_type(kind.sql_type())
    raise TableException(f"Values of type {kind} cannot be stored in a column.")
