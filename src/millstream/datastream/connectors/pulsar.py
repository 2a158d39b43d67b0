"""Pulsar: only the names so far."""

from typing import TYPE_CHECKING

from millstream.common.unsupported import missing_names

_NAMES = """
    MessageDelayer PulsarSink PulsarSinkBuilder PulsarSource PulsarSourceBuilder RangeGenerator StartCursor
    StopCursor TopicRoutingMode
"""

# With __getattr__, type checkers would accept any name.
if not TYPE_CHECKING:
    __getattr__ = missing_names(__name__, "the Pulsar connector is not supported yet", _NAMES)
