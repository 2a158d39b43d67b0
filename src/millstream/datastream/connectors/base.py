"""The contracts of sources and sinks, for those who write their own."""

from millstream.operators.sink import Committer, Sink, SinkWriter
from millstream.operators.source import Dealt, Source, SourceReader, SplitEnumerator

__all__ = ["Committer", "Dealt", "Sink", "SinkWriter", "Source", "SourceReader", "SplitEnumerator"]
