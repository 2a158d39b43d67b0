"""The driver's side of the exchange: carries out the instructions of the exchange machine over its connections."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypedDict

from millstream.common.dispatch import MethodDispatch
from millstream.common.private_files import socket_directory
from millstream.exchange import exchange_machine as p
from millstream.exchange.acceptor import Acceptor
from millstream.exchange.addresses import Address, address_in
from millstream.exchange.connection import Connection
from millstream.exchange.credentials import Credentials
from millstream.exchange.frames import PAUSE, SLOT_PART, Frame, Kind, ProtocolError
from millstream.exchange.keepalive import DisconnectWatcher
from millstream.exchange.poller import Poller

log = logging.getLogger("millstream")

# Timeout of starting the slots: Spark may have to wait for cores.
START_SECONDS = 60.0


class ExchangeFailed(Exception):
    """An epoch failed, and with it the execution."""

    def __init__(self, cause: p.Cause) -> None:
        super().__init__(f"{cause.kind.name}: {cause.text}")
        self.cause = cause


class Registration(TypedDict):
    """The payload of a slot's registration."""

    slot: int
    address: str | list[str | int]


class _Peer:
    """The peer of a connection, once it is known."""

    def __init__(self) -> None:
        self.slot: int | None = None
        self.is_host = False


class Exchange:
    """The driver's end of one execution. All methods but `notify` are called from one thread."""

    def __init__(
        self,
        slots: int,
        reporters: int,
        credentials: Credentials,
        host: str | None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """Listen for slots.

        Args:
            slots: the number of slots.
            reporters: the number of slots, from 0, that report the end of an epoch.
            credentials: of this execution.
            host: the address of this machine that slots connect to; None if all are on this machine.
            lost: called from any thread when a slot or its host process dies, even between two epochs.
        """
        self._machine = p.ExchangeMachine(slots, reporters)
        self._expected_slots = slots
        self._expected_hosts = 0
        self._directory = socket_directory("millstream-x-") if host is None else None
        self._poller = Poller()
        address = os.path.join(self._directory, "d") if self._directory else (str(host), 0)
        self._acceptor = Acceptor(address, self._poller, credentials, self._on_accepted, expected=2 * slots)
        self._slots: dict[int, Connection] = {}
        # Connections that are no slots: host processes, and peers that have not registered.
        self._others: dict[Connection, _Peer] = {}
        self._outcome: p.FinishEpoch | p.FailEpoch | None = None
        self._ended_at = time.monotonic()
        self._pause = 0.0
        self._slot_parts: Sequence[bytes] = ()
        self._events: SimpleQueue[p.Event] = SimpleQueue()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        # The reason of the last rejection of a peer.
        self._refusal = ""
        self._acceptor.open()
        self._poller.watch(self._wake.fileno(), self._handle_notifications)
        self._disconnect_watcher = DisconnectWatcher(lost)

    @property
    def address(self) -> Address:
        """The address that slots connect to."""
        return self._acceptor.address

    @property
    def has_hosts(self) -> bool:
        """Whether a host process has connected. Any thread may ask."""
        return any(peer.is_host for peer in list(self._others.values()))

    @property
    def awaits_first_host(self) -> bool:
        """Whether nothing has started: no host or slot has connected, and none was lost. Any thread may ask."""
        return self._machine.phase is p.Phase.STARTING and not self._slots and not self.has_hosts

    @property
    def has_all_slots(self) -> bool:
        """Whether all slots have registered."""
        return len(self._slots) == self._expected_slots

    def expect_hosts(self, hosts: int) -> None:
        """Set the number of host processes before the first connects: after the last one, listening stops."""
        self._expected_hosts = hosts

    def notify(self, event: p.Event) -> None:
        """Queue an event. May be called from any thread."""
        self._events.put(event)
        try:
            self._waker.send(b"w")
        except OSError as e:
            # Full: it is awake anyway. Closed: the exchange has ended.
            log.debug("waking the exchange failed: %s", e)

    def run(self, epoch: int, payload: bytes, slot_parts: Sequence[bytes] = ()) -> list[bytes]:
        """Run an epoch; return the reports. Raises ExchangeFailed.

        Args:
            epoch: its number.
            payload: the common part of the tasks.
            slot_parts: the part of each slot, by number.
        """
        self._outcome = None
        self._slot_parts = slot_parts
        self._pause = time.monotonic() - self._ended_at
        self._handle_notifications()
        self._handle(p.EpochRequested(epoch, payload))
        deadline = time.monotonic() + START_SECONDS
        while self._outcome is None:
            left = None if self._machine.phase is p.Phase.RUNNING else deadline - time.monotonic()
            if left is not None and left <= 0:
                self._handle(p.StartTimedOut(self._refusal))
            else:
                self._poll_once(left)
        if isinstance(self._outcome, p.FailEpoch):
            raise ExchangeFailed(self._outcome.cause)
        return self._outcome.reports

    def release(self) -> None:
        """Stop idle slots, and end the others."""
        self._disconnect_watcher.close()
        self._handle_notifications()
        self._handle(p.ReleaseRequested())

    def serve_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Send and receive until a condition holds; return False after the timeout."""
        deadline = time.monotonic() + seconds
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._poll_once(left)
        return True

    def close(self) -> None:
        """Close all connections and stop listening."""
        self._disconnect_watcher.close()
        self._close_connections(p.CloseConnections())
        self._poller.close()
        self._wake.close()
        self._waker.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    # --- events

    def _poll_once(self, seconds: float | None) -> None:
        try:
            self._poller.poll(seconds)
        except ProtocolError as e:
            self._handle(p.ProtocolViolated(str(e)))

    def _handle_notifications(self) -> None:
        """Handle events of other threads."""
        # The wake-up byte may have been read already.
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        while True:
            try:
                event = self._events.get_nowait()
            except Empty:
                return
            self._handle(event)

    def _on_accepted(self, connection: Connection) -> None:
        peer = _Peer()
        self._others[connection] = peer
        self._poller.add(
            connection, partial(self._take, connection, peer), partial(self._on_disconnected, connection, peer)
        )

    def _take(self, connection: Connection, peer: _Peer, frame: Frame) -> None:
        slot = peer.slot
        if frame.kind is Kind.REGISTER_HOST and slot is None:
            peer.is_host = True
            self._disconnect_watcher.add(connection.socket.fileno())
            self._stop_accepting_after_last()
        elif frame.kind is Kind.FROZEN and peer.is_host:
            self._handle(p.SlotFrozen(frame.payload.decode()))
        elif frame.kind is Kind.REGISTER and slot is None:
            self._register_slot(connection, peer, frame)
        elif frame.kind is Kind.FAILED:
            # Perhaps before its registration: it opens its work first.
            self._handle(p.SlotFailed(slot, frame.payload.decode()))
        elif slot is None:
            raise ProtocolError(f"an unregistered peer sent {frame.kind.name}")
        elif frame.kind is Kind.CONNECTED:
            self._handle(p.SlotConnected(slot))
        elif frame.kind is Kind.REPORT:
            self._handle(p.SlotReported(slot, frame.epoch, frame.payload))
        elif frame.kind is Kind.LOST:
            self._receive_from_hosts()
            self._handle(p.ConnectionLost(f"slot {slot}: {frame.payload.decode()}"))
        elif frame.kind is Kind.UNREACHABLE:
            self._handle(p.PeerUnreachable(f"slot {slot}: {frame.payload.decode()}"))
        else:
            raise ProtocolError(f"slot {slot} sent {frame.kind.name} to the driver")

    def _register_slot(self, connection: Connection, peer: _Peer, frame: Frame) -> None:
        registration: Registration = json.loads(frame.payload)
        peer.slot = int(registration["slot"])
        del self._others[connection]
        self._slots[peer.slot] = connection
        self._disconnect_watcher.add(connection.socket.fileno())
        self._stop_accepting_after_last()
        self._handle(p.SlotRegistered(peer.slot, address_in(registration["address"])))

    def _stop_accepting_after_last(self) -> None:
        hosts = sum(peer.is_host for peer in self._others.values())
        if self.has_all_slots and hosts == self._expected_hosts:
            self._acceptor.close()

    def _on_disconnected(self, connection: Connection, peer: _Peer) -> None:
        self._others.pop(connection, None)
        if peer.is_host or peer.slot is not None:
            self._receive_from_hosts()
            lost = "a process that holds slots" if peer.slot is None else f"slot {peer.slot}"
            self._handle(p.ConnectionLost(f"{lost} disconnected {connection.reason}".rstrip()))
        elif connection.reason:
            self._refusal = f"a connection was refused: {connection.reason}"
            log.warning("%s", self._refusal)

    def _receive_from_hosts(self) -> None:
        """Handle frames that hosts have sent before a slot was lost: they may explain it."""
        for connection, peer in list(self._others.items()):
            for frame in connection.receive() if peer.is_host and not connection.closed else ():
                self._take(connection, peer, frame)

    # --- instructions

    def _handle(self, event: p.Event) -> None:
        for instruction in self._machine.handle(event):
            self._HANDLERS[instruction](self, instruction)

    def _send_roster(self, instruction: p.SendRoster) -> None:
        self._send_all(Frame(Kind.ROSTER, payload=json.dumps(instruction.roster).encode()))

    def _send_epoch(self, instruction: p.SendEpoch) -> None:
        pause = PAUSE.pack(self._pause)
        for slot, connection in self._slots.items():
            part = self._slot_parts[slot] if self._slot_parts else b""
            payload = b"".join((pause, SLOT_PART.pack(len(part)), part, instruction.payload))
            connection.push(Frame(Kind.EPOCH, instruction.epoch, payload=payload))

    def _send_stop(self, _: p.SendStop) -> None:
        self._send_all(Frame(Kind.STOP))

    def _send_all(self, frame: Frame) -> None:
        for connection in self._slots.values():
            connection.push(frame)

    def _close_connections(self, _: p.CloseConnections) -> None:
        """End all slots through their lifelines, and stop listening."""
        self._acceptor.close()
        for connection in self._others:
            self._poller.unregister(connection.socket.fileno())
            connection.close()

    def _end_epoch(self, outcome: p.FinishEpoch | p.FailEpoch) -> None:
        self._outcome = outcome
        self._ended_at = time.monotonic()

    _HANDLERS = (
        MethodDispatch["Exchange", [], None]()
        .on(p.SendRoster, _send_roster)
        .on(p.SendEpoch, _send_epoch)
        .on(p.SendStop, _send_stop)
        .on(p.CloseConnections, _close_connections)
        .on(p.FinishEpoch, _end_epoch)
        .on(p.FailEpoch, _end_epoch)
    )
