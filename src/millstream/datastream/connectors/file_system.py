"""Files, under PyFlink's names."""

from millstream.datastream.connectors.buckets import BucketAssigner, BucketContext
from millstream.datastream.connectors.bulk_files import BulkWriter, BulkWriterFactory
from millstream.datastream.connectors.compaction import FileCompactor, FileCompactStrategy
from millstream.datastream.connectors.file_formats import BulkFormat, StreamFormat
from millstream.datastream.connectors.file_sink import (
    BulkFormatBuilder,
    FileSink,
    RowFormatBuilder,
    StreamingFileSink,
)
from millstream.datastream.connectors.file_source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from millstream.datastream.connectors.rolling import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)

__all__ = [
    "BucketAssigner",
    "BucketContext",
    "BulkFormat",
    "BulkFormatBuilder",
    "BulkWriter",
    "BulkWriterFactory",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileEnumeratorProvider",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "FileSplitAssignerProvider",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "RowFormatBuilder",
    "StreamFormat",
    "StreamingFileSink",
]
