"""Leader election by a renewed lease, as a machine.

Pure: events in, instructions out. No clock, thread, file or network. `ElectionRunner` carries out the instructions.

    CANDIDATE -- lease free, or not renewed for as long as it lasts --> WriteLease -- written --> LEADER (Lead)
        ^                                                                  |                       |   ^
        |<------------------------- refused, no answer --------------------'                       '---' renewed
        '<-- StepDown -- taken over, not renewed in time, session lost, resigned --------------------'

Clocks of two machines are never compared. A leader counts from when it *sent* its last successful renewal, by its own
monotonic clock, and steps down after `renew_deadline`. A candidate counts from when it first *saw* that renewal, by its
own clock, and tries after `duration`, which is longer. It saw the renewal after it was sent, so the leader has stepped
down before, unless one clock runs faster than the other by more than duration / renew_deadline. A leader that was
frozen does not notice: the fence rejects what it still does (`fence.py`).

Each write names the version it follows, and is rejected if there is a later one: of two candidates one succeeds. The
winner takes the next term. No term is used twice.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from enum import Enum, auto

from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass


@fast_dataclass
class Timing:
    """The timing of a lease in seconds, in Kubernetes' terms.

    Attributes:
        duration: how long others respect a lease that is not renewed.
        renew_deadline: how long its holder relies on it.
        retry_period: how often it is renewed or checked.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def check(self) -> None:
        """Reject a timing that allows two leaders at once, or none for long."""
        if not 0 < self.retry_period < self.renew_deadline < self.duration:
            raise InvalidProgramError(
                f"A lease of {self.duration:g} s that is renewed every {self.retry_period:g} s, and trusted for "
                f"{self.renew_deadline:g} s, cannot work: the retry period must be shorter than the renew deadline, "
                "and that shorter than the lease."
            )


@fast_dataclass
class Lease:
    """The lease as it is stored.

    Attributes:
        holder: the unique name of the leading process.
        term: the number of the leadership; strictly increasing.
        address: the address for clients.
        duration: the seconds that others respect it.
        renewals: the number of renewals.
        is_released: whether the holder has released it.
    """

    holder: str
    term: int
    address: str
    duration: float
    renewals: int = 0
    is_released: bool = False


# --- what happens


@fast_dataclass
class Ticked:
    """The machine's deadline has passed."""


@fast_dataclass
class LeaseRead:
    """The current lease, None if there never was one, and its version for the next write."""

    lease: Lease | None
    version: Hashable


@fast_dataclass
class LeaseWritten:
    """The last write succeeded with this version."""

    version: Hashable


@fast_dataclass
class LeaseRefused:
    """The last write was rejected: the lease has a later version."""


@fast_dataclass
class LeaseUnreachable:
    """There was no answer: the request may be executed, now or later, or not."""

    reason: str


@fast_dataclass
class SessionLost:
    """The session with the coordination service is lost."""

    reason: str


@fast_dataclass
class Resigned:
    """This process gives up the leadership."""


Event = Ticked | LeaseRead | LeaseWritten | LeaseRefused | LeaseUnreachable | SessionLost | Resigned


# --- what to do


@fast_dataclass
class ReadLease:
    """Read the lease: LeaseRead or LeaseUnreachable."""


@fast_dataclass
class WriteLease:
    """Write the lease if its version is still this one: LeaseWritten, LeaseRefused or LeaseUnreachable."""

    lease: Lease
    version: Hashable


@fast_dataclass
class Lead:
    """Lead in this term from now on."""

    term: int


@fast_dataclass
class StepDown:
    """Stop leading."""

    reason: str


Instruction = ReadLease | WriteLease | Lead | StepDown


class Role(Enum):
    """The role of a process in the election."""

    CANDIDATE = auto()
    LEADER = auto()
    # It no longer takes part.
    RETIRED = auto()


class Election:
    """One process in the election."""

    def __init__(self, name: str, address: str, timing: Timing) -> None:
        """Create a candidate.

        Args:
            name: a unique name.
            address: the address for clients of this process as leader.
            timing: the timing of leases.
        """
        timing.check()
        self._name = name
        self._address = address
        self._timing = timing
        self.role = Role.CANDIDATE
        self.term = 0
        # The last known lease, and when its version was first seen.
        self.lease: Lease | None = None
        self._version: Hashable = None
        self._seen_at = -math.inf
        # When the pending write was sent, and what it contains.
        self._sent_at = -math.inf
        self._sent_lease: Lease | None = None
        # Whether that write takes the lease: a late renewal does not make a leader of a process that stepped down.
        self._is_taking = False
        self._is_busy = False
        self._next_poll = -math.inf
        # Until when this process may rely on the lease.
        self.valid_until = -math.inf

    @property
    def deadline(self) -> float:
        """When to report the time, unless an event occurs before."""
        if self.role is Role.RETIRED:
            return math.inf
        next_read = math.inf if self._is_busy else self._next_poll
        return min(next_read, self.valid_until) if self.role is Role.LEADER else next_read

    def is_leader(self, now: float) -> bool:
        """Return whether this process may rely on its leadership now."""
        return self.role is Role.LEADER and now < self.valid_until

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Handle an event and return what to do. `now` is by this process's own monotonic clock."""
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
                return self._poll(now)
            case LeaseRead():
                return self._read(event, now)
            case LeaseWritten():
                return self._written(event, now)
            case LeaseRefused():
                return self._refused(now)
            case LeaseUnreachable():
                self._answered(event)
                self._is_taking = False
                self._next_poll = now + self._timing.retry_period
                return []
            case SessionLost():
                return self._step_down(event.reason, now) if self.role is Role.LEADER else []
            case Resigned():
                return self._resign(now)

    def _answered(self, event: Event) -> None:
        if isinstance(event, (LeaseRead, LeaseWritten, LeaseRefused, LeaseUnreachable)):
            self._is_busy = False

    def _poll(self, now: float) -> list[Instruction]:
        if self._is_busy or now < self._next_poll:
            return []
        if self.role is Role.LEADER and self._version is not None and self.lease is not None:
            return self._write(replace(self.lease, renewals=self.lease.renewals + 1), self._version, now)
        return self._ask()

    def _ask(self) -> list[Instruction]:
        self._is_busy = True
        return [ReadLease()]

    def _write(self, lease: Lease, version: Hashable, now: float) -> list[Instruction]:
        self._is_busy, self._sent_at, self._sent_lease = True, now, lease
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
            self._next_poll = now + min(left, self._timing.retry_period)
            return []
        term = 1 if lease is None else lease.term + 1
        self._is_taking = True
        return self._write(Lease(self._name, term, self._address, self._timing.duration), event.version, now)

    def _written(self, event: LeaseWritten, now: float) -> list[Instruction]:
        self._is_busy = False
        assert self._sent_lease is not None
        self.lease, self._version, self._seen_at = self._sent_lease, event.version, now
        until = self._sent_at + self._timing.renew_deadline
        self._next_poll = min(self._sent_at + self._timing.retry_period, until)
        if self.role is Role.LEADER:
            self.valid_until = until
            return []
        was_taking, self._is_taking = self._is_taking, False
        if not was_taking or now >= until:
            # It came too late: others may have waited long enough.
            return []
        self.role, self.term, self.valid_until = Role.LEADER, self._sent_lease.term, until
        return [Lead(self.term)]

    def _refused(self, now: float) -> list[Instruction]:
        """Read the lease: another process has written it, or an own write whose answer was lost."""
        self._is_busy = self._is_taking = False
        return self._ask()

    def _step_down(self, reason: str, now: float) -> list[Instruction]:
        self.role, self.valid_until = Role.CANDIDATE, -math.inf
        self._next_poll = now + self._timing.retry_period
        return [StepDown(reason)]

    def _resign(self, now: float) -> list[Instruction]:
        was_leader, self.role = self.role is Role.LEADER, Role.RETIRED
        self.valid_until = -math.inf
        if not was_leader or self.lease is None or self._version is None:
            return []
        # Jobs of the leader stop before others learn that the lease is released.
        released = WriteLease(replace(self.lease, is_released=True), self._version)
        return [StepDown("this process is stopping"), released]


def _taken_over(lease: Lease | None) -> str:
    return "the lease does not exist any more" if lease is None else f"another process leads, in term {lease.term}"
