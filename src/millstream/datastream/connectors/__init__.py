"""Sources and sinks."""

from importlib import import_module
from typing import TYPE_CHECKING

from millstream.connectors.base import DeliveryGuarantee, Sink, Source
from millstream.datastream.connectors.number_seq import NumberSequenceSource

if TYPE_CHECKING:
    from millstream.datastream.connectors.file_system import (
        BucketAssigner,
        FileEnumeratorProvider,
        FileSink,
        FileSource,
        FileSourceBuilder,
        FileSplitAssignerProvider,
        OutputFileConfig,
        RollingPolicy,
        StreamFormat,
        StreamingFileSink,
    )

__all__ = [
    "BucketAssigner",
    "DeliveryGuarantee",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "NumberSequenceSource",
    "OutputFileConfig",
    "RollingPolicy",
    "Sink",
    "Source",
    "StreamFormat",
    "StreamingFileSink",
]

# Further names of this package, by module. They are imported on first use, to save start-up time.
_FLAT = {
    "file_system": (
        "BucketAssigner FileEnumeratorProvider FileSink FileSource FileSourceBuilder FileSplitAssignerProvider "
        "OutputFileConfig RollingPolicy StreamFormat StreamingFileSink"
    ),
    "dynamic_kafka": (
        "DynamicKafkaSource DynamicKafkaSourceBuilder KafkaMetadataService KafkaRecordDeserializationSchema "
        "KafkaStreamSetSubscriber KafkaStreamSubscriber SingleClusterTopicMetadataService StreamPatternSubscriber"
    ),
    "jdbc": "JdbcConnectionOptions JdbcExecutionOptions JdbcSink",
    "kafka": "FlinkKafkaConsumer FlinkKafkaProducer KafkaSource Semantic",
    "pulsar": "PulsarSource PulsarSourceBuilder StartCursor StopCursor",
    "rabbitmq": "RMQConnectionConfig RMQSink RMQSource",
}
_MODULES = {name: module for module, names in _FLAT.items() for name in names.split()}


def _find(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


# With __getattr__, type checkers would accept any name.
if not TYPE_CHECKING:
    __getattr__ = _find
