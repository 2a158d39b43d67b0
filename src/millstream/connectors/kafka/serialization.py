"""How records become Kafka's: topic, key and value; many at once where one record is many rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation

__all__ = [
    "KafkaBatchDeserializationSchema",
    "KafkaBatchSerializationSchema",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaTopicSelector",
    "Produced",
    "SinkPlace",
]


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


class KafkaTopicSelector(ABC):
    """Chooses the topic of a record."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """Return the topic."""


@dataclass(frozen=True)
class KafkaRecordSerializationSchema:
    """How a record becomes Kafka's: its topic, its key and its value."""

    topic: str | None
    selector: Callable[[Any], str] | None
    key: SerializationSchema | None
    value: SerializationSchema

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Begin a schema."""
        return KafkaRecordSerializationSchemaBuilder()


class KafkaRecordSerializationSchemaBuilder:
    """Builds a KafkaRecordSerializationSchema."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Any], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema; refuses one without topic or value."""
        if self._topic is None and self._selector is None:
            raise InvalidProgramError(
                "KafkaRecordSerializationSchema: say which topic with set_topic(...) or set_topic_selector(...)."
            )
        if self._value is None:
            raise InvalidProgramError(
                "KafkaRecordSerializationSchema: say how values are written with set_value_serialization_schema(...)."
            )
        return KafkaRecordSerializationSchema(self._topic, self._selector, self._key, self._value)

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write all records to one topic."""
        if self._selector is not None:
            raise InvalidProgramError("KafkaRecordSerializationSchema: give a topic or a selector, not both.")
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record."""
        if self._topic is not None:
            raise InvalidProgramError("KafkaRecordSerializationSchema: give a topic or a selector, not both.")
        is_object = isinstance(topic_selector, KafkaTopicSelector)
        self._selector = topic_selector.apply if is_object else topic_selector  # type: ignore[union-attr, assignment]
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Say how keys are written; without it there are none."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Say how values are written."""
        self._value = value_serialization_schema
        return self


class Produced(NamedTuple):
    """A message to be written; a partition of -1 is the client's to choose, without a timestamp it is now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int = -1
    timestamp: int | None = None
    headers: list[tuple[str, bytes | None]] | None = None


@dataclass(frozen=True)
class SinkPlace:
    """Where a writer is.

    Attributes:
        subtask: its number.
        partitions: returns the partitions of a topic, which the cluster is asked for once.
    """

    subtask: int
    partitions: Callable[[str], list[int]]


class KafkaBatchSerializationSchema(ABC):
    """Makes many messages of one record: what SQL writes."""

    # The topic that is written to, None where rows say it.
    topic: str | None = None

    @abstractmethod
    def serialize(self, batch: Any, place: SinkPlace) -> Iterable[Produced]:
        """Return the messages of a record, in order."""

    def flush(self, place: SinkPlace) -> Iterable[Produced]:
        """Return what was held back; asked at the end of each epoch."""
        return ()

    def forget(self) -> None:
        """Forget what is held back: the epoch did not get to its end."""
