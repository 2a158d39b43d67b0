"""Converts user values to typed columns: plain data gets a proper type, everything else becomes text.

bool, int, float, str, bytes, dates and times    themselves; int and float together are floats
tuples, rows, named tuples, dataclasses          structs, where all have the same fields
lists                                            lists
dicts with text or numbers as keys               maps
anything else, or a mixture                      text: JSON where it is plain data, else as Python shows it
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
from collections.abc import Callable, Iterable, Sized

import pyarrow as pa

from millstream.common.aliases import Json, Value
from millstream.common.types import Row, field_names

_TEXT = pa.field("text", pa.string(), metadata={"text": "yes"})
_NULL = pa.field("null", pa.null())
_PLAIN: dict[type, pa.Field] = {
    bool: pa.field("value", pa.bool_()),
    int: pa.field("value", pa.int64()),
    float: pa.field("value", pa.float64()),
    str: pa.field("value", pa.string()),
    bytes: pa.field("value", pa.binary()),
    datetime.date: pa.field("value", pa.date32()),
}


def column(values: Iterable[Value]) -> pa.Array:
    """Return values as a column of the type that fits them all.

    Example:
        >>> column([1, 2.5]).type, column([("a", 1)]).type, column([1, "a"]).to_pylist()
        (DataType(double), StructType(struct<_1: string, _2: int64>), ['1', '"a"'])
    """
    rows = list(values)
    kind = _NULL
    for value in rows:
        value_kind = _kind_of(value)
        if value_kind is not kind:
            kind = _common_field(kind, value_kind)
    return pa.array([_coerced(v, kind) for v in rows], _type(kind))


# A kind is an Arrow field: a type, and whether it is the text of other values.


def _type(kind: pa.Field) -> pa.DataType:
    # A column without values is one of strings.
    return pa.string() if pa.types.is_null(kind.type) else _known(kind.type)


def _known(kind: pa.DataType) -> pa.DataType:
    """Return a type in which lists and maps that are always empty hold strings."""
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_known(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_known(kind.key_type), _known(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _known(f.type)) for f in kind])
    return kind


def _is_text(kind: pa.Field) -> bool:
    return kind.metadata is not None


def _kind_of(value: Value) -> pa.Field:
    if value is None:
        return _NULL
    plain = _PLAIN.get(type(value))
    if plain is not None:
        return plain if _fits_a_column(value) else _TEXT
    if type(value) is datetime.datetime:
        return pa.field("value", pa.timestamp("us", None if value.tzinfo is None else "UTC"))
    if type(value) is list:
        element = _NULL
        for member in value:
            element = _common_field(element, _kind_of(member))
        return pa.field("value", pa.list_(element.with_name("element")))
    if type(value) is dict:
        return _kind_of_dict(value)
    fields = fields_of(value)
    if fields:
        return pa.field("value", pa.struct([_kind_of(v).with_name(name) for name, v in fields.items()]))
    return _TEXT


def _fits_a_column(value: Value) -> bool:
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    # Half a surrogate pair is a character in Python and nowhere else.
    return type(value) is not str or _writable(value) == value


def _kind_of_dict(value: dict[Value, Value]) -> pa.Field:
    key = item = _NULL
    for k, v in value.items():
        key, item = _common_field(key, _kind_of(k)), _common_field(item, _kind_of(v))
    if key is not _NULL and (_is_text(key) or type(next(iter(value))) not in (str, int)):
        return _TEXT
    return pa.field("value", pa.map_(key.with_name("key").with_nullable(False), item.with_name("value")))


def fields_of(value: Value) -> dict[str, Value]:
    """Return the fields of a tuple, row or dataclass by name; of other values, an empty dict."""
    if isinstance(value, Row):
        return dict(zip(field_names(value) or _numbered(value), value, strict=True))
    if isinstance(value, tuple):
        return dict(zip(getattr(value, "_fields", None) or _numbered(value), value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return {}


def _numbered(values: Sized) -> list[str]:
    return [f"_{i}" for i in range(1, len(values) + 1)]


def _common_field(one: pa.Field, other: pa.Field) -> pa.Field:
    """Return the kind that both fit."""
    if one.type.equals(other.type) and _is_text(one) == _is_text(other):
        # Inside, a string may be the text of another value on one side only.
        if not pa.types.is_nested(one.type):
            return one
    elif pa.types.is_null(one.type):
        return other
    elif pa.types.is_null(other.type):
        return one
    elif {one.type, other.type} == {pa.int64(), pa.float64()}:
        return pa.field("value", pa.float64())
    a, b = one.type, other.type
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.field("value", pa.list_(_common_field(a.value_field, b.value_field).with_name("element")))
    if pa.types.is_map(a) and pa.types.is_map(b):
        key = _common_field(a.key_field, b.key_field)
        if not _is_text(key):
            item = _common_field(a.item_field, b.item_field)
            return pa.field("value", pa.map_(key.with_name("key").with_nullable(False), item.with_name("value")))
    if pa.types.is_struct(a) and pa.types.is_struct(b) and [f.name for f in a] == [f.name for f in b]:
        return pa.field("value", pa.struct([_common_field(f, b.field(f.name)).with_name(f.name) for f in a]))
    return _TEXT


def _coerced(value: Value, kind: pa.Field) -> Value:
    """Return a value in the form of its column."""
    if value is None:
        return None
    if _is_text(kind):
        return text_of(value)
    t = kind.type
    if pa.types.is_list(t):
        return [_coerced(v, t.value_field) for v in value]
    if pa.types.is_map(t):
        return [(_coerced(k, t.key_field), _coerced(v, t.item_field)) for k, v in value.items()]
    if pa.types.is_struct(t):
        return {name: _coerced(v, t.field(name)) for name, v in fields_of(value).items()}
    return float(value) if pa.types.is_floating(t) else value


def text_of(value: Value) -> str:
    """Return a value as JSON if it is plain data, else its repr; always encodable as UTF-8."""
    for write in (_json, repr, _class_name_of):
        try:
            return _writable(write(value))
        except Exception:
            # Includes any exception of a user's __repr__.
            continue
    raise AssertionError("every value has a type")


def _json(value: Value) -> str:
    return json.dumps(value, ensure_ascii=False)


def _class_name_of(value: Value) -> str:
    return f"<{type(value).__module__}.{type(value).__qualname__}>"


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def jsonable(value: Value) -> Json:
    """Return a value in a form that JSON can write: rows as objects, times as text, bytes in base64, others as text.

    Example:
        >>> jsonable(Row(name="a", at=datetime.date(2024, 1, 2)))
        {'name': 'a', 'at': '2024-01-02'}
        >>> jsonable({1: (2, b"x")})
        {'1': [2, 'eA==']}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        # JSON has no infinities and no NaN.
        return value if value - value == 0 else repr(value)
    if isinstance(value, (list, set, frozenset)) or (isinstance(value, tuple) and not hasattr(value, "_fields")):
        return [jsonable(v) for v in value]
    if isinstance(value, dict):
        return {k if isinstance(k, str) else text_of(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, Row) and field_names(value) is None:
        return [jsonable(v) for v in value]
    fields = fields_of(value)
    if fields:
        return {name: jsonable(v) for name, v in fields.items()}
    return _other_text(value)


def _other_text(value: Value) -> str:
    writers: dict[type, Callable[[Value], str]] = {
        bytes: lambda v: base64.b64encode(v).decode(),
        datetime.datetime: datetime.datetime.isoformat,
        datetime.date: datetime.date.isoformat,
        datetime.time: datetime.time.isoformat,
    }
    return writers.get(type(value), repr)(value)
