"""The contracts of sources and sinks, for connectors.

Those of sources are defined in `operators/source.py`, those of sinks in `operators/sink.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, TypeAlias

from millstream.operators.diagnostics.bad_records import BadRecord, BadRecords
from millstream.operators.sink import CommitContext, Committer, Sink, SinkWriter
from millstream.operators.source import Source, SourceReader, SplitAssignment, SplitEnumerator, SplitRange

__all__ = [
    "BATCH",
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

# A DataStream, whose class is in a layer above.
_Stream: TypeAlias = Any

# Records per batch that a reader passes to its chain. Full buckets are sent between two batches.
BATCH = 2048


class DeliveryGuarantee(Enum):
    """Says how often a sink writes a record if the job fails and restarts."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class StreamTransformer(ABC):
    """Adds operators in front of a sink, see SupportsPreprocessing."""

    @abstractmethod
    def apply(self, ds: _Stream) -> _Stream:
        """Return the stream that the sink consumes."""


class SupportsPreprocessing(ABC):
    """Marks a sink with operators in front of it, which `sink_to` adds.

    Example:
        >>> from millstream.connectors.base import Sink
        >>> class Doubled(StreamTransformer):
        ...     def apply(self, ds): return ds.map(lambda n: n * 2)
        >>> class DoublingSink(Sink, SupportsPreprocessing):
        ...     def get_transformer(self): return Doubled()
    """

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None:
        """Return the transformer that adds the operators, or None."""
