"""Kafka's names of Flink 1.x, which many programs still have; KafkaSource and KafkaSink stand behind them."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.base import DeliveryGuarantee
from millstream.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from millstream.connectors.kafka.serialization import KafkaRecordSerializationSchema
from millstream.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder
from millstream.connectors.kafka.source import KafkaSource

__all__ = ["FlinkKafkaConsumer", "FlinkKafkaConsumerBase", "FlinkKafkaProducer", "FlinkKafkaProducerBase", "Semantic"]


class FlinkKafkaConsumerBase(KafkaSource):
    """Reads topics of Kafka, from where its group has come to unless it is told otherwise."""

    def _start(self, start: KafkaOffsetsInitializer) -> FlinkKafkaConsumerBase:
        self._settings = replace(self._settings, start=start)
        return self

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> FlinkKafkaConsumerBase:
        """Say whether the group's offsets are committed with checkpoints."""
        said = {**self._settings.properties, "commit.offsets.on.checkpoint": str(commit_on_checkpoints).lower()}
        self._settings = replace(self._settings, properties=said)
        return self

    def set_start_from_earliest(self) -> FlinkKafkaConsumerBase:
        """Begin with the oldest record."""
        return self._start(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> FlinkKafkaConsumerBase:
        """Begin behind the newest record."""
        return self._start(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumerBase:
        """Begin with the first record that is not older, by Kafka's timestamps."""
        return self._start(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumerBase:
        """Begin where the group has come to, else as auto.offset.reset says."""
        return self._start(_committed(dict(self._settings.properties)))

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> FlinkKafkaConsumerBase:
        """Accepted for Flink's sake: partitions of a checkpoint are always read on."""
        return self

    def get_produced_type(self) -> TypeInformation | None:
        """Return the type of its records."""
        return self.produced_type


def _committed(properties: dict[str, str]) -> KafkaOffsetsInitializer:
    reset = properties.get("auto.offset.reset", "latest").upper()
    strategy = KafkaOffsetResetStrategy[reset if reset in KafkaOffsetResetStrategy.__members__ else "LATEST"]
    return KafkaOffsetsInitializer.committed_offsets(strategy)


class FlinkKafkaConsumer(FlinkKafkaConsumerBase):
    """Reads topics of Kafka; `env.add_source` takes it."""

    def __init__(
        self, topics: str | list[str], deserialization_schema: DeserializationSchema, properties: dict[str, Any]
    ) -> None:
        names = [topics] if isinstance(topics, str) else topics
        said = {"group.id": "millstream", **{key: str(value) for key, value in properties.items()}}
        builder = KafkaSource.builder().set_topics(*names).set_properties(said)
        builder.set_value_only_deserializer(deserialization_schema).set_starting_offsets(_committed(said))
        super().__init__(builder.build()._settings)


class Semantic(Enum):
    """How often a record is there after a failure."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class FlinkKafkaProducerBase(KafkaSink):
    """Writes records to Kafka."""

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducerBase:
        """Say whether records that Kafka does not take are only logged: then nothing is guaranteed."""
        if log_failures_only:
            self._settings = replace(self._settings, guarantee=DeliveryGuarantee.NONE)
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducerBase:
        """Say whether a checkpoint waits until all is written; without, nothing is guaranteed."""
        if not flush_on_checkpoint:
            self._settings = replace(self._settings, guarantee=DeliveryGuarantee.NONE)
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducerBase:
        """Say whether messages have the timestamps of records; without, the time at which they are written."""
        self._settings = replace(self._settings, stamps=write_timestamp_to_kafka)
        return self


class FlinkKafkaProducer(FlinkKafkaProducerBase):
    """Writes records to a topic; `add_sink` takes it."""

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: dict[str, Any],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
        builder: KafkaSinkBuilder = KafkaSink.builder()
        for key, value in producer_config.items():
            builder.set_property(key, str(value))
        builder.set_record_serializer(schema.set_value_serialization_schema(serialization_schema).build())
        builder.set_delivery_guarantee(DeliveryGuarantee[semantic.name]).set_transactional_id_prefix(f"sink-{topic}")
        super().__init__(replace(builder.build()._settings, owns_prefix=False, stamps=False))

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Accepted for Flink's sake: a transaction that is gone is an error, since its records are lost."""
        return self
