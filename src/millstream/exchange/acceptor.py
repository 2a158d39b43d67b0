"""Where callers come in. Who has not proved to be of the execution costs little, and not for long."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from millstream.exchange.addresses import Address, accept, address_of, listen
from millstream.exchange.connection import Connection
from millstream.exchange.credentials import Credentials
from millstream.exchange.handshake import Side
from millstream.exchange.poller import Poller

# So many strangers may be about to prove themselves at once, besides all that are expected, and for so long.
MOST_UNPROVED = 128
PROOF_SECONDS = 10.0


class Acceptor:
    """A listener, as long as it is open, and those who have called and not proved themselves yet."""

    def __init__(
        self,
        own: Address,
        poller: Poller,
        credentials: Credentials,
        welcome: Callable[[Connection], None],
        expected: int = 0,
    ) -> None:
        """Listen; callers are let in once `open` is called.

        Args:
            own: where to listen.
            poller: what sends and receives.
            credentials: what a caller has to know.
            welcome: is given every link, before anything has come over it, and adds it to the poller.
            expected: how many will call, perhaps all at once.
        """
        self._most_unproved = MOST_UNPROVED + expected
        self._poller = poller
        self._credentials = credentials
        self._welcome = welcome
        self._listener: socket.socket = listen(own)
        self.address: Address = address_of(self._listener)
        # When each of them called, oldest first.
        self._unproved: dict[Connection, float] = {}

    def open(self) -> None:
        self._poller.watch(self._listener.fileno(), self._admit)

    def close(self) -> None:
        """Listen no more, and hang up on those who have not proved themselves."""
        self._poller.forget(self._listener.fileno())
        self._listener.close()
        for link in self._unproved:
            self._hang_up(link)
        self._unproved.clear()

    def _admit(self) -> None:
        connection = accept(self._listener)
        if connection is None:
            return
        try:
            link = Connection(connection, self._credentials, Side.CALLED)
        except OSError:
            # The caller has gone already.
            connection.close()
            return
        self._make_room()
        self._unproved[link] = time.monotonic()
        self._welcome(link)

    def _make_room(self) -> None:
        """Forget who has proved itself or gone; hang up on who takes too long, and on the oldest if there are many."""
        waiting = {link: since for link, since in self._unproved.items() if not link.is_trusted and not link.closed}
        expired = time.monotonic() - PROOF_SECONDS
        surplus = len(waiting) - self._most_unproved + 1
        for number, (link, since) in enumerate(list(waiting.items())):
            if since < expired or number < surplus:
                del waiting[link]
                self._hang_up(link, "it did not prove that it is of this job")
        self._unproved = waiting

    def _hang_up(self, link: Connection, reason: str = "") -> None:
        if not link.is_trusted and not link.closed:
            self._poller.drop(link, reason)
