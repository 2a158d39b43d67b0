"""How a job ends: step by step, each whatever has come of the one before, so that nothing is left behind. Pure."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto

from millstream.common.checkpointing_mode import ExternalizedCheckpointRetention
from millstream.common.job_status import JobStatus
from millstream.jobmaster.machine import instructions as i
from millstream.jobmaster.machine.recovery_state import Instructions, RecoveryState

# So long a job that ends before its time waits for the manifests that are being written.
MANIFEST_TIMEOUT = 10.0


class ShutdownStep(Enum):
    """The last things a job does, in their order."""

    RELEASE_SLOTS = auto()
    # What was committed counts, and shall not wait for somebody who may never come.
    FINISH_OUTPUT = auto()
    # Nobody must start from a checkpoint whose output is aborted.
    AWAIT_MANIFESTS = auto()
    ABORT_STAGED = auto()
    # Before anything is deleted that others could go on from.
    RECORD_OUTCOME = auto()
    CLOSE = auto()
    LEAVE_CHECKPOINTS = auto()
    CLEAN_UP = auto()


# What only a job does that ends before its time, having run; and what one does that has got its directory and output.
_BEFORE_ITS_TIME = (ShutdownStep.FINISH_OUTPUT, ShutdownStep.AWAIT_MANIFESTS, ShutdownStep.ABORT_STAGED)
_ONCE_OPENED = (ShutdownStep.CLOSE, ShutdownStep.LEAVE_CHECKPOINTS)
# What a job does that is left to others: nothing that they could see.
_SUSPENDED = (ShutdownStep.RELEASE_SLOTS, ShutdownStep.CLOSE, ShutdownStep.CLEAN_UP)


class Shutdown:
    """The end of one job."""

    def __init__(self, recovery: RecoveryState, outcome: JobStatus, message: str = "") -> None:
        self._recovery = recovery
        self.outcome = outcome
        self._message = message
        left_out = set(_BEFORE_ITS_TIME if outcome is JobStatus.FINISHED or not recovery.has_run else ())
        if not recovery.is_open:
            left_out |= set(_ONCE_OPENED)
        if outcome is JobStatus.SUSPENDED:
            left_out |= set(ShutdownStep) - set(_SUSPENDED)
        if recovery.options.ended is not None:
            left_out.add(ShutdownStep.RECORD_OUTCOME)
        self._left = deque(step for step in ShutdownStep if step not in left_out)

    def next(self) -> ShutdownStep | None:
        """Return the next thing to do; None when all is done."""
        return self._left.popleft() if self._left else None

    @property
    def output_is_open(self) -> bool:
        """Whether output can still count: it has not been aborted yet, nor left to whoever goes on with the job."""
        return ShutdownStep.ABORT_STAGED in self._left

    def skip(self) -> None:
        """Leave out what would have come next."""
        self._left.popleft()

    def instructions(self, step: ShutdownStep) -> Instructions:
        """Say what a step takes."""
        match step:
            case ShutdownStep.RELEASE_SLOTS:
                return [i.ReleaseSlots()]
            case ShutdownStep.FINISH_OUTPUT:
                return [i.FinishOutput()]
            case ShutdownStep.AWAIT_MANIFESTS:
                return []
            case ShutdownStep.ABORT_STAGED:
                return self._recovery.give_up_output()
            case ShutdownStep.RECORD_OUTCOME:
                return [i.RecordOutcome(outcome=self.outcome, message=self._message)]
            case ShutdownStep.CLOSE:
                return [i.CloseSources(), i.CloseOutput()]
            case ShutdownStep.LEAVE_CHECKPOINTS:
                return self._leave_checkpoints()
            case ShutdownStep.CLEAN_UP:
                return [i.CleanUp()]

    def _leave_checkpoints(self) -> Instructions:
        """Delete the job's checkpoints, or leave those that are wanted."""
        coordinator = self._recovery.coordinator
        if not self._recovery.has_run:
            # Nothing of this job's is in it.
            return [i.ReleaseDirectory()]
        instructions = coordinator.drop_origin() if self.outcome is JobStatus.FINISHED else []
        if not _outlive(self._recovery.options.checkpoints.retention, self.outcome):
            return [*instructions, i.RemoveDirectory()]
        return [*instructions, *coordinator.clean_up(), *coordinator.sweep(set()), i.ReleaseDirectory()]


def _outlive(retention: ExternalizedCheckpointRetention, outcome: JobStatus) -> bool:
    """Tell whether checkpoints stay when a job ends so."""
    if outcome is JobStatus.CANCELED:
        return retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    return outcome is JobStatus.FAILED and retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
