"""Kafka: sources and sinks under PyFlink's names."""

from millstream.connectors.kafka.legacy import (
    FlinkKafkaConsumer,
    FlinkKafkaConsumerBase,
    FlinkKafkaProducer,
    FlinkKafkaProducerBase,
    Semantic,
)
from millstream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from millstream.connectors.kafka.serialization import (
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaRecordSerializationSchemaBuilder,
    KafkaTopicSelector,
)
from millstream.connectors.kafka.sink import KafkaSink, KafkaSinkBuilder
from millstream.connectors.kafka.source import KafkaSource, KafkaSourceBuilder

__all__ = [
    "FlinkKafkaConsumer",
    "FlinkKafkaConsumerBase",
    "FlinkKafkaProducer",
    "FlinkKafkaProducerBase",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "KafkaRecord",
    "KafkaRecordDeserializationSchema",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaSink",
    "KafkaSinkBuilder",
    "KafkaSource",
    "KafkaSourceBuilder",
    "KafkaTopicPartition",
    "KafkaTopicSelector",
    "Semantic",
]
