"""A job that follows the slots there are: its scheduler, what that has decided, and the plans that follow. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.common.errors import InvalidProgramError
from millstream.jobmaster.machine import scheduler as s
from millstream.jobmaster.machine.parallelism_bounds import Bounds, Parallelisms, Requirements, spread
from millstream.jobmaster.machine.scaling_options import ScalingOptions
from millstream.operators.runtime.messages import JobPlan


class Scaling:
    """What the job machine asks about numbers of subtasks."""

    def __init__(self, plan: JobPlan, options: ScalingOptions) -> None:
        self._plan = plan
        self._options = options
        self._scheduler = s.Scheduler(options, Requirements.of(plan, options.reactive))
        # What it has decided, and the job has not got to yet.
        self._decision: s.Decision | None = None
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

    def tell(self, event: s.Event, now: float) -> None:
        """Something has happened."""
        if isinstance(event, (s.ExecutionFailed, s.JobEnded, s.Deployed)):
            self._decision = None
        self._decision = self._scheduler.handle(event, now) or self._decision

    def deployed(self, plan: JobPlan, now: float) -> None:
        """The job runs with a plan."""
        self.tell(s.Deployed(parallelisms={v.id: v.parallelism for v in plan.vertices}), now)

    def start(self, now: float) -> JobPlan | s.GiveUp | None:
        """The job waits for slots: return the plan to start with, or why to give up; None to wait on."""
        is_new = self._scheduler.state not in (s.State.WAITING_FOR_RESOURCES, s.State.CREATING_EXECUTION_GRAPH)
        decision = self._decide(s.ResourcesWanted() if is_new else s.TimePassed(), now)
        assert not isinstance(decision, s.Rescale)
        return self.plan_for(decision.parallelisms) if isinstance(decision, s.Start) else decision

    def rescale(self, now: float) -> Parallelisms | None:
        """The job runs, and nothing is under way: return with how many subtasks it is to go on, if with others."""
        decision = self._decide(s.TimePassed(), now)
        return decision.parallelisms if isinstance(decision, s.Rescale) else None

    def _decide(self, event: s.Event, now: float) -> s.Decision | None:
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
        self.tell(s.RequirementsChanged(requirements=changed), now)
