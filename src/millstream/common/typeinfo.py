"""Types of stream elements: coercion of values to them, and their text form.

A stream without a declared type carries Python objects as they are. A declared type is enforced where a value is
encoded: floats narrow as between Flink's operators, and a value that does not fit raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from millstream.common.aliases import Value
from millstream.common.coercion import Converter, type_mismatch
from millstream.common.errors import TypeMismatchError
from millstream.common.inferred_types import Fixed, InferredType
from millstream.common.java_text import as_hash_map
from millstream.common.scalar_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    InstantTypeInfo,
    LocalTimeTypeInfo,
    PickledBytesTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
    check_type,
)
from millstream.common.types import Row, RowKind, field_names

__all__ = [
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "DateTypeInfo",
    "ExternalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "LocalTimeTypeInfo",
    "MapTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "RowTypeInfo",
    "SqlTimeTypeInfo",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
]


class _ElementTypeInfo(TypeInformation):
    """A sequence of elements of one type."""

    def __init__(self, element_type: TypeInformation) -> None:
        check_type(element_type, type(self).__name__)
        self._element_type = element_type

    def get_element_type(self) -> TypeInformation:
        return self._element_type

    @property
    def copies(self) -> bool:
        return self._element_type.copies

    def converter(self) -> Converter | None:
        element = self._element_type.converter()
        name = str(self)

        def convert(value: Value) -> Value:
            if value is None:
                return None
            if isinstance(value, (str, dict)) or not isinstance(value, Iterable):
                raise type_mismatch(value, name)
            return list(value) if element is None else [element(v) for v in value]

        return convert

    def format(self, value: Value) -> str:
        if value is None:
            return "null"
        return f"[{', '.join(map(self._element_type.format, value))}]"

    def _identity(self) -> tuple[object, ...]:
        return (self._element_type,)

    def named(self) -> TypeInformation:
        return type(self)(self._element_type.named())

    def __str__(self) -> str:
        return f"{type(self).__name__}<{self._element_type}>"


class ListTypeInfo(_ElementTypeInfo):
    """A list."""


class BasicArrayTypeInfo(_ElementTypeInfo):
    """An array of boxed values."""


class ObjectArrayTypeInfo(_ElementTypeInfo):
    """An array of objects."""


class PrimitiveArrayTypeInfo(_ElementTypeInfo):
    """An array of primitive values; `bytes` for bytes."""

    def converter(self) -> Converter | None:
        if self._element_type != BasicTypeInfo("Byte"):
            return super().converter()

        def convert(value: Value) -> Value:
            if value is None or isinstance(value, bytes):
                return value
            if isinstance(value, (bytearray, memoryview)):
                return bytes(value)
            try:
                # Java's bytes are signed.
                return bytes(v + 256 if -128 <= v < 0 else v for v in value)
            except (TypeError, ValueError):
                raise type_mismatch(value, str(self)) from None

        return convert


class MapTypeInfo(TypeInformation):
    """A dict."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        check_type(key_type_info, "The keys of Types.MAP")
        check_type(value_type_info, "The values of Types.MAP")
        self._key_type = key_type_info
        self._value_type = value_type_info

    @property
    def key_type(self) -> TypeInformation:
        """Return the type of the keys."""
        return self._key_type

    @property
    def value_type(self) -> TypeInformation:
        """Return the type of the values."""
        return self._value_type

    @property
    def copies(self) -> bool:
        return self._key_type.copies and self._value_type.copies

    def converter(self) -> Converter | None:
        key = self._key_type.converter() or (lambda v: v)
        val = self._value_type.converter() or (lambda v: v)
        name = str(self)

        def convert(value: Value) -> Value:
            if value is None:
                return None
            if not isinstance(value, dict):
                raise type_mismatch(value, name)
            return {key(k): val(v) for k, v in value.items()}

        return convert

    def format(self, value: Value) -> str:
        if value is None:
            return "null"
        key, val = self._key_type.format, self._value_type.format
        items = as_hash_map(value.items(), str(self._key_type))
        return "{" + ", ".join(f"{key(k)}={val(v)}" for k, v in items) + "}"

    def _identity(self) -> tuple[object, ...]:
        return (self._key_type, self._value_type)

    def named(self) -> MapTypeInfo:
        return MapTypeInfo(self._key_type.named(), self._value_type.named())

    def __str__(self) -> str:
        return f"MapTypeInfo<{self._key_type}, {self._value_type}>"


class _FieldsTypeInfo(TypeInformation):
    """A record with typed fields."""

    _field_types: list[TypeInformation]

    def get_field_types(self) -> list[TypeInformation]:
        return list(self._field_types)

    def has_field(self, field: int | str) -> bool:
        return isinstance(field, int) and 0 <= field < len(self._field_types)

    def need_conversion(self) -> bool:
        return True

    def _plain(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(t.to_internal_type(v) for t, v in zip(self._field_types, values, strict=True))

    def _real(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(t.from_internal_type(v) for t, v in zip(self._field_types, values, strict=True))

    @property
    def copies(self) -> bool:
        return all(t.copies for t in self._field_types)

    def _field_converter(self, names: tuple[str, ...] | None) -> Callable[[Value], list[Value]]:
        """Return a function that converts a record to the list of its converted fields."""
        converters = [(i, c) for i, t in enumerate(self._field_types) if (c := t.converter()) is not None]
        width, described = len(self._field_types), str(self)

        def convert(value: Value) -> list[Value]:
            if isinstance(value, dict) and names is not None:
                if unknown := [k for k in value if k not in names]:
                    raise TypeMismatchError(f"{described} has no field {unknown[0]!r}; the value was {value!r}")
                values = [value.get(n) for n in names]
            elif isinstance(value, Row) and names is not None:
                values = _in_order(value, names, described)
            elif isinstance(value, (tuple, list, Row)):
                values = list(value)
            else:
                raise type_mismatch(value, described)
            if len(values) != width:
                raise type_mismatch(value, described)
            for i, c in converters:
                values[i] = c(values[i])
            return values

        return convert


def _in_order(row: Row, names: tuple[str, ...], described: str) -> list[Value]:
    """Return the values of a row in the order of a type's fields: by name if the row has names, else by position."""
    own = field_names(row)
    if own is None or own == names:
        return list(row)
    if unknown := [n for n in names if n not in own]:
        raise TypeMismatchError(
            f"the value {row!r} (Row) does not fit the type {described}: it has no field {unknown[0]!r}. Named rows "
            "are matched by name: use the type's names, or none"
        )
    return [row[n] for n in names] if len(own) == len(names) else list(row)


class RowTypeInfo(_FieldsTypeInfo):
    """A Row with typed, named fields."""

    def __init__(self, field_types: list[TypeInformation], field_names: list[str] | None = None) -> None:
        names = [f"f{i}" for i in range(len(field_types))] if field_names is None else list(field_names)
        if len(names) != len(field_types):
            raise ValueError(f"{len(names)} field names do not fit {len(field_types)} field types.")
        for name, field_type in zip(names, field_types, strict=True):
            check_type(field_type, f"Field {name} of a row")
        self._field_types = list(field_types)
        self._field_names = names
        self._named = field_names is not None

    def get_field_names(self) -> list[str]:
        """Return the names of the fields."""
        return list(self._field_names)

    def get_field_index(self, field_name: str) -> int:
        """Return the index of a field, -1 if there is none."""
        return self._field_names.index(field_name) if field_name in self._field_names else -1

    def to_internal_type(self, obj: Value) -> Value:
        """Return the number of the row kind, then the fields."""
        if obj is None:
            return None
        kind = obj.get_row_kind().value if isinstance(obj, Row) else 0
        values = [obj.get(n) for n in self._field_names] if isinstance(obj, dict) else obj
        return (kind, *self._plain(values))

    def from_internal_type(self, obj: Value) -> Value:
        if obj is None:
            return None
        kind, *values = obj
        return Row.of(tuple(self._field_names), list(self._real(values)), RowKind(kind))

    def has_field(self, field: int | str) -> bool:
        return field in self._field_names or super().has_field(field)

    def converter(self) -> Converter | None:
        names = tuple(self._field_names)
        fields = self._field_converter(names)
        make = Row.of

        def convert(value: Value) -> Value:
            if value is None:
                return None
            if isinstance(value, Row):
                return make(names, fields(value), value.get_row_kind())
            return make(names, fields(value))

        return convert

    def format(self, value: Value) -> str:
        if value is None:
            return "null"
        inner = ", ".join(t.format(v) for t, v in zip(self._field_types, value, strict=True))
        kind = value.get_row_kind() if isinstance(value, Row) else "+I"
        return f"{kind}[{inner}]"

    def python_text(self) -> Callable[[Value], str]:
        """Return a function that formats a row as PyFlink's print() does, with Python's text of each value."""
        convert = self.converter()
        assert convert is not None
        names = tuple(self._field_names)

        def written(value: Value) -> str:
            if value is None:
                return "null"
            # Unchanged, unless it must be converted to a row of these fields.
            row = value if isinstance(value, Row) and field_names(value) in (None, names) else convert(value)
            return f"{row.get_row_kind()}[{','.join(map(str, row))}]"

        return written

    def _identity(self) -> tuple[object, ...]:
        return (tuple(self._field_types), tuple(self._field_names))

    def named(self) -> RowTypeInfo:
        return RowTypeInfo([t.named() for t in self._field_types], self._field_names)

    def __str__(self) -> str:
        if not self._named:
            return f"RowTypeInfo({', '.join(map(str, self._field_types))})"
        fields = zip(self._field_names, self._field_types, strict=True)
        return f"RowTypeInfo({', '.join(f'{n}: {t}' for n, t in fields)})"


class TupleTypeInfo(_FieldsTypeInfo):
    """A tuple with typed fields."""

    def __init__(self, field_types: list[TypeInformation]) -> None:
        for i, field_type in enumerate(field_types):
            check_type(field_type, f"Field {i} of a tuple")
        self._field_types = list(field_types)

    def to_internal_type(self, obj: Value) -> Value:
        return None if obj is None else self._plain(obj)

    def from_internal_type(self, obj: Value) -> Value:
        return None if obj is None else self._real(obj)

    def converter(self) -> Converter | None:
        fields = self._field_converter(None)
        return lambda value: None if value is None else tuple(fields(value))

    def inferred_type(self) -> InferredType | None:
        members = [t.inferred_type() for t in self._field_types]
        return None if None in members else Fixed(tuple(m for m in members if m is not None), null=True)

    def format(self, value: Value) -> str:
        if value is None:
            return "null"
        return f"({','.join(t.format(v) for t, v in zip(self._field_types, value, strict=True))})"

    def _identity(self) -> tuple[object, ...]:
        return (tuple(self._field_types),)

    def named(self) -> TupleTypeInfo:
        return TupleTypeInfo([t.named() for t in self._field_types])

    def __str__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(str, self._field_types))})"


class Types:
    """Factory methods of types.

    Example:
        >>> Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.INT()])
        RowTypeInfo(word: String, count: Integer)
    """

    @staticmethod
    def STRING() -> TypeInformation:
        """A string."""
        return BasicTypeInfo("String")

    @staticmethod
    def BYTE() -> TypeInformation:
        """An 8-bit integer."""
        return BasicTypeInfo("Byte")

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """A boolean."""
        return BasicTypeInfo("Boolean")

    @staticmethod
    def SHORT() -> TypeInformation:
        """A 16-bit integer."""
        return BasicTypeInfo("Short")

    @staticmethod
    def INT() -> TypeInformation:
        """A 32-bit integer."""
        return BasicTypeInfo("Integer")

    @staticmethod
    def LONG() -> TypeInformation:
        """A 64-bit integer."""
        return BasicTypeInfo("Long")

    @staticmethod
    def FLOAT() -> TypeInformation:
        """A 32-bit floating-point number."""
        return BasicTypeInfo("Float")

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """A 64-bit floating-point number."""
        return BasicTypeInfo("Double")

    @staticmethod
    def CHAR() -> TypeInformation:
        """A string of one character."""
        return BasicTypeInfo("Char")

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """An integer of any size."""
        return BasicTypeInfo("BigInteger")

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """A `decimal.Decimal`."""
        return BasicTypeInfo("BigDecimal")

    @staticmethod
    def INSTANT() -> TypeInformation:
        """An `Instant`."""
        return InstantTypeInfo(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """A `datetime.date`."""
        return SqlTimeTypeInfo.DATE()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """A `datetime.time`."""
        return SqlTimeTypeInfo.TIME()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """A `datetime.datetime`."""
        return SqlTimeTypeInfo.TIMESTAMP()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any Python object: the type of undeclared streams."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: list[TypeInformation]) -> RowTypeInfo:
        """A Row with fields `f0`, `f1`, ..."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: list[str], field_types: list[TypeInformation]) -> RowTypeInfo:
        """A Row with named fields."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: list[TypeInformation]) -> TupleTypeInfo:
        """A tuple."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> PrimitiveArrayTypeInfo:
        """An array of numbers or booleans; `bytes` for BYTE."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> BasicArrayTypeInfo:
        """An array of nullable basic values."""
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> ObjectArrayTypeInfo:
        """An array of values of any type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> ListTypeInfo:
        """A list."""
        return ListTypeInfo(element_type_info)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> MapTypeInfo:
        """A dict."""
        return MapTypeInfo(key_type_info, value_type_info)


class _DataType(Protocol):
    """A type of the Table API, which lies above this package."""

    def type_information(self) -> TypeInformation: ...


def as_type_information(type_info: TypeInformation | _DataType) -> TypeInformation:
    """Return the stream type of a type of Types or DataTypes."""
    return type_info if isinstance(type_info, TypeInformation) else type_info.type_information()
