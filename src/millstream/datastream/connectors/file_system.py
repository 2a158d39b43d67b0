"""Files, under PyFlink's names."""

from typing import TYPE_CHECKING

from millstream.common.missing import missing_names
from millstream.datastream.connectors.buckets import BucketAssigner, BucketContext
from millstream.datastream.connectors.bulk_files import BulkWriter, BulkWriterFactory
from millstream.datastream.connectors.file_formats import BulkFormat, StreamFormat
from millstream.datastream.connectors.file_sink import (
    NO_COMPACTION,
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

# Names of PyFlink's that say, when used, that small files are not put together here.
if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__, NO_COMPACTION, "FileCompactStrategy FileCompactor")
