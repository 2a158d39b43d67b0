"""Values of declared types in JSON, as Flink's JSON schemas read and write them."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from json.encoder import encode_basestring

from millstream.common.aliases import Json, Value
from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.types import Row
from millstream.formats.text_values import narrow, parse_double, parser_of

Read = Callable[[Json], Value]
Write = Callable[[Value], str]

_ARRAYS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)
_BYTES = PrimitiveArrayTypeInfo(BasicTypeInfo("Byte"))
_INT_LIMITS = {"Integer": 1 << 31, "Long": 1 << 63}


class JsonError(ValueError):
    """A value that does not match its type."""


def reader_of(type_info: TypeInformation, needs_all: bool, lenient: bool) -> Read:
    """Return the function that converts parsed JSON to a value.

    Args:
        type_info: the type of the value.
        needs_all: whether a missing field is an error; else it is None.
        lenient: whether a malformed value is None; else it is an error.
    """
    read = _plain_reader(type_info, needs_all, lenient)

    def nullable(value: Json) -> Value:
        return None if value is None else read(value)

    return nullable


def _plain_reader(type_info: TypeInformation, needs_all: bool, lenient: bool) -> Read:
    if isinstance(type_info, RowTypeInfo):
        return _row_reader(type_info, needs_all, lenient)
    if type_info == _BYTES:
        return lambda value: base64.b64decode(_of(str, value, type_info))
    if isinstance(type_info, _ARRAYS):
        element = reader_of(type_info.get_element_type(), needs_all, lenient)
        return lambda value: [element(v) for v in _of(list, value, type_info)]
    if isinstance(type_info, MapTypeInfo):
        if type_info.key_type != Types.STRING():
            raise InvalidProgramError(f"JSON: the keys of a map must be strings, not {type_info.key_type}.")
        read_value = reader_of(type_info.value_type, needs_all, lenient)
        return lambda value: {k: read_value(v) for k, v in _of(dict, value, type_info).items()}
    if isinstance(type_info, PickledBytesTypeInfo):
        return lambda value: value
    return _basic_reader(type_info)


def _row_reader(row_type: RowTypeInfo, needs_all: bool, lenient: bool) -> Read:
    names = tuple(row_type.get_field_names())
    types = row_type.get_field_types()
    fields = [(n, t, reader_of(t, needs_all, lenient)) for n, t in zip(names, types, strict=True)]
    make = Row.of

    def read(value: Json) -> Row:
        values: list[Value] = []
        for name, field_type, field in fields:
            member = value.get(name)
            if member is None:
                if needs_all and name not in value and not lenient:
                    raise JsonError(f"there is no field {name!r}")
                values.append(None)
                continue
            try:
                values.append(field(member))
            except ValueError as e:
                if lenient:
                    values.append(None)
                    continue
                if isinstance(e, JsonError):
                    raise
                raise JsonError(f"{member!r} in field {name!r} is not of the type {field_type}") from None
        return make(names, values)

    return lambda value: read(_of(dict, value, row_type))


def _of(expected: type, value: Json, type_info: TypeInformation) -> Json:
    if not isinstance(value, expected):
        raise JsonError(f"{value!r} is not of the type {type_info}")
    return value


def _basic_reader(type_info: TypeInformation) -> Read:
    name = str(type_info)
    readers: dict[str, Read] = {
        "String": lambda v: v if v.__class__ is str else _as_text(v),
        "Boolean": lambda v: v if v.__class__ is bool else _is_true(v),
        "Double": lambda v: v if v.__class__ is float else _double(v),
        "Float": lambda v: narrow(_double(v)),
        "DateTypeInfo": lambda v: datetime.date.fromisoformat(_text(v)),
        "TimeTypeInfo": lambda v: datetime.time.fromisoformat(_without_zone(_text(v))),
        "TimestampTypeInfo": _timestamp,
    }
    if name in _INT_LIMITS:
        return _integer_reader(name)
    if name in readers:
        return readers[name]
    parse = parser_of(type_info, "JSON")
    return lambda v: parse(_as_text(v))


def _integer_reader(name: str) -> Read:
    parse, high = parser_of(BasicTypeInfo(name), "JSON"), _INT_LIMITS[name]

    def read(value: Json) -> int:
        if value.__class__ is int and -high <= value < high:
            return int(value)
        if value.__class__ in (float, Decimal) and -high <= value < high:
            return int(value)
        return int(parse(_as_text(value)))

    return read


def _double(value: Json) -> float:
    if value.__class__ in (float, int, Decimal):
        return float(value)
    return parse_double(_as_text(value))


def _is_true(value: Json) -> bool:
    return isinstance(value, str) and value.strip().lower() == "true"


def _as_text(value: Json) -> str:
    """Return a value as JSON text; a string unchanged."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float):
        return Types.DOUBLE().format(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _without_zone(text: str) -> str:
    if not text.endswith("Z"):
        raise ValueError(text)
    return text[:-1]


def _timestamp(value: Json) -> datetime.datetime:
    text = _without_zone(_text(value))
    if "T" not in text:
        raise ValueError(text)
    return datetime.datetime.fromisoformat(text)


# --- writing


def writer_of(type_info: TypeInformation) -> Write:
    """Return the function that converts a value to JSON text."""
    write = _plain_writer(type_info)
    return lambda value: "null" if value is None else write(value)


def _plain_writer(type_info: TypeInformation) -> Write:
    if isinstance(type_info, RowTypeInfo):
        return _row_writer(type_info)
    if type_info == _BYTES:
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    if isinstance(type_info, _ARRAYS):
        element = writer_of(type_info.get_element_type())
        return lambda values: f"[{','.join(map(element, values))}]"
    if isinstance(type_info, MapTypeInfo):
        write_value = writer_of(type_info.value_type)
        return lambda value: (
            f"{{{','.join(f'{encode_basestring(str(k))}:{write_value(v)}' for k, v in value.items())}}}"
        )
    if isinstance(type_info, PickledBytesTypeInfo):
        return lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _basic_writer(type_info)


def _row_writer(row_type: RowTypeInfo) -> Write:
    keys = [f"{encode_basestring(name)}:" for name in row_type.get_field_names()]
    fields = list(zip(keys, map(writer_of, row_type.get_field_types()), strict=True))

    def write(row: Value) -> str:
        inner = ",".join([key + field(value) for (key, field), value in zip(fields, row, strict=True)])
        return f"{{{inner}}}"

    return write


def _basic_writer(type_info: TypeInformation) -> Write:
    name = str(type_info)
    if name in ("String", "Char"):
        return encode_basestring
    if name in ("DateTypeInfo", "Instant"):
        return lambda value: f'"{value}"'
    if name == "TimeTypeInfo":
        return lambda value: f'"{value.isoformat()}Z"'
    if name == "TimestampTypeInfo":
        return lambda value: f'"{value.isoformat()}Z"'
    return type_info.format
