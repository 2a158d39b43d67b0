"""The adaptive scheduler, driven by slot, checkpoint and time events."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random

import pytest

from millstream.checkpoint.options import CheckpointOptions
from millstream.common import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobmaster.machine import scheduler as s
from millstream.jobmaster.machine.options import ScalingOptions
from millstream.jobmaster.machine.parallelism_bounds import Bounds, Requirements, spread
from millstream.operators.runtime.messages import JobPlan
from millstream.testing import CollectSink, LocalJob

OPTIONS = ScalingOptions(
    wait=300, start_stabilization_timeout=10, cooldown=30, stabilization_timeout=60, max_delay=9, max_failures=2
)
CHECKPOINTS = CheckpointOptions(enabled=True, interval=3.0)


def plan_of(parallelism: int = 4, two_groups: bool = False, max_parallelism: int = 0, forward: bool = False) -> JobPlan:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    if max_parallelism:
        env.set_max_parallelism(max_parallelism)
    sums = env.from_collection([1, 2, 3]).key_by(lambda x: x).reduce(lambda a, b: a + b)
    if forward:
        sums = sums.map(lambda x: x).start_new_chain()
    if two_groups:
        sums = sums.rebalance().map(lambda x: x).slot_sharing_group("other")
    sums.sink_to(CollectSink())
    return LocalJob(env).plan


def scheduler(options: ScalingOptions = OPTIONS, plan: JobPlan | None = None) -> s.Scheduler:
    return s.Scheduler(options, Requirements.of(plan or plan_of(), options.reactive))


def width(decision: s.Decision | None) -> int:
    assert isinstance(decision, (s.Start, s.Rescale)), decision
    return max(decision.parallelisms.values())


def running(slots: int, options: ScalingOptions = OPTIONS, now: float = 0.0) -> s.Scheduler:
    """Return a scheduler whose job runs with the given slots."""
    one = scheduler(options)
    one.handle(s.SlotsChanged(slots=slots), now)
    parallelisms = one.requirements.within_slots(slots)
    assert parallelisms is not None
    one.handle(s.Deployed(parallelisms=parallelisms), now)
    return one


# --- bounds


def test_parallelism_bounds_share_slots_within_a_sharing_group() -> None:
    plan = plan_of(4, two_groups=True)
    requirements = Requirements.of(plan, reactive=False)
    assert (requirements.sufficient, requirements.desired) == (2, 8)
    source, sums, other = (v.id for v in plan.vertices)
    assert requirements.within_slots(1) is None
    assert requirements.within_slots(5) == {source: 1, sums: 3, other: 2}
    assert requirements.within_slots(100) == {source: 1, sums: 4, other: 4}


def test_parallelism_bounds_in_reactive_mode_reach_max_parallelism() -> None:
    plan = plan_of(1, max_parallelism=6)
    source, sums = (v.id for v in plan.vertices)
    requirements = Requirements.of(plan, reactive=True)
    # A collection has a single reader.
    assert requirements.within_slots(3) == {source: 1, sums: 3}
    assert requirements.within_slots(100) == {source: 1, sums: 6}


def test_parallelism_bounds_are_equal_across_forward_edges() -> None:
    plan = plan_of(4, forward=True)
    assert [e.partitioner.name for e in plan.vertices[1].out_edges] == ["FORWARD"]
    source, sums, behind = plan.vertices
    bounds = {source.head.id: Bounds(1, 1), sums.head.id: Bounds(1, 4), behind.head.id: Bounds(1, 2)}
    assert Requirements.of(plan, False).changed(plan, bounds).within_slots(4) == {
        source.id: 1,
        sums.id: 2,
        behind.id: 2,
    }


@pytest.mark.parametrize("lower, upper", [(0, 1), (3, 2), (1, 129)])
def test_parallelism_bounds_reject_invalid_ranges(lower: int, upper: int) -> None:
    plan = plan_of()
    requirements, (source, sums) = Requirements.of(plan, False), plan.vertices
    with pytest.raises(InvalidProgramError, match=f"cannot be from {lower} to {upper}: it must be from 1 to"):
        requirements.changed(plan, {source.head.id: Bounds(1, 1), sums.head.id: Bounds(lower, upper)})
    with pytest.raises(InvalidProgramError, match="no bounds for 'Source"):
        requirements.changed(plan, {sums.head.id: Bounds(1, 1)})


def test_spread_uses_the_fewest_slots() -> None:
    plan = plan_of(4, two_groups=True)
    source, sums, other = (v.id for v in plan.vertices)
    small = spread(plan, {source: 1, sums: 3, other: 2})
    assert [(v.parallelism, v.slot_offset) for v in small.vertices] == [(1, 0), (3, 0), (2, 3)]
    assert [(v.parallelism, v.slot_offset) for v in plan.vertices] == [(1, 0), (4, 0), (4, 4)]
    assert max(small.slots(level) for level in range(small.levels)) == 5


# --- start


def test_scheduler_starts_at_once_with_all_desired_slots() -> None:
    one = scheduler()
    one.handle(s.SlotsChanged(slots=4), 0.0)
    assert width(one.handle(s.ResourcesRequested(), 1.0)) == 4
    assert one.state is s.State.CREATING_EXECUTION_GRAPH


def test_scheduler_with_sufficient_slots_waits_to_stabilize() -> None:
    one = scheduler()
    assert one.handle(s.ResourcesRequested(), 0.0) is None
    assert one.deadline == 300
    assert one.handle(s.SlotsChanged(slots=2), 100.0) is None
    assert one.deadline == 110
    assert one.handle(s.SlotsChanged(slots=3), 105.0) is None
    assert one.handle(s.TimePassed(), 109.9) is None
    assert width(one.handle(s.TimePassed(), 110.0)) == 3


def test_scheduler_gives_up_with_too_few_slots_unless_reactive() -> None:
    one = scheduler(plan=plan_of(2, two_groups=True))
    one.handle(s.SlotsChanged(slots=1), 0.0)
    one.handle(s.ResourcesRequested(), 0.0)
    assert one.handle(s.TimePassed(), 299.0) is None
    given_up = one.handle(s.TimePassed(), 300.0)
    assert isinstance(given_up, s.GiveUp) and "needs 2 slots, and 1 are available after 300 s" in given_up.reason
    reactive = ScalingOptions.read(Configuration.from_dict({"scheduler-mode": "reactive"}), CHECKPOINTS)
    assert reactive is not None
    two = scheduler(reactive)
    two.handle(s.ResourcesRequested(), 0.0)
    assert two.deadline == math.inf
    # The job starts with the first slot.
    assert width(two.handle(s.SlotsChanged(slots=1), 1e9)) == 1


# --- rescaling


def test_scheduler_rescales_after_the_next_checkpoint() -> None:
    one = running(1)
    assert one.handle(s.SlotsChanged(slots=4), 50.0) is None
    assert width(one.handle(s.CheckpointCompleted(), 51.0)) == 4
    assert one.state is s.State.RESTARTING


def test_scheduler_rescales_without_checkpoint_after_the_max_delay() -> None:
    one = running(1)
    one.handle(s.TimePassed(), 40.0)
    assert one.handle(s.SlotsChanged(slots=4), 50.0) is None
    assert one.deadline == 59
    assert width(one.handle(s.TimePassed(), 59.0)) == 4


def test_scheduler_uses_fewer_slots_after_they_stabilize() -> None:
    one = running(1)
    one.handle(s.TimePassed(), 40.0)
    one.handle(s.SlotsChanged(slots=2), 50.0)
    assert one.handle(s.CheckpointCompleted(), 52.0) is None
    assert one.handle(s.SlotsChanged(slots=3), 60.0) is None
    assert one.handle(s.CheckpointCompleted(), 109.0) is None
    # At 110 the slots have settled, and the change is older than the delay.
    assert one.handle(s.TimePassed(), 109.9) is None
    assert width(one.handle(s.TimePassed(), 110.0)) == 3


def test_scheduler_does_not_rescale_during_cooldown() -> None:
    one = running(1, now=100.0)
    assert one.handle(s.SlotsChanged(slots=4), 101.0) is None
    for now in (102.0, 110.0, 129.0):
        assert one.handle(s.CheckpointCompleted(), now) is None
    assert width(one.handle(s.TimePassed(), 130.0)) == 4


def test_scheduler_ignores_slots_that_come_and_go() -> None:
    one = running(1)
    one.handle(s.TimePassed(), 40.0)
    one.handle(s.SlotsChanged(slots=2), 50.0)
    one.handle(s.SlotsChanged(slots=1), 51.0)
    for now in (60.0, 110.0, 119.0, 500.0):
        assert one.handle(s.TimePassed(), now) is None
    assert one.state is s.State.EXECUTING and one.deadline == math.inf


def test_scheduler_rescales_despite_failed_checkpoints() -> None:
    one = running(1, ScalingOptions(cooldown=0, stabilization_timeout=60, max_delay=1000, max_failures=2))
    one.handle(s.SlotsChanged(slots=4), 1.0)
    assert one.handle(s.CheckpointFailed(), 2.0) is None
    assert width(one.handle(s.CheckpointFailed(), 3.0)) == 4


def test_scheduler_treats_new_bounds_like_new_slots() -> None:
    plan = plan_of()
    source, sums = plan.vertices
    one = scheduler(plan=plan)
    one.handle(s.SlotsChanged(slots=4), 0.0)
    one.handle(s.Deployed(parallelisms={source.id: 1, sums.id: 4}), 0.0)
    bounds = {source.head.id: Bounds(1, 1), sums.head.id: Bounds(1, 2)}
    smaller = one.requirements.changed(plan, bounds)
    assert one.handle(s.RequirementsChanged(requirements=smaller), 40.0) is None
    assert width(one.handle(s.CheckpointCompleted(), 41.0)) == 2


def test_scheduler_waits_for_slots_after_a_failure() -> None:
    one = running(4)
    one.handle(s.ExecutionFailed(), 10.0)
    assert one.handle(s.SlotsChanged(slots=2), 11.0) is None
    assert one.handle(s.ResourcesRequested(), 12.0) is None
    assert width(one.handle(s.TimePassed(), 22.0)) == 2


def test_scheduler_does_nothing_after_the_job_ended() -> None:
    one = running(1)
    one.handle(s.JobEnded(), 10.0)
    assert one.handle(s.SlotsChanged(slots=4), 50.0) is None and one.deadline == math.inf


# --- settings


def test_scheduler_options_match_flink() -> None:
    read = ScalingOptions.read
    assert read(Configuration.from_dict({}), CHECKPOINTS) is None
    assert read(Configuration.from_dict({"jobmanager.scheduler": "AdaptiveBatch"}), CHECKPOINTS) is None
    adaptive = {"jobmanager.scheduler": "adaptive"}
    assert read(Configuration.from_dict(adaptive), CHECKPOINTS) == OPTIONS
    none = read(Configuration.from_dict(adaptive), CheckpointOptions())
    assert none is not None and none.max_delay == 0.0
    reactive = read(Configuration.from_dict({"scheduler-mode": "REACTIVE"}), CHECKPOINTS)
    assert reactive is not None
    assert (reactive.wait, reactive.start_stabilization_timeout, reactive.stabilization_timeout) == (
        math.inf,
        0.0,
        60.0,
    )
    old = {
        "jobmanager.adaptive-scheduler.resource-wait-timeout": "-1",
        "jobmanager.adaptive-scheduler.resource-stabilization-timeout": "2 s",
        "jobmanager.adaptive-scheduler.scaling-interval.min": "3 s",
    }
    options = read(Configuration.from_dict(adaptive | old), CHECKPOINTS)
    assert options is not None and (options.wait, options.start_stabilization_timeout, options.cooldown) == (
        math.inf,
        2.0,
        3.0,
    )
    failures = {"jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures": "0"}
    with pytest.raises(InvalidProgramError, match="it must be at least 1"):
        read(Configuration.from_dict(adaptive | failures), CHECKPOINTS)


# --- random events


def best_fit(requirements: Requirements, slots: int) -> dict[int, int] | None:
    """Return the best parallelisms of two groups by brute force, which maximizes the smaller group."""
    source, sums, other = sorted(requirements.bounds)
    first, second = requirements.bounds[sums], requirements.bounds[other]
    candidates = [(a, b) for a in range(first.lower, first.upper + 1) for b in range(second.lower, second.upper + 1)]
    feasible = [(min(pair), max(pair), pair) for pair in candidates if sum(pair) <= slots]
    if not feasible:
        return None
    _, _, (one, two) = max(feasible)
    return {source: 1, sums: one, other: two}


@dataclass
class World:
    """A job with changing slots, and the invariants of each scheduler decision."""

    random: Random
    options: ScalingOptions
    plan: JobPlan
    patient: bool
    now: float = 0.0
    slots: int = 0
    started_at: float = 0.0
    requested_at: float | None = 0.0
    # When the slots and bounds last changed.
    unchanged_since: float = 0.0
    parallelisms: dict[int, int] | None = None
    done: list[tuple[float, object]] = field(default_factory=list)
    has_ended: bool = False

    def __post_init__(self) -> None:
        self.one = s.Scheduler(self.options, Requirements.of(self.plan, reactive=False))

    def send(self, event: s.Event, triggers: bool = False) -> None:
        decision = self.one.handle(event, self.now)
        if decision is not None:
            self.check(decision, triggers)

    def check(self, decision: s.Decision, triggers: bool) -> None:
        self.done.append((self.now, decision))
        best = best_fit(self.one.requirements, self.slots)
        options = self.options
        if isinstance(decision, s.GiveUp):
            assert best is None and self.requested_at is not None and self.now >= self.requested_at + options.wait
            self.has_ended = True
            return
        assert best is not None and sum(sorted(decision.parallelisms.values())[1:]) <= self.slots
        assert decision.parallelisms == best
        has_desired_slots = self.slots >= self.one.requirements.desired
        if isinstance(decision, s.Start):
            assert self.requested_at is not None
            waited = self.now >= self.requested_at + min(options.start_stabilization_timeout, options.wait)
            assert has_desired_slots or waited
        else:
            assert decision.parallelisms != self.parallelisms
            assert self.now >= self.started_at + options.cooldown
            assert has_desired_slots or self.now >= self.started_at + options.stabilization_timeout
            assert triggers or self.now >= self.started_at + options.max_delay
        self.parallelisms, self.started_at, self.requested_at = dict(best), self.now, None
        self.send(s.Deployed(parallelisms=best))

    def run(self, steps: int) -> None:
        self.send(s.ResourcesRequested())
        for _ in range(steps):
            if self.has_ended:
                return
            self.pass_time(self.random.choice((0.5, 1.0, 3.0, 20.0, 100.0)))
            if not self.has_ended:
                self.happen()

    def pass_time(self, seconds: float) -> None:
        """Advance the clock to each deadline, or in small steps; both must give the same decisions."""
        end = self.now + seconds
        while not self.has_ended:
            following = min(self.one.deadline, end) if self.patient else min(self.now + 1.0, self.one.deadline, end)
            self.now = max(self.now, following)
            self.send(s.TimePassed())
            if self.now >= end and self.one.deadline > end:
                break
        self.settled()

    def settled(self) -> None:
        """Check that the scheduler has acted on everything that is stable for long enough."""
        options, best = self.options, best_fit(self.one.requirements, self.slots)
        if self.has_ended or best is None:
            return
        if self.requested_at is None:
            timeout = options.cooldown + options.stabilization_timeout + options.max_delay
            since = max(self.unchanged_since, self.started_at)
            assert self.now < since + timeout or self.parallelisms == best
        else:
            assert self.now < max(self.unchanged_since, self.requested_at) + options.start_stabilization_timeout

    def happen(self) -> None:
        kind = self.random.choice(("slots", "slots", "slots", "bounds", "checkpoint", "checkpoint", "lost", "fail"))
        if kind == "slots":
            self.slots, self.unchanged_since = self.random.choice((0, 1, 2, 3, 5, 8, 9)), self.now
            self.send(s.SlotsChanged(slots=self.slots))
        elif kind == "bounds":
            names = [v.head.id for v in self.plan.vertices]
            pairs = [sorted((self.random.randint(1, 4), self.random.randint(1, 4))) for _ in names[1:]]
            bounds = dict(zip(names, [Bounds(1, 1), *(Bounds(*p) for p in pairs)], strict=True))
            self.unchanged_since = self.now
            self.send(s.RequirementsChanged(requirements=self.one.requirements.changed(self.plan, bounds)))
        elif kind == "checkpoint":
            self.send(s.CheckpointCompleted(), triggers=True)
        elif kind == "lost":
            self.send(s.CheckpointFailed(), triggers=True)
        elif self.requested_at is None:
            self.send(s.ExecutionFailed())
            self.requested_at = self.now
            self.send(s.ResourcesRequested())


def test_scheduler_decisions_are_optimal_for_random_events() -> None:
    plan = plan_of(4, two_groups=True)
    decided = 0
    for seed in range(100):
        dice = Random(seed)
        options = ScalingOptions(
            wait=dice.choice((30.0, 300.0, math.inf)),
            start_stabilization_timeout=dice.choice((0.0, 10.0)),
            cooldown=dice.choice((0.0, 30.0)),
            stabilization_timeout=dice.choice((0.0, 5.0, 60.0)),
            max_delay=dice.choice((0.0, 9.0, 70.0)),
        )
        patient, often = (World(Random(seed), options, plan, patient) for patient in (True, False))
        patient.run(30)
        often.run(30)
        assert patient.done == often.done, seed
        decided += len(patient.done)
    assert decided > 300
