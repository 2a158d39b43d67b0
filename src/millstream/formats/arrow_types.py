"""Types and values of Apache Arrow, for formats that are read and written with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TypeInformation,
)
from millstream.common.types import Row

Convert = Callable[[Any], Any]

_ARRAYS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)
_BYTES = PrimitiveArrayTypeInfo(BasicTypeInfo("Byte"))
_BASIC = {
    "String": "string",
    "Char": "string",
    "Boolean": "bool",
    "Byte": "int8",
    "Short": "int16",
    "Integer": "int32",
    "Long": "int64",
    "Float": "float32",
    "Double": "float64",
    "DateTypeInfo": "date32",
}


def arrow_type(type_info: TypeInformation, what: str = "Parquet") -> Any:
    """Return the Arrow type for a type, in a format of that name."""
    import pyarrow as pa

    name = str(type_info)
    if name in _BASIC:
        return pa.type_for_alias(_BASIC[name])
    if isinstance(type_info, RowTypeInfo):
        return pa.struct(arrow_schema(type_info, what))
    if type_info == _BYTES:
        return pa.binary()
    if isinstance(type_info, _ARRAYS):
        return pa.list_(arrow_type(type_info.get_element_type(), what))
    if isinstance(type_info, MapTypeInfo):
        return pa.map_(arrow_type(type_info.key_type, what), arrow_type(type_info.value_type, what))
    others = {
        "TimeTypeInfo": pa.time64("us"),
        "TimestampTypeInfo": pa.timestamp("us"),
        "BigDecimal": pa.decimal128(38, 18),
        "BigInteger": pa.decimal128(38, 0),
    }
    if name not in others or (what == "ORC" and name == "TimeTypeInfo"):
        raise InvalidProgramError(f"{what} has no type for {type_info}: use another one for that field.")
    return others[name]


def arrow_schema(row_type: RowTypeInfo, what: str = "Parquet") -> Any:
    """Return the Arrow schema for the fields of a row, in a format of that name."""
    import pyarrow as pa

    fields = zip(row_type.get_field_names(), row_type.get_field_types(), strict=True)
    return pa.schema([pa.field(name, arrow_type(field, what)) for name, field in fields])


def from_arrow(type_info: TypeInformation) -> Convert | None:
    """Return the function from what Arrow makes of a value to our value; None: it is the same."""
    if isinstance(type_info, RowTypeInfo):
        return _row_from_arrow(type_info)
    if isinstance(type_info, _ARRAYS) and type_info != _BYTES:
        element = from_arrow(type_info.get_element_type())
        return None if element is None else lambda values: None if values is None else [element(v) for v in values]
    if isinstance(type_info, MapTypeInfo):
        held = from_arrow(type_info.value_type) or _same
        return lambda pairs: None if pairs is None else {k: held(v) for k, v in pairs}
    if str(type_info) == "BigInteger":
        return lambda value: None if value is None else int(value)
    return None


def _row_from_arrow(row_type: RowTypeInfo) -> Convert:
    names = tuple(row_type.get_field_names())
    fields = [from_arrow(field) or _same for field in row_type.get_field_types()]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return Row.of(names, [field(value[name]) for name, field in zip(names, fields, strict=True)])

    return convert


def to_arrow(type_info: TypeInformation) -> Convert | None:
    """Return the function from our value to what Arrow takes; None: it is the same."""
    if isinstance(type_info, RowTypeInfo):
        return _row_to_arrow(type_info)
    if isinstance(type_info, _ARRAYS) and type_info != _BYTES:
        element = to_arrow(type_info.get_element_type())
        return None if element is None else lambda values: None if values is None else [element(v) for v in values]
    if isinstance(type_info, MapTypeInfo):
        held = to_arrow(type_info.value_type) or _same
        return lambda value: None if value is None else [(k, held(v)) for k, v in value.items()]
    return None


def _row_to_arrow(row_type: RowTypeInfo) -> Convert:
    names = row_type.get_field_names()
    fields = [to_arrow(field) or _same for field in row_type.get_field_types()]

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return {name: field(v) for name, field, v in zip(names, fields, value, strict=True)}

    return convert


def _same(value: Any) -> Any:
    return value
