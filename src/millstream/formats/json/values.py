"""Values of declared types in JSON: what Flink's JSON schemas take and write for each."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

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
from millstream.formats.text_values import narrow, parser_of

Read = Callable[[Any], Any]
Write = Callable[[Any], str]

_ARRAYS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)
_BYTES = PrimitiveArrayTypeInfo(BasicTypeInfo("Byte"))
_INT_LIMITS = {"Integer": 1 << 31, "Long": 1 << 63}


class JsonError(ValueError):
    """A value that does not fit its type."""


def reader_of(type_info: TypeInformation, needs_all: bool, lenient: bool) -> Read:
    """Return the function from parsed JSON to a value.

    Args:
        needs_all: whether a field that is missing is an error; else it is None.
        lenient: whether what does not fit is None; else it is an error.
    """
    read = _plain_reader(type_info, needs_all, lenient)

    def nullable(value: Any) -> Any:
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
        held = reader_of(type_info.value_type, needs_all, lenient)
        return lambda value: {k: held(v) for k, v in _of(dict, value, type_info).items()}
    if isinstance(type_info, PickledBytesTypeInfo):
        return lambda value: value
    return _basic_reader(type_info)


def _row_reader(row_type: RowTypeInfo, needs_all: bool, lenient: bool) -> Read:
    names = tuple(row_type.get_field_names())
    types = row_type.get_field_types()
    fields = [(n, t, reader_of(t, needs_all, lenient)) for n, t in zip(names, types, strict=True)]
    make = Row.of

    def read(value: Any) -> Row:
        values: list[Any] = []
        for name, field_type, field in fields:
            found = value.get(name)
            if found is None:
                if needs_all and name not in value and not lenient:
                    raise JsonError(f"there is no field {name!r}")
                values.append(None)
                continue
            try:
                values.append(field(found))
            except ValueError as e:
                if lenient:
                    values.append(None)
                    continue
                if isinstance(e, JsonError):
                    raise
                raise JsonError(f"{found!r} in field {name!r} is not of the type {field_type}") from None
        return make(names, values)

    return lambda value: read(_of(dict, value, row_type))


def _of(wanted: type, value: Any, type_info: TypeInformation) -> Any:
    if not isinstance(value, wanted):
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

    def read(value: Any) -> int:
        if value.__class__ is int and -high <= value < high:
            return int(value)
        if value.__class__ in (float, Decimal) and -high <= value < high:
            return int(value)
        return int(parse(_as_text(value)))

    return read


def _double(value: Any) -> float:
    if value.__class__ in (float, int, Decimal):
        return float(value)
    return float(_parse_double(_as_text(value)))


_parse_double = parser_of(Types.DOUBLE(), "JSON")


def _is_true(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lower() == "true"


def _as_text(value: Any) -> str:
    """Return a value as the text it has in JSON; a string as it is."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float):
        return Types.DOUBLE().format(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


def _without_zone(text: str) -> str:
    if not text.endswith("Z"):
        raise ValueError(text)
    return text[:-1]


def _timestamp(value: Any) -> datetime.datetime:
    text = _without_zone(_text(value))
    if "T" not in text:
        raise ValueError(text)
    return datetime.datetime.fromisoformat(text)


# --- writing


def writer_of(type_info: TypeInformation) -> Write:
    """Return the function from a value to its JSON."""
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
        held = writer_of(type_info.value_type)
        return lambda value: f"{{{','.join(f'{encode_basestring(str(k))}:{held(v)}' for k, v in value.items())}}}"
    if isinstance(type_info, PickledBytesTypeInfo):
        return lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _basic_writer(type_info)


def _row_writer(row_type: RowTypeInfo) -> Write:
    keys = [f"{encode_basestring(name)}:" for name in row_type.get_field_names()]
    fields = list(zip(keys, map(writer_of, row_type.get_field_types()), strict=True))

    def write(row: Any) -> str:
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
