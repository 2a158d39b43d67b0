"""Types of streams as types of tables, and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.typeinfo import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.common.types import Row
from millstream.sql import types as t
from millstream.sql.bind.insert import mismatch
from millstream.sql.catalog.tables import TableColumn
from millstream.sql.schema import Fields

_BASIC: list[tuple[TypeInformation, t.DataType]] = [
    (Types.STRING(), t.DataTypes.STRING()),
    (Types.BOOLEAN(), t.DataTypes.BOOLEAN()),
    (Types.BYTE(), t.DataTypes.TINYINT()),
    (Types.SHORT(), t.DataTypes.SMALLINT()),
    (Types.INT(), t.DataTypes.INT()),
    (Types.LONG(), t.DataTypes.BIGINT()),
    (Types.FLOAT(), t.DataTypes.FLOAT()),
    (Types.DOUBLE(), t.DataTypes.DOUBLE()),
    (Types.CHAR(), t.DataTypes.CHAR(1)),
    (Types.BIG_INT(), t.DataTypes.DECIMAL(38, 0)),
    (Types.BIG_DEC(), t.DataTypes.DECIMAL(38, 18)),
    (Types.SQL_DATE(), t.DataTypes.DATE()),
    (Types.SQL_TIME(), t.DataTypes.TIME()),
    (Types.SQL_TIMESTAMP(), t.DataTypes.TIMESTAMP(9)),
    (Types.INSTANT(), t.DataTypes.TIMESTAMP_LTZ(9)),
]


def row_fields(kind: TypeInformation) -> list[tuple[str, TypeInformation]] | None:
    """Return the fields of a row or tuple type; None for a type without fields."""
    if isinstance(kind, RowTypeInfo):
        return list(zip(kind.get_field_names(), kind.get_field_types(), strict=True))
    if isinstance(kind, TupleTypeInfo):
        return [(f"f{i}", k) for i, k in enumerate(kind.get_field_types())]
    return None


def data_type_of(kind: TypeInformation) -> t.DataType:
    """Return the type of a column for that of a stream's values."""
    fields = row_fields(kind)
    if fields is not None:
        return t.RowType([t.RowField(n, data_type_of(k)) for n, k in fields])
    for stream_type, table_type in _BASIC:
        if kind == stream_type:
            return table_type
    if isinstance(kind, PrimitiveArrayTypeInfo) and kind.get_element_type() == Types.BYTE():
        return t.DataTypes.BYTES()
    if isinstance(kind, (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)):
        return t.DataTypes.ARRAY(data_type_of(_element(kind)))
    if isinstance(kind, MapTypeInfo):
        return t.DataTypes.MAP(data_type_of(_part(kind, "key")), data_type_of(_part(kind, "value")))
    return t.RawType()


def _element(kind: Any) -> TypeInformation:
    found: TypeInformation = kind.get_element_type() if hasattr(kind, "get_element_type") else kind.elem_type
    return found


def _part(kind: Any, which: str) -> TypeInformation:
    found: TypeInformation = getattr(kind, f"{which}_type", None) or getattr(kind, f"_{which}_type_info")
    return found


def type_info_of(fields: Fields) -> TypeInformation:
    """Return the type of a stream of rows with these columns."""
    return Types.ROW_NAMED(fields.names, [_streamed(k) for k in fields.types])


def _streamed(kind: t.DataType) -> TypeInformation:
    try:
        return kind.type_information()
    except Exception:
        return Types.PICKLED_BYTE_ARRAY()


# Types whose values are the same whatever their length or precision.
_ALIKE: tuple[tuple[type[t.DataType], ...], ...] = ((t.CharType, t.VarCharType), (t.BinaryType, t.VarBinaryType))


def check_type_info(fields: Fields, kind: Any, method: str) -> None:
    """Refuse a type for the records of a table's stream that the table's columns do not have, as Flink does.

    Raises:
        ValidationException: there are not as many fields as columns, or a field's type is another than its column's.
    """
    if not isinstance(kind, TypeInformation):
        raise TypeError(f"{method} takes the type of its records, such as Types.ROW([Types.LONG()]), not {kind!r}.")
    asked = row_fields(kind) or [("f0", kind)]
    types = [data_type_of(k) for _, k in asked]
    if len(types) != len(fields.types):
        cause = "Different number of columns."
    else:
        wrong = [i for i, pair in enumerate(zip(fields.types, types, strict=True)) if not _is_alike(*pair)]
        if not wrong:
            return
        cause = f"Incompatible types for sink column '{asked[wrong[0]][0]}' at position {wrong[0] + 1}."
    target = [TableColumn(n, k) for (n, _), k in zip(asked, types, strict=True)]
    raise mismatch(cause, fields, target, [method])


def _is_alike(column: t.DataType, asked: t.DataType) -> bool:
    if isinstance(asked, t.RawType):
        return not isinstance(column, t.AtomicType) or isinstance(column, t.RawType)
    return type(column) is type(asked) or any(isinstance(column, a) and isinstance(asked, a) for a in _ALIKE)


def record_maker(kind: TypeInformation) -> Callable[[Row], Any]:
    """Return what makes a record of a type of a table's row: a Row with that type's names, a tuple, or one value."""
    if isinstance(kind, TupleTypeInfo):
        return tuple
    if isinstance(kind, RowTypeInfo):
        names = tuple(kind.get_field_names())
        return lambda row: Row.of(names, list(row))
    return lambda row: row[0]
