"""What the processes of one execution know, and nobody else: its secret, and with TLS who they are."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from millstream.exchange.handshake import Side
from millstream.exchange.socket_stream import PlainStream, Stream, TlsStream
from millstream.exchange.tls import Identity


@dataclass(frozen=True)
class Credentials:
    """Made by the driver for one execution, and sent to its slots with their Spark task.

    Attributes:
        secret: what both ends of a connection prove to know.
        identity: the certificate that both ends show, and trust; None where connections are not encrypted.
        silence: for how many seconds the other end's machine may give no sign of life.
    """

    secret: bytes = field(repr=False)
    identity: Identity | None = None
    silence: float = 50.0

    def stream(self, connection: socket.socket, side: Side) -> Stream:
        """Return what frames go over: TLS between hosts if that is wanted; a Unix socket never leaves its host."""
        if self.identity is None or connection.family == socket.AF_UNIX:
            return PlainStream(connection)
        return TlsStream(connection, self.identity.context(side is Side.CALLED), side is Side.CALLED)
