"""Limits of a connection: how many there are, how soon and in how many bytes a request comes.

The service lives in the process that runs jobs. A client that opens connections and says nothing, or says a request
byte by byte, or many requests before the first is answered, or does not take its answer, must not use up what those
need. All of that counts before anybody has shown a token.

What one connection can make this process hold is bounded: the head of a request (`MOST_HEAD` bytes, `MOST_HEADERS`
headers), so many requests that wait for their turn (`MOST_PIPELINED`), and what is read at once (`RECEIVE_BYTES`).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# So many connections at once, and so long and so large may the head of a request be.
MOST_CONNECTIONS = 500
HEAD_SECONDS = 20.0
MOST_HEAD = 1 << 16
# A header of five bytes becomes a hundred here.
MOST_HEADERS = 128
# So many requests may wait for answers to those before them.
MOST_PIPELINED = 16
# So long may it take until an answer has been taken: longer than any that is waited for.
ANSWER_SECONDS = 400.0
# The kernel keeps no more of a connection (it doubles this), so no more is read at once.
RECEIVE_BYTES = 1 << 16


class TooMuch(Exception):
    """A request is larger than one may be, or there are too many of them."""


def limit_reads(listener: socket.socket) -> None:
    """Bound what is read at once of every connection that a socket is going to accept."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)


class GuardedProtocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, with an eye on the clock, on sizes and on how many there are."""

    _head_bytes = 0
    _is_in_head = True
    _waited = 0.0
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        if len(self.connections) >= MOST_CONNECTIONS:
            transport.abort()
            return
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._clock is not None:
            self._clock.cancel()
        # Nobody waits for these answers any more.
        self.pipeline.clear()
        if self.transport is not None:
            super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD:
                self.transport.abort()

    # --- what the parser finds; what is raised here ends the connection

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MOST_HEADERS:
            raise TooMuch
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            raise TooMuch
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head = True
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.pipeline:
            # Those that wait come first.
            self.flow.pause_reading()
        self._expect_head()

    def _expect_head(self) -> None:
        self._waited = 0.0
        if self._clock is not None:
            self._clock.cancel()
        self._clock = self.loop.call_later(HEAD_SECONDS, self._look)

    def _look(self) -> None:
        self._waited += HEAD_SECONDS
        # An answer has not been taken while some of it waits to be sent.
        is_silent = self._is_between_requests() and not self.transport.get_write_buffer_size()
        if is_silent or self._waited >= ANSWER_SECONDS:
            self.transport.abort()
        else:
            self._clock = self.loop.call_later(HEAD_SECONDS, self._look)

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete
