"""The election machine, with candidates whose clocks are unrelated."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from millstream.common.errors import InvalidProgramError
from millstream.leader.election import (
    Election,
    Lead,
    Lease,
    LeaseRead,
    LeaseRefused,
    LeaseUnreachable,
    LeaseWritten,
    ReadLease,
    Resigned,
    Role,
    SessionLost,
    StepDown,
    Ticked,
    Timing,
    WriteLease,
)

TIMING = Timing(duration=10.0, renew_deadline=6.0, retry_period=2.0)


def candidate(name: str = "a") -> Election:
    return Election(name, f"http://{name}", TIMING)


def lead(election: Election, now: float = 0.0) -> None:
    """Run an election without a lease until this candidate leads."""
    assert election.handle(Ticked(), now) == [ReadLease()]
    (write,) = election.handle(LeaseRead(None, 0), now)
    assert isinstance(write, WriteLease) and write.version == 0
    assert election.handle(LeaseWritten(1), now) == [Lead(1)]


def test_election_first_candidate_leads_in_term_one() -> None:
    election = candidate()
    lead(election)
    assert election.is_leader(5.9) and not election.is_leader(6.0)
    assert election.deadline == 2.0


def test_election_leader_renews_and_counts_from_the_send_time() -> None:
    election = candidate()
    lead(election)
    (write,) = election.handle(Ticked(), 2.0)
    assert write == WriteLease(Lease("a", 1, "http://a", 10.0, renewals=1), 1)
    # The answer takes three seconds: the lease counts from 2.0, not from 5.0.
    assert election.handle(LeaseWritten(2), 5.0) == []
    assert election.valid_until == 8.0


def test_election_leader_without_answer_steps_down_before_expiry() -> None:
    election = candidate()
    lead(election)
    election.handle(Ticked(), 2.0)
    assert election.handle(LeaseUnreachable("no route"), 3.0) == []
    assert election.deadline == 5.0
    election.handle(Ticked(), 5.0)
    assert election.deadline == 6.0
    (down,) = election.handle(Ticked(), 6.0)
    assert isinstance(down, StepDown) and "could not be renewed for 6 s" in down.reason
    assert election.role is Role.CANDIDATE and not election.is_leader(6.0)


def test_election_frozen_leader_steps_down_on_any_event() -> None:
    for late in (Ticked(), LeaseWritten(2), LeaseRefused(), LeaseRead(None, 0)):
        election = candidate()
        lead(election)
        election.handle(Ticked(), 2.0)
        (down,) = election.handle(late, 100.0)
        assert isinstance(down, StepDown), late


def test_election_candidate_waits_a_full_lease_and_takes_the_next_term() -> None:
    election = candidate("b")
    held = Lease("a", 7, "http://a", 10.0)
    # Its clock is unrelated to the leader's clock.
    start = 1e9
    election.handle(Ticked(), start)
    assert election.handle(LeaseRead(held, 41), start) == []
    now = start
    while now < start + 9.9:
        now = election.deadline
        assert election.handle(Ticked(), now) == [ReadLease()]
        done = election.handle(LeaseRead(held, 41), now)
    (write,) = done
    assert now == start + 10.0
    assert write == WriteLease(Lease("b", 8, "http://b", 10.0), 41)
    assert election.handle(LeaseWritten(42), now) == [Lead(8)]


def test_election_observed_renewal_restarts_the_wait() -> None:
    election = candidate("b")
    for n in range(20):
        now = election.deadline if n else 0.0
        election.handle(Ticked(), now)
        assert election.handle(LeaseRead(Lease("a", 1, "", 10.0, renewals=n), n + 1), now) == []


def test_election_released_lease_is_taken_at_once() -> None:
    election = candidate("b")
    election.handle(Ticked(), 0.0)
    (write,) = election.handle(LeaseRead(Lease("a", 3, "", 10.0, is_released=True), 9), 0.0)
    assert isinstance(write, WriteLease) and write.lease.term == 4


def test_election_candidate_reads_again_after_a_refused_write() -> None:
    election = candidate("b")
    election.handle(Ticked(), 0.0)
    election.handle(LeaseRead(None, 0), 0.0)
    assert election.handle(LeaseRefused(), 0.1) == [ReadLease()]
    assert election.handle(LeaseRead(Lease("a", 1, "", 10.0), 1), 0.2) == []
    assert election.role is Role.CANDIDATE


def test_election_refused_leader_checks_for_its_own_write() -> None:
    election = candidate()
    lead(election)
    election.handle(Ticked(), 2.0)
    election.handle(LeaseUnreachable("timeout"), 3.0)
    election.handle(Ticked(), 5.0)
    # The first renewal was written, but its response was lost.
    assert election.handle(LeaseRefused(), 5.1) == [ReadLease()]
    (again,) = election.handle(LeaseRead(Lease("a", 1, "http://a", 10.0, renewals=1), 2), 5.2)
    assert again == WriteLease(Lease("a", 1, "http://a", 10.0, renewals=2), 2)
    assert election.handle(LeaseWritten(3), 5.3) == []
    assert election.is_leader(11.1)


def test_election_superseded_leader_steps_down() -> None:
    election = candidate()
    lead(election)
    election.handle(Ticked(), 2.0)
    election.handle(LeaseRefused(), 2.1)
    (down,) = election.handle(LeaseRead(Lease("b", 2, "", 10.0), 2), 2.2)
    assert isinstance(down, StepDown) and "term 2" in down.reason


def test_election_candidate_with_a_late_write_answer_does_not_lead() -> None:
    election = candidate()
    election.handle(Ticked(), 0.0)
    election.handle(LeaseRead(None, 0), 0.0)
    assert election.handle(LeaseWritten(1), 6.0) == []
    assert election.role is Role.CANDIDATE
    # It waits like every candidate, and takes the next term.
    election.handle(Ticked(), 6.0)
    assert election.handle(LeaseRead(Lease("a", 1, "", 10.0), 1), 6.0) == []
    election.handle(Ticked(), 16.0)
    (write,) = election.handle(LeaseRead(Lease("a", 1, "", 10.0), 1), 16.0)
    assert isinstance(write, WriteLease) and write.lease.term == 2


def test_election_late_renewal_answer_after_step_down_is_ignored() -> None:
    election = candidate()
    lead(election)
    election.handle(Ticked(), 2.0)
    (down,) = election.handle(Ticked(), 6.0)
    assert isinstance(down, StepDown)
    assert election.handle(LeaseWritten(2), 6.1) == []
    assert election.role is Role.CANDIDATE
    # Nor because of a later attempt that was refused.
    election.handle(Ticked(), 8.0)
    election.handle(LeaseRead(Lease("a", 1, "", 10.0, is_released=True), 3), 8.0)
    election.handle(LeaseUnreachable("lost"), 8.1)
    assert election.handle(LeaseWritten(4), 8.2) == []


def test_election_lost_session_demotes_only_a_leader() -> None:
    election = candidate()
    assert election.handle(SessionLost("expired"), 0.0) == []
    lead(election)
    assert election.handle(SessionLost("expired"), 1.0) == [StepDown("expired")]


def test_election_resign_releases_the_lease_after_step_down() -> None:
    election = candidate()
    lead(election)
    down, write = election.handle(Resigned(), 1.0)
    assert isinstance(down, StepDown)
    assert isinstance(write, WriteLease) and write.lease.is_released and write.lease.term == 1
    assert election.handle(Ticked(), 9.0) == [] and election.deadline == float("inf")
    assert candidate().handle(Resigned(), 0.0) == []


@pytest.mark.parametrize("times", [(10.0, 10.0, 2.0), (10.0, 6.0, 6.0), (10.0, 6.0, 0.0)])
def test_election_rejects_inconsistent_timing(times: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidProgramError, match="cannot work"):
        Election("a", "", Timing(*times))


@dataclass
class Machine:
    """A candidate on its own machine, whose clock has another offset and a slightly different rate."""

    election: Election
    offset: float
    rate: float
    frozen_until: float = 0.0
    partitioned_until: float = 0.0
    # The requested operations and their answers, each with the time at which it takes effect.
    requests: list[tuple[float, object]] = field(default_factory=list)
    answers: list[tuple[float, object]] = field(default_factory=list)

    def clock(self, now: float) -> float:
        return self.offset + self.rate * now


class Cell:
    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0
        self.terms: list[tuple[int, str]] = []

    def do(self, request: object) -> object:
        if isinstance(request, ReadLease):
            return LeaseRead(self.lease, self.version)
        assert isinstance(request, WriteLease)
        if request.version != self.version:
            return LeaseRefused()
        if self.lease is None or request.lease.term != self.lease.term:
            self.terms.append((request.lease.term, request.lease.holder))
        self.lease, self.version = request.lease, self.version + 1
        return LeaseWritten(self.version)


@pytest.mark.parametrize("seed", range(40))
def test_election_never_has_two_leaders_or_reuses_a_term(seed: int) -> None:
    """Three candidates whose clocks differ in offset and rate; slow and lost responses, freezes and partitions."""
    chance = random.Random(seed)
    cell = Cell()
    machines = [
        Machine(candidate(name), chance.uniform(-1e6, 1e6), chance.choice((0.9, 1.0, 1.1))) for name in ("a", "b", "c")
    ]
    step, led = 0.05, 0
    for tick in range(8000):
        now = tick * step
        for m in machines:
            if chance.random() < 0.001:
                m.frozen_until = now + chance.uniform(1, 30)
            if chance.random() < 0.001:
                m.partitioned_until = now + chance.uniform(1, 30)
            # The cell applies the operation whether or not the candidate is awake.
            for due in [x for x in m.requests if x[0] <= now]:
                m.requests.remove(due)
                lost = now < m.partitioned_until
                done: object = LeaseUnreachable("partitioned") if lost and chance.random() < 0.5 else cell.do(due[1])
                m.answers.append((now + chance.random(), LeaseUnreachable("lost") if lost else done))
            if now < m.frozen_until:
                continue
            events = [x for x in m.answers if x[0] <= now]
            m.answers = [x for x in m.answers if x[0] > now]
            todo: list[object] = []
            for _, event in events:
                todo += m.election.handle(event, m.clock(now))  # type: ignore[arg-type]
            if m.election.deadline <= m.clock(now):
                todo += m.election.handle(Ticked(), m.clock(now))
            m.requests += [(now + chance.random(), x) for x in todo if isinstance(x, (ReadLease, WriteLease))]
        # A frozen candidate does nothing; on waking, its first event is its own clock.
        leaders = [m for m in machines if now >= m.frozen_until and m.election.is_leader(m.clock(now))]
        assert len(leaders) <= 1, [m.election.term for m in leaders]
        led += bool(leaders)
    terms = [term for term, _ in cell.terms]
    assert terms == list(range(1, len(terms) + 1))
    assert led > 1000 and len(terms) > 1
