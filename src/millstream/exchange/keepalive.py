"""Detects dead peers: TCP keepalive for machines that do not answer, and a watcher for broken connections.

The kernel of a machine answers even if its processes are frozen or busy. Without keepalive, two slots whose machines
cannot reach each other, while both reach the driver, would wait for the TCP timeout of a quarter of an hour. TCP's
own limit (TCP_USER_TIMEOUT) also ends connections whose peer only does not read.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable

# Number of keepalive probes, and of checks, within the timeout.
CHECKS = 5
# Of Linux's tcp_info: retransmits since the last answer, and milliseconds since then.
_INFO = struct.Struct("=2xB53xI")


def enable_keepalive(connection: socket.socket, seconds: float) -> None:
    """Let the kernel probe the peer's machine, and break the connection if it does not answer."""
    every = max(1, round(seconds / CHECKS))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, CHECKS - 1)


def is_unresponsive(connection: socket.socket, seconds: float) -> bool:
    """Return whether data was retransmitted without an answer for `seconds`.

    The kernel sends no keepalive probes while data is unacknowledged.
    """
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    repeats, milliseconds = _INFO.unpack_from(info)
    return bool(repeats) and milliseconds >= seconds * 1000


class DisconnectWatcher:
    """Watches connections on its own thread, which sleeps until one of them breaks.

    It reads nothing. Systems without epoll (all but Linux) report nothing; the next read detects the disconnect.
    """

    def __init__(self, on_disconnect: Callable[[], None]) -> None:
        """Start to watch.

        Args:
            on_disconnect: called on the thread when the first connection has broken.
        """
        self._on_disconnect = on_disconnect
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        # Closing one end of the pipe wakes the thread.
        self._end, self._ender = os.pipe()
        if self._epoll is not None:
            self._epoll.register(self._end, select.EPOLLIN)
            threading.Thread(target=self._watch, args=(self._epoll,), name="hang-ups", daemon=True).start()

    def add(self, descriptor: int) -> None:
        """Watch a connection until it is closed on this side."""
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def close(self) -> None:
        """Stop watching."""
        if self._ender < 0:
            return
        os.close(self._ender)
        self._ender = -1
        if self._epoll is None:
            os.close(self._end)

    def _watch(self, epoll: select.epoll) -> None:
        broken = {descriptor for descriptor, _ in epoll.poll()}
        if self._end not in broken:
            self._on_disconnect()
            # The descriptor must not be reused while `close` can still be called.
            while self._end not in {descriptor for descriptor, _ in epoll.poll()}:
                pass
        epoll.close()
        os.close(self._end)
