"""DynamicKafkaSource: reads streams that a metadata service locates; PyFlink supports a single cluster."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import DeserializationSchema
from millstream.connectors.kafka.offsets import KafkaOffsetsInitializer
from millstream.connectors.kafka.serialization import KafkaRecordDeserializationSchema
from millstream.connectors.kafka.source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "KafkaMetadataService",
    "KafkaRecordDeserializationSchema",
    "KafkaStreamSetSubscriber",
    "KafkaStreamSubscriber",
    "SingleClusterTopicMetadataService",
    "StreamPatternSubscriber",
]


class KafkaMetadataService:
    """Locates streams; see SingleClusterTopicMetadataService."""


@dataclass(frozen=True)
class SingleClusterTopicMetadataService(KafkaMetadataService):
    """Describes a single cluster whose topics are the streams.

    Args:
        kafka_cluster_id: the name of the cluster.
        properties: client properties, such as `bootstrap.servers`.
    """

    kafka_cluster_id: str
    properties: dict[str, str]


class KafkaStreamSubscriber:
    """Selects streams; see KafkaStreamSetSubscriber and StreamPatternSubscriber."""


@dataclass(frozen=True)
class KafkaStreamSetSubscriber(KafkaStreamSubscriber):
    """Selects a fixed set of streams."""

    stream_ids: set[str]


@dataclass(frozen=True)
class StreamPatternSubscriber(KafkaStreamSubscriber):
    """Selects streams that match a regular expression, including later ones."""

    stream_pattern: str


class DynamicKafkaSource(KafkaSource):
    """Reads streams that a metadata service locates: a KafkaSource of one cluster, as in PyFlink.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> service = SingleClusterTopicMetadataService("main", {"bootstrap.servers": "localhost:9092"})
        >>> source = (
        ...     DynamicKafkaSource.builder()
        ...     .set_kafka_metadata_service(service)
        ...     .set_stream_ids({"orders"})
        ...     .set_group_id("counting")
        ...     .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        ...     .set_bounded(KafkaOffsetsInitializer.latest())
        ...     .set_property("client.id.prefix", "counting")
        ...     .set_value_only_deserializer(SimpleStringSchema())
        ...     .build()
        ... )
        >>> source.name, source.is_bounded
        ('KafkaSource-orders', True)
    """

    @staticmethod
    def builder() -> DynamicKafkaSourceBuilder:  # type: ignore[override]
        """Return a builder."""
        return DynamicKafkaSourceBuilder()


class DynamicKafkaSourceBuilder:
    """Builds a DynamicKafkaSource; see DynamicKafkaSource for an example."""

    def __init__(self) -> None:
        self._inner = KafkaSourceBuilder()
        self._service: SingleClusterTopicMetadataService | None = None

    def build(self) -> DynamicKafkaSource:
        """Return the source; an incomplete configuration is an error."""
        if self._service is None:
            raise InvalidProgramError("DynamicKafkaSource: set the cluster with set_kafka_metadata_service(...).")
        return DynamicKafkaSource(self._inner.set_properties(self._service.properties).checked_settings())

    def set_stream_ids(self, stream_ids: set[str]) -> DynamicKafkaSourceBuilder:
        """Read these streams; streams, a pattern or a subscriber are required."""
        return self.set_kafka_stream_subscriber(KafkaStreamSetSubscriber(stream_ids))

    def set_stream_pattern(self, stream_pattern: str) -> DynamicKafkaSourceBuilder:
        """Read the streams that match a regular expression, including later ones."""
        return self.set_kafka_stream_subscriber(StreamPatternSubscriber(stream_pattern))

    def set_kafka_stream_subscriber(self, kafka_stream_subscriber: KafkaStreamSubscriber) -> DynamicKafkaSourceBuilder:
        """Read the streams of a subscriber.

        Example:
            >>> subscriber = StreamPatternSubscriber("orders-.*")
            >>> builder = DynamicKafkaSource.builder().set_kafka_stream_subscriber(subscriber)
        """
        if isinstance(kafka_stream_subscriber, KafkaStreamSetSubscriber):
            self._inner.set_topics(*sorted(kafka_stream_subscriber.stream_ids))
        elif isinstance(kafka_stream_subscriber, StreamPatternSubscriber):
            self._inner.set_topic_pattern(kafka_stream_subscriber.stream_pattern)
        else:
            raise InvalidProgramError(
                "DynamicKafkaSource takes a KafkaStreamSetSubscriber or a StreamPatternSubscriber, not "
                f"{kafka_stream_subscriber!r}."
            )
        return self

    def set_kafka_metadata_service(self, kafka_metadata_service: KafkaMetadataService) -> DynamicKafkaSourceBuilder:
        """Set the metadata service, which must be a SingleClusterTopicMetadataService. Required."""
        if not isinstance(kafka_metadata_service, SingleClusterTopicMetadataService):
            raise InvalidProgramError(
                f"DynamicKafkaSource takes a SingleClusterTopicMetadataService, not {kafka_metadata_service!r}."
            )
        self._service = kafka_metadata_service
        return self

    def set_deserializer(self, deserializer: KafkaRecordDeserializationSchema) -> DynamicKafkaSourceBuilder:
        """Set the schema of whole records; this or `set_value_only_deserializer` is required."""
        self._inner.set_deserializer(deserializer)
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> DynamicKafkaSourceBuilder:
        """Set the schema of values."""
        self._inner.set_value_only_deserializer(deserialization_schema)
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> DynamicKafkaSourceBuilder:
        """Set where a job without a checkpoint begins, by default at the oldest records."""
        self._inner.set_starting_offsets(starting_offsets_initializer)
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> DynamicKafkaSourceBuilder:
        """Run as a bounded source up to offsets; by default it is unbounded."""
        self._inner.set_bounded(stopping_offsets_initializer)
        return self

    def set_properties(self, props: dict[str, str]) -> DynamicKafkaSourceBuilder:
        """Set properties of the consumer."""
        self._inner.set_properties(props)
        return self

    def set_property(self, key: str, value: str) -> DynamicKafkaSourceBuilder:
        """Set a property of the consumer."""
        self._inner.set_property(key, value)
        return self

    def set_group_id(self, group_id: str) -> DynamicKafkaSourceBuilder:
        """Set the group whose offsets are committed with checkpoints; without one none are."""
        self._inner.set_group_id(group_id)
        return self

    def set_client_id_prefix(self, prefix: str) -> DynamicKafkaSourceBuilder:
        """Set the prefix of client ids."""
        self._inner.set_client_id_prefix(prefix)
        return self
