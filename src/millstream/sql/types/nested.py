"""SQL data types with parts: arrays, multisets, maps, rows, RAW and user-defined types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

from millstream.common.aliases import Value
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.unsupported import JAVA, missing_function
from millstream.sql.types.atomic import INSIDE, DataType


class _OfElements(DataType):
    """A type with an element type."""

    def __init__(self, element_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        if not isinstance(element_type, DataType):
            raise TypeError(f"The element type of {self.root} should be a DataType, not {element_type!r}.")
        self.element_type = element_type

    def parameters(self) -> tuple[object, ...]:
        return (self.element_type,)

    @property
    def text(self) -> str:
        return f"{self.root}<{self.element_type}>"


class ArrayType(_OfElements):
    """Array."""

    root = "ARRAY"

    def type_information(self) -> TypeInformation:
        return Types.LIST(self.element_type.type_information())


class MultisetType(_OfElements):
    """Multiset: elements with their counts."""

    root = "MULTISET"


class ListViewType(_OfElements):
    """A list in an accumulator that is stored as state of its own."""

    root = "LIST_VIEW"

    def __init__(self, element_type: DataType) -> None:
        super().__init__(element_type)


class _OfPairs(DataType):
    """A type with key and value types."""

    def __init__(self, key_type: DataType, value_type: DataType, nullable: bool = True) -> None:
        super().__init__(nullable)
        for label, kind in (("key", key_type), ("value", value_type)):
            if not isinstance(kind, DataType):
                raise TypeError(f"The {label} type of {self.root} should be a DataType, not {kind!r}.")
        self.key_type = key_type
        self.value_type = value_type

    def parameters(self) -> tuple[object, ...]:
        return self.key_type, self.value_type

    @property
    def text(self) -> str:
        return f"{self.root}<{self.key_type}, {self.value_type}>"


class MapType(_OfPairs):
    """Map."""

    root = "MAP"

    def type_information(self) -> TypeInformation:
        return Types.MAP(self.key_type.type_information(), self.value_type.type_information())


class MapViewType(_OfPairs):
    """A map in an accumulator that is stored as state of its own."""

    root = "MAP_VIEW"

    def __init__(self, key_type: DataType, value_type: DataType) -> None:
        super().__init__(key_type, value_type)


class RowField:
    """A field of a row."""

    need_conversion = missing_function("need_conversion", INSIDE)
    to_sql_type = missing_function("to_sql_type", INSIDE)
    from_sql_type = missing_function("from_sql_type", INSIDE)

    def __init__(self, name: str, data_type: DataType, description: str | None = None) -> None:
        if not isinstance(data_type, DataType):
            raise TypeError(f"The type of field {name!r} should be a DataType, not {data_type!r}.")
        if not isinstance(name, str):
            raise TypeError(f"The name of a field should be a str, not {name!r}.")
        self.name = name
        self.data_type = data_type
        self.description = description

    def __str__(self) -> str:
        comment = "" if self.description is None else f" {quoted(self.description)}"
        return f"`{self.name.replace('`', '``')}` {self.data_type}{comment}"

    def __repr__(self) -> str:
        return f"RowField({self.name}, {self.data_type!r}, {self.description or '...'})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowField) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[object, ...]:
        return self.name, self.data_type, self.description


class RowType(DataType):
    """Row with named fields.

    Example:
        >>> from millstream.sql.types.atomic import IntType, VarCharType
        >>> str(RowType().add("a", IntType()).add("b", VarCharType(5)))
        'ROW<`a` INT, `b` VARCHAR(5)>'
    """

    root = "ROW"

    def __init__(self, fields: list[RowField] | None = None, nullable: bool = True) -> None:
        super().__init__(nullable)
        self.fields = list(fields or [])
        if not all(isinstance(f, RowField) for f in self.fields):
            raise TypeError("fields should be a list of RowField")

    @property
    def names(self) -> list[str]:
        """The names of its fields."""
        return [f.name for f in self.fields]

    def add(self, field: RowField | str, data_type: DataType | None = None) -> RowType:
        """Add a field; return the row type itself."""
        if isinstance(field, RowField):
            self.fields.append(field)
        elif data_type is None:
            raise ValueError("Must specify DataType if passing name of row_field to create.")
        else:
            self.fields.append(RowField(field, data_type))
        return self

    def field_names(self) -> list[str]:
        """Return the names of its fields."""
        return self.names

    def field_types(self) -> list[DataType]:
        """Return the types of its fields."""
        return [f.data_type for f in self.fields]

    def parameters(self) -> tuple[object, ...]:
        return tuple(self.fields)

    def type_information(self) -> TypeInformation:
        return Types.ROW_NAMED(self.names, [f.data_type.type_information() for f in self.fields])

    @property
    def text(self) -> str:
        return f"ROW<{', '.join(map(str, self.fields))}>"

    def __iter__(self) -> Iterator[RowField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @overload
    def __getitem__(self, key: str | int) -> RowField: ...
    @overload
    def __getitem__(self, key: slice) -> RowType: ...
    def __getitem__(self, key: str | int | slice) -> RowField | RowType:
        if isinstance(key, slice):
            return RowType(self.fields[key])
        if isinstance(key, int):
            try:
                return self.fields[key]
            except IndexError:
                raise IndexError("RowType index out of range") from None
        if not isinstance(key, str):
            raise TypeError("RowType keys should be strings, integers or slices")
        for field in self.fields:
            if field.name == key:
                return field
        raise KeyError(f"No RowField named {key}")

    def __repr__(self) -> str:
        return f"RowType({','.join(map(repr, self.fields))})"


class RawType(DataType):
    """An arbitrary Python value, opaque to built-in functions."""

    root = "RAW"


class UserDefinedType(DataType):
    """A user-defined type over an SQL type."""

    @classmethod
    def type_name(cls) -> str:
        return cls.__name__.lower()

    @classmethod
    def sql_type(cls) -> DataType:
        """Return the underlying SQL type."""
        raise NotImplementedError("UDT must implement sql_type().")

    @classmethod
    def module(cls) -> str:
        """Return the module of the class."""
        raise NotImplementedError("UDT must implement module().")

    java_udt = missing_function("java_udt", JAVA)

    def serialize(self, obj: Value) -> Value:
        """Convert an object to a value of the underlying type."""
        raise NotImplementedError("UDT must implement serialize().")

    def deserialize(self, datum: Value) -> Value:
        """Convert a value of the underlying type to an object."""
        raise NotImplementedError("UDT must implement deserialize().")


def quoted(text: str) -> str:
    """Return text as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
