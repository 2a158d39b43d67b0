"""The channel between a cluster and a program's process: JSON lines over a socket pair."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import h11

from millstream.common.aliases import Json
from millstream.service.http import Answer, RequestError


class Channel:
    """One end of the channel. Any thread may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._file = end.makefile("rb")
        self._lock = threading.Lock()

    def send(self, **message: Json) -> bool:
        """Send a message; return whether the other end is connected."""
        try:
            with self._lock:
                self._end.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def __iter__(self) -> Iterator[dict[str, Json]]:
        """Yield messages until the other end disconnects."""
        try:
            for line in self._file:
                yield json.loads(line)
        except OSError:
            return

    def stop_receiving(self) -> None:
        """End `__iter__` after the messages already received."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self._file.close()
        self._end.close()


# How long a program's process may take to respond.
_TIMEOUT_SECONDS = 30.0
_CHUNK = 1 << 16


async def forward(path: str, method: str, target: str, body: bytes = b"") -> Answer:
    """Return a process's response.

    Args:
        path: its socket.
        method: the request's method.
        target: the request's path and query.
        body: the request's body.

    Raises:
        OSError: no process listens.
    """
    try:
        return await asyncio.wait_for(_forward(path, method, target, body), _TIMEOUT_SECONDS)
    except TimeoutError:
        raise RequestError(504, f"The job's program did not respond within {_TIMEOUT_SECONDS:g} s.") from None


async def _forward(path: str, method: str, target: str, body: bytes) -> Answer:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        connection = h11.Connection(h11.CLIENT)
        headers = [("Host", "program"), ("Content-Length", str(len(body))), ("Connection", "close")]
        request = h11.Request(method=method, target=target, headers=headers)
        for event in (request, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()
        return await _answer(connection, reader)
    finally:
        writer.close()


async def _answer(connection: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    status, media_type, parts = 0, "application/json", []
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Response):
            status = event.status_code
            media_type = next((v.decode() for k, v in event.headers if k == b"content-type"), media_type)
        elif isinstance(event, h11.Data):
            parts.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return Answer(status, b"".join(parts), media_type)
        elif isinstance(event, h11.ConnectionClosed):
            raise ConnectionResetError("the process has disconnected")
