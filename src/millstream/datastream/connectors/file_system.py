"""Files, under PyFlink's names."""

from millstream.connectors.files.bucket_assigner import BucketAssigner, BucketContext
from millstream.connectors.files.compaction import FileCompactor, FileCompactStrategy
from millstream.connectors.files.rolling_policy import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from millstream.connectors.files.sink import (
    BulkFormatBuilder,
    FileSink,
    RowFormatBuilder,
    StreamingFileSink,
)
from millstream.connectors.files.source import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    FileSplitAssignerProvider,
)
from millstream.connectors.files.writer import BulkWriter, BulkWriterFactory
from millstream.formats.file_format import BulkFormat, StreamFormat

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
