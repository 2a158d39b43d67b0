"""Events that the job machine handles: everything that happens to a job, in the past tense."""

from __future__ import annotations

from dataclasses import field

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.jobmaster.engine import SliceBounds
from millstream.jobmaster.machine.execution import Positions
from millstream.jobmaster.machine.requests import Request
from millstream.operators.runtime.messages import JobPlan, SlotReport, SplitRanges
from millstream.operators.source import Lags


@fast_dataclass(kw_only=True)
class JobStarted:
    """The job's thread has started."""


@fast_dataclass(kw_only=True)
class TimePassed:
    """All instructions are done and the machine's deadline has passed."""


@fast_dataclass(kw_only=True)
class InstructionFailed:
    """An instruction failed; the instructions after it were dropped."""

    error: Exception


@fast_dataclass(kw_only=True)
class CancelRequested:
    """A user cancelled the job."""


@fast_dataclass(kw_only=True)
class SuspendRequested:
    """This process lost the leadership or exits: stop at once and leave the job to the new leader."""

    reason: str


@fast_dataclass(kw_only=True)
class Requested:
    """A user requested something to be done between two epochs."""

    request: Request


@fast_dataclass(kw_only=True)
class SlotsOpened:
    """The execution has slots.

    Attributes:
        resident: whether the slots are resident, so that each epoch finds the state of the last one in memory.
        slices: the bounds for the length of epochs on this engine.
    """

    resident: bool
    slices: SliceBounds


@fast_dataclass(kw_only=True)
class SourcesPolled:
    """The sources have assigned their next input.

    Attributes:
        limited: whether there was more input than the budget.
        finished: the sources that have assigned all their splits.
        poll_again: when to poll again if there was no input.
        lags: the unassigned input of sources that report it.
    """

    split_ranges: SplitRanges
    limited: bool
    finished: frozenset[int]
    poll_again: float
    lags: Lags = field(default_factory=dict)


@fast_dataclass(kw_only=True)
class InputArrived:
    """A source without input at the last poll has input now."""


@fast_dataclass(kw_only=True)
class SlotsLost:
    """A process of the execution died; its next epoch fails and reports which one."""

    attempt: int


@fast_dataclass(kw_only=True)
class SlotsCounted:
    """The number of slots available to the job, including those in use."""

    slots: int


@fast_dataclass(kw_only=True)
class PositionsRead:
    """The current positions of the sources."""

    positions: Positions


@fast_dataclass(kw_only=True)
class EpochFinished:
    """All subtasks have finished an epoch."""

    reports: list[SlotReport]


@fast_dataclass(kw_only=True)
class ManifestWritten:
    """The manifest of a checkpoint is durable."""

    checkpoint: int
    location: str


@fast_dataclass(kw_only=True)
class ManifestFailed:
    """The manifest of a checkpoint could not be written; it may be on storage nevertheless.

    Attributes:
        deposed: whether another leader owns the job.
    """

    checkpoint: int
    reason: str
    deposed: bool = False


@fast_dataclass(kw_only=True)
class OutputOpened:
    """The committers of the sinks are open; the output of transactional sinks waits for a checkpoint."""

    transactional: frozenset[str]


@fast_dataclass(kw_only=True)
class OutputCommitted:
    """Sinks have committed, aborted or finished output.

    Attributes:
        checkpoint: the checkpoint that named the output, if any.
        unfinished: committed output that is not final, by operator; checkpoints keep naming it.
        wants_checkpoints: whether a sink needs further checkpoints even without new input.
    """

    checkpoint: int | None = None
    unfinished: dict[str, list[tuple[int, Value]]]
    wants_checkpoints: bool


@fast_dataclass(kw_only=True)
class CheckpointsDiscarded:
    """Checkpoints were deleted; requested ones that are not named could not be deleted."""

    checkpoints: frozenset[int]


@fast_dataclass(kw_only=True)
class OriginDeleted:
    """The checkpoint that the job was restored from is deleted."""


@fast_dataclass(kw_only=True)
class Replanned:
    """The program was planned for another parallelism."""

    plan: JobPlan


@fast_dataclass(kw_only=True)
class SavepointWritten:
    """A savepoint is complete."""

    location: str


Event = (
    JobStarted
    | TimePassed
    | InstructionFailed
    | CancelRequested
    | SuspendRequested
    | Requested
    | SlotsOpened
    | SourcesPolled
    | InputArrived
    | SlotsLost
    | SlotsCounted
    | PositionsRead
    | EpochFinished
    | ManifestWritten
    | ManifestFailed
    | OutputOpened
    | OutputCommitted
    | CheckpointsDiscarded
    | OriginDeleted
    | Replanned
    | SavepointWritten
)
