"""The slot's side of the exchange: runs the levels of each epoch as the driver requests.

A single thread sleeps only in the poller, which sends and receives at once. A separate sender thread would compete with
user code for the interpreter lock, 5 ms a switch.
"""

from __future__ import annotations

import contextlib
import json
import math
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from millstream.exchange.addresses import Address, address_in, slot_address
from millstream.exchange.connection import Connection
from millstream.exchange.credentials import Credentials
from millstream.exchange.frames import PAUSE, SLOT_PART, Frame, Kind, ProtocolError, end_of
from millstream.exchange.poller import Poller
from millstream.exchange.slot_connections import (
    CREDIT_BYTES,
    PeerLostError,
    PeerUnreachableError,
    ReceiveBuffer,
    SlotConnections,
)
from millstream.operators.diagnostics.io_metrics import LevelTimes, SlotTraffic
from millstream.operators.runtime.messages import LevelTask, with_slot_part

# Minimum seconds between two reports of a slot's I/O metrics.
TRAFFIC_SECONDS = 0.1


class DriverLostError(ConnectionError):
    """The driver has disconnected or died."""


class Work(Protocol):
    """The work of a slot; the exchange knows nothing of it.

    `SlotWork` (`spark/slot_runtime.py`) implements it: it has loaded the job's plan, and calls `SlotRunner.run`.
    """

    def open(self, take_traffic: Callable[[], SlotTraffic | None]) -> None:
        """Prepare, so that tasks of the driver can be unpickled. Reports include the slot's I/O metrics."""
        ...

    def run(self, task: LevelTask, messages: list[bytes]) -> Iterator[tuple[int, bytes]]:
        """Run a level: yield (slot, message) for the next level; in the last level, the report."""
        ...

    def after_epoch(self) -> None:
        """Do what can wait until the driver has the report."""
        ...

    def describe(self, error: Exception) -> str:
        """Return the report of a failure for the driver."""
        ...


class _EpochClock:
    """Measures the busy and backpressured time of a slot in one epoch.

    A level other than the last is backpressured while a connection has no credit, and from its end to the end of the
    epoch: it could do more if the levels after it had processed their input.
    """

    def __init__(self, ended_at: float, paused: float) -> None:
        """Start with the time since the slot's last epoch, if any; the driver was idle for `paused` seconds of it."""
        self._held_back = 0.0 if math.isnan(ended_at) else max(0.0, time.monotonic() - ended_at - paused)
        self._level = 0
        self._started = self._blocked = 0.0
        # Of each level: its end, and the seconds it was busy and blocked.
        self._levels: dict[int, tuple[float, float, float]] = {}

    def begin(self, level: int, blocked: float) -> None:
        self._level, self._started, self._blocked = level, time.monotonic(), blocked

    def end(self, blocked: float) -> None:
        now, waited = time.monotonic(), blocked - self._blocked
        self._levels[self._level] = now, now - self._started - waited, waited

    def count(self, times: list[LevelTimes]) -> float:
        """Add this epoch to the times of all levels; return when it ended."""
        now, last = time.monotonic(), len(times) - 1
        for level, (ended, busy, blocked) in self._levels.items():
            held_back = 0.0 if level == last else self._held_back + now - ended
            times[level] = times[level].after(busy, blocked + held_back)
        return now


class SlotLoop:
    """The loop of one slot of an execution."""

    def __init__(self, number: int, widths: list[int], driver: Address, credentials: Credentials, work: Work) -> None:
        """Connect to the driver, and listen for other slots.

        Args:
            number: the number of the slot.
            widths: the number of slots of each level.
            driver: the address of the driver.
            credentials: of this execution.
            work: the slot's work.
        """
        self._number = number
        self._widths = widths
        self._work = work
        self._poller = Poller()
        # Connect first: if the driver has ended, there is nothing to close yet.
        self._driver = Connection.to(driver, credentials)
        receive_buffer, address = ReceiveBuffer(number, widths), slot_address(driver, number)
        self._peers = SlotConnections(number, receive_buffer, self._poller, credentials, address, self._check_driver)
        self._reported_at = -math.inf
        # When the first epoch began here, and when the last one ended.
        self._began_at = self._ended_at = math.nan
        self._times = [LevelTimes()] * len(widths)
        self._commands: deque[Frame] = deque()
        self._driver_lost = False
        self._poller.add(self._driver, self._commands.append, self._on_driver_lost)

    def take_traffic(self) -> SlotTraffic | None:
        """Return the I/O metrics of this slot, unless they were just reported."""
        now = time.monotonic()
        if now - self._reported_at < TRAFFIC_SECONDS:
            return None
        self._reported_at = now
        elapsed = 0.0 if math.isnan(self._ended_at) else self._ended_at - self._began_at
        return SlotTraffic(
            elapsed=elapsed, credit=CREDIT_BYTES, levels=tuple(self._times), channels=self._peers.take_traffic()
        )

    def serve(self) -> None:
        """Serve the driver until it sends STOP or disconnects."""
        # If the driver is lost, there is no peer to report to.
        try:
            with contextlib.suppress(DriverLostError):
                self._serve()
        finally:
            self._peers.close()
            self._poller.close()

    def _serve(self) -> None:
        try:
            self._work.open(self.take_traffic)
            registration = {"slot": self._number, "address": self._peers.address}
            self._driver.push(Frame(Kind.REGISTER, payload=json.dumps(registration).encode()))
            while (command := self._next_command()).kind is not Kind.STOP:
                self._execute(command)
        except PeerLostError as e:
            # The driver may know already, but not if only this connection broke.
            self._send_last(Frame(Kind.LOST, payload=str(e).encode()))
        except PeerUnreachableError as e:
            self._send_last(Frame(Kind.UNREACHABLE, payload=str(e).encode()))
        except DriverLostError:
            raise
        except Exception as e:
            self._send_last(Frame(Kind.FAILED, payload=self._work.describe(e).encode()))

    def _next_command(self) -> Frame:
        while not self._commands:
            self._check_driver()
            self._poller.poll()
        return self._commands.popleft()

    def _execute(self, command: Frame) -> None:
        if command.kind is Kind.ROSTER:
            addresses: dict[str, str | list[str | int]] = json.loads(command.payload)
            self._peers.connect_peers({int(slot): address_in(a) for slot, a in addresses.items()})
            self._driver.push(Frame(Kind.CONNECTED))
        elif command.kind is Kind.EPOCH:
            paused, tasks = _epoch(memoryview(command.payload))
            self._run(tasks, paused)
            self._work.after_epoch()
        else:
            raise ProtocolError(f"the driver sent {command.kind.name} to a slot")

    def _run(self, tasks: list[LevelTask], paused: float) -> None:
        last = len(tasks) - 1
        if math.isnan(self._began_at):
            self._began_at = time.monotonic()
        clock = _EpochClock(self._ended_at, paused)
        for level, task in enumerate(tasks):
            if self._number >= self._widths[level]:
                continue
            messages = self._peers.wait_for(task.epoch, level) if level else []
            clock.begin(level, self._peers.back_pressured)
            outgoing = self._work.run(task, messages)
            del messages
            if level == last:
                for _, report in outgoing:
                    self._driver.push(Frame(Kind.REPORT, task.epoch, level, report))
            else:
                self._send_level(task.epoch, level + 1, outgoing)
            clock.end(self._peers.back_pressured)
        # Send before work that can wait.
        self._poller.poll(0)
        self._ended_at = clock.count(self._times)

    def _send_level(self, epoch: int, level: int, outgoing: Iterator[tuple[int, bytes]]) -> None:
        sent = dict.fromkeys(range(self._widths[level]), 0)
        for target, message in outgoing:
            self._peers.send(target, Frame(Kind.DATA, epoch, level, message))
            sent[target] += 1
            self._check_driver()
        for target, messages in sent.items():
            self._peers.send(target, end_of(epoch, level, messages))

    def _send_last(self, frame: Frame) -> None:
        """Send a final frame to the driver, and wait for STOP."""
        self._driver.push(frame)
        while self._next_command().kind is not Kind.STOP:
            pass

    def _on_driver_lost(self) -> None:
        self._driver_lost = True

    def _check_driver(self) -> None:
        if self._driver_lost:
            raise DriverLostError("the driver disconnected")


def _epoch(payload: memoryview) -> tuple[float, list[LevelTask]]:
    """Return the driver's idle seconds, and the tasks of this slot."""
    (paused,) = PAUSE.unpack_from(payload)
    (length,) = SLOT_PART.unpack_from(payload, PAUSE.size)
    part = payload[PAUSE.size + SLOT_PART.size :][:length]
    tasks: list[LevelTask] = pickle.loads(payload[PAUSE.size + SLOT_PART.size + length :])
    return paused, with_slot_part(tasks, pickle.loads(part)) if length else tasks
