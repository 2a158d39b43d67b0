"""What a job needs of the engine that runs its epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from millstream.common.error_rendering import with_source_lines
from millstream.common.errors import JobExecutionError
from millstream.operators.diagnostics.failures import Failure
from millstream.operators.runtime.messages import JobPlan, LevelTask, LogLine, SlotReport


class SliceBounds(NamedTuple):
    """How long epochs should be on an engine, in seconds.

    Attributes:
        shortest: what is long beside the cost of an epoch itself.
        longest: for as long time, other inputs and checkpoints can wait.
    """

    shortest: float
    longest: float


# Where an epoch costs a millisecond, and where it is a Spark job, which costs 20 to 50.
QUICK = SliceBounds(0.02, 0.2)
SHUFFLED = SliceBounds(0.25, 1.0)


class EpochFailed(JobExecutionError):
    """An epoch failed.

    Attributes:
        printed, logged: what user code printed and logged before it did.
        operator_id, subtask: where it happened, if that is known.
        damaged: whether it is state that could not be read.
        incurable: whether it would happen again if the job were started again.
        failure: what went wrong in a subtask, if it is that.
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
        incurable: bool = False,
        failure: Failure | None = None,
    ) -> None:
        super().__init__(message, engine_trace=engine_trace)
        self.printed = printed
        self.logged = list(logged)
        self.operator_id = operator_id
        self.subtask = subtask
        self.damaged = damaged
        self.incurable = incurable
        self.failure = failure

    @staticmethod
    def of(failure: Failure, printed: str = "", logged: Sequence[LogLine] = (), engine_trace: str = "") -> EpochFailed:
        """Return the error for what went wrong in a subtask."""
        return EpochFailed(
            with_source_lines(failure.describe()),
            engine_trace=engine_trace,
            printed=printed,
            logged=logged,
            operator_id=failure.operator_id,
            subtask=failure.subtask,
            damaged=failure.damaged,
            incurable=failure.incurable,
            failure=failure,
        )


class EpochOverdue(EpochFailed):
    """An epoch was broken off because it had taken longer than checkpoints may."""


class EpochRunner(Protocol):
    """Runs the epochs of one execution on an engine.

    Attributes:
        resident_slots: whether every epoch runs in the same processes, or the execution fails.
        slices: how long epochs should be here.
    """

    resident_slots: bool
    slices: SliceBounds

    def open(self, lost: Callable[[], None]) -> None:
        """Get slots; `lost` is called, from any thread, when one of them is gone that the next epoch needs."""
        ...

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        """Run the levels of one epoch; raise EpochFailed when one fails."""
        ...

    def cancel(self) -> None:
        """Break off the epoch that is running, if one is. May be called from any thread."""
        ...

    def release(self) -> None:
        """End the slots."""
        ...


class Engine(Protocol):
    """Where the executions of a job run."""

    def runner(self, plan: JobPlan, attempt: int) -> EpochRunner:
        """Return a runner with slots of its own."""
        ...

    def slots(self, wanted: int) -> int:
        """Return how many slots there are for the job, those that it uses among them; it would use `wanted`."""
        ...
