"""The types of values that contain others of one type: lists, arrays and dicts."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.common.aliases import Value
from millstream.common.coercion import Converter, type_mismatch
from millstream.common.java_text import as_hash_map
from millstream.common.scalar_types import BasicTypeInfo, TypeInformation, check_type


class _ElementTypeInfo(TypeInformation):
    """A sequence of elements of one type."""

    def __init__(self, element_type: TypeInformation) -> None:
        check_type(element_type, type(self).__name__)
        self._element_type = element_type

    def get_element_type(self) -> TypeInformation:
        """Return the type of the elements.

        Example:
            >>> from millstream.common import Types
            >>> Types.LIST(Types.INT()).get_element_type()
            Integer
        """
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
    """The type of lists, created by `Types.LIST()`."""


class BasicArrayTypeInfo(_ElementTypeInfo):
    """The type of arrays of nullable basic values, created by `Types.BASIC_ARRAY()`."""


class ObjectArrayTypeInfo(_ElementTypeInfo):
    """The type of arrays of objects, created by `Types.OBJECT_ARRAY()`."""


class PrimitiveArrayTypeInfo(_ElementTypeInfo):
    """The type of arrays of primitive values, created by `Types.PRIMITIVE_ARRAY()`; `bytes` for bytes."""

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
    """The type of dicts, created by `Types.MAP()`."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        check_type(key_type_info, "The keys of Types.MAP")
        check_type(value_type_info, "The values of Types.MAP")
        self._key_type = key_type_info
        self._value_type = value_type_info

    @property
    def key_type(self) -> TypeInformation:
        """The type of the keys.

        Example:
            >>> from millstream.common import Types
            >>> Types.MAP(Types.STRING(), Types.INT()).key_type
            String
        """
        return self._key_type

    @property
    def value_type(self) -> TypeInformation:
        """The type of the values.

        Example:
            >>> from millstream.common import Types
            >>> Types.MAP(Types.STRING(), Types.INT()).value_type
            Integer
        """
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
