"""Detects dead peers: TCP keepalive for machines that do not answer, and a watcher for broken connections.

The kernel of a machine answers even if its processes are frozen or busy. Without keepalive, two slots whose machines
cannot reach each other, while both reach the driver, would wait for the TCP timeout of a quarter of an hour. TCP's
own limit (TCP_USER_TIMEOUT) also ends connections whose peer only does not read.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable

from millstream.operating_system import DisconnectPoller, system

# Number of keepalive probes, and of checks, within the timeout.
CHECKS = 5


def enable_keepalive(connection: socket.socket, seconds: float) -> None:
    """Let the kernel probe the peer's machine, and break the connection if it does not answer."""
    every = max(1, round(seconds / CHECKS))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    system.probe_after(connection, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, CHECKS - 1)


def is_unresponsive(connection: socket.socket, seconds: float) -> bool:
    """Return whether data was retransmitted without an answer for `seconds`.

    The kernel sends no keepalive probes while data is unacknowledged.
    """
    return system.unanswered_milliseconds(connection) >= seconds * 1000


class DisconnectWatcher:
    """Watches connections on its own thread, which sleeps until one of them breaks.

    It reads nothing. Only Linux can do that; elsewhere the next read detects the disconnect.
    """

    def __init__(self, on_disconnect: Callable[[], None]) -> None:
        """Start to watch.

        Args:
            on_disconnect: called on the thread when the first connection has broken.
        """
        self._on_disconnect = on_disconnect
        self._poller = system.disconnect_poller()
        # Closing one end of the pipe wakes the thread.
        self._end, self._ender = os.pipe()
        if self._poller is not None:
            self._poller.add(self._end)
            threading.Thread(target=self._watch, args=(self._poller,), name="hang-ups", daemon=True).start()

    def add(self, descriptor: int) -> None:
        """Watch a connection until it is closed on this side."""
        if self._poller is not None:
            self._poller.add(descriptor)

    def close(self) -> None:
        """Stop watching."""
        if self._ender < 0:
            return
        os.close(self._ender)
        self._ender = -1
        if self._poller is None:
            os.close(self._end)

    def _watch(self, poller: DisconnectPoller) -> None:
        broken = poller.wait()
        if self._end not in broken:
            self._on_disconnect()
            # The descriptor must not be reused while `close` can still be called.
            while self._end not in poller.wait():
                pass
        poller.close()
        os.close(self._end)
