"""The Kafka connectors of Flink 1.x, based on KafkaSource and KafkaSink."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.base import DeliveryGuarantee
from millstream.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from millstream.connectors.kafka.serialization import KafkaRecordSerializationSchema
from millstream.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder
from millstream.connectors.kafka.source import KafkaSource

__all__ = ["FlinkKafkaConsumer", "FlinkKafkaConsumerBase", "FlinkKafkaProducer", "FlinkKafkaProducerBase", "Semantic"]


class FlinkKafkaConsumerBase(KafkaSource):
    """Reads Kafka topics, by default from the committed offsets of the group; base of FlinkKafkaConsumer."""

    def _start(self, start: KafkaOffsetsInitializer) -> FlinkKafkaConsumerBase:
        self._settings = replace(self._settings, start=start)
        return self

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> FlinkKafkaConsumerBase:
        """Set whether checkpoints commit the group's offsets, as they do by default."""
        properties = {**self._settings.properties, "commit.offsets.on.checkpoint": str(commit_on_checkpoints).lower()}
        self._settings = replace(self._settings, properties=properties)
        return self

    def set_start_from_earliest(self) -> FlinkKafkaConsumerBase:
        """Begin at the oldest record."""
        return self._start(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> FlinkKafkaConsumerBase:
        """Begin after the newest record."""
        return self._start(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumerBase:
        """Begin at the first record with this timestamp in milliseconds, or a later one."""
        return self._start(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumerBase:
        """Begin at the committed offsets of the group, the default, or as configured by auto.offset.reset."""
        return self._start(_committed(dict(self._settings.properties)))

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> FlinkKafkaConsumerBase:
        """Accept Flink's setting, without effect: restored partitions are always read."""
        return self

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of its records."""
        return self.produced_type


def _committed(properties: dict[str, str]) -> KafkaOffsetsInitializer:
    reset = properties.get("auto.offset.reset", "latest").upper()
    strategy = KafkaOffsetResetStrategy[reset if reset in KafkaOffsetResetStrategy.__members__ else "LATEST"]
    return KafkaOffsetsInitializer.committed_offsets(strategy)


class FlinkKafkaConsumer(FlinkKafkaConsumerBase):
    """Reads Kafka topics; `env.add_source` takes it. KafkaSource replaces it.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> properties = {"bootstrap.servers": "localhost:9092", "group.id": "counting"}
        >>> consumer = FlinkKafkaConsumer("words", SimpleStringSchema(), properties).set_start_from_earliest()
        >>> consumer.name
        'KafkaSource-words'
    """

    def __init__(
        self, topics: str | list[str], deserialization_schema: DeserializationSchema, properties: dict[str, str]
    ) -> None:
        names = [topics] if isinstance(topics, str) else topics
        settings = {"group.id": "millstream", **{key: str(value) for key, value in properties.items()}}
        builder = KafkaSource.builder().set_topics(*names).set_properties(settings)
        builder.set_value_only_deserializer(deserialization_schema).set_starting_offsets(_committed(settings))
        super().__init__(builder.checked_settings())


class Semantic(Enum):
    """Names the delivery guarantees of FlinkKafkaProducer."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducerBase(KafkaSink):
    """Writes records to Kafka; base of FlinkKafkaProducer."""

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducerBase:
        """Set whether rejected records are only logged, without a delivery guarantee; by default they fail the job."""
        if log_failures_only:
            self._settings = replace(self._settings, guarantee=DeliveryGuarantee.NONE)
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducerBase:
        """Set whether a checkpoint flushes records, as by default; otherwise there is no delivery guarantee."""
        if not flush_on_checkpoint:
            self._settings = replace(self._settings, guarantee=DeliveryGuarantee.NONE)
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducerBase:
        """Set whether messages get the timestamps of records; by default they get the time of writing."""
        self._settings = replace(self._settings, stamps=write_timestamp_to_kafka)
        return self


class FlinkKafkaProducer(FlinkKafkaProducerBase):
    """Writes records to a topic; `add_sink` takes it. KafkaSink replaces it.

    Example:
        >>> from millstream.common.serialization import SimpleStringSchema
        >>> properties = {"bootstrap.servers": "localhost:9092"}
        >>> producer = FlinkKafkaProducer("counts", SimpleStringSchema(), properties, semantic=Semantic.EXACTLY_ONCE)
        >>> producer.set_write_timestamp_to_kafka(True).name
        'KafkaSink'
    """

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: dict[str, str],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
        builder: KafkaSinkBuilder = KafkaSink.builder()
        for key, value in producer_config.items():
            builder.set_property(key, str(value))
        builder.set_record_serializer(schema.set_value_serialization_schema(serialization_schema).build())
        builder.set_delivery_guarantee(DeliveryGuarantee[semantic.name]).set_transactional_id_prefix(f"sink-{topic}")
        super().__init__(replace(builder.checked_settings(), owns_prefix=False, stamps=False))

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Accept Flink's setting, without effect: an expired transaction is an error, because its records are lost."""
        return self
