"""The adaptive scheduler: chooses a job's parallelism for the available slots, and decides when to change it.

Pure: events in, decisions out. States and phases of a change are Flink's:

    CREATED -> WAITING_FOR_RESOURCES -> CREATING_EXECUTION_GRAPH -> EXECUTING -+-> RESTARTING, to rescale
                 ^                                                  ^         |       |
                 |                                                  '---------|-------'
                 '---- RESTARTING, after a failure <--------------------------'
    from anywhere, at the end: FINISHED

    COOLDOWN -+-> IDLING -> STABILIZING -+-> STABILIZED -+-> act
              '-------------^            '-> act         '-> IDLING

* COOLDOWN: no change for a while after the job has started; changes are only noted.
* STABILIZING: the slots have changed. If all desired slots are available, act at the next completed checkpoint, or
  after the maximum delay without one.
* STABILIZED: the stabilization timeout has passed; act in the same way with the available slots.

A job that waits for slots neither waits for a checkpoint nor cools down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple

from millstream.common.dispatch import MethodDispatch
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.jobmaster.machine.options import ScalingOptions
from millstream.jobmaster.machine.parallelism_bounds import Bounds, Parallelisms, Requirements, spread
from millstream.operators.runtime.messages import JobPlan


class State(Enum):
    """Flink's states of the adaptive scheduler."""

    CREATED = auto()
    WAITING_FOR_RESOURCES = auto()
    CREATING_EXECUTION_GRAPH = auto()
    EXECUTING = auto()
    RESTARTING = auto()
    FINISHED = auto()


class Phase(Enum):
    """Phase of a change of slots or requirements."""

    COOLDOWN = auto()
    IDLING = auto()
    STABILIZING = auto()
    STABILIZED = auto()


# --- events


@fast_dataclass(kw_only=True)
class SlotsChanged:
    """The number of slots available to the job, including those in use."""

    slots: int


@fast_dataclass(kw_only=True)
class RequirementsChanged:
    """A user changed the bounds."""

    requirements: Requirements


@fast_dataclass(kw_only=True)
class ResourcesRequested:
    """The job is ready to start or restart."""


@fast_dataclass(kw_only=True)
class Deployed:
    """The job runs with these parallelisms."""

    parallelisms: Parallelisms


@fast_dataclass(kw_only=True)
class CheckpointCompleted:
    """A checkpoint completed: a rescale now loses no work."""


@fast_dataclass(kw_only=True)
class CheckpointFailed:
    """A checkpoint failed."""


@fast_dataclass(kw_only=True)
class ExecutionFailed:
    """The job failed and will restart."""


@fast_dataclass(kw_only=True)
class JobEnded:
    """The job's outcome is decided."""


@fast_dataclass(kw_only=True)
class TimePassed:
    """The scheduler's deadline may have passed."""


Event = (
    SlotsChanged
    | RequirementsChanged
    | ResourcesRequested
    | Deployed
    | CheckpointCompleted
    | CheckpointFailed
    | ExecutionFailed
    | JobEnded
    | TimePassed
)


# --- decisions


@fast_dataclass(kw_only=True)
class Start:
    """Start or restart the job with these parallelisms."""

    parallelisms: Parallelisms


@fast_dataclass(kw_only=True)
class Rescale:
    """Rescale the running job to these parallelisms."""

    parallelisms: Parallelisms


@fast_dataclass(kw_only=True)
class GiveUp:
    """Fail the job: there were too few slots for too long."""

    reason: str


Decision = Start | Rescale | GiveUp


class _Resources(NamedTuple):
    """Whether all desired slots are available, and whether enough are to run with another parallelism."""

    desired: bool
    sufficient: bool


class Transition:
    """The phases of a change, since a state was entered."""

    def __init__(self, now: float, cooldown: float, stabilization_timeout: float, max_delay: float) -> None:
        self.phase = Phase.COOLDOWN
        self._stabilization_timeout, self._max_delay = stabilization_timeout, max_delay
        self._cooldown_until = now + cooldown
        # When slots first changed, and when to check for all desired slots.
        self._first: float | None = None
        self._check_at = math.inf

    @property
    def deadline(self) -> float:
        """When the phase changes without an event."""
        if self.phase is Phase.COOLDOWN:
            return self._cooldown_until
        if self._first is None:
            return math.inf
        if self.phase is Phase.STABILIZING:
            return min(self._first + self._stabilization_timeout, self._check_at)
        return self._first + self._max_delay

    def changed(self, now: float, resources: _Resources) -> None:
        """Note that slots or requirements have changed."""
        if self.phase is Phase.COOLDOWN:
            if resources.sufficient and self._first is None:
                self._first = now
        elif self.phase is Phase.IDLING:
            if resources.sufficient:
                self._stabilize(now)
        elif self.phase is Phase.STABILIZING and self._check_at == math.inf:
            self._check_at = now + self._max_delay

    def triggered(self, resources: _Resources) -> bool:
        """Return whether to act at this moment, for example after a checkpoint."""
        if self.phase is Phase.STABILIZING:
            return resources.desired
        if self.phase is Phase.STABILIZED and not resources.sufficient:
            self.phase, self._first = Phase.IDLING, None
        return self.phase is Phase.STABILIZED

    def passed(self, now: float, resources: _Resources) -> bool:
        """Return whether to act because time has passed."""
        while self.deadline <= now:
            if self.phase is Phase.COOLDOWN:
                if self._first is None:
                    self.phase = Phase.IDLING
                else:
                    self._stabilize(self._first)
            elif self.phase is Phase.STABILIZED:
                return self.triggered(resources)
            else:
                assert self._first is not None
                if self._check_at <= self._first + self._stabilization_timeout:
                    self._check_at = math.inf
                    if resources.desired:
                        return True
                else:
                    self.phase = Phase.STABILIZED
        return False

    def _stabilize(self, first: float) -> None:
        self.phase, self._first, self._check_at = Phase.STABILIZING, first, first + self._max_delay


class Scheduler:
    """The adaptive scheduler of one job."""

    def __init__(self, options: ScalingOptions, requirements: Requirements) -> None:
        self.requirements = requirements
        self.state = State.CREATED
        self.slots = 0
        self._options = options
        self._transition = Transition(0.0, math.inf, 0.0, 0.0)
        self._give_up_at = math.inf
        # The parallelism of each vertex.
        self._parallelisms: Parallelisms = {}
        # How many checkpoints may fail before a change no longer waits for one; None without a change.
        self._failures_left: int | None = None

    @property
    def deadline(self) -> float:
        """When to report the time, unless an event occurs before."""
        if self.state is State.WAITING_FOR_RESOURCES:
            return min(self._transition.deadline, self._give_up_at)
        return self._transition.deadline if self.state is State.EXECUTING else math.inf

    def handle(self, event: Event, now: float) -> Decision | None:
        """Handle an event and return the decision, if any."""
        return self._HANDLERS[event](self, event, now)

    # --- external events

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
        self._transition.changed(now, self._resources())
        if self.state is State.WAITING_FOR_RESOURCES:
            return self._act() if self._transition.triggered(self._resources()) else self._passed(now)
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
        return self._act() if self._transition.triggered(self._resources()) else self._passed(now)

    # --- life cycle

    def _resources_requested(self, event: ResourcesRequested, now: float) -> Decision | None:
        self.state = State.WAITING_FOR_RESOURCES
        self._give_up_at = now + self._options.wait
        self._transition = Transition(now, 0.0, self._options.start_stabilization_timeout, 0.0)
        self._transition.changed(now, self._resources())
        return self._passed(now)

    def _deployed(self, event: Deployed, now: float) -> Decision | None:
        self.state, self._parallelisms = State.EXECUTING, dict(event.parallelisms)
        options = self._options
        self._transition = Transition(now, options.cooldown, options.stabilization_timeout, options.max_delay)
        self._failures_left = None
        # Slots may have changed meanwhile.
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
        if self._transition.passed(now, self._resources()):
            return self._act()
        if self.state is State.WAITING_FOR_RESOURCES and self._give_up_at <= now:
            return self._act()
        return None

    # --- decisions

    def _resources(self) -> _Resources:
        parallelisms = self.requirements.within_slots(self.slots)
        is_other = parallelisms is not None and (
            self.state is not State.EXECUTING or parallelisms != self._parallelisms
        )
        return _Resources(is_other and self.slots >= self.requirements.desired, is_other)

    def _act(self) -> Decision:
        parallelisms = self.requirements.within_slots(self.slots)
        if parallelisms is None:
            needed, waited = self.requirements.sufficient, self._options.wait
            return GiveUp(
                reason=f"The job needs {needed} slots, and {self.slots} are available after {waited:g} s: add "
                "executors, or wait longer with jobmanager.adaptive-scheduler.submission.resource-wait-timeout."
            )
        if self.state is State.EXECUTING:
            self.state = State.RESTARTING
            return Rescale(parallelisms=parallelisms)
        self.state = State.CREATING_EXECUTION_GRAPH
        return Start(parallelisms=parallelisms)

    _HANDLERS = (
        MethodDispatch["Scheduler", [float], "Decision | None"]()
        .on(SlotsChanged, _slots_changed)
        .on(RequirementsChanged, _requirements_changed)
        .on(ResourcesRequested, _resources_requested)
        .on(Deployed, _deployed)
        .on(CheckpointCompleted, _checkpoint_completed)
        .on(CheckpointFailed, _checkpoint_failed)
        .on(ExecutionFailed, _execution_failed)
        .on(JobEnded, _job_ended)
        .on(TimePassed, _time_passed)
    )


class Scaling:
    """Connects the job machine to the scheduler: pending decision and plans by parallelism."""

    def __init__(self, plan: JobPlan, options: ScalingOptions) -> None:
        self._plan = plan
        self._options = options
        self._scheduler = Scheduler(options, Requirements.of(plan, options.reactive))
        # A decision the job has not acted on yet.
        self._decision: Decision | None = None
        # Each plan is pickled and sent once, however often the job returns to it.
        self._plans: dict[tuple[int, ...], JobPlan] = {}

    @property
    def deadline(self) -> float:
        """When to check again; at once if there is a decision."""
        return -float("inf") if self._decision is not None else self._scheduler.deadline

    @property
    def desired(self) -> int:
        """The number of slots the job can use."""
        return self._scheduler.requirements.desired

    @property
    def bounds(self) -> Mapping[int, Bounds]:
        """The bounds of each vertex's parallelism."""
        return self._scheduler.requirements.bounds

    def handle(self, event: Event, now: float) -> None:
        """Pass an event to the scheduler."""
        if isinstance(event, (ExecutionFailed, JobEnded, Deployed)):
            self._decision = None
        self._decision = self._scheduler.handle(event, now) or self._decision

    def deployed(self, plan: JobPlan, now: float) -> None:
        """Report that the job runs with a plan."""
        self.handle(Deployed(parallelisms={v.id: v.parallelism for v in plan.vertices}), now)

    def start(self, now: float) -> JobPlan | GiveUp | None:
        """Return the plan to start with, or the reason to give up; None to keep waiting for slots."""
        is_new = self._scheduler.state not in (State.WAITING_FOR_RESOURCES, State.CREATING_EXECUTION_GRAPH)
        decision = self._decide(ResourcesRequested() if is_new else TimePassed(), now)
        assert not isinstance(decision, Rescale)
        return self.plan_for(decision.parallelisms) if isinstance(decision, Start) else decision

    def rescale(self, now: float) -> Parallelisms | None:
        """Return the parallelisms to rescale to, if they differ from the current ones."""
        decision = self._decide(TimePassed(), now)
        return decision.parallelisms if isinstance(decision, Rescale) else None

    def _decide(self, event: Event, now: float) -> Decision | None:
        self.handle(event, now)
        decision, self._decision = self._decision, None
        return decision

    def plan_for(self, parallelisms: Parallelisms) -> JobPlan:
        """Return the plan for these parallelisms."""
        key = tuple(parallelisms[v.id] for v in self._plan.vertices)
        if key not in self._plans:
            self._plans[key] = spread(self._plan, parallelisms)
        return self._plans[key]

    def require(self, bounds: Mapping[str, Bounds], now: float) -> None:
        """Change the bounds of the vertices.

        Raises:
            InvalidProgramError: the bounds are invalid.
        """
        if self._options.reactive:
            raise InvalidProgramError(
                "Cannot change the parallelism of a job running in reactive mode: it uses all available slots."
            )
        changed = self._scheduler.requirements.changed(self._plan, bounds)
        self.handle(RequirementsChanged(requirements=changed), now)
