"""SocketTextSource: the lines that a server sends."""

from __future__ import annotations

import socket
import threading

from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import SimpleStringSchema
from millstream.connectors.push_source import CAPACITY, ArrivalsSource, Inlet

__all__ = ["SocketTextSource"]

_CONNECT_SECONDS = 10.0
# Between two attempts to connect, as in Flink.
_RETRY_SECONDS = 0.5
_BLOCK = 1 << 16


class SocketTextSource(ArrivalsSource):
    """The lines that a server sends: Flink's `socketTextStream`. For trying things out: a socket cannot be read again.

    What has come is kept on the driver until it is processed for good, so that a worker may fail; what the driver had
    when it died is lost. The source ends when the server hangs up and all attempts to reach it again have failed.

    Args:
        hostname: of the server.
        port: of the server.
        delimiter: what parts records.
        max_retries: how often to try to connect again, -1 for ever.
        capacity: how many records may wait on the driver; the server waits when there are more.
    """

    def __init__(
        self, hostname: str, port: int, delimiter: str = "\n", max_retries: int = 0, capacity: int = CAPACITY
    ) -> None:
        if not delimiter:
            raise InvalidProgramError("SocketTextSource: the delimiter must not be empty.")
        if not 0 < port < 1 << 16:
            raise InvalidProgramError(f"SocketTextSource: {port} is no port.")
        super().__init__(SimpleStringSchema(), capacity)
        self.name = f"Socket Stream {hostname}:{port}"
        self._address = hostname, port
        self._delimiter = delimiter.encode()
        self._retries = max_retries

    def make_inlet(self) -> Inlet:
        return _Connection(self._address, self._delimiter, self._retries, self._capacity)


class _Connection(Inlet):
    """Reads a socket on a thread of its own."""

    def __init__(self, address: tuple[str, int], delimiter: bytes, retries: int, capacity: int) -> None:
        super().__init__(capacity)
        self._address = address
        self._delimiter = delimiter
        self._retries = retries
        self._is_closed = threading.Event()

    def open(self) -> None:
        self._is_closed.clear()
        name = f"socket-{self._address[0]}:{self._address[1]}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def close(self) -> None:
        self._is_closed.set()

    def _run(self) -> None:
        left = self._retries
        was_there = False
        failure: str | None = None
        while not self._is_closed.is_set():
            try:
                with socket.create_connection(self._address, _CONNECT_SECONDS) as connection:
                    left, was_there = self._retries, True
                    self._read(connection)
            except OSError as e:
                host, port = self._address
                failure = f"the server {host}:{port} cannot be read from ({e}): start it first, or allow max_retries"
            if left == 0:
                break
            left -= 1
            self._is_closed.wait(_RETRY_SECONDS)
        # A server that was there and is gone has said all it had to say.
        self.arrivals.end(None if was_there else failure)

    def _read(self, connection: socket.socket) -> None:
        connection.settimeout(0.2)
        rest = b""
        while not self._is_closed.is_set():
            try:
                block = connection.recv(_BLOCK)
            except TimeoutError:
                continue
            if not block:
                break
            *records, rest = (rest + block).split(self._delimiter)
            self._put(records)
        if rest:
            self._put([rest])

    def _put(self, records: list[bytes]) -> None:
        if self._delimiter == b"\n":
            records = [record.removesuffix(b"\r") for record in records]
        if records:
            self.arrivals.put(records, wait=True)
