"""A source of lines from a socket."""

from millstream.connectors.socket_source import (
    SocketTextSource,
)

__all__ = ["SocketTextSource"]
