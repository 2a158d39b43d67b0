"""TypeSerializer: serialization of values to byte streams."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from typing import BinaryIO, Generic, TypeVar

from millstream.common.aliases import Value

__all__ = ["PickleSerializer", "TypeSerializer", "VoidNamespaceSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Serializes values of one type; equal if class and attributes are."""

    @abstractmethod
    def serialize(self, element: T, stream: BinaryIO) -> None:
        """Write a value to a byte stream."""

    @abstractmethod
    def deserialize(self, stream: BinaryIO) -> T:
        """Read a value from a byte stream."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return type(self).__name__


class VoidNamespaceSerializer(TypeSerializer[None]):
    """Serializes None as one byte."""

    def serialize(self, element: None, stream: BinaryIO) -> None:
        stream.write(b"\0")

    def deserialize(self, stream: BinaryIO) -> None:
        stream.read(1)


class PickleSerializer(TypeSerializer[Value]):
    """Serializes any value as a pickle."""

    def serialize(self, element: Value, stream: BinaryIO) -> None:
        pickle.dump(element, stream, 5)

    def deserialize(self, stream: BinaryIO) -> Value:
        return pickle.load(stream)
