"""Non-blocking byte streams over a socket, plain or encrypted; BlockingIOError means that nothing can be done now."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

T = TypeVar("T")

# The maximum size of a TLS record.
_RECORD = 1 << 14
# TLS reports a write only when all of it is sent: maximum bytes per write.
_MAX_SENT = 1 << 18
# Maximum bytes received from one connection before others have their turn.
_MAX_RECEIVED = 1 << 20


class Stream(Protocol):
    """One end of a byte stream.

    Attributes:
        socket: the socket to wait on.
        can_send: whether to wait until the socket is writable.
        must_send: whether reading must wait until the socket is writable.
    """

    socket: socket.socket
    can_send: bool
    must_send: bool

    @property
    def has_more(self) -> bool:
        """Whether data was received that the socket does not signal."""
        ...

    def send(self, parts: Sequence[memoryview]) -> int:
        """Send some of the parts; return the number of bytes."""
        ...

    def receive(self, size: int) -> bytes:
        """Return received data, or nothing at the end."""
        ...

    def receive_into(self, buffer: memoryview) -> int:
        """Receive into a buffer; return the number of bytes, 0 at the end."""
        ...


class PlainStream:
    """A plain stream."""

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
    """A TLS stream. Each direction may have to wait for the other: for the handshake, or a new key."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, is_server: bool) -> None:
        connection.setblocking(False)
        self._tls = context.wrap_socket(connection, server_side=is_server, do_handshake_on_connect=False)
        self.socket: socket.socket = self._tls
        self.can_send = True
        self.must_send = False
        self._is_ready = False

    @property
    def has_more(self) -> bool:
        return self._is_ready and self._tls.pending() > 0

    def send(self, parts: Sequence[memoryview]) -> int:
        self._continue_handshake()
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
        self._continue_handshake()
        parts: list[bytes] = []
        while size > 0:
            part = self._attempt(partial(self._tls.recv, _RECORD))
            if not part:
                # Report "nothing now" only if nothing was received; the end is reported again.
                if part is None and not parts:
                    raise BlockingIOError
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive_into(self, buffer: memoryview) -> int:
        self._continue_handshake()
        total = 0
        while total < min(len(buffer), _MAX_RECEIVED):
            count = self._attempt(partial(self._tls.recv_into, buffer[total:]))
            if not count:
                if count is None and not total:
                    raise BlockingIOError
                break
            total += count
        return total

    def _attempt(self, read: Callable[[], T]) -> T | None:
        """Read; None if there is nothing now."""
        try:
            result = read()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as e:
            self.must_send = isinstance(e, ssl.SSLWantWriteError)
            return None
        except ssl.SSLError as e:
            raise ConnectionError(_explain(e)) from None
        self.must_send = False
        return result

    def _continue_handshake(self) -> None:
        """Continue the TLS handshake; nothing is sent or received before it is done."""
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
    """Return what to send next: some records of a large part, or several small parts together.

    Data that could not be sent is passed again, perhaps with more data after it, as TLS requires.
    """
    if len(parts) == 1 or len(parts[0]) >= _RECORD:
        return parts[0][:_MAX_SENT]
    gathered, size = [], 0
    for part in parts:
        gathered.append(part[: _RECORD - size])
        size += len(gathered[-1])
        if size == _RECORD:
            break
    return b"".join(gathered)


_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNSUPPORTED_PROTOCOL", "UNEXPECTED_MESSAGE", "RECORD_TOO_SMALL")


def _explain(error: ssl.SSLError) -> str:
    """Return why TLS failed, as a sentence."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not trusted ({error.verify_message})"
    if "PEER_DID_NOT_RETURN_A_CERTIFICATE" in reason:
        return "the peer sent no certificate"
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        return f"the peer does not trust this side's certificate ({reason})"
    if reason in _PLAIN:
        return "the peer does not use TLS (security.ssl.internal.enabled is true on this side only)"
    return f"TLS failed: {error}"
