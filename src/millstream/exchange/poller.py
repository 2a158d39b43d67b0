"""Sends and receives on all connections: the only place where a slot or the driver sleeps.

A slot that is blocked on sending still receives, so full buffers cannot deadlock.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from millstream.exchange.connection import Connection
from millstream.exchange.frames import Frame
from millstream.exchange.keepalive import CHECKS
from millstream.operating_system import system


@dataclass
class _Watched:
    connection: Connection
    take: Callable[[Frame], None]
    lost: Callable[[], None]
    events: int


class Poller:
    """Waits for events on connections and file descriptors."""

    def __init__(self) -> None:
        self._poll = system.poller()
        self._connections: dict[int, _Watched] = {}
        # Connections that may have data to send.
        self._active: dict[int, _Watched] = {}
        self._others: dict[int, Callable[[], None]] = {}
        # Interval of keepalive checks, and the time of the next one.
        self._check_seconds = self._next_check_at = math.inf

    def add(self, connection: Connection, take: Callable[[Frame], None], lost: Callable[[], None]) -> None:
        """Serve a connection.

        Args:
            connection: the connection.
            take: gets the received frames.
            lost: called once when the connection has broken and is no longer served.
        """
        fd = connection.socket.fileno()
        watched = self._connections[fd] = self._active[fd] = _Watched(connection, take, lost, select.POLLIN)
        connection.on_queued = partial(self._active.__setitem__, fd, watched)
        self._poll.register(fd, select.POLLIN)
        if connection.keepalive_seconds is not None:
            self._check_seconds = min(self._check_seconds, connection.keepalive_seconds / CHECKS)
            self._next_check_at = min(self._next_check_at, time.monotonic() + self._check_seconds)

    def watch(self, fd: int, act: Callable[[], None]) -> None:
        """Call a function whenever a descriptor is readable."""
        self._others[fd] = act
        self._poll.register(fd, select.POLLIN)

    @property
    def has_to_send(self) -> bool:
        """Whether any connection has data that may be sent."""
        return any(watched.connection.has_to_send for watched in self._active.values())

    def unregister(self, fd: int) -> None:
        """Stop serving a descriptor, if it was served."""
        self._active.pop(fd, None)
        was_known = self._connections.pop(fd, None) is not None
        was_known = self._others.pop(fd, None) is not None or was_known
        if was_known:
            self._poll.unregister(fd)

    def drop(self, connection: Connection, reason: str) -> None:
        """Close a connection as if it had broken."""
        watched = self._connections.get(connection.socket.fileno())
        if watched is not None and watched.connection is connection:
            connection.reason = connection.reason or reason
            self._end(watched)

    def close(self) -> None:
        """Close all connections."""
        for watched in self._connections.values():
            watched.connection.close()
        self._connections.clear()
        self._active.clear()
        self._poll.close()

    def poll(self, seconds: float | None = None) -> bool:
        """Send what can be sent, else wait for an event; return whether one was handled.

        It may return early, even without a timeout.
        """
        if self._send():
            # The peer may have waited for just that.
            seconds = 0.0
        if self._next_check_at < math.inf:
            seconds = self._check_keepalives(math.inf if seconds is None else seconds)
        ready = self._poll.poll(None if seconds is None else max(0.0, seconds))
        for fd, _ in ready:
            watched = self._connections.get(fd)
            if watched is not None:
                self._active[fd] = watched
                self._serve(fd, watched)
            elif fd in self._others:
                self._others[fd]()
        return bool(ready)

    def until(self, done: Callable[[], bool], seconds: float | None = None) -> bool:
        """Send and receive until a condition holds; return False after the timeout."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not done():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            self.poll(left)
        return True

    def _check_keepalives(self, seconds: float) -> float:
        """Close connections to unresponsive machines if a check is due; return the seconds until the next one."""
        now = time.monotonic()
        if now >= self._next_check_at:
            self._next_check_at = now + self._check_seconds
            for watched in list(self._connections.values()):
                if watched.connection.is_unresponsive:
                    self.drop(
                        watched.connection,
                        f"(no answer from its machine for {watched.connection.keepalive_seconds:g} s)",
                    )
        return min(seconds, self._next_check_at - now)

    def _send(self) -> bool:
        """Send what can be sent; return whether anything was sent."""
        has_sent = False
        for fd, watched in list(self._active.items()):
            connection = watched.connection
            if connection.has_to_send:
                before = connection.sent
                connection.flush()
                has_sent = has_sent or connection.sent > before
            events = select.POLLIN | select.POLLOUT if connection.awaits_writable else select.POLLIN
            if events != watched.events:
                watched.events = events
                self._poll.modify(fd, events)
            if not connection.has_to_send:
                del self._active[fd]
        return has_sent

    def _serve(self, fd: int, watched: _Watched) -> None:
        connection = watched.connection
        for frame in connection.receive():
            watched.take(frame)
        if connection.closed and fd in self._connections:
            self._end(watched)

    def _end(self, watched: _Watched) -> None:
        self.unregister(watched.connection.socket.fileno())
        watched.connection.close()
        watched.lost()
