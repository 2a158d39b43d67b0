"""Sources and sinks."""

from millstream.datastream.connectors.base import Sink, Source

__all__ = ["Sink", "Source"]
