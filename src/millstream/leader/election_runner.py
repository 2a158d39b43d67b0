"""Takes part in an election: carries out what the machine asks for, beside whatever the process does."""

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

# The cell that says who leads.
LEADER = "leader"
_DAY = 86_400.0


def read_lease(cell: Cell) -> m.LeaseRead:
    """Return the lease as it is."""
    data, version = cell.read()
    return m.LeaseRead(None if data is None else m.Lease(**json.loads(data)), version)


def find_leader(cells: Cells) -> m.Lease | None:
    """Return who leads, or did last; None when nobody ever did, or who did has given it up."""
    lease = read_lease(cells.cell(LEADER)).lease
    return None if lease is None or lease.is_released else lease


class ElectionRunner:
    """One process in the election, on threads of its own: one decides, the other waits for answers."""

    def __init__(
        self,
        cells: Cells,
        name: str,
        address: str,
        timing: m.Timing,
        on_lead: Callable[[int], None],
        on_step_down: Callable[[str], None],
    ) -> None:
        """Prepare to take part.

        Args:
            cells: what the candidates share.
            name: one that no other process has or had.
            address: where clients reach this process when it leads.
            timing: how long leases last.
            on_lead: called with the term when this process leads; it must not take long.
            on_step_down: called with the reason when it leads no longer; it must not take long.
        """
        self._cell = cells.cell(LEADER)
        self._machine = m.Election(name, address, timing)
        self._on_lead = on_lead
        self._on_step_down = on_step_down
        self._events: queue.SimpleQueue[m.Event] = queue.SimpleQueue()
        self._work: queue.SimpleQueue[m.ReadLease | m.WriteLease | None] = queue.SimpleQueue()
        self._is_over = threading.Event()
        cells.watch(lambda reason: self._events.put(m.SessionLost(reason)))

    def start(self) -> None:
        for target in (self._decide, self._ask):
            threading.Thread(target=target, name="millstream-election", daemon=True).start()

    def is_leader(self) -> bool:
        """Tell whether this process may count on leading at this moment."""
        return self._machine.is_leader(time.monotonic())

    def resign(self, seconds: float = 5.0) -> None:
        """Lead no longer, and let others know, if that can be done soon."""
        self._events.put(m.Resigned())
        self._is_over.wait(seconds)

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
                log.log(level, "this process leads no longer: %s", reason)
                self._on_step_down(reason)
            case _:
                self._work.put(instruction)

    # --- the thread that waits for answers

    def _ask(self) -> None:
        while (asked := self._work.get()) is not None:
            self._events.put(self._done(asked))
        self._is_over.set()

    def _done(self, asked: m.ReadLease | m.WriteLease) -> m.Event:
        try:
            if isinstance(asked, m.ReadLease):
                return read_lease(self._cell)
            data = json.dumps(asdict(asked.lease)).encode()
            return m.LeaseWritten(self._cell.write(data, asked.version))
        except OvertakenError:
            return m.LeaseRefused()
        except Exception as e:
            log.warning("the lease cannot be reached: %s", e)
            return m.LeaseUnreachable(str(e) or repr(e))
