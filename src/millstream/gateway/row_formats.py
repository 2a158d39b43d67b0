"""Row formats of the gateway: values as JSON, or as the text of the SQL prompt."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence

import pyarrow as pa

from millstream.common.aliases import Json
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_text import to_text
from millstream.sql.errors import TableException
from millstream.sql.schema import Fields
from millstream.table.result_display import shown_texts

ROW_FORMATS = ("JSON", "PLAIN_TEXT")
_KINDS = ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")
_NULL = "null"

Texts = list[str]


def rows_as_json(batch: Batch, fields: Fields, row_format: str, zone: str) -> list[str]:
    """Return each row of a batch as JSON: its kind and values.

    The rows are JSON text, because Python's JSON encoder would lose digits of decimals.
    """
    if row_format == "PLAIN_TEXT":
        columns = [_quoted(shown_texts(c, k, zone)) for c, k in zip(batch.columns, fields.types, strict=True)]
    else:
        columns = [values_as_json(c, k) for c, k in zip(batch.columns, fields.types, strict=True)]
    rows: Sequence[Sequence[str]] = list(zip(*columns, strict=True)) if columns else [()] * len(batch)
    return [
        f'{{"kind":"{_KINDS[kind]}","fields":[{",".join(values)}]}}'
        for kind, values in zip(batch.all_kinds().tolist(), rows, strict=True)
    ]


def values_as_json(column: pa.Array, kind: t.DataType) -> Texts:
    """Return the values of a column as JSON.

    Example:
        >>> values_as_json(pa.array([1.5, None]), t.DataTypes.DOUBLE())
        ['1.5', 'null']
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return _WRITERS.get(type(kind), _as_text)(column, kind)


def _quoted(texts: Sequence[str | None]) -> Texts:
    return [_NULL if v is None else json.dumps(v, ensure_ascii=False) for v in texts]


def _as_text(column: pa.Array, kind: t.DataType) -> Texts:
    return _quoted(to_text(column, kind).to_pylist())


def _numbers(column: pa.Array, kind: t.DataType) -> Texts:
    return [_NULL if v is None else str(v) for v in column.to_pylist()]


def _booleans(column: pa.Array, kind: t.DataType) -> Texts:
    return [_NULL if v is None else str(v).lower() for v in column.to_pylist()]


def _floats(column: pa.Array, kind: t.DataType) -> Texts:
    # JSON has no numbers for Infinity and NaN.
    texts = to_text(column, kind).to_pylist()
    return [_NULL if v is None else v if v[-1].isdigit() else json.dumps(v) for v in texts]


def _decimals(column: pa.Array, kind: t.DataType) -> Texts:
    return [_NULL if v is None else _without_zeros(v) for v in to_text(column, kind).to_pylist()]


def _bytes(column: pa.Array, kind: t.DataType) -> Texts:
    return [_NULL if v is None else json.dumps(base64.b64encode(v).decode()) for v in column.to_pylist()]


def _times(column: pa.Array, kind: t.DataType) -> Texts:
    texts = to_text(column, kind, "UTC").to_pylist()
    zone = "Z" if isinstance(kind, t.LocalZonedTimestampType) else ""
    return [_NULL if v is None else f'"{_without_zeros(v.replace(" ", "T"))}{zone}"' for v in texts]


def _without_zeros(text: str) -> str:
    """Return a number or a time without trailing zeros of its fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _lists(column: pa.Array, kind: t.DataType) -> Texts:
    assert isinstance(kind, t.ArrayType)
    elements = values_as_json(column.values, kind.element_type)
    return _parts(column, lambda start, end: f"[{','.join(elements[start:end])}]")


def _maps(column: pa.Array, kind: t.DataType) -> Texts:
    key: t.DataType
    value: t.DataType = t.DataTypes.INT()
    if isinstance(kind, t.MultisetType):
        key = kind.element_type
    else:
        assert isinstance(kind, t.MapType)
        key, value = kind.key_type, kind.value_type
    if not isinstance(key, (t.CharType, t.VarCharType)):
        raise TableException(
            f"JSON cannot represent {kind}, because its keys are not strings: request rowFormat=PLAIN_TEXT, or CAST "
            "the keys to STRING."
        )
    keys, items = values_as_json(column.keys, key), values_as_json(column.items, value)
    pairs = [f"{k}:{v}" for k, v in zip(keys, items, strict=True)]
    return _parts(column, lambda start, end: f"{{{','.join(pairs[start:end])}}}")


def _parts(column: pa.Array, written: Callable[[int, int], str]) -> Texts:
    """Return the texts of nested values, by their offsets."""
    offsets, valid = column.offsets.to_pylist(), column.is_valid().to_pylist()
    return [written(offsets[i], offsets[i + 1]) if valid[i] else _NULL for i in range(len(column))]


def _structs(column: pa.Array, kind: t.DataType) -> Texts:
    assert isinstance(kind, t.RowType)
    names = [json.dumps(f.name, ensure_ascii=False) for f in kind.fields]
    members = [values_as_json(c, f.data_type) for c, f in zip(column.flatten(), kind.fields, strict=True)]
    rows: list[tuple[str, ...]] = list(zip(*members, strict=True)) if members else [()] * len(column)
    valid = column.is_valid().to_pylist()
    return [
        f"{{{','.join(f'{n}:{v}' for n, v in zip(names, row, strict=True))}}}" if is_valid else _NULL
        for row, is_valid in zip(rows, valid, strict=True)
    ]


_WRITERS: dict[type[t.DataType], Callable[[pa.Array, t.DataType], Texts]] = {
    t.BooleanType: _booleans,
    t.TinyIntType: _numbers,
    t.SmallIntType: _numbers,
    t.IntType: _numbers,
    t.BigIntType: _numbers,
    t.FloatType: _floats,
    t.DoubleType: _floats,
    t.DecimalType: _decimals,
    t.BinaryType: _bytes,
    t.VarBinaryType: _bytes,
    t.RawType: _bytes,
    t.TimeType: _times,
    t.TimestampType: _times,
    t.LocalZonedTimestampType: _times,
    t.YearMonthIntervalType: _numbers,
    t.DayTimeIntervalType: _numbers,
    t.ArrayType: _lists,
    t.MapType: _maps,
    t.MultisetType: _maps,
    t.RowType: _structs,
}


_ROOTS: dict[type[t.DataType], str] = {
    t.IntType: "INTEGER",
    t.TimeType: "TIME_WITHOUT_TIME_ZONE",
    t.TimestampType: "TIMESTAMP_WITHOUT_TIME_ZONE",
    t.LocalZonedTimestampType: "TIMESTAMP_WITH_LOCAL_TIME_ZONE",
    t.ZonedTimestampType: "TIMESTAMP_WITH_TIME_ZONE",
    t.YearMonthIntervalType: "INTERVAL_YEAR_MONTH",
    t.DayTimeIntervalType: "INTERVAL_DAY_TIME",
}


def logical_type(kind: t.DataType) -> dict[str, Json]:
    """Return a type in the form of the REST API.

    Example:
        >>> logical_type(t.DataTypes.DECIMAL(5, 2).not_null())
        {'type': 'DECIMAL', 'nullable': False, 'precision': 5, 'scale': 2}
    """
    root = _ROOTS.get(type(kind), kind.root)
    return {"type": root, "nullable": kind.is_nullable, **_details(kind)}


def _details(kind: t.DataType) -> dict[str, Json]:
    match kind:
        case t.DecimalType():
            return {"precision": kind.precision, "scale": kind.scale}
        case t.CharType() | t.VarCharType() | t.BinaryType() | t.VarBinaryType():
            return {"length": kind.length}
        case t.TimeType() | t.TimestampType() | t.LocalZonedTimestampType() | t.ZonedTimestampType():
            return {"precision": kind.precision}
        case t.YearMonthIntervalType():
            # Values are months for all declared units.
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


def _field(field: t.RowField) -> dict[str, Json]:
    described = {} if field.description is None else {"description": field.description}
    return {"name": field.name, "fieldType": logical_type(field.data_type), **described}
