"""Accepts connections. Unauthenticated peers cost little memory, and only for a limited time."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from millstream.exchange.addresses import Address, accept, address_of, listen
from millstream.exchange.connection import Connection
from millstream.exchange.credentials import Credentials, Side
from millstream.exchange.poller import Poller

# Maximum number of unauthenticated connections beyond the expected ones, and seconds until they are closed.
MAX_UNAUTHENTICATED = 128
AUTHENTICATION_SECONDS = 10.0


class Acceptor:
    """A listening socket and its connections that are not authenticated yet."""

    def __init__(
        self,
        address: Address,
        poller: Poller,
        credentials: Credentials,
        on_accepted: Callable[[Connection], None],
        expected: int = 0,
    ) -> None:
        """Listen; connections are accepted once `open` is called.

        Args:
            address: the address to listen on.
            poller: sends and receives.
            credentials: authenticate a peer.
            on_accepted: gets every connection before any data has arrived, and adds it to the poller.
            expected: the number of peers that will connect, perhaps all at once.
        """
        self._max_unauthenticated = MAX_UNAUTHENTICATED + expected
        self._poller = poller
        self._credentials = credentials
        self._on_accepted = on_accepted
        self._listener: socket.socket = listen(address)
        self.address: Address = address_of(self._listener)
        # Connection times, oldest first.
        self._unauthenticated: dict[Connection, float] = {}

    def open(self) -> None:
        self._poller.watch(self._listener.fileno(), self._admit)

    def close(self) -> None:
        """Stop listening, and close unauthenticated connections."""
        self._poller.unregister(self._listener.fileno())
        self._listener.close()
        for connection in self._unauthenticated:
            self._close(connection)
        self._unauthenticated.clear()

    def _admit(self) -> None:
        accepted = accept(self._listener)
        if accepted is None:
            return
        try:
            connection = Connection(accepted, self._credentials, Side.SERVER)
        except OSError:
            # The peer has disconnected already.
            accepted.close()
            return
        self._evict()
        self._unauthenticated[connection] = time.monotonic()
        self._on_accepted(connection)

    def _evict(self) -> None:
        """Close expired connections, and the oldest ones if there are too many."""
        pending = {
            connection: since
            for connection, since in self._unauthenticated.items()
            if not connection.is_authenticated and not connection.closed
        }
        expired = time.monotonic() - AUTHENTICATION_SECONDS
        surplus = len(pending) - self._max_unauthenticated + 1
        for number, (connection, since) in enumerate(list(pending.items())):
            if since < expired or number < surplus:
                del pending[connection]
                self._close(connection, "the peer did not authenticate in time")
        self._unauthenticated = pending

    def _close(self, connection: Connection, reason: str = "") -> None:
        if not connection.is_authenticated and not connection.closed:
            self._poller.drop(connection, reason)
