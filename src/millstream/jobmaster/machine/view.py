"""JobView: a job at one moment, immutable: what other threads read of a running job is this and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.common.execution_state import ExecutionState
from millstream.common.job_status import JobStatus
from millstream.jobmaster.machine.coordinator import Checkpoint, CheckpointCoordinator, CheckpointStatus
from millstream.jobmaster.machine.parallelism_bounds import Bounds
from millstream.jobmaster.machine.progress import JobProgress
from millstream.operators.diagnostics.io_metrics import SubtaskTraffic
from millstream.operators.runtime.messages import Address, JobPlan, SlotLocation
from millstream.operators.runtime.vertex import Vertex

# A job that has failed so often in a row in the same way does not get on by starting again.
STUCK_AFTER_FAILURES = 3


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """One subtask: the state it is in, when it came to each, and which attempt this is."""

    state: ExecutionState
    since: float
    attempt: int
    times: Mapping[ExecutionState, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FailureView:
    """One failure of a job.

    Attributes:
        operator: the id of the operator it happened in, if that is known.
        restarts_at: when the job starts again; None when it does not.
        number: which of the job's failures it is, from 1.
        is_kept: whether the record, or the timer, is kept, so that the operator can be run on it alone.
        note: what of it could not be kept, in words.
    """

    at: float
    message: str
    operator: str | None
    restarts_at: float | None
    number: int = 1
    is_kept: bool = False
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
    """How many checkpoints there were, and the last ones, oldest first."""

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    history: tuple[CheckpointView, ...] = ()
    latest: CheckpointView | None = None
    # The numbers of those that are kept.
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
            retained=coordinator.kept(),
            latest=None if latest is None or latest.completed_at is None else _checkpoint(latest),
        )

    def statistics(self) -> dict[str, Any]:
        """Return this as plain values."""
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


def _described(checkpoint: CheckpointView) -> dict[str, Any]:
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
        outcome: how the job will have ended, once that is decided.
        times: when the job last came to each status.
        epoch, epoch_since: the last epoch that ended, and since when the next one runs, if it does.
        restarts: how often it has started again after a failure.
        failures: the last ones, oldest first.
        alike: how often in a row it has failed in the same way, with no epoch that ended between.
        bounds: how many subtasks each vertex may have, where that follows the slots there are; else None.
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
    alike: int = 0
    bounds: Mapping[int, Bounds] | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether it starts again and again, and does not get on."""
        return self.alike >= STUCK_AFTER_FAILURES

    @property
    def job_id(self) -> str:
        return self.plan.settings.job_id

    @property
    def job_name(self) -> str:
        return self.plan.settings.job_name

    def place(self, vertex: Vertex, subtask: int) -> SlotLocation | None:
        """Return where a subtask runs; None if that is not known, or in this process."""
        return self.progress.places.get(vertex.slot_offset + subtask)

    def traffic(self, vertex: int, subtask: int) -> SubtaskTraffic | None:
        """Return what is known of a subtask's time and channels; None if its slot does not stay, or is new."""
        placed = next(v for v in self.plan.vertices if v.id == vertex)
        slot = self.progress.traffic.get(placed.slot_offset + subtask)
        return None if slot is None else SubtaskTraffic.of(slot, placed.level)
