"""The adaptive scheduler: with how many subtasks a job runs, given the slots there are, and when that changes.

Pure: it is told what has happened and says what to do. The states are Flink's, and so are the phases behind a change:

    CREATED -> WAITING_FOR_RESOURCES -> CREATING_EXECUTION_GRAPH -> EXECUTING -+-> RESTARTING, to rescale
                 ^                                                  ^         |       |
                 |                                                  '---------|-------'
                 '---- RESTARTING, after a failure <--------------------------'
    from anywhere, at the end: FINISHED

    COOLDOWN -+-> IDLING -> STABILIZING -+-> STABILIZED -+-> act
              '-------------^            '-> act         '-> IDLING

* COOLDOWN: nothing is done for a while after the job has started; changes are only noted.
* STABILIZING: slots have changed. If there are all that the job wants, it acts with the next checkpoint that is
  completed, or when none was for too long.
* STABILIZED: so long more slots were waited for; the same with those that there are.

Where the job waits for slots it need not wait for a checkpoint, nor cool down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, ClassVar, NamedTuple

from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import record
from millstream.jobmaster.machine.options import ScalingOptions
from millstream.jobmaster.machine.parallelism_bounds import Bounds, Parallelisms, Requirements, spread
from millstream.operators.runtime.messages import JobPlan


class State(Enum):
    """Flink's states of a job, as far as slots are concerned."""

    CREATED = auto()
    WAITING_FOR_RESOURCES = auto()
    CREATING_EXECUTION_GRAPH = auto()
    EXECUTING = auto()
    RESTARTING = auto()
    FINISHED = auto()


class Phase(Enum):
    """What becomes of a change."""

    COOLDOWN = auto()
    IDLING = auto()
    STABILIZING = auto()
    STABILIZED = auto()


# --- what has happened


@record(kw_only=True)
class SlotsChanged:
    """So many slots are there for the job, those that it uses among them."""

    slots: int


@record(kw_only=True)
class RequirementsChanged:
    """Somebody wants other bounds."""

    requirements: Requirements


@record(kw_only=True)
class ResourcesWanted:
    """The job is ready to start, or to start again."""


@record(kw_only=True)
class Deployed:
    """The job runs, with so many subtasks."""

    parallelisms: Parallelisms


@record(kw_only=True)
class CheckpointCompleted:
    """A checkpoint is complete: going on from there loses nothing."""


@record(kw_only=True)
class CheckpointFailed:
    """A checkpoint was not completed."""


@record(kw_only=True)
class ExecutionFailed:
    """The job has failed and will start again."""


@record(kw_only=True)
class JobEnded:
    """It is decided how the job ends."""


@record(kw_only=True)
class TimePassed:
    """The scheduler's deadline may have come."""


Event = (
    SlotsChanged
    | RequirementsChanged
    | ResourcesWanted
    | Deployed
    | CheckpointCompleted
    | CheckpointFailed
    | ExecutionFailed
    | JobEnded
    | TimePassed
)


# --- what to do


@record(kw_only=True)
class Start:
    """Start the job, or start it again, with so many subtasks."""

    parallelisms: Parallelisms


@record(kw_only=True)
class Rescale:
    """Let the running job go on with so many subtasks."""

    parallelisms: Parallelisms


@record(kw_only=True)
class GiveUp:
    """There were too few slots for too long."""

    reason: str


Decision = Start | Rescale | GiveUp


class _Found(NamedTuple):
    """What there is: all that is wanted, or something other than now that is enough."""

    desired: bool
    sufficient: bool


class Transition:
    """The phases behind a change, from when a state was entered."""

    def __init__(self, now: float, cooldown: float, settle: float, max_delay: float) -> None:
        self.phase = Phase.COOLDOWN
        self._settle, self._max_delay = settle, max_delay
        self._cool_at = now + cooldown
        # When slots first changed, and when to look whether there are all that are wanted.
        self._first: float | None = None
        self._look_at = math.inf

    @property
    def deadline(self) -> float:
        """When something happens by itself."""
        if self.phase is Phase.COOLDOWN:
            return self._cool_at
        if self._first is None:
            return math.inf
        if self.phase is Phase.STABILIZING:
            return min(self._first + self._settle, self._look_at)
        return self._first + self._max_delay

    def changed(self, now: float, found: _Found) -> None:
        """Slots or requirements have changed."""
        if self.phase is Phase.COOLDOWN:
            if found.sufficient and self._first is None:
                self._first = now
        elif self.phase is Phase.IDLING:
            if found.sufficient:
                self._stabilize(now)
        elif self.phase is Phase.STABILIZING and self._look_at == math.inf:
            self._look_at = now + self._max_delay

    def triggered(self, found: _Found) -> bool:
        """It is a good moment; tell whether to act."""
        if self.phase is Phase.STABILIZING:
            return found.desired
        if self.phase is Phase.STABILIZED and not found.sufficient:
            self.phase, self._first = Phase.IDLING, None
        return self.phase is Phase.STABILIZED

    def passed(self, now: float, found: _Found) -> bool:
        """Time has passed; tell whether to act."""
        while self.deadline <= now:
            if self.phase is Phase.COOLDOWN:
                if self._first is None:
                    self.phase = Phase.IDLING
                else:
                    self._stabilize(self._first)
            elif self.phase is Phase.STABILIZED:
                return self.triggered(found)
            else:
                assert self._first is not None
                if self._look_at <= self._first + self._settle:
                    self._look_at = math.inf
                    if found.desired:
                        return True
                else:
                    self.phase = Phase.STABILIZED
        return False

    def _stabilize(self, first: float) -> None:
        self.phase, self._first, self._look_at = Phase.STABILIZING, first, first + self._max_delay


class Scheduler:
    """One job's."""

    def __init__(self, options: ScalingOptions, requirements: Requirements) -> None:
        self.requirements = requirements
        self.state = State.CREATED
        self.slots = 0
        self._options = options
        self._transition = Transition(0.0, math.inf, 0.0, 0.0)
        self._give_up_at = math.inf
        # With how many subtasks it runs.
        self._parallelisms: Parallelisms = {}
        # How many checkpoints may still fail before a change waits for none; None while nothing has changed.
        self._failures_left: int | None = None

    @property
    def deadline(self) -> float:
        """When to tell the time, if nothing else happens before."""
        if self.state is State.WAITING_FOR_RESOURCES:
            return min(self._transition.deadline, self._give_up_at)
        return self._transition.deadline if self.state is State.EXECUTING else math.inf

    def handle(self, event: Event, now: float) -> Decision | None:
        """Take note of what has happened; return what to do, if anything."""
        return self._HANDLERS[type(event)](self, event, now)

    # --- what comes from outside

    def _slots_changed(self, event: SlotsChanged, now: float) -> Decision | None:
        if event.slots == self.slots:
            return None
        self.slots = event.slots
        return self._changed(now)

    def _requirements_changed(self, event: RequirementsChanged, now: float) -> Decision | None:
        self.requirements = event.requirements
        return self._changed(now)

    def _changed(self, now: float) -> Decision | None:
        if self.state not in (State.WAITING_FOR_RESOURCES, State.EXECUTING):
            return None
        self._transition.changed(now, self._found())
        if self.state is State.WAITING_FOR_RESOURCES:
            return self._act() if self._transition.triggered(self._found()) else self._passed(now)
        if self._failures_left is None:
            self._failures_left = self._options.max_failures
        return self._passed(now)

    def _checkpoint_completed(self, event: CheckpointCompleted, now: float) -> Decision | None:
        return self._triggered(now)

    def _checkpoint_failed(self, event: CheckpointFailed, now: float) -> Decision | None:
        if self.state is not State.EXECUTING or self._failures_left is None:
            return None
        self._failures_left -= 1
        return self._triggered(now) if self._failures_left <= 0 else None

    def _triggered(self, now: float) -> Decision | None:
        if self.state is not State.EXECUTING:
            return None
        self._failures_left = None
        return self._act() if self._transition.triggered(self._found()) else self._passed(now)

    # --- the way of a job

    def _resources_wanted(self, event: ResourcesWanted, now: float) -> Decision | None:
        self.state = State.WAITING_FOR_RESOURCES
        self._give_up_at = now + self._options.wait
        self._transition = Transition(now, 0.0, self._options.settle_at_start, 0.0)
        self._transition.changed(now, self._found())
        return self._passed(now)

    def _deployed(self, event: Deployed, now: float) -> Decision | None:
        self.state, self._parallelisms = State.EXECUTING, dict(event.parallelisms)
        options = self._options
        self._transition = Transition(now, options.cooldown, options.settle, options.max_delay)
        self._failures_left = None
        # Slots may have come meanwhile.
        return self._changed(now)

    def _execution_failed(self, event: ExecutionFailed, now: float) -> Decision | None:
        self.state = State.RESTARTING
        return None

    def _job_ended(self, event: JobEnded, now: float) -> Decision | None:
        self.state = State.FINISHED
        return None

    def _time_passed(self, event: TimePassed, now: float) -> Decision | None:
        return self._passed(now)

    def _passed(self, now: float) -> Decision | None:
        if self.state not in (State.WAITING_FOR_RESOURCES, State.EXECUTING):
            return None
        if self._transition.passed(now, self._found()):
            return self._act()
        if self.state is State.WAITING_FOR_RESOURCES and self._give_up_at <= now:
            return self._act()
        return None

    # --- decisions

    def _found(self) -> _Found:
        fitted = self.requirements.fitted(self.slots)
        is_other = fitted is not None and (self.state is not State.EXECUTING or fitted != self._parallelisms)
        return _Found(is_other and self.slots >= self.requirements.desired, is_other)

    def _act(self) -> Decision:
        fitted = self.requirements.fitted(self.slots)
        if fitted is None:
            needed, waited = self.requirements.sufficient, self._options.wait
            return GiveUp(
                reason=f"The job needs {needed} slots and there are {self.slots}, after {waited:g} s: add executors, "
                "or wait longer with jobmanager.adaptive-scheduler.submission.resource-wait-timeout."
            )
        if self.state is State.EXECUTING:
            self.state = State.RESTARTING
            return Rescale(parallelisms=fitted)
        self.state = State.CREATING_EXECUTION_GRAPH
        return Start(parallelisms=fitted)

    _HANDLERS: ClassVar[dict[type, Callable[[Scheduler, Any, float], Decision | None]]] = {
        SlotsChanged: _slots_changed,
        RequirementsChanged: _requirements_changed,
        ResourcesWanted: _resources_wanted,
        Deployed: _deployed,
        CheckpointCompleted: _checkpoint_completed,
        CheckpointFailed: _checkpoint_failed,
        ExecutionFailed: _execution_failed,
        JobEnded: _job_ended,
        TimePassed: _time_passed,
    }


class Scaling:
    """What the job machine asks about numbers of subtasks."""

    def __init__(self, plan: JobPlan, options: ScalingOptions) -> None:
        self._plan = plan
        self._options = options
        self._scheduler = Scheduler(options, Requirements.of(plan, options.reactive))
        # What it has decided, and the job has not got to yet.
        self._decision: Decision | None = None
        # A plan is pickled and sent once, however often the job comes back to it.
        self._plans: dict[tuple[int, ...], JobPlan] = {}

    @property
    def deadline(self) -> float:
        """When to look again; at once when something is decided."""
        return -float("inf") if self._decision is not None else self._scheduler.deadline

    @property
    def wanted(self) -> int:
        """How many slots the job would use."""
        return self._scheduler.requirements.desired

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """How many subtasks each vertex may have."""
        return self._scheduler.requirements.bounds

    def tell(self, event: Event, now: float) -> None:
        """Something has happened."""
        if isinstance(event, (ExecutionFailed, JobEnded, Deployed)):
            self._decision = None
        self._decision = self._scheduler.handle(event, now) or self._decision

    def deployed(self, plan: JobPlan, now: float) -> None:
        """The job runs with a plan."""
        self.tell(Deployed(parallelisms={v.id: v.parallelism for v in plan.vertices}), now)

    def start(self, now: float) -> JobPlan | GiveUp | None:
        """The job waits for slots: return the plan to start with, or why to give up; None to wait on."""
        is_new = self._scheduler.state not in (State.WAITING_FOR_RESOURCES, State.CREATING_EXECUTION_GRAPH)
        decision = self._decide(ResourcesWanted() if is_new else TimePassed(), now)
        assert not isinstance(decision, Rescale)
        return self.plan_for(decision.parallelisms) if isinstance(decision, Start) else decision

    def rescale(self, now: float) -> Parallelisms | None:
        """The job runs, and nothing is under way: return with how many subtasks it is to go on, if with others."""
        decision = self._decide(TimePassed(), now)
        return decision.parallelisms if isinstance(decision, Rescale) else None

    def _decide(self, event: Event, now: float) -> Decision | None:
        self.tell(event, now)
        decision, self._decision = self._decision, None
        return decision

    def plan_for(self, parallelisms: Parallelisms) -> JobPlan:
        """Return the plan with so many subtasks."""
        key = tuple(parallelisms[v.id] for v in self._plan.vertices)
        if key not in self._plans:
            self._plans[key] = spread(self._plan, parallelisms)
        return self._plans[key]

    def require(self, bounds: Mapping[str, Bounds], now: float) -> None:
        """Run within other bounds from now on.

        Raises:
            InvalidProgramError: these cannot be.
        """
        if self._options.reactive:
            raise InvalidProgramError(
                "Cannot change the parallelism of a job running in reactive mode: it takes the slots there are."
            )
        changed = self._scheduler.requirements.changed(self._plan, bounds)
        self.tell(RequirementsChanged(requirements=changed), now)
