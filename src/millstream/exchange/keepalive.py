"""Whether the machine at the other end of a TCP connection still answers.

Its kernel answers whatever its processes do: one that is frozen, or too busy to read, is not silent. Without this, two
slots whose machines no longer reach each other, while both reach the driver, would wait until TCP gives up, a quarter
of an hour. TCP's own limit (TCP_USER_TIMEOUT) also ends connections whose other end only does not read.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections.abc import Callable

# Signs of life are asked for, and looked at, so often within the time that is allowed.
CHECKS = 5
# Of Linux's tcp_info: how often something was sent again since the last answer, and milliseconds since that.
_INFO = struct.Struct("=2xB53xI")


def enable_keepalive(connection: socket.socket, seconds: float) -> None:
    """Have the kernel ask the other machine now and then whether it is there, and break the connection if not."""
    every = max(1, round(seconds / CHECKS))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, every)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, CHECKS - 1)


def is_silent(connection: socket.socket, seconds: float) -> bool:
    """Tell whether something was sent again and again, and no answer has come for so long.

    The kernel does not ask for signs while something is on its way.
    """
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    repeats, milliseconds = _INFO.unpack_from(info)
    return bool(repeats) and milliseconds >= seconds * 1000


class DisconnectWatcher:
    """Watches connections on a thread of its own, which sleeps until one of them has broken.

    It reads nothing. Where the system has no epoll (it is Linux's), nothing is told; who reads next notices.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        """Begin to watch.

        Args:
            tell: is called, from the thread, when a connection has broken; only for the first.
        """
        self._tell = tell
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        # Closing the one end wakes the thread.
        self._end, self._ender = os.pipe()
        if self._epoll is not None:
            self._epoll.register(self._end, select.EPOLLIN)
            threading.Thread(target=self._watch, args=(self._epoll,), name="hang-ups", daemon=True).start()

    def add(self, descriptor: int) -> None:
        """Watch a connection, until it is closed at this end."""
        if self._epoll is not None:
            self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def close(self) -> None:
        """Watch no longer."""
        if self._ender < 0:
            return
        os.close(self._ender)
        self._ender = -1
        if self._epoll is None:
            os.close(self._end)

    def _watch(self, epoll: select.epoll) -> None:
        broken = {descriptor for descriptor, _ in epoll.poll()}
        if self._end not in broken:
            self._tell()
            # Nobody else may get the descriptor while `close` can still be called.
            while self._end not in {descriptor for descriptor, _ in epoll.poll()}:
                pass
        epoll.close()
        os.close(self._end)
