"""Files, under PyFlink's names."""

from millstream.datastream.connectors.buckets import BucketAssigner, BucketContext
from millstream.datastream.connectors.bulk_files import BulkWriter, BulkWriterFactory
from millstream.datastream.connectors.file_sink import BulkFormatBuilder, FileSink, RowFormatBuilder
from millstream.datastream.connectors.rolling import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)

__all__ = [
    "BucketAssigner",
    "BucketContext",
    "BulkFormatBuilder",
    "BulkWriter",
    "BulkWriterFactory",
    "DefaultRollingPolicy",
    "FileSink",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "RowFormatBuilder",
]
