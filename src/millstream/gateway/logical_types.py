"""Types of columns as JSON, as Flink's clients read them."""

from __future__ import annotations

from typing import Any

from millstream.sql import types as t

_ROOTS: dict[type[t.DataType], str] = {
    t.IntType: "INTEGER",
    t.TimeType: "TIME_WITHOUT_TIME_ZONE",
    t.TimestampType: "TIMESTAMP_WITHOUT_TIME_ZONE",
    t.LocalZonedTimestampType: "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
    t.ZonedTimestampType: "TIMESTAMP_WITH_TIME_ZONE",
    t.YearMonthIntervalType: "INTERVAL_YEAR_MONTH",
    t.DayTimeIntervalType: "INTERVAL_DAY_TIME",
}


def logical_type(kind: t.DataType) -> dict[str, Any]:
    """Return a type as a client reads it.

    Example:
        >>> logical_type(t.DataTypes.DECIMAL(5, 2).not_null())
        {'type': 'DECIMAL', 'nullable': False, 'precision': 5, 'scale': 2}
    """
    root = _ROOTS.get(type(kind), kind.root)
    return {"type": root, "nullable": kind.is_nullable, **_details(kind)}


def _details(kind: t.DataType) -> dict[str, Any]:
    match kind:
        case t.DecimalType():
            return {"precision": kind.precision, "scale": kind.scale}
        case t.CharType() | t.VarCharType() | t.BinaryType() | t.VarBinaryType():
            return {"length": kind.length}
        case t.TimeType() | t.TimestampType() | t.LocalZonedTimestampType() | t.ZonedTimestampType():
            return {"precision": kind.precision}
        case t.YearMonthIntervalType():
            # Values have all the units, whatever the declaration says: they are a number of months.
            return {"precision": kind.precision, "resolution": "MONTH"}
        case t.DayTimeIntervalType():
            return {"precision": kind.day_precision, "fractionalPrecision": 3, "resolution": "SECOND"}
        case t.ArrayType() | t.MultisetType():
            return {"elementType": logical_type(kind.element_type)}
        case t.MapType():
            return {"keyType": logical_type(kind.key_type), "valueType": logical_type(kind.value_type)}
        case t.RowType():
            return {"fields": [_field(f) for f in kind.fields]}
    return {}


def _field(field: t.RowField) -> dict[str, Any]:
    described = {} if field.description is None else {"description": field.description}
    return {"name": field.name, "fieldType": logical_type(field.data_type), **described}
