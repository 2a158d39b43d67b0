"""SocketTextSource: reads lines from a socket."""

from __future__ import annotations

import socket
import threading

from millstream.common.errors import InvalidProgramError
from millstream.common.serialization import SimpleStringSchema
from millstream.connectors.push_source import CAPACITY, PushSource, Receiver

__all__ = ["SocketTextSource"]

_CONNECT_SECONDS = 10.0
# Delay between connection attempts, as in Flink.
_RETRY_SECONDS = 0.5
_BLOCK = 1 << 16


class SocketTextSource(PushSource):
    r"""Reads lines from a server, as Flink's `socketTextStream`; for experiments, since a socket cannot be replayed.

    The driver retains records until a checkpoint contains them, so they survive a failure of workers, but not of the
    driver. The source ends when the server disconnects and all reconnection attempts have failed.

    Args:
        hostname: the host of the server.
        port: the port of the server.
        delimiter: the record separator, by default a line end.
        max_retries: reconnection attempts, by default none; -1 for unlimited.
        capacity: maximum buffered records, by default 100,000; more cause backpressure.

    Example:
        >>> import socket, threading
        >>> from millstream.common import WatermarkStrategy
        >>> server = socket.create_server(("localhost", 0))
        >>> def serve():
        ...     with server, server.accept()[0] as connection: connection.sendall(b"to\nbe\n")
        >>> threading.Thread(target=serve).start()
        >>> source = SocketTextSource("localhost", server.getsockname()[1])
        >>> list(env.from_source(source, WatermarkStrategy.no_watermarks(), "lines").execute_and_collect())
        ['to', 'be']
    """

    def __init__(
        self, hostname: str, port: int, delimiter: str = "\n", max_retries: int = 0, capacity: int = CAPACITY
    ) -> None:
        if not delimiter:
            raise InvalidProgramError("SocketTextSource: the delimiter must not be empty.")
        if not 0 < port < 1 << 16:
            raise InvalidProgramError(f"SocketTextSource: {port} is no port: use one from 1 to 65535.")
        super().__init__(SimpleStringSchema(), capacity)
        self.name = f"Socket Stream {hostname}:{port}"
        self._address = hostname, port
        self._delimiter = delimiter.encode()
        self._retries = max_retries

    def create_receiver(self) -> Receiver:
        return _Connection(self._address, self._delimiter, self._retries, self._capacity)


class _Connection(Receiver):
    """Reads a socket on its own thread."""

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
        was_connected = False
        failure: str | None = None
        while not self._is_closed.is_set():
            try:
                with socket.create_connection(self._address, _CONNECT_SECONDS) as connection:
                    left, was_connected = self._retries, True
                    self._read(connection)
            except OSError as e:
                host, port = self._address
                failure = (
                    f"SocketTextSource: {host}:{port} cannot be read ({e}): start the server first, or set max_retries"
                )
            if left == 0:
                break
            left -= 1
            self._is_closed.wait(_RETRY_SECONDS)
        # A disconnect after a connection is the regular end of the input.
        self.buffer.end(None if was_connected else failure)

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
            self.buffer.put(records, wait=True)
