"""KafkaSource: reads topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import DeserializationSchema
from millstream.connectors.base import Source, SourceReader, SplitEnumerator
from millstream.connectors.kafka.client import client_settings, library
from millstream.connectors.kafka.enumerator import KafkaEnumerator, subtask_of
from millstream.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition
from millstream.connectors.kafka.reader import KafkaBatchReader, KafkaReader
from millstream.connectors.kafka.serialization import (
    KafkaBatchDeserializationSchema,
    KafkaRecordDeserializationSchema,
)
from millstream.connectors.kafka.settings import SourceSettings

__all__ = ["KafkaSource", "KafkaSourceBuilder"]


class KafkaSource(Source[Any]):
    """Reads Kafka topics with per-partition watermarks; records have Kafka's timestamps.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> source = (
        ...     KafkaSource.builder()
        ...     .set_bootstrap_servers("localhost:9092")
        ...     .set_topics("words")
        ...     .set_group_id("counting")
        ...     .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        ...     .set_value_only_deserializer(SimpleStringSchema())
        ...     .build()
        ... )
        >>> source.is_bounded
        False
    """

    timestamped = True
    aligns_splits = True

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self.timestamped = settings.batches is None
        schema = settings.values or settings.records
        if schema is not None:
            self.produced_type = schema.get_produced_type()
        self.name = f"KafkaSource-{settings.described}"

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder."""
        return KafkaSourceBuilder()

    @property
    def is_bounded(self) -> bool:
        return self._settings.bounded

    def check(self) -> None:
        library()

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return KafkaEnumerator(self._settings, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        batches = self._settings.batches
        if batches is not None:
            return KafkaBatchReader(self._settings, subtask, batches)
        return KafkaReader(self._settings, subtask, self.bad_records)

    def subtask_of(self, split: Any, parallelism: int) -> int:
        return subtask_of(split, parallelism)


class KafkaSourceBuilder:
    """Builds a KafkaSource."""

    def __init__(self) -> None:
        self._settings = SourceSettings()

    def _with(self, **changes: Any) -> KafkaSourceBuilder:
        self._settings = replace(self._settings, **changes)
        return self

    def build(self) -> KafkaSource:
        """Return the source; an incomplete configuration is an error."""
        return KafkaSource(self.settle())

    def settle(self) -> SourceSettings:
        """Return the checked settings."""
        settings = self._settings
        if "bootstrap.servers" not in settings.properties:
            raise InvalidProgramError("KafkaSource: say where Kafka is with set_bootstrap_servers(...).")
        if not settings.topics and settings.pattern is None and not settings.partitions:
            raise InvalidProgramError(
                "KafkaSource: say what to read with set_topics(...), set_topic_pattern(...) or set_partitions(...)."
            )
        if settings.values is None and settings.records is None and settings.batches is None:
            raise InvalidProgramError(
                "KafkaSource: say how to read values with set_value_only_deserializer(...), for "
                "example SimpleStringSchema()."
            )
        if settings.start.needs_group and "group.id" not in settings.properties:
            raise InvalidProgramError(
                "KafkaSource: committed offsets are those of a group: name it with set_group_id(...)."
            )
        client_settings(settings.properties)
        return settings

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the brokers: `host:port`, separated by commas."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the group whose offsets are committed with checkpoints."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics."""
        self._check_unset("topics")
        return self._with(topics=tuple(topics))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics that match a regular expression, including later ones."""
        self._check_unset("topic pattern")
        return self._with(pattern=topic_pattern)

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read only these partitions."""
        self._check_unset("partitions")
        return self._with(partitions=tuple(sorted((p.topic, p.partition) for p in partitions)))

    def _check_unset(self, what: str) -> None:
        settings = self._settings
        if settings.topics or settings.pattern is not None or settings.partitions:
            raise InvalidProgramError(f"KafkaSource: what to read is said already, and the {what} would replace it.")

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Set the starting offsets; earliest by default."""
        return self._with(start=starting_offsets_initializer)

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Stop at offsets, but run as an unbounded source."""
        return self._with(stop=stopping_offsets_initializer, bounded=False)

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Run as a bounded source up to offsets, which are resolved when the job starts."""
        return self._with(stop=stopping_offsets_initializer, bounded=True)

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> KafkaSourceBuilder:
        """Set the schema of values; keys and headers are not read."""
        return self._with(values=deserialization_schema, records=None)

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """Set the schema of whole records: key, value, headers and position."""
        return self._with(records=record_deserializer, values=None)

    def set_batch_deserializer(self, batch_deserializer: KafkaBatchDeserializationSchema) -> KafkaSourceBuilder:
        """Set a schema that reads messages as a batch, for SQL tables."""
        return self._with(batches=batch_deserializer, records=None, values=None)

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set the prefix of client ids."""
        return self.set_property("client.id.prefix", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of the consumer."""
        return self.set_properties({key: value})

    def set_properties(self, props: dict[str, str]) -> KafkaSourceBuilder:
        """Set properties of the consumer."""
        return self._with(properties={**self._settings.properties, **{k: str(v) for k, v in props.items()}})
