"""Types of stream elements: coercion of values to them, and their text form.

A stream without a declared type carries Python objects as they are. A declared type is enforced where a value is
encoded: floats narrow as between Flink's operators, and a value that does not fit raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from millstream.common.aliases import Value
from millstream.common.coercion import Converter, type_mismatch
from millstream.common.collection_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
)
from millstream.common.errors import TypeMismatchError
from millstream.common.inferred_types import Fixed, InferredType
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


class _FieldsTypeInfo(TypeInformation):
    """A record with typed fields."""

    _field_types: list[TypeInformation]

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the fields.

        Example:
            >>> Types.TUPLE([Types.STRING(), Types.INT()]).get_field_types()
            [String, Integer]
        """
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
    """The type of rows with typed, named fields, created by `Types.ROW()` and `Types.ROW_NAMED()`.

    Example:
        >>> from millstream.common import Types
        >>> person = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
        >>> list(env.from_collection([("ann", 30), {"name": "bob", "age": 25}], person).execute_and_collect())
        [Row(name='ann', age=30), Row(name='bob', age=25)]
    """

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
        """Return the names of the fields.

        Example:
            >>> Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()]).get_field_names()
            ['name', 'age']
        """
        return list(self._field_names)

    def get_field_index(self, field_name: str) -> int:
        """Return the index of a field, -1 if there is none.

        Example:
            >>> Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()]).get_field_index("age")
            1
        """
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
    """The type of tuples with typed fields, created by `Types.TUPLE()`."""

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
    """Creates the types of records, keys and state; values are coerced to a declared type, or rejected.

    Without a declared type a stream carries any Python object.

    Example:
        >>> from millstream.common import Types
        >>> word = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.INT()])
        >>> words = env.from_collection([("to", 2.0)], word)
        >>> list(words.execute_and_collect()), words.get_type()
        ([Row(word='to', count=2)], RowTypeInfo(word: String, count: Integer))
    """

    @staticmethod
    def STRING() -> TypeInformation:
        """Return the type of strings.

        Example:
            >>> list(env.from_collection(["tea"], Types.STRING()).execute_and_collect())
            ['tea']
        """
        return BasicTypeInfo("String")

    @staticmethod
    def BYTE() -> TypeInformation:
        """Return the type of 8-bit integers.

        Example:
            >>> list(env.from_collection([-128, 127], Types.BYTE()).execute_and_collect())
            [-128, 127]
        """
        return BasicTypeInfo("Byte")

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """Return the type of booleans.

        Example:
            >>> list(env.from_collection([True, False], Types.BOOLEAN()).execute_and_collect())
            [True, False]
        """
        return BasicTypeInfo("Boolean")

    @staticmethod
    def SHORT() -> TypeInformation:
        """Return the type of 16-bit integers.

        Example:
            >>> list(env.from_collection([32_767], Types.SHORT()).execute_and_collect())
            [32767]
        """
        return BasicTypeInfo("Short")

    @staticmethod
    def INT() -> TypeInformation:
        """Return the type of 32-bit integers; a float is truncated, as in PyFlink.

        Example:
            >>> list(env.from_collection([1, 2.9], Types.INT()).execute_and_collect())
            [1, 2]
        """
        return BasicTypeInfo("Integer")

    @staticmethod
    def LONG() -> TypeInformation:
        """Return the type of 64-bit integers.

        Example:
            >>> list(env.from_collection([2**63 - 1], Types.LONG()).execute_and_collect())
            [9223372036854775807]
        """
        return BasicTypeInfo("Long")

    @staticmethod
    def FLOAT() -> TypeInformation:
        """Return the type of 32-bit floating-point numbers.

        Example:
            >>> list(env.from_collection([0.1], Types.FLOAT()).execute_and_collect())
            [0.10000000149011612]
        """
        return BasicTypeInfo("Float")

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """Return the type of 64-bit floating-point numbers; an int is converted.

        Example:
            >>> list(env.from_collection([0.1, 2], Types.DOUBLE()).execute_and_collect())
            [0.1, 2.0]
        """
        return BasicTypeInfo("Double")

    @staticmethod
    def CHAR() -> TypeInformation:
        """Return the type of strings of one character.

        Example:
            >>> list(env.from_collection(["a"], Types.CHAR()).execute_and_collect())
            ['a']
        """
        return BasicTypeInfo("Char")

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """Return the type of integers of any size.

        Example:
            >>> list(env.from_collection([2**80], Types.BIG_INT()).execute_and_collect())
            [1208925819614629174706176]
        """
        return BasicTypeInfo("BigInteger")

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """Return the type of `decimal.Decimal`.

        Example:
            >>> from decimal import Decimal
            >>> list(env.from_collection([Decimal("1.10")], Types.BIG_DEC()).execute_and_collect())
            [Decimal('1.10')]
        """
        return BasicTypeInfo("BigDecimal")

    @staticmethod
    def INSTANT() -> TypeInformation:
        """Return the type of points in time, `Instant`.

        Example:
            >>> from millstream.common.time import Instant
            >>> list(env.from_collection([Instant.of_epoch_milli(1_500)], Types.INSTANT()).execute_and_collect())
            [Instant(seconds=1, nanos=500000000)]
        """
        return InstantTypeInfo(BasicType.INSTANT)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """Return the type of `datetime.date`.

        Example:
            >>> import datetime
            >>> list(env.from_collection([datetime.date(2026, 1, 31)], Types.SQL_DATE()).execute_and_collect())
            [datetime.date(2026, 1, 31)]
        """
        return SqlTimeTypeInfo.DATE()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """Return the type of `datetime.time`.

        Example:
            >>> import datetime
            >>> list(env.from_collection([datetime.time(8, 30)], Types.SQL_TIME()).execute_and_collect())
            [datetime.time(8, 30)]
        """
        return SqlTimeTypeInfo.TIME()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """Return the type of `datetime.datetime`, without a time zone.

        Example:
            >>> import datetime
            >>> times = env.from_collection([datetime.datetime(2026, 1, 31, 8, 30)], Types.SQL_TIMESTAMP())
            >>> list(times.execute_and_collect())
            [datetime.datetime(2026, 1, 31, 8, 30)]
        """
        return SqlTimeTypeInfo.TIMESTAMP()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Return the type of any Python object: that of undeclared streams.

        Example:
            >>> list(env.from_collection([{"a": [1, 2]}], Types.PICKLED_BYTE_ARRAY()).execute_and_collect())
            [{'a': [1, 2]}]
        """
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: list[TypeInformation]) -> RowTypeInfo:
        """Return the type of rows with fields `f0`, `f1`, ...

        Example:
            >>> list(env.from_collection([("tea", 3)], Types.ROW([Types.STRING(), Types.INT()])).execute_and_collect())
            [Row(f0='tea', f1=3)]
        """
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(field_names: list[str], field_types: list[TypeInformation]) -> RowTypeInfo:
        """Return the type of rows with named fields; tuples and dicts become rows.

        Example:
            >>> person = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
            >>> list(env.from_collection([("ann", 30)], person).execute_and_collect())
            [Row(name='ann', age=30)]
        """
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: list[TypeInformation]) -> TupleTypeInfo:
        """Return the type of tuples.

        Example:
            >>> sale = Types.TUPLE([Types.STRING(), Types.INT()])
            >>> list(env.from_collection([["tea", 3]], sale).execute_and_collect())
            [('tea', 3)]
        """
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> PrimitiveArrayTypeInfo:
        """Return the type of arrays of numbers or booleans; values are lists, and `bytes` for BYTE.

        Example:
            >>> list(env.from_collection([bytearray(b"ab")], Types.PRIMITIVE_ARRAY(Types.BYTE())).execute_and_collect())
            [b'ab']
        """
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> BasicArrayTypeInfo:
        """Return the type of arrays of nullable basic values; values are lists.

        Example:
            >>> list(env.from_collection([("a", None)], Types.BASIC_ARRAY(Types.STRING())).execute_and_collect())
            [['a', None]]
        """
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> ObjectArrayTypeInfo:
        """Return the type of arrays of values of any type; values are lists.

        Example:
            >>> pair = Types.TUPLE([Types.STRING(), Types.INT()])
            >>> list(env.from_collection([[("tea", 3)]], Types.OBJECT_ARRAY(pair)).execute_and_collect())
            [[('tea', 3)]]
        """
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> ListTypeInfo:
        """Return the type of lists.

        Example:
            >>> list(env.from_collection([(1, 2)], Types.LIST(Types.INT())).execute_and_collect())
            [[1, 2]]
        """
        return ListTypeInfo(element_type_info)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> MapTypeInfo:
        """Return the type of dicts.

        Example:
            >>> list(env.from_collection([{"tea": 3}], Types.MAP(Types.STRING(), Types.INT())).execute_and_collect())
            [{'tea': 3}]
        """
        return MapTypeInfo(key_type_info, value_type_info)


class _DataType(Protocol):
    """A type of the Table API, which lies above this package."""

    def type_information(self) -> TypeInformation: ...


def as_type_information(type_info: TypeInformation | _DataType) -> TypeInformation:
    """Return the stream type of a type of Types or DataTypes."""
    return type_info if isinstance(type_info, TypeInformation) else type_info.type_information()
