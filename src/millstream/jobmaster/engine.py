"""The interface of the engine that runs the epochs of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from millstream.common.error_rendering import with_source_lines
from millstream.common.errors import JobExecutionError
from millstream.operators.diagnostics.failures import Failure
from millstream.operators.runtime.messages import JobPlan, LevelTask, LogLine, SlotReport


class SliceBounds(NamedTuple):
    """Bounds for the length of epochs on an engine, in seconds.

    Attributes:
        shortest: long compared to the overhead of an epoch.
        longest: how long time, other inputs and checkpoints can wait.
    """

    shortest: float
    longest: float


# An epoch costs a millisecond on resident slots, and 20 to 50 as a Spark job.
QUICK = SliceBounds(0.02, 0.2)
SHUFFLED = SliceBounds(0.25, 1.0)


class EpochFailed(JobExecutionError):
    """An epoch failed.

    Attributes:
        printed, logged: output of user code before the failure.
        operator_id, subtask: where it failed, if known.
        damaged: whether state could not be read.
        unrecoverable: whether a restart would fail in the same way.
        failure: the failure of a subtask, if it was one.
    """

    def __init__(
        self,
        message: str,
        *,
        engine_trace: str = "",
        printed: str = "",
        logged: Sequence[LogLine] = (),
        operator_id: str | None = None,
        subtask: int | None = None,
        damaged: bool = False,
        unrecoverable: bool = False,
        failure: Failure | None = None,
    ) -> None:
        super().__init__(message, engine_trace=engine_trace)
        self.printed = printed
        self.logged = list(logged)
        self.operator_id = operator_id
        self.subtask = subtask
        self.damaged = damaged
        self.unrecoverable = unrecoverable
        self.failure = failure

    @staticmethod
    def of(failure: Failure, printed: str = "", logged: Sequence[LogLine] = (), engine_trace: str = "") -> EpochFailed:
        """Return the error for the failure of a subtask."""
        return EpochFailed(
            with_source_lines(failure.describe()),
            engine_trace=engine_trace,
            printed=printed,
            logged=logged,
            operator_id=failure.operator_id,
            subtask=failure.subtask,
            damaged=failure.damaged,
            unrecoverable=failure.unrecoverable,
            failure=failure,
        )


class EpochOverdue(EpochFailed):
    """An epoch was cancelled because it exceeded the checkpoint timeout."""


class EpochRunner(Protocol):
    """Runs the epochs of one execution on an engine.

    Attributes:
        resident_slots: whether all epochs run in the same processes.
        slices: the bounds for the length of epochs.
    """

    resident_slots: bool
    slices: SliceBounds

    def open(self, lost: Callable[[], None]) -> None:
        """Start slots; `lost` is called from any thread when a slot dies."""
        ...

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        """Run the levels of one epoch; raise EpochFailed if it fails."""
        ...

    def cancel(self) -> None:
        """Cancel the running epoch, if any. May be called from any thread."""
        ...

    def release(self) -> None:
        """Release the slots."""
        ...


class Engine(Protocol):
    """Runs the executions of a job."""

    def runner(self, plan: JobPlan, attempt: int) -> EpochRunner:
        """Return a runner with its own slots."""
        ...

    def slots(self, desired: int) -> int:
        """Return the number of slots available to the job, including those in use; it can use `desired`."""
        ...
