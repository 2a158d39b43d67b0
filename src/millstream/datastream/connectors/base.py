"""The contracts of sources and sinks, for those who write their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING

from millstream.operators.diagnostics.bad_records import BadRecord, BadRecords
from millstream.operators.sink import CommitContext, Committer, Sink, SinkWriter
from millstream.operators.source import Dealt, Share, Source, SourceReader, SplitEnumerator

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

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream


class DeliveryGuarantee(Enum):
    """How often a record reaches what is behind a sink when the job fails in between."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class StreamTransformer(ABC):
    """Adds operators in front of a sink."""

    @abstractmethod
    def apply(self, ds: DataStream) -> DataStream:
        """Return the stream that the sink is to take."""


class SupportsPreprocessing(ABC):
    """A sink that wants operators in front of it: `sink_to` adds them."""

    @abstractmethod
    def get_transformer(self) -> StreamTransformer | None:
        """Return what adds the operators, None for none."""
