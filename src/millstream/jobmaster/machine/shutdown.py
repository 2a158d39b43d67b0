"""The shutdown of a job, step by step: each step runs also if the previous one failed. Pure."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from millstream.common.checkpointing_mode import ExternalizedCheckpointRetention
from millstream.common.job_status import JobStatus
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine.job_state import Instructions, JobState

# How long a job that ends early waits for manifests being written.
MANIFEST_TIMEOUT = 10.0


class ShutdownStep(Enum):
    """The steps of a shutdown, in order."""

    RELEASE_SLOTS = auto()
    # Finalize committed output.
    FINISH_OUTPUT = auto()
    # No job may start from a checkpoint whose output is aborted.
    AWAIT_MANIFESTS = auto()
    ABORT_STAGED = auto()
    # Record the outcome before anything is deleted that could be restored.
    RECORD_OUTCOME = auto()
    CLOSE = auto()
    LEAVE_CHECKPOINTS = auto()
    CLEAN_UP = auto()


# Steps of a job that ends early after it has run; steps of a job that has opened its directory and output.
_BEFORE_ITS_TIME = (ShutdownStep.FINISH_OUTPUT, ShutdownStep.AWAIT_MANIFESTS, ShutdownStep.ABORT_STAGED)
_ONCE_OPENED = (ShutdownStep.CLOSE, ShutdownStep.LEAVE_CHECKPOINTS)
# Steps of a suspended job: nothing that others could see.
_SUSPENDED = (ShutdownStep.RELEASE_SLOTS, ShutdownStep.CLOSE, ShutdownStep.CLEAN_UP)


class Shutdown:
    """The shutdown of one job."""

    def __init__(self, job: JobState, outcome: JobStatus, message: str = "") -> None:
        self._job = job
        self.outcome = outcome
        self._message = message
        left_out = set(_BEFORE_ITS_TIME if outcome is JobStatus.FINISHED or not job.has_run else ())
        if not job.is_open:
            left_out |= set(_ONCE_OPENED)
        if outcome is JobStatus.SUSPENDED:
            left_out |= set(ShutdownStep) - set(_SUSPENDED)
        if job.options.ended is not None:
            left_out.add(ShutdownStep.RECORD_OUTCOME)
        self._left = deque(step for step in ShutdownStep if step not in left_out)

    def next(self) -> ShutdownStep | None:
        """Return the next step; None when all are done."""
        return self._left.popleft() if self._left else None

    @property
    def output_is_open(self) -> bool:
        """Whether output can still be committed: it is neither aborted nor left to another job manager."""
        return ShutdownStep.ABORT_STAGED in self._left

    def skip(self) -> None:
        """Skip the next step."""
        self._left.popleft()

    def instructions(self, step: ShutdownStep) -> Instructions:
        """Return the instructions of a step."""
        match step:
            case ShutdownStep.RELEASE_SLOTS:
                return [i.ReleaseSlots()]
            case ShutdownStep.FINISH_OUTPUT:
                return [i.FinishOutput()]
            case ShutdownStep.AWAIT_MANIFESTS:
                return []
            case ShutdownStep.ABORT_STAGED:
                return self._job.give_up_output()
            case ShutdownStep.RECORD_OUTCOME:
                return [i.RecordOutcome(outcome=self.outcome, message=self._message)]
            case ShutdownStep.CLOSE:
                return [i.CloseSources(), i.CloseOutput()]
            case ShutdownStep.LEAVE_CHECKPOINTS:
                return self._leave_checkpoints()
            case ShutdownStep.CLEAN_UP:
                return [i.CleanUp()]

    def _leave_checkpoints(self) -> Instructions:
        """Delete the job's checkpoints, or leave the retained ones."""
        coordinator = self._job.coordinator
        if not self._job.has_run:
            # The directory holds nothing of this job.
            return [i.ReleaseDirectory()]
        instructions = coordinator.drop_origin() if self.outcome is JobStatus.FINISHED else []
        if not _outlive(self._job.options.checkpoints.retention, self.outcome):
            return [*instructions, i.RemoveDirectory()]
        return [*instructions, *coordinator.clean_up(), *coordinator.sweep(set()), i.ReleaseDirectory()]


def _outlive(retention: ExternalizedCheckpointRetention, outcome: JobStatus) -> bool:
    """Return whether checkpoints outlive a job with this outcome."""
    if outcome is JobStatus.CANCELED:
        return retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    return outcome is JobStatus.FAILED and retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
