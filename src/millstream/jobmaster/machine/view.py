"""JobView: an immutable view of a job; other threads read a running job only through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.common.aliases import Json
from millstream.common.execution_state import ExecutionState
from millstream.common.job_status import JobStatus
from millstream.jobmaster.machine.coordinator import Checkpoint, CheckpointCoordinator, CheckpointStatus
from millstream.jobmaster.machine.parallelism_bounds import Bounds
from millstream.jobmaster.machine.progress import JobProgress
from millstream.operators.diagnostics.io_metrics import SubtaskTraffic
from millstream.operators.runtime.messages import Address, JobPlan, SlotLocation
from millstream.operators.runtime.vertex import Vertex

# After this many equal failures in a row, restarts are unlikely to help.
STUCK_AFTER_FAILURES = 3


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """One subtask: its state, when it entered each state, and its attempt."""

    state: ExecutionState
    since: float
    attempt: int
    times: Mapping[ExecutionState, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FailureView:
    """One failure of a job.

    Attributes:
        operator: the id of the failed operator, if known.
        restarts_at: when the job restarts; None if it does not.
        number: the number of the failure, from 1.
        can_replay: whether a failure report allows the operator to be replayed.
        note: what the failure report lacks.
    """

    failed_at: float
    message: str
    operator: str | None
    restarts_at: float | None
    number: int = 1
    can_replay: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckpointView:
    """One checkpoint. Times are in seconds of the job's clock."""

    id: int
    status: CheckpointStatus
    triggered_at: float
    acknowledged_at: float | None
    completed_at: float | None
    state_bytes: int
    location: str | None
    failure: str | None

    @property
    def is_complete(self) -> bool:
        return self.status in (CheckpointStatus.COMPLETED, CheckpointStatus.NOTIFIED)


@dataclass(frozen=True, kw_only=True)
class CheckpointsView:
    """Counts of checkpoints, and the last ones, oldest first."""

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    history: tuple[CheckpointView, ...] = ()
    latest: CheckpointView | None = None
    # The ids of retained checkpoints.
    retained: frozenset[int] = frozenset()

    @staticmethod
    def of(coordinator: CheckpointCoordinator) -> CheckpointsView:
        latest = coordinator.latest()
        return CheckpointsView(
            triggered=coordinator.triggered,
            completed=coordinator.completed_count,
            failed=coordinator.failed_count,
            in_progress=coordinator.in_progress,
            history=tuple(_checkpoint(c) for c in coordinator.history),
            retained=coordinator.retained_ids(),
            latest=None if latest is None or latest.completed_at is None else _checkpoint(latest),
        )

    def statistics(self) -> dict[str, Json]:
        """Return the counts and the history as plain values."""
        counts = {
            "triggered": self.triggered,
            "completed": self.completed,
            "failed": self.failed,
            "in_progress": self.in_progress,
        }
        return {"counts": counts, "history": [_described(c) for c in self.history]}


def _checkpoint(checkpoint: Checkpoint) -> CheckpointView:
    return CheckpointView(
        id=checkpoint.id,
        status=checkpoint.status,
        triggered_at=checkpoint.triggered_at,
        acknowledged_at=checkpoint.acknowledged_at,
        completed_at=checkpoint.completed_at,
        state_bytes=checkpoint.state_bytes,
        location=checkpoint.location,
        failure=checkpoint.reason or None,
    )


def _described(checkpoint: CheckpointView) -> dict[str, Json]:
    end = checkpoint.completed_at
    return {
        "id": checkpoint.id,
        "status": checkpoint.status.name,
        "trigger_timestamp": int(checkpoint.triggered_at * 1000),
        "end_to_end_duration_ms": None if end is None else (end - checkpoint.triggered_at) * 1000,
        "state_bytes": checkpoint.state_bytes,
        "location": checkpoint.location,
        "failure": checkpoint.failure,
    }


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job at one moment. Times are in seconds of the job's clock.

    Attributes:
        outcome: the outcome of the job, once it is decided.
        times: when the job last entered each status.
        epoch, epoch_since: the last finished epoch, and since when the next one runs, if it does.
        restarts: the number of restarts after failures.
        failures: the last failures, oldest first.
        repeated_failures: the number of equal failures in a row without a finished epoch.
        bounds: the bounds of each vertex's parallelism for adaptive jobs; else None.
    """

    plan: JobPlan
    status: JobStatus
    outcome: JobStatus | None
    times: Mapping[JobStatus, float]
    epoch: int = 0
    epoch_since: float | None = None
    attempt: int = 0
    restarts: int = 0
    tasks: Mapping[Address, TaskView] = field(default_factory=dict)
    progress: JobProgress = field(default_factory=JobProgress)
    checkpoints: CheckpointsView = field(default_factory=CheckpointsView)
    failures: tuple[FailureView, ...] = ()
    repeated_failures: int = 0
    bounds: Mapping[int, Bounds] | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether it keeps restarting without progress."""
        return self.repeated_failures >= STUCK_AFTER_FAILURES

    @property
    def job_id(self) -> str:
        return self.plan.settings.job_id

    @property
    def job_name(self) -> str:
        return self.plan.settings.job_name

    @property
    def watermark(self) -> int | None:
        """The lowest watermark of the last operators, in milliseconds; None if they have none."""
        ends = {v.id for v in self.plan.vertices if not v.out_edges}
        marks = [p.watermark for (v, _), p in self.progress.subtasks.items() if v in ends and p.watermark is not None]
        return min(marks, default=None)

    def location(self, vertex: Vertex, subtask: int) -> SlotLocation | None:
        """Return the location of a subtask; None if unknown, or in this process."""
        return self.progress.locations.get(vertex.slot_offset + subtask)

    def traffic(self, vertex: int, subtask: int) -> SubtaskTraffic | None:
        """Return the I/O metrics of a subtask; None if its slot is not resident, or new."""
        placed = next(v for v in self.plan.vertices if v.id == vertex)
        slot = self.progress.traffic.get(placed.slot_offset + subtask)
        return None if slot is None else SubtaskTraffic.of(slot, placed.level)
