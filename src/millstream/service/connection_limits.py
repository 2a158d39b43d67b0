"""Limits of connections: their number, and time and size of requests.

The service runs in the process of the jobs. A client that opens connections and sends nothing, sends a request byte by
byte or many requests at once, or does not read its response must not exhaust the process. These limits apply before
authentication.

Bounds the memory of a connection: the head of a request (`MAX_HEAD_BYTES` bytes, `MAX_HEADERS` headers), pipelined
requests (`MAX_PIPELINED`), and the bytes read at once (`RECEIVE_BYTES`).
"""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Maximum number of connections; maximum time and size of a request's head.
MAX_CONNECTIONS = 500
HEAD_SECONDS = 20.0
MAX_HEAD_BYTES = 1 << 16
# A header of five bytes takes a hundred in memory.
MAX_HEADERS = 128
# Maximum number of pipelined requests.
MAX_PIPELINED = 16
# Maximum time until a response is read: longer than any long poll.
ANSWER_SECONDS = 400.0
# The kernel's receive buffer (it doubles this), which bounds a read.
RECEIVE_BYTES = 1 << 16


class LimitExceeded(Exception):
    """A request is too large, or there are too many."""


def limit_reads(listener: socket.socket) -> None:
    """Bound the reads of all connections that a socket accepts."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)


class GuardedProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP protocol with limits of time, size and number."""

    _head_bytes = 0
    _is_in_head = True
    _waited_seconds = 0.0
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= MAX_CONNECTIONS:
            transport.abort()
            return
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
        # No client waits for these responses.
        self.pipeline.clear()
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.abort()

    # --- parser callbacks; an exception closes the connection

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise LimitExceeded
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            raise LimitExceeded
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            # Pipelined requests come first.
            self.flow.pause_reading()
        self._expect_head()

    def _expect_head(self) -> None:
        self._waited_seconds = 0.0
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self.loop.call_later(HEAD_SECONDS, self._check_timeout)

    def _check_timeout(self) -> None:
        self._waited_seconds += HEAD_SECONDS
        # A response has not been read while part of it is buffered.
        is_silent = self._is_between_requests() and not self.transport.get_write_buffer_size()
        if is_silent or self._waited_seconds >= ANSWER_SECONDS:
            self.transport.abort()
        else:
            self._clock = self.loop.call_later(HEAD_SECONDS, self._check_timeout)

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete
