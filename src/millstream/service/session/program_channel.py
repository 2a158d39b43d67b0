"""The line between a cluster and the process of a program: JSON, a message a line, over a socket pair."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any


class Line:
    """One end of the line. Any thread may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._file = end.makefile("rb")
        self._lock = threading.Lock()

    def send(self, **message: Any) -> bool:
        """Send a message; tell whether there is still somebody at the other end."""
        try:
            with self._lock:
                self._end.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            return False
        return True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield messages until the other end is gone."""
        try:
            for line in self._file:
                yield json.loads(line)
        except OSError:
            return

    def hear_no_more(self) -> None:
        """Let nothing more come; what has come is still received."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self._file.close()
        self._end.close()
