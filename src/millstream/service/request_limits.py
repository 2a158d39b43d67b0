"""Limits of connections and requests: their number, time, size and origin.

The service runs in the process of the jobs. A client that opens connections and sends nothing, sends a request byte by
byte or many requests at once, or does not read its response must not exhaust the process. These limits apply before
authentication.

Bounds the memory of a connection: the head of a request (`MAX_HEAD_BYTES` bytes, `MAX_HEADERS` headers), pipelined
requests (`MAX_PIPELINED`), and the bytes read at once (`RECEIVE_BYTES`).

A browser sends requests for any page it shows. A page of another site must not reach this service through it: neither
as itself (it could cancel a job with a form, without reading the response), nor under its own host name resolving to
this machine (DNS rebinding: it could read the response too).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from millstream.service.http import error_response, is_page

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


# Limits of a request.
MAX_PATH, MAX_QUERY, MAX_HEADERS = 4096, 16_384, 1 << 16
_FOREIGN = ("cross-site", "same-site")


def rejection(headers: Iterable[tuple[bytes, bytes]], names: Collection[str] | None) -> str | None:
    """Return why a request is rejected; None if it is allowed.

    Args:
        headers: its headers, names in lower case.
        names: allowed host names besides those of this machine; None allows any.

    Example:
        >>> rejection([(b"host", b"localhost:8081")], ())
        >>> rejection([(b"host", b"evil.example:8081")], ()).split(":")[0]
        "This service is not called 'evil.example'"
        >>> rejection([(b"host", b"localhost:8081"), (b"origin", b"http://evil.example")], ())
        'Pages of http://evil.example may not use this service.'
    """
    values = {name: value.decode("latin-1") for name, value in headers}
    host = values.get(b"host")
    if names is not None and host is not None and not _is_allowed(_name(host), names):
        return (
            f"This service is not called {_name(host)!r}: use localhost, or set rest.address to the host name that "
            "clients use."
        )
    origin = values.get(b"origin")
    if origin is not None and origin.partition("://")[2] != host:
        return f"Pages of {origin} may not use this service."
    if values.get(b"sec-fetch-site") in _FOREIGN:
        return "Pages of other sites may not use this service."
    return None


def _name(host: str) -> str:
    """Return the name in a `Host` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _is_allowed(name: str, names: Collection[str]) -> bool:
    lower = name.lower().rstrip(".")
    if lower in names or lower == "localhost" or lower.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(lower).is_loopback
    except ValueError:
        return False


class RequestChecks:
    """Middleware that rejects requests before they reach the application."""

    def __init__(self, app: ASGIApp, names: Collection[str] | None) -> None:
        """Wrap an application.

        Args:
            app: the application.
            names: allowed host names besides those of this machine; None allows any.
        """
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rejected = self._rejected(scope) if scope["type"] == "http" else None
        await (self._app if rejected is None else rejected)(scope, receive, send)

    def _rejected(self, scope: Scope) -> Response | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(scope["path"]) > MAX_PATH or len(scope["query_string"]) > MAX_QUERY:
            return error_response(414, f"A path has at most {MAX_PATH:,} characters, and a query {MAX_QUERY:,}.")
        if sum(len(name) + len(value) for name, value in headers) > MAX_HEADERS:
            return error_response(431, f"Headers have at most {MAX_HEADERS:,} bytes.")
        if is_page(scope["path"]):
            # Links from other sites may lead there.
            return None
        reason = rejection(headers, self._names)
        return None if reason is None else error_response(403, reason)
