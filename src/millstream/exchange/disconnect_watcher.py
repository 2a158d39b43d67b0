"""Tells when the other end of a connection is gone, while nobody reads from it."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable


class HangUps:
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
