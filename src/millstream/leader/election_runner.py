"""Runs the election machine of a process on background threads."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict

from millstream.leader import election as m
from millstream.leader.cas_cells import Cell, Cells, OvertakenError

log = logging.getLogger("millstream")

# The cell that holds the lease.
LEADER = "leader"
_DAY = 86_400.0


def read_lease(cell: Cell) -> m.LeaseRead:
    """Return the current lease."""
    data, version = cell.read()
    return m.LeaseRead(None if data is None else m.Lease(**json.loads(data)), version)


def find_leader(cells: Cells) -> m.Lease | None:
    """Return the current or last leader; None if there was none, or it has released the lease."""
    lease = read_lease(cells.cell(LEADER)).lease
    return None if lease is None or lease.is_released else lease


class ElectionRunner:
    """One process in the election, with two threads: one decides, the other performs requests."""

    def __init__(
        self,
        cells: Cells,
        name: str,
        address: str,
        timing: m.Timing,
        on_lead: Callable[[int], None],
        on_step_down: Callable[[str], None],
    ) -> None:
        """Create a candidate, to be started.

        Args:
            cells: shared by the candidates.
            name: a unique name.
            address: the address for clients of this process as leader.
            timing: the timing of leases.
            on_lead: called with the term when this process leads; it must return quickly.
            on_step_down: called with the reason when it stops leading; it must return quickly.
        """
        self._cell = cells.cell(LEADER)
        self._machine = m.Election(name, address, timing)
        self._on_lead = on_lead
        self._on_step_down = on_step_down
        self._events: queue.SimpleQueue[m.Event] = queue.SimpleQueue()
        self._work: queue.SimpleQueue[m.ReadLease | m.WriteLease | None] = queue.SimpleQueue()
        self._has_ended = threading.Event()
        cells.watch(lambda reason: self._events.put(m.SessionLost(reason)))

    def start(self) -> None:
        for target in (self._decide, self._ask):
            threading.Thread(target=target, name="millstream-election", daemon=True).start()

    def is_leader(self) -> bool:
        """Return whether this process may rely on its leadership now."""
        return self._machine.is_leader(time.monotonic())

    def resign(self, seconds: float = 5.0) -> None:
        """Give up the leadership and release the lease; wait for that for a number of seconds."""
        self._events.put(m.Resigned())
        self._has_ended.wait(seconds)

    # --- the thread that decides

    def _decide(self) -> None:
        while self._machine.role is not m.Role.RETIRED:
            for instruction in self._machine.handle(self._next(), time.monotonic()):
                self._carry_out(instruction)
        self._work.put(None)

    def _next(self) -> m.Event:
        left = self._machine.deadline - time.monotonic()
        try:
            return self._events.get(timeout=min(left, _DAY)) if left > 0 else self._events.get_nowait()
        except queue.Empty:
            return m.Ticked()

    def _carry_out(self, instruction: m.Instruction) -> None:
        match instruction:
            case m.Lead(term):
                log.info("this process leads, in term %d", term)
                self._on_lead(term)
            case m.StepDown(reason):
                level = logging.INFO if self._machine.role is m.Role.RETIRED else logging.WARNING
                log.log(level, "this process no longer leads: %s", reason)
                self._on_step_down(reason)
            case _:
                self._work.put(instruction)

    # --- the thread that waits for answers

    def _ask(self) -> None:
        while (instruction := self._work.get()) is not None:
            self._events.put(self._done(instruction))
        self._has_ended.set()

    def _done(self, instruction: m.ReadLease | m.WriteLease) -> m.Event:
        try:
            if isinstance(instruction, m.ReadLease):
                return read_lease(self._cell)
            data = json.dumps(asdict(instruction.lease)).encode()
            return m.LeaseWritten(self._cell.write(data, instruction.version))
        except OvertakenError:
            return m.LeaseRefused()
        except Exception as e:
            log.warning("the leader lease cannot be read: %s", e)
            return m.LeaseUnreachable(str(e) or repr(e))
