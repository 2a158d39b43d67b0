"""A small TCP proxy that simulates a network partition: clients lose the server, and neither side is notified."""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class PartitionProxy:
    """Forwards bytes to a server, except during a partition."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._is_partitioned = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def partition(self) -> None:
        """Stop forwarding: connections stay open without traffic."""
        self._is_partitioned.set()

    def heal(self) -> None:
        """Resume forwarding."""
        self._is_partitioned.clear()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                while self._is_partitioned.is_set():
                    time.sleep(0.02)
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.close()
