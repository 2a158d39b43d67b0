"""Mutual authentication: both ends prove that they know the job's secret before any frame is sent or read.

Each end sends a random challenge; the client answers first, then the server. A proof covers both challenges and the
side, so it can be neither replayed nor reflected. No socket here: bytes in, bytes out.
"""

from __future__ import annotations

import hmac
import os
from enum import Enum

_MAGIC = b"MILLSTR1"
# The first byte of a TLS handshake record or alert.
_TLS = (b"\x16", b"\x15")
_CHALLENGE = 32
_PROOF = 32
_GREETING = len(_MAGIC) + _CHALLENGE


class Side(Enum):
    """The side of a connection."""

    CALLER = b"caller"
    CALLED = b"called"


class AuthenticationError(ConnectionError):
    """The peer does not know the job's secret."""


class Handshake:
    """One side of a handshake.

    Attributes:
        greeting: bytes to send at once.
        is_done: whether the peer is authenticated.
        rest: bytes received behind the handshake.
    """

    def __init__(self, secret: bytes, side: Side) -> None:
        self._secret = secret
        self._side = side
        self._own = os.urandom(_CHALLENGE)
        self._theirs: bytes | None = None
        self._received = b""
        self.greeting = _MAGIC + self._own
        self.is_done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Consume received bytes and return the answer. Raises AuthenticationError."""
        self._received += data
        reply = b""
        if self._theirs is None:
            if not _MAGIC.startswith(self._received[: len(_MAGIC)]):
                raise AuthenticationError(
                    "the other side speaks TLS, this one does not (security.ssl.internal.enabled is not true here)"
                    if self._received[:1] in _TLS
                    else "the other side does not speak this protocol"
                )
            if len(self._received) < _GREETING:
                return b""
            self._theirs = self._take(_GREETING)[len(_MAGIC) :]
            if self._side is Side.CALLER:
                reply = self._proof_of(Side.CALLER)
        if len(self._received) >= _PROOF:
            other = Side.CALLED if self._side is Side.CALLER else Side.CALLER
            if not hmac.compare_digest(self._take(_PROOF), self._proof_of(other)):
                raise AuthenticationError("the other side does not know the job's secret")
            self.is_done = True
            self.rest, self._received = self._received, b""
            if self._side is Side.CALLED:
                reply = self._proof_of(Side.CALLED)
        return reply

    def _take(self, count: int) -> bytes:
        data, self._received = self._received[:count], self._received[count:]
        return data

    def _proof_of(self, side: Side) -> bytes:
        assert self._theirs is not None
        first, second = (self._own, self._theirs) if self._side is Side.CALLER else (self._theirs, self._own)
        return hmac.digest(self._secret, side.value + first + second, "sha256")
