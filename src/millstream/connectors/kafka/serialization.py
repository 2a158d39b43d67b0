"""Serialization schemas of KafkaSource and KafkaSink."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.kafka.client import Message

if TYPE_CHECKING:
    from millstream.sql.columns.batch import Batch

__all__ = [
    "KafkaBatchDeserializationSchema",
    "KafkaBatchSerializationSchema",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaTopicSelector",
    "Produced",
    "WriterContext",
]


@dataclass(frozen=True)
class KafkaRecord:
    """Holds a Kafka record with its metadata.

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
    """Deserializes a record with its key, headers and position.

    Example:
        >>> class WithOffset(KafkaRecordDeserializationSchema):
        ...     def deserialize(self, record): return record.offset, record.value.decode()
        >>> WithOffset().deserialize(KafkaRecord("words", 0, 7, 0, None, b"to", ()))
        (7, 'to')
    """

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Value:
        """Return the value, or None to skip the record."""

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of the values, None for any."""
        return None

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema) -> KafkaRecordDeserializationSchema:
        """Return a schema that reads only values.

        Example:
            >>> from millstream.common.serialization import SimpleStringSchema
            >>> schema = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema())
            >>> schema.deserialize(KafkaRecord("words", 0, 7, 0, None, b"to", ()))
            'to'
        """
        return _ValueOnly(deserialization_schema)


class KafkaBatchDeserializationSchema(ABC):
    """Deserializes messages to one batch, for SQL."""

    @abstractmethod
    def deserialize(self, messages: Sequence[Message]) -> Batch:
        """Return the batch of messages; equal messages give equal batches."""


class _ValueOnly(KafkaRecordDeserializationSchema):
    def __init__(self, schema: DeserializationSchema) -> None:
        self._schema = schema

    def deserialize(self, record: KafkaRecord) -> Value:
        return None if record.value is None else self._schema.deserialize(record.value)

    def get_produced_type(self) -> TypeInformation | None:
        return self._schema.get_produced_type()


class KafkaTopicSelector(ABC):
    """Selects the topic of a record, for `set_topic_selector`; a function does the same."""

    @abstractmethod
    def apply(self, data: Value) -> str:
        """Return the topic."""


@dataclass(frozen=True)
class KafkaRecordSerializationSchema:
    """Serializes a record: its topic, key and value.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> schema = (
        ...     KafkaRecordSerializationSchema.builder()
        ...     .set_topic_selector(lambda word: f"words-{word[0]}")
        ...     .set_key_serialization_schema(SimpleStringSchema())
        ...     .set_value_serialization_schema(SimpleStringSchema())
        ...     .build()
        ... )
        >>> schema.selector("to"), schema.value.serialize("to")
        ('words-t', b'to')
    """

    topic: str | None
    selector: Callable[[Value], str] | None
    key: SerializationSchema | None
    value: SerializationSchema

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a builder."""
        return KafkaRecordSerializationSchemaBuilder()


class KafkaRecordSerializationSchemaBuilder:
    """Builds a KafkaRecordSerializationSchema; see there for an example."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: Callable[[Value], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema, which needs a topic and a value."""
        if self._topic is None and self._selector is None:
            raise InvalidProgramError(
                "KafkaRecordSerializationSchema: set the topic with set_topic(...) or set_topic_selector(...)."
            )
        if self._value is None:
            raise InvalidProgramError(
                "KafkaRecordSerializationSchema: set a schema of values with set_value_serialization_schema(...)."
            )
        return KafkaRecordSerializationSchema(self._topic, self._selector, self._key, self._value)

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write all records to one topic; a topic or a selector is required."""
        if self._selector is not None:
            raise InvalidProgramError("KafkaRecordSerializationSchema: set a topic or a selector, not both.")
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Value], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Select the topic per record, with a function or a KafkaTopicSelector."""
        if self._topic is not None:
            raise InvalidProgramError("KafkaRecordSerializationSchema: set a topic or a selector, not both.")
        is_object = isinstance(topic_selector, KafkaTopicSelector)
        self._selector = topic_selector.apply if is_object else topic_selector  # type: ignore[union-attr, assignment]
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema of keys; by default messages have none."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set the schema of values. Required."""
        self._value = value_serialization_schema
        return self


class Produced(NamedTuple):
    """A message to write; the client selects partition -1, and None as timestamp is now."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int = -1
    timestamp: int | None = None
    headers: list[tuple[str, bytes | None]] | None = None


@dataclass(frozen=True)
class WriterContext:
    """The subtask of a writer, and the cluster's partitions.

    Attributes:
        subtask: the index of the subtask.
        partitions: returns the cached partitions of a topic.
    """

    subtask: int
    partitions: Callable[[str], list[int]]


class KafkaBatchSerializationSchema(ABC):
    """Serializes a batch to messages, for SQL."""

    # The topic, or None if rows determine it.
    topic: str | None = None

    @abstractmethod
    def serialize(self, batch: Batch, context: WriterContext) -> Iterable[Produced]:
        """Return the messages of a batch, in order."""

    def flush(self, context: WriterContext) -> Iterable[Produced]:
        """Return the buffered messages, at the end of each epoch."""
        return ()

    def discard(self) -> None:
        """Discard the buffered messages of a failed epoch."""
