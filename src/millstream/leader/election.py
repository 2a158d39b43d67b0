"""Who leads: an election by a lease that is renewed, as a machine.

Pure: it is told what has happened and says what to do. No clock, thread, file or network. `ElectionRunner` carries the
instructions out.

    CANDIDATE -- lease free, or not renewed for as long as it lasts --> WriteLease -- written --> LEADER (Lead)
        ^                                                                  |                       |   ^
        |<------------------------- refused, no answer --------------------'                       '---' renewed
        '<-- StepDown -- taken over, not renewed in time, session lost, resigned --------------------'

Times of two machines are never compared. A leader counts from when it has *sent* its last renewal that was written,
by its own steady clock, and gives up after `renew_deadline`. A candidate counts from when it has first *seen* that
renewal, by its own, and tries after `duration`, which is longer. It has seen it after it was sent: so the leader has
given up before, unless one clock runs faster than the other by more than duration / renew_deadline. A leader that was
frozen does not know that: what it still does is refused where it would count (`fence.py`).

Each write names the version that it follows, and is refused when there is a later one: of two candidates one is
written. Whoever takes the lease takes the next term. No term is used twice.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from enum import Enum, auto

from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import record


@record
class Timing:
    """How long a lease lasts, in seconds; Kubernetes' words.

    Attributes:
        duration: how long a lease that is not renewed is left to its holder by others.
        renew_deadline: how long its holder counts on it.
        retry_period: how often it is renewed, or looked at.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def check(self) -> None:
        """Refuse times with which two could lead at once, or nobody for long."""
        if not 0 < self.retry_period < self.renew_deadline < self.duration:
            raise InvalidProgramError(
                f"A lease of {self.duration:g} s that is renewed every {self.retry_period:g} s, and counted on for "
                f"{self.renew_deadline:g} s, cannot work: the retry period must be shorter than the renew deadline, "
                "and that shorter than the lease."
            )


@record
class Lease:
    """What is written down of who leads.

    Attributes:
        holder: the process that leads, by a name that no other has or had.
        term: how often the lease has changed hands; strictly increasing.
        address: where clients reach it.
        duration: how many seconds others leave it to the holder.
        renewals: how often it was renewed.
        is_released: whether the holder has given it up.
    """

    holder: str
    term: int
    address: str
    duration: float
    renewals: int = 0
    is_released: bool = False


# --- what happens


@record
class Ticked:
    """The machine's deadline has come."""


@record
class LeaseRead:
    """The lease as it is, None if there never was one; writes that follow it name its version."""

    lease: Lease | None
    version: Hashable


@record
class LeaseWritten:
    """The last write was done, and made this version."""

    version: Hashable


@record
class LeaseRefused:
    """Somebody has written the lease since the version that the last write named."""


@record
class LeaseUnreachable:
    """There is no answer: what was asked for may have been done, or not, or be done later."""

    reason: str


@record
class SessionLost:
    """The service that keeps the lease has given this process up."""

    reason: str


@record
class Resigned:
    """This process wants to lead no longer."""


Event = Ticked | LeaseRead | LeaseWritten | LeaseRefused | LeaseUnreachable | SessionLost | Resigned


# --- what to do


@record
class ReadLease:
    """Read the lease: LeaseRead or LeaseUnreachable."""


@record
class WriteLease:
    """Write the lease if its version is still this one: LeaseWritten, LeaseRefused or LeaseUnreachable."""

    lease: Lease
    version: Hashable


@record
class Lead:
    """This process leads from now on, in this term."""

    term: int


@record
class StepDown:
    """This process leads no longer."""

    reason: str


Instruction = ReadLease | WriteLease | Lead | StepDown


class Role(Enum):
    """What a process is in the election."""

    CANDIDATE = auto()
    LEADER = auto()
    # It takes no part any more.
    RETIRED = auto()


class Election:
    """One process in the election."""

    def __init__(self, name: str, address: str, timing: Timing) -> None:
        """Take part.

        Args:
            name: one that no other process has or had.
            address: where clients reach this process when it leads.
            timing: how long leases last.
        """
        timing.check()
        self._name = name
        self._address = address
        self._timing = timing
        self.role = Role.CANDIDATE
        self.term = 0
        # The lease as it was last read or written here, and when that version was first seen.
        self.lease: Lease | None = None
        self._version: Hashable = None
        self._seen_at = -math.inf
        # When the write that is under way was sent, and what it says.
        self._sent_at = -math.inf
        self._sent: Lease | None = None
        # Whether that is to take the lease: what was sent as a leader does not make one of who has stepped down.
        self._is_taking = False
        self._is_busy = False
        self._next_look = -math.inf
        # Until when this process may count on the lease.
        self.valid_until = -math.inf

    @property
    def deadline(self) -> float:
        """When to tell the time, if nothing else happens before."""
        if self.role is Role.RETIRED:
            return math.inf
        look = math.inf if self._is_busy else self._next_look
        return min(look, self.valid_until) if self.role is Role.LEADER else look

    def is_leader(self, now: float) -> bool:
        """Tell whether this process may count on leading at this moment."""
        return self.role is Role.LEADER and now < self.valid_until

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take note of what has happened; return what to do. `now` is by this process's own steady clock."""
        if self.role is Role.RETIRED:
            return []
        if self.role is Role.LEADER and now >= self.valid_until:
            self._answered(event)
            return self._step_down(
                f"the lease could not be renewed for {self._timing.renew_deadline:g} s, or this process was not "
                "running for so long",
                now,
            )
        match event:
            case Ticked():
                return self._look(now)
            case LeaseRead():
                return self._read(event, now)
            case LeaseWritten():
                return self._written(event, now)
            case LeaseRefused():
                return self._refused(now)
            case LeaseUnreachable():
                self._answered(event)
                self._is_taking = False
                self._next_look = now + self._timing.retry_period
                return []
            case SessionLost():
                return self._step_down(event.reason, now) if self.role is Role.LEADER else []
            case Resigned():
                return self._resign(now)

    def _answered(self, event: Event) -> None:
        if isinstance(event, (LeaseRead, LeaseWritten, LeaseRefused, LeaseUnreachable)):
            self._is_busy = False

    def _look(self, now: float) -> list[Instruction]:
        if self._is_busy or now < self._next_look:
            return []
        if self.role is Role.LEADER and self._version is not None and self.lease is not None:
            return self._write(replace(self.lease, renewals=self.lease.renewals + 1), self._version, now)
        return self._ask()

    def _ask(self) -> list[Instruction]:
        self._is_busy = True
        return [ReadLease()]

    def _write(self, lease: Lease, version: Hashable, now: float) -> list[Instruction]:
        self._is_busy, self._sent_at, self._sent = True, now, lease
        return [WriteLease(lease, version)]

    def _read(self, event: LeaseRead, now: float) -> list[Instruction]:
        self._is_busy = False
        lease = event.lease
        if self.role is Role.LEADER:
            if lease is None or lease.holder != self._name or lease.term != self.term:
                return self._step_down(_taken_over(lease), now)
            # The answer to a renewal was lost.
            self.lease, self._version = lease, event.version
            return self._write(replace(lease, renewals=lease.renewals + 1), event.version, now)
        if event.version != self._version:
            self.lease, self._version, self._seen_at = lease, event.version, now
        left = 0.0 if lease is None or lease.is_released else self._seen_at + lease.duration - now
        if left > 0:
            self._next_look = now + min(left, self._timing.retry_period)
            return []
        term = 1 if lease is None else lease.term + 1
        self._is_taking = True
        return self._write(Lease(self._name, term, self._address, self._timing.duration), event.version, now)

    def _written(self, event: LeaseWritten, now: float) -> list[Instruction]:
        self._is_busy = False
        assert self._sent is not None
        self.lease, self._version, self._seen_at = self._sent, event.version, now
        until = self._sent_at + self._timing.renew_deadline
        self._next_look = min(self._sent_at + self._timing.retry_period, until)
        if self.role is Role.LEADER:
            self.valid_until = until
            return []
        taken, self._is_taking = self._is_taking, False
        if not taken or now >= until:
            # It came so late that others may have waited long enough: the next term, if nobody else takes it.
            return []
        self.role, self.term, self.valid_until = Role.LEADER, self._sent.term, until
        return [Lead(self.term)]

    def _refused(self, now: float) -> list[Instruction]:
        """Somebody else has written, or an earlier write of our own whose answer was lost."""
        self._is_busy = self._is_taking = False
        return self._ask()

    def _step_down(self, reason: str, now: float) -> list[Instruction]:
        self.role, self.valid_until = Role.CANDIDATE, -math.inf
        self._next_look = now + self._timing.retry_period
        return [StepDown(reason)]

    def _resign(self, now: float) -> list[Instruction]:
        was_leader, self.role = self.role is Role.LEADER, Role.RETIRED
        self.valid_until = -math.inf
        if not was_leader or self.lease is None or self._version is None:
            return []
        # Those who work for the leader end before others hear that there is none.
        released = WriteLease(replace(self.lease, is_released=True), self._version)
        return [StepDown("this process was told to end"), released]


def _taken_over(lease: Lease | None) -> str:
    return "the lease is gone" if lease is None else f"another process leads, in term {lease.term}"
