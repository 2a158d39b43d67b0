"""Contracts of sources and sinks, for programs that define their own."""

from millstream.connectors.base import (
    BadRecord,
    BadRecords,
    CommitContext,
    Committer,
    DeliveryGuarantee,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitAssignment,
    SplitEnumerator,
    SplitRange,
    StreamTransformer,
    SupportsPreprocessing,
)

__all__ = [
    "BadRecord",
    "BadRecords",
    "CommitContext",
    "Committer",
    "DeliveryGuarantee",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "SplitAssignment",
    "SplitEnumerator",
    "SplitRange",
    "StreamTransformer",
    "SupportsPreprocessing",
]
