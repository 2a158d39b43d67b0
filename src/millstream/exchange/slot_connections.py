"""The connections of a slot to all other slots, with credit and backpressure, and the frames received over them.

A slot sends each level's messages as DATA frames. Frames of a sender arrive in the order of its epochs and levels, and
an END with the number of messages closes each level. A level can run when the ENDs of all its senders have arrived.
So a lost, duplicate or late frame is out of order at the latest with the sender's next frame, and is detected. (The
very last frame can only be lost with its connection, which is detected as well.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import nlargest

from millstream.common.errors import MillstreamError
from millstream.exchange.acceptor import Acceptor
from millstream.exchange.addresses import Address
from millstream.exchange.connection import Connection
from millstream.exchange.credentials import Credentials
from millstream.exchange.frames import COUNT, Frame, Kind, ProtocolError
from millstream.exchange.poller import Poller
from millstream.operators.diagnostics.io_metrics import ChannelTraffic


@dataclass
class _Level:
    """Frames received for one level of one epoch."""

    messages: list[bytes] = field(default_factory=list)
    ended: int = 0


@dataclass
class _Sender:
    """The progress of a sender.

    Attributes:
        levels: the levels it sends to here, in every epoch.
        epoch: its current or last epoch.
        index: the index in `levels` of the level it ends next.
        messages: the messages received for that level.
        pending, max_pending: bytes waiting for their level, now and at most.
    """

    levels: list[int]
    epoch: int = -1
    index: int = 0
    messages: int = 0
    pending: int = 0
    max_pending: int = 0


class ReceiveBuffer:
    """The input of one slot, from all slots that send to it, including itself."""

    def __init__(self, slot: int, widths: list[int]) -> None:
        """Create an empty buffer.

        Args:
            slot: the number of the slot.
            widths: the number of slots of each level.
        """
        self._widths = widths
        self._levels: dict[tuple[int, int], _Level] = {}
        self._sizes: dict[tuple[int, int], dict[int, int]] = {}
        self._senders = {
            sender: _Sender([n for n in range(1, len(widths)) if slot < widths[n] and sender < widths[n - 1]])
            for sender in range(max(widths))
        }

    def take(self, sender: int, frame: Frame) -> None:
        """Add a frame of another slot or of this one. Raises ProtocolError."""
        state = self._senders[sender]
        self._check(sender, state, frame)
        key = frame.epoch, frame.level
        level = self._levels.setdefault(key, _Level())
        if frame.kind is Kind.DATA:
            state.messages += 1
            state.pending += len(frame.payload)
            state.max_pending = max(state.max_pending, state.pending)
            sizes = self._sizes.setdefault(key, {})
            sizes[sender] = sizes.get(sender, 0) + len(frame.payload)
            level.messages.append(frame.payload)
            return
        announced = COUNT.unpack(frame.payload)[0]
        if announced != state.messages:
            expected = f"{announced} messages for {_name(key)}"
            raise ProtocolError(f"slot {sender} sent {expected}, of which {state.messages} arrived")
        level.ended += 1
        state.messages = 0
        state.index += 1

    def _check(self, sender: int, state: _Sender, frame: Frame) -> None:
        if frame.kind not in (Kind.DATA, Kind.END):
            raise ProtocolError(f"slot {sender} sent {frame.kind.name} to another slot")
        if state.index == len(state.levels) and frame.epoch > state.epoch:
            state.index = 0
        if state.index == 0 and not state.messages and state.levels[:1] == [frame.level]:
            # A sender begins its first epoch, or the next one after it has ended all levels.
            state.epoch = frame.epoch
        expected = (state.epoch, state.levels[state.index]) if state.index < len(state.levels) else None
        if (frame.epoch, frame.level) != expected:
            deadline = f"before the end of {_name(expected)}" if expected else f"after the end of epoch {state.epoch}"
            raise ProtocolError(f"slot {sender} sent {frame.kind.name} of {_name(frame[1:3])} {deadline}")

    def is_complete(self, epoch: int, level: int) -> bool:
        """Return whether all input of a level has arrived."""
        arrived = self._levels.get((epoch, level))
        return arrived is not None and arrived.ended == self._widths[level - 1]

    def collect(self, epoch: int, level: int) -> list[bytes]:
        """Return the messages of a complete level."""
        for sender, size in self._sizes.pop((epoch, level), {}).items():
            self._senders[sender].pending -= size
        return self._levels.pop((epoch, level)).messages

    def take_pending(self, sender: int) -> tuple[int, int]:
        """Return the bytes of a sender that wait for their level: now, and the maximum since the last call."""
        state = self._senders[sender]
        max_pending, state.max_pending = state.max_pending, state.pending
        return state.pending, max_pending


def _name(key: tuple[int, int]) -> str:
    epoch, level = key
    return f"level {level} of epoch {epoch}"


# The credit of a connection: bytes that may be queued at the sender before it blocks.
CREDIT_BYTES = 8 << 20
# Small messages gather up to this size, or until the level ends.
_GATHER_BYTES = 1 << 16
# Maximum number of connections in a slot's I/O metrics.
MAX_REPORTED_CHANNELS = 16


class PeerLostError(ConnectionError):
    """Another slot died: this epoch cannot end."""


class PeerUnreachableError(ConnectionError):
    """Another slot cannot be connected to: its host may be unreachable."""


@dataclass
class SlotConnection:
    """The connection to another slot, and its metrics.

    Attributes:
        connection: the connection, used in both directions.
        blocked, blocked_seconds: number and duration of backpressure by the other slot.
        max_queued: the maximum queued bytes since the last report.
    """

    connection: Connection
    blocked: int = 0
    blocked_seconds: float = 0.0
    max_queued: int = 0


@dataclass
class _Peer:
    """The peer of an accepted connection, once it is known."""

    slot: int | None = None


class SlotConnections:
    """The connections of one slot to all others."""

    def __init__(
        self,
        slot: int,
        receive_buffer: ReceiveBuffer,
        poller: Poller,
        credentials: Credentials,
        address: Address,
        check: Callable[[], None],
    ) -> None:
        """Listen for other slots.

        Args:
            slot: the number of this slot.
            receive_buffer: receives all frames.
            poller: sends and receives.
            credentials: of this execution.
            address: the address to listen on.
            check: called whenever this slot has waited; may raise.
        """
        self._slot = slot
        self._receive_buffer = receive_buffer
        self._poller = poller
        self._credentials = credentials
        self._check_driver = check
        self._acceptor = Acceptor(address, poller, credentials, self._on_accepted, expected=slot)
        self._connections: dict[int, SlotConnection] = {}
        # Total seconds of backpressure.
        self.back_pressured = 0.0
        self._lost: set[int] = set()

    @property
    def address(self) -> Address:
        """The address of this slot."""
        return self._acceptor.address

    # --- connecting

    def connect_peers(self, roster: dict[int, Address]) -> None:
        """Connect to all slots with higher numbers; those with lower numbers connect to this one."""
        self._acceptor.open()
        for other in sorted(roster):
            if other > self._slot:
                connection = self._connect(other, roster[other])
                connection.push(Frame(Kind.INTRODUCE, level=self._slot))
                self._connections[other] = SlotConnection(connection)
                self._poller.add(connection, partial(self._receive_buffer.take, other), partial(self._lost.add, other))
        while not self._all_connected(len(roster) - 1):
            self._wait()
        self._acceptor.close()

    def _connect(self, other: int, address: Address) -> Connection:
        try:
            return Connection.to(address, self._credentials)
        except FileNotFoundError:
            raise MillstreamError(
                f"The socket {address} of slot {other} was deleted while the job was running, perhaps by a cleaner of "
                "temporary files: set TMPDIR to a directory that is not cleaned."
            ) from None
        except OSError as e:
            raise PeerUnreachableError(f"slot {other} at {address} cannot be reached: {e}") from None

    def _all_connected(self, peers: int) -> bool:
        return len(self._connections) == peers and all(
            c.connection.is_authenticated for c in self._connections.values()
        )

    def _on_accepted(self, connection: Connection) -> None:
        peer = _Peer()
        # Unauthenticated peers are disconnected without further effect.
        self._poller.add(
            connection, partial(self._receive_frame, connection, peer), partial(self._on_disconnected, peer)
        )

    def _receive_frame(self, connection: Connection, peer: _Peer, frame: Frame) -> None:
        if peer.slot is not None:
            self._receive_buffer.take(peer.slot, frame)
            return
        other = frame.level
        if frame.kind is not Kind.INTRODUCE or other in self._connections or other >= self._slot:
            raise ProtocolError(f"slot {other} sent {frame.kind.name} to slot {self._slot}, which did not expect it")
        peer.slot = other
        self._connections[other] = SlotConnection(connection)

    def _on_disconnected(self, peer: _Peer) -> None:
        if peer.slot is not None:
            self._lost.add(peer.slot)

    # --- sending

    def send(self, target: int, frame: Frame) -> None:
        """Send a frame; block while the connection has no credit."""
        if target == self._slot:
            self._receive_buffer.take(target, frame)
            return
        peer = self._connections[target]
        connection = peer.connection
        if connection.queued and connection.queued + len(frame.payload) > CREDIT_BYTES:
            self._wait_for_credit(peer, len(frame.payload))
        connection.push(frame)
        peer.max_queued = max(peer.max_queued, connection.queued)
        if connection.queued > _GATHER_BYTES:
            # Also receives: a slot that sends much keeps receiving.
            self._wait(0)

    def _wait_for_credit(self, peer: SlotConnection, size: int) -> None:
        connection, start = peer.connection, time.monotonic()
        peer.blocked += 1
        try:
            while connection.queued and connection.queued + size > CREDIT_BYTES:
                self._wait()
        finally:
            seconds = time.monotonic() - start
            peer.blocked_seconds += seconds
            self.back_pressured += seconds

    # --- receiving

    def wait_for(self, epoch: int, level: int) -> list[bytes]:
        """Wait for the barriers of all slots of the previous level; return the messages before them.

        All output is sent by then: user code has the slot's only thread while it runs. The others receive it, since
        a slot that has sent its barrier and misses others only waits.
        """
        while not self._receive_buffer.is_complete(epoch, level) or self._poller.has_to_send:
            self._wait()
        return self._receive_buffer.collect(epoch, level)

    def _wait(self, seconds: float | None = None) -> None:
        # Check before as well: a peer lost between two epochs sends nothing more.
        self._check()
        self._poller.poll(seconds)
        self._check()

    def _check(self) -> None:
        self._check_driver()
        if self._lost:
            first = min(self._lost)
            raise PeerLostError(f"slot {first} disconnected {self._connections[first].connection.reason}".rstrip())

    # --- metrics

    def take_traffic(self) -> tuple[ChannelTraffic, ...]:
        """Return the I/O metrics of each connection, or of the busiest ones; maxima restart from here."""
        traffic = [self._traffic_of(other, peer) for other, peer in self._connections.items()]
        if len(traffic) > MAX_REPORTED_CHANNELS:
            traffic = nlargest(MAX_REPORTED_CHANNELS, traffic, key=_load_of)
        return tuple(sorted(traffic, key=lambda t: t.slot))

    def _traffic_of(self, other: int, peer: SlotConnection) -> ChannelTraffic:
        pending, max_pending = self._receive_buffer.take_pending(other)
        connection = peer.connection
        max_queued, peer.max_queued = peer.max_queued, connection.queued
        return ChannelTraffic(
            slot=other,
            queued=connection.queued,
            max_queued=max_queued,
            waiting=pending,
            max_waiting=max_pending,
            sent=connection.sent,
            received=connection.received,
            blocked=peer.blocked,
            back_pressured=peer.blocked_seconds,
        )

    def close(self) -> None:
        """Stop listening; the poller closes the connections."""
        self._acceptor.close()


def _load_of(traffic: ChannelTraffic) -> tuple[float, int, int]:
    return traffic.back_pressured, max(traffic.max_queued, traffic.max_waiting), traffic.sent + traffic.received
