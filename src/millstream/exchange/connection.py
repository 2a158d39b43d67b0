"""A non-blocking connection: frames are queued to be sent, and assembled as they arrive."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import cast

from millstream.exchange.addresses import Address, connect
from millstream.exchange.credentials import AuthenticationError, Credentials, Handshake, Side
from millstream.exchange.frames import HEAD, Frame, Kind, ProtocolError
from millstream.exchange.keepalive import enable_keepalive, is_unresponsive

_READ = 1 << 18
_MAX_PARTS = 64


class Connection:
    """One end of a connection.

    Until the peer is authenticated, no queued frame is sent and no received data is taken for a frame.

    Attributes:
        queued: bytes waiting to be sent.
        sent, received: bytes of frames.
        closed: whether the connection is closed; `reason` explains it, if known.
        keepalive_seconds: the keepalive timeout in seconds; None for a process on this machine.
    """

    def __init__(self, connection: socket.socket, credentials: Credentials, side: Side) -> None:
        connection.setblocking(False)
        self.keepalive_seconds: float | None = None
        if connection.family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            enable_keepalive(connection, credentials.keepalive_seconds)
            self.keepalive_seconds = credentials.keepalive_seconds
        self._stream = credentials.stream(connection, side)
        self.socket = self._stream.socket
        self.queued = self.sent = self.received = 0
        self.closed = False
        self.reason = ""
        self._cannot_send = False
        self._handshake: Handshake | None = Handshake(credentials.secret, side)
        self._greetings: deque[memoryview] = deque([memoryview(self._handshake.greeting)])
        self._out: deque[memoryview] = deque()
        # Called when the queue becomes non-empty.
        self.on_queued: Callable[[], None] = lambda: None
        self._buffer = bytearray()
        self._head: tuple[int, int, int, int] | None = None
        self._body: bytearray | None = None
        self._filled = 0

    @classmethod
    def to(cls, address: Address, credentials: Credentials) -> Connection:
        """Connect to an address."""
        return cls(connect(address), credentials, Side.CLIENT)

    @property
    def is_authenticated(self) -> bool:
        """Whether the peer is authenticated."""
        return self._handshake is None

    @property
    def has_to_send(self) -> bool:
        """Whether there is data that may be sent."""
        return bool(self._greetings) or (bool(self._out) and self.is_authenticated)

    @property
    def is_unresponsive(self) -> bool:
        """Whether the peer's machine has not answered for too long."""
        return self.keepalive_seconds is not None and is_unresponsive(self.socket, self.keepalive_seconds)

    @property
    def awaits_writable(self) -> bool:
        """Whether to wait until the socket is writable."""
        stream = self._stream
        return stream.must_send or (stream.can_send and self.has_to_send)

    def push(self, frame: Frame) -> None:
        """Queue a frame. The payload is not copied."""
        if self._cannot_send:
            return
        if not self._out:
            self.on_queued()
        kind, epoch, level, payload = frame
        self._out.append(memoryview(HEAD.pack(kind, epoch, level, len(payload))))
        if payload:
            self._out.append(memoryview(payload))
        self.queued += HEAD.size + len(payload)

    def flush(self) -> None:
        """Send what the socket accepts."""
        try:
            if self._greetings:
                self._send(self._greetings)
            # Frames must follow the proof.
            if self.is_authenticated and not self._greetings:
                before = self.queued
                self.queued -= self._send(self._out)
                self.sent += before - self.queued
        except OSError as e:
            # The peer's last data is still to be read; its end closes the connection.
            self._cannot_send, self.reason = True, str(e)
            self._greetings.clear()
            self._out.clear()
            self.queued = 0

    def _send(self, parts: deque[memoryview]) -> int:
        total = 0
        while parts:
            try:
                sent = self._stream.send([parts[i] for i in range(min(len(parts), _MAX_PARTS))])
            except BlockingIOError:
                break
            total += sent
            while parts and sent >= len(parts[0]):
                sent -= len(parts.popleft())
            if sent:
                parts[0] = parts[0][sent:]
        return total

    def receive(self) -> list[Frame]:
        """Return the received frames. A large payload is received in place."""
        frames = self._receive()
        while self._stream.has_more and not self.closed:
            frames += self._receive()
        return frames

    def _receive(self) -> list[Frame]:
        try:
            if self._body is not None:
                count = self._stream.receive_into(memoryview(self._body)[self._filled :])
                self._filled += count
            else:
                data = self._stream.receive(_READ)
                count = len(data)
                self._feed(data)
        except BlockingIOError:
            return []
        except (OSError, AuthenticationError) as e:
            self._break(str(e))
            return []
        if not count:
            self._break("")
        return self._frames()

    def _feed(self, data: bytes) -> None:
        handshake = self._handshake
        if handshake is None:
            self._buffer += data
            self.received += len(data)
            return
        reply = handshake.feed(data)
        if reply:
            self._greetings.append(memoryview(reply))
        if handshake.is_done:
            self._handshake = None
            self._feed(handshake.rest)
        self.flush()

    def _frames(self) -> list[Frame]:
        frames: list[Frame] = []
        try:
            while (frame := self._next()) is not None:
                frames.append(frame)
        except ValueError as e:
            raise ProtocolError(f"a frame of unknown kind: {e}") from None
        return frames

    def _next(self) -> Frame | None:
        if self._head is None:
            if len(self._buffer) < HEAD.size:
                return None
            self._head = HEAD.unpack_from(self._buffer)
            del self._buffer[: HEAD.size]
        kind, epoch, level, length = self._head
        if self._body is None and len(self._buffer) >= length:
            body = self._buffer[:length]
            del self._buffer[:length]
        else:
            if self._body is None:
                self._body, self._filled = _allocate(length), len(self._buffer)
                self._body[: self._filled] = self._buffer
                # The rest of the payload bypasses the buffer.
                self.received += length - self._filled
                self._buffer.clear()
            if self._filled < length:
                return None
            body, self._body = self._body, None
        self._head = None
        # Nothing changes it any more, so it can serve as bytes without a copy.
        return Frame(Kind(kind), epoch, level, cast(bytes, body))

    def _break(self, reason: str) -> None:
        self.closed = True
        self.reason = self.reason or reason

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self.socket.close()


def _allocate(length: int) -> bytearray:
    try:
        return bytearray(length)
    except (MemoryError, OverflowError):
        raise ProtocolError(f"a frame of {length} bytes exceeds the available memory") from None
