"""How Kafka's records are read: whole ones, their values alone, many at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.common.serialization import DeserializationSchema
from millstream.common.typeinfo import TypeInformation

__all__ = ["KafkaBatchDeserializationSchema", "KafkaRecord", "KafkaRecordDeserializationSchema"]


@dataclass(frozen=True)
class KafkaRecord:
    """A record as Kafka has it.

    Attributes:
        headers: names and values, in order.
        timestamp: in milliseconds.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class KafkaRecordDeserializationSchema(ABC):
    """Makes a value of a whole record: its key, its headers, where it stands."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Any:
        """Return the value; None leaves the record out."""

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the values, None for any."""
        return None

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Return what reads values and leaves the rest of records alone."""
        return _ValueOnly(deserialization_schema)


class KafkaBatchDeserializationSchema(ABC):
    """Makes one record of many messages: what SQL reads."""

    @abstractmethod
    def deserialize(self, messages: Sequence[Any]) -> Any:
        """Return the record of messages of the client library; of one that was made for the same offsets, the same."""


class _ValueOnly(KafkaRecordDeserializationSchema):
    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    def deserialize(self, record: KafkaRecord) -> Any:
        return None if record.value is None else self._schema.deserialize(record.value)

    def get_produced_type(self) -> TypeInformation | None:
        return self._schema.get_produced_type()
