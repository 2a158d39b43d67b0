"""Bytes over a socket that never blocks, as they are or encrypted; BlockingIOError says that now nothing goes."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

T = TypeVar("T")

# A record of TLS holds so much at most.
_RECORD = 1 << 14
# TLS says that something was sent when all of it was: so much is given to it at once.
_MOST_SENT = 1 << 18
# So much is taken from one connection before others have their turn.
_MOST_RECEIVED = 1 << 20


class Stream(Protocol):
    """One end of a connection.

    Attributes:
        socket: what to wait at.
        can_send: whether it makes sense to wait until the socket takes something.
        must_send: whether reading cannot go on before the socket takes something.
    """

    socket: socket.socket
    can_send: bool
    must_send: bool

    @property
    def has_more(self) -> bool:
        """Whether something has been received that the socket says nothing of."""
        ...

    def send(self, parts: Sequence[memoryview]) -> int:
        """Send some of it; return how many bytes."""
        ...

    def receive(self, size: int) -> bytes:
        """Return what has come, or nothing at the end."""
        ...

    def receive_into(self, buffer: memoryview) -> int:
        """Put there what has come; return how many bytes, 0 at the end."""
        ...


class PlainStream:
    """Bytes as they are."""

    can_send = True
    must_send = False
    has_more = False

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, parts: Sequence[memoryview]) -> int:
        return self.socket.sendmsg(parts)

    def receive(self, size: int) -> bytes:
        return self.socket.recv(size)

    def receive_into(self, buffer: memoryview) -> int:
        return self.socket.recv_into(buffer)


class TlsStream:
    """Bytes encrypted. Either direction may have to wait for the other: for a handshake, or a new key."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, is_called: bool) -> None:
        connection.setblocking(False)
        self._tls = context.wrap_socket(connection, server_side=is_called, do_handshake_on_connect=False)
        self.socket: socket.socket = self._tls
        self.can_send = True
        self.must_send = False
        self._is_ready = False

    @property
    def has_more(self) -> bool:
        return self._is_ready and self._tls.pending() > 0

    def send(self, parts: Sequence[memoryview]) -> int:
        self._get_ready()
        data = _some_of(parts)
        try:
            sent = self._tls.send(data)
        except ssl.SSLWantReadError:
            self.can_send = False
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.can_send = True
            raise BlockingIOError from None
        except ssl.SSLError as e:
            raise ConnectionError(_explain(e)) from None
        self.can_send = True
        return sent

    def receive(self, size: int) -> bytes:
        self._get_ready()
        parts: list[bytes] = []
        while size > 0:
            part = self._attempt(partial(self._tls.recv, _RECORD))
            if not part:
                # Nothing now is only worth saying when there was nothing before; the end will come again.
                if part is None and not parts:
                    raise BlockingIOError
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive_into(self, buffer: memoryview) -> int:
        self._get_ready()
        total = 0
        while total < min(len(buffer), _MOST_RECEIVED):
            count = self._attempt(partial(self._tls.recv_into, buffer[total:]))
            if not count:
                if count is None and not total:
                    raise BlockingIOError
                break
            total += count
        return total

    def _attempt(self, read: Callable[[], T]) -> T | None:
        """Read; None when there is nothing now."""
        try:
            result = read()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as e:
            self.must_send = isinstance(e, ssl.SSLWantWriteError)
            return None
        except ssl.SSLError as e:
            raise ConnectionError(_explain(e)) from None
        self.must_send = False
        return result

    def _get_ready(self) -> None:
        """Go on with TLS's own handshake; nothing is sent or received before it is done."""
        if self._is_ready:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.can_send = self.must_send = False
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.can_send = self.must_send = True
            raise BlockingIOError from None
        except ssl.SSLError as e:
            raise ConnectionError(_explain(e)) from None
        self._is_ready = self.can_send = True
        self.must_send = False


def _some_of(parts: Sequence[memoryview]) -> memoryview | bytes:
    """Return what to send next: of a large part some records, or small ones together.

    What could not be sent is given again, and perhaps more behind it, which is what TLS asks for.
    """
    if len(parts) == 1 or len(parts[0]) >= _RECORD:
        return parts[0][:_MOST_SENT]
    gathered, size = [], 0
    for part in parts:
        gathered.append(part[: _RECORD - size])
        size += len(gathered[-1])
        if size == _RECORD:
            break
    return b"".join(gathered)


_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL", "UNEXPECTED_MESSAGE", "RECORD_TOO_SMALL")


def _explain(error: ssl.SSLError) -> str:
    """Say in a sentence why TLS did not come about."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is not trusted here ({error.verify_message})"
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return "the other side showed no certificate"
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        return f"the other side does not trust this side's certificate ({reason})"
    if reason in _PLAIN:
        return "the other side does not speak TLS (security.ssl.internal.enabled is true on this side only)"
    return f"TLS failed: {error}"
