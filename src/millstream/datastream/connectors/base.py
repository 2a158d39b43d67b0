"""The contracts of sources and sinks, for those who write their own."""

from millstream.operators.sink import CommitContext, Committer, Sink, SinkWriter
from millstream.operators.source import Dealt, Share, Source, SourceReader, SplitEnumerator

__all__ = [
    "CommitContext",
    "Committer",
    "Dealt",
    "Share",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "SplitEnumerator",
]
