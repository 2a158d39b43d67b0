"""The Spark task that hosts resident slots: one child process for each.

    driver ---lifeline--- host (the task's process) ---forks---> slot, slot, ...

The host runs no user code, so it notices at once when the driver disconnects, and ends its slots. Slots die with their
host.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark import TaskContext

from millstream.exchange.addresses import Address
from millstream.exchange.connection import Connection
from millstream.exchange.credentials import Credentials
from millstream.exchange.frames import Frame, Kind
from millstream.exchange.poller import Poller
from millstream.exchange.slot_loop import SlotLoop
from millstream.operating_system import system
from millstream.spark.heartbeat import Heartbeat, HeartbeatSettings, describe_silence
from millstream.spark.processes import (
    child_exit_notifications,
    drain,
    exit_on_sigterm,
    ignore_sigterm,
    kill,
    run_child,
)
from millstream.spark.saved_plan import JobRef
from millstream.spark.slot_runtime import SlotWork, close_all

# Timeout of closing functions.
CLOSE_SECONDS = 1.5


@dataclass(frozen=True)
class HostFunction:
    """The function of the Spark task: task t of n hosts the slots t, t + n, t + 2n, ..."""

    job: JobRef
    driver: Address
    credentials: Credentials
    widths: list[int]
    tasks: int
    heartbeat: HeartbeatSettings

    def __call__(self, task: int, elements: Iterable[bytes]) -> Iterator[bytes]:
        # Read to the end, or Spark discards the worker process.
        for _ in elements:
            pass
        context = TaskContext.get()
        system.name_process("millstream-host")
        Host(self, context.taskAttemptId() if context else 0).run(range(task, max(self.widths), self.tasks))
        system.name_process("millstream-relay")
        return iter(())


class Host:
    """Hosts slots of an execution until the driver releases them."""

    def __init__(self, function: HostFunction, task_attempt: int) -> None:
        self._function = function
        self._task_attempt = task_attempt
        self._pids: set[int] = set()
        # Slot and heartbeat, by process.
        self._watched: dict[int, tuple[int, Heartbeat]] = {}
        self._is_disconnected = False

    def run(self, slots: Iterable[int]) -> None:
        """Start slots; return when they have ended."""
        if (identity := self._function.credentials.identity) is not None:
            # Here, so that an error fails the Spark task.
            identity.context(is_server=False)
        with child_exit_notifications() as child_exits:
            for slot in slots:
                self._pids.add(self._fork(slot))
            try:
                self._hold_slots(child_exits)
            finally:
                self._end()

    def _fork(self, slot: int) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        heartbeat = Heartbeat(self._function.heartbeat)
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            system.die_with_parent()
            system.name_process(f"millstream-s{slot}")
            run_child(lambda: _serve(self._function, slot, self._task_attempt, heartbeat))
        self._watched[pid] = slot, heartbeat
        return pid

    def _hold_slots(self, child_exits: socket.socket) -> None:
        try:
            lifeline = Connection.to(self._function.driver, self._function.credentials)
        except OSError:
            # The driver has released the slots.
            return
        lifeline.push(Frame(Kind.REGISTER_HOST))
        poller = Poller()
        poller.add(lifeline, lambda frame: None, self._on_disconnect)
        poller.watch(child_exits.fileno(), lambda: drain(child_exits))
        next_check, pause = 0.0, self._function.heartbeat.pause
        while not self._is_disconnected and self._running_pids():
            if time.monotonic() >= next_check:
                next_check = time.monotonic() + pause
                self._end_frozen(lifeline, poller)
            poller.poll(next_check - time.monotonic())
        poller.close()

    def _end_frozen(self, lifeline: Connection, poller: Poller) -> None:
        """Kill slots without a heartbeat, after reporting them to the driver."""
        for pid in [pid for pid in self._pids if self._watched[pid][1].is_silent(pid)]:
            text = describe_silence(self._watched[pid][0], pid, self._function.heartbeat)
            lifeline.push(Frame(Kind.FROZEN, payload=text.encode()))
            poller.poll(0)
            kill(pid, signal.SIGKILL)

    def _on_disconnect(self) -> None:
        self._is_disconnected = True

    def _running_pids(self) -> set[int]:
        for pid in list(self._pids):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._pids.discard(pid)
        return self._pids

    def _end(self) -> None:
        """End the slots; functions are closed within a time limit."""
        for pid in self._pids:
            kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + CLOSE_SECONDS
        while self._running_pids() and time.monotonic() < deadline:
            time.sleep(0.005)
        for pid in self._pids:
            kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _serve(function: HostFunction, number: int, task_attempt: int, heartbeat: Heartbeat) -> None:
    """Run a slot until the driver or a signal ends it."""
    exit_on_sigterm()
    heartbeat.start()
    work = SlotWork(function.job, number, task_attempt)
    try:
        SlotLoop(number, function.widths, function.driver, function.credentials, work).serve()
    except SystemExit:
        pass
    except OSError:
        # The driver ended before this slot connected.
        traceback.print_exc()
    finally:
        ignore_sigterm()
        close_all()
