"""Contracts of sources and sinks, for programs that define their own."""

from millstream.connectors.base import (
    BadRecord,
    BadRecords,
    CommitContext,
    Committer,
    Dealt,
    DeliveryGuarantee,
    Share,
    Sink,
    SinkWriter,
    Source,
    SourceReader,
    SplitEnumerator,
    StreamTransformer,
    SupportsPreprocessing,
)

__all__ = [
    "BadRecord",
    "BadRecords",
    "CommitContext",
    "Committer",
    "Dealt",
    "DeliveryGuarantee",
    "Share",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "SplitEnumerator",
    "StreamTransformer",
    "SupportsPreprocessing",
]
