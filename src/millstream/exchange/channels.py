"""The connections of a slot to all other slots: who is where, what may be sent, and what it costs to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import nlargest

from millstream.common.errors import MillstreamError
from millstream.exchange.acceptor import Acceptor
from millstream.exchange.addresses import Address
from millstream.exchange.connection import Connection
from millstream.exchange.credentials import Credentials
from millstream.exchange.frames import Frame, Kind, ProtocolError
from millstream.exchange.poller import Poller
from millstream.exchange.receive_buffer import ReceiveBuffer
from millstream.operators.diagnostics.io_metrics import ChannelTraffic

# The credit of a channel: so many bytes may wait at the sender before its loop has to.
CREDIT_BYTES = 8 << 20
# Small messages gather until there is this much, or the level has ended.
_GATHER_BYTES = 1 << 16
# So many channels a slot tells of at most.
TOLD_CHANNELS = 16


class PeerLostError(ConnectionError):
    """Another slot is gone: this epoch cannot end."""


class PeerUnreachableError(ConnectionError):
    """Another slot could not be called: perhaps its host cannot be reached from here at all."""


@dataclass
class Channel:
    """What one slot has to do with another.

    Attributes:
        link: the connection, which serves both directions.
        blocked: how often this slot had to wait until the other took what was sent, and for how many seconds in all.
        most_queued: the most bytes that have waited to be sent since that was last told.
    """

    link: Connection
    blocked: int = 0
    blocked_seconds: float = 0.0
    most_queued: int = 0


@dataclass
class _Caller:
    """Who is at the other end of a connection that was accepted, once that is known."""

    slot: int | None = None


class Channels:
    """The channels of one slot."""

    def __init__(
        self,
        slot: int,
        arrivals: ReceiveBuffer,
        poller: Poller,
        credentials: Credentials,
        own: Address,
        go_on: Callable[[], None],
    ) -> None:
        """Listen for others.

        Args:
            slot: whose channels they are.
            arrivals: where all goes that comes.
            poller: what sends and receives.
            credentials: what all of this execution know.
            own: where others call.
            go_on: is called whenever this slot has waited a while, and may raise.
        """
        self._slot = slot
        self._arrivals = arrivals
        self._poller = poller
        self._credentials = credentials
        self._go_on = go_on
        self._door = Acceptor(own, poller, credentials, self._welcome, expected=slot)
        self._channels: dict[int, Channel] = {}
        # For how many seconds this slot has waited for others to take something.
        self.back_pressured = 0.0
        self._lost: set[int] = set()

    @property
    def address(self) -> Address:
        """Where other slots call this one."""
        return self._door.address

    # --- meeting

    def meet(self, roster: dict[int, Address]) -> None:
        """Connect to all others: those with higher numbers are called, those with lower ones call."""
        self._door.open()
        for other in sorted(roster):
            if other > self._slot:
                link = self._call(other, roster[other])
                link.push(Frame(Kind.MEET, level=self._slot))
                self._channels[other] = Channel(link)
                self._poller.add(link, partial(self._arrivals.take, other), partial(self._lost.add, other))
        while not self._all_met(len(roster) - 1):
            self._wait()
        self._door.close()

    def _call(self, other: int, address: Address) -> Connection:
        try:
            return Connection.to(address, self._credentials)
        except FileNotFoundError:
            raise MillstreamError(
                f"The socket {address} of slot {other} was deleted under the running job, by a cleaner of temporary "
                "files perhaps."
            ) from None
        except OSError as e:
            raise PeerUnreachableError(f"slot {other} at {address} cannot be reached: {e}") from None

    def _all_met(self, others: int) -> bool:
        return len(self._channels) == others and all(c.link.is_trusted for c in self._channels.values())

    def _welcome(self, link: Connection) -> None:
        caller = _Caller()
        # Whoever cannot prove itself is hung up on, and nothing comes of it.
        self._poller.add(link, partial(self._hear, link, caller), partial(self._lose, caller))

    def _hear(self, link: Connection, caller: _Caller, frame: Frame) -> None:
        if caller.slot is not None:
            self._arrivals.take(caller.slot, frame)
            return
        other = frame.level
        if frame.kind is not Kind.MEET or other in self._channels or other >= self._slot:
            raise ProtocolError(f"slot {other} introduced itself with {frame.kind.name} to slot {self._slot}")
        caller.slot = other
        self._channels[other] = Channel(link)

    def _lose(self, caller: _Caller) -> None:
        if caller.slot is not None:
            self._lost.add(caller.slot)

    # --- sending

    def send(self, target: int, frame: Frame) -> None:
        """Send a frame; if the other does not take what was sent before, wait until it does."""
        if target == self._slot:
            self._arrivals.take(target, frame)
            return
        channel = self._channels[target]
        link = channel.link
        if link.queued and link.queued + len(frame.payload) > CREDIT_BYTES:
            self._wait_for_room(channel, len(frame.payload))
        link.push(frame)
        channel.most_queued = max(channel.most_queued, link.queued)
        if link.queued > _GATHER_BYTES:
            # Also takes what has come: a slot that sends much is not deaf meanwhile.
            self._wait(0)

    def _wait_for_room(self, channel: Channel, size: int) -> None:
        link, start = channel.link, time.monotonic()
        channel.blocked += 1
        try:
            while link.queued and link.queued + size > CREDIT_BYTES:
                self._wait()
        finally:
            seconds = time.monotonic() - start
            channel.blocked_seconds += seconds
            self.back_pressured += seconds

    # --- receiving

    def wait_for(self, epoch: int, level: int) -> list[bytes]:
        """Wait for the barriers of all slots of the level before; return what came ahead of them.

        All that others wait for is sent by then: who goes on to a level sends nothing until it is through with it. They
        do take it, since whoever has sent its barrier, and not got all of them, does nothing but wait.
        """
        while not self._arrivals.is_complete(epoch, level) or self._poller.has_to_send:
            self._wait()
        return self._arrivals.collect(epoch, level)

    def _wait(self, seconds: float | None = None) -> None:
        # Before as well: who went between two epochs will never be heard of again.
        self._check()
        self._poller.turn(seconds)
        self._check()

    def _check(self) -> None:
        self._go_on()
        if self._lost:
            first = min(self._lost)
            raise PeerLostError(f"slot {first} is gone {self._channels[first].link.reason}".rstrip())

    # --- what is known

    def take_traffic(self) -> tuple[ChannelTraffic, ...]:
        """Return what is known of each channel, or of the busiest; what was most is counted anew from here on."""
        found = [self._traffic_of(other, channel) for other, channel in self._channels.items()]
        if len(found) > TOLD_CHANNELS:
            found = nlargest(TOLD_CHANNELS, found, key=_business)
        return tuple(sorted(found, key=lambda told: told.slot))

    def _traffic_of(self, other: int, channel: Channel) -> ChannelTraffic:
        waiting, most_waiting = self._arrivals.take_waiting(other)
        link = channel.link
        most_queued, channel.most_queued = channel.most_queued, link.queued
        return ChannelTraffic(
            slot=other,
            queued=link.queued,
            most_queued=most_queued,
            waiting=waiting,
            most_waiting=most_waiting,
            sent=link.sent,
            received=link.received,
            blocked=channel.blocked,
            back_pressured=channel.blocked_seconds,
        )

    def close(self) -> None:
        """Listen no more; hanging up is the poller's part."""
        self._door.close()


def _business(told: ChannelTraffic) -> tuple[float, int, int]:
    return told.back_pressured, max(told.most_queued, told.most_waiting), told.sent + told.received
