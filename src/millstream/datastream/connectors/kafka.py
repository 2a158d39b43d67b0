"""Kafka: only the names so far."""

from typing import TYPE_CHECKING

from millstream.common.missing import missing_names

_NAMES = """
    FlinkKafkaConsumer FlinkKafkaConsumerBase FlinkKafkaProducer FlinkKafkaProducerBase KafkaOffsetResetStrategy
    KafkaOffsetsInitializer KafkaRecordSerializationSchema KafkaRecordSerializationSchemaBuilder KafkaSink
    KafkaSinkBuilder KafkaSource KafkaSourceBuilder KafkaTopicPartition KafkaTopicSelector Semantic
"""

# Type checkers would take any name for one of the module's.
if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__, "the Kafka connector is not built yet", _NAMES)
