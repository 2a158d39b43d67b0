"""What the job machine is told: everything that happens to a job. Plain facts, in the past tense."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from millstream.common.fast_dataclass import record
from millstream.jobmaster.engine import SliceBounds
from millstream.jobmaster.machine.execution import Positions
from millstream.jobmaster.machine.requests import Request
from millstream.operators.runtime.messages import JobPlan, Shares, SlotReport
from millstream.operators.source import Lags


@record(kw_only=True)
class JobStarted:
    """The job's thread runs."""


@record(kw_only=True)
class TimePassed:
    """All that was asked for is done, and the machine's deadline has come."""


@record(kw_only=True)
class InstructionFailed:
    """An instruction could not be carried out; those behind it were dropped."""

    error: Exception


@record(kw_only=True)
class CancelRequested:
    """Somebody wants the job to stop at once."""


@record(kw_only=True)
class SuspendRequested:
    """This process leads no longer, or ends: the job shall stop at once, and be left as it is to whoever leads."""

    reason: str


@record(kw_only=True)
class Requested:
    """Somebody wants something done between two epochs."""

    request: Request


@record(kw_only=True)
class SlotsOpened:
    """An execution has slots.

    Attributes:
        stay: whether they stay, so that each epoch finds in memory what the last one left.
        slices: how long epochs should be, to fit how they are run.
    """

    stay: bool
    slices: SliceBounds


@record(kw_only=True)
class SourcesPolled:
    """The sources have dealt out what there is to read.

    Attributes:
        limited: whether there is more than the budget allowed.
        finished: the sources that have dealt out everything for good.
        poll_again: when it is worth asking again, should there be nothing.
        pending: how much waits to be dealt out, of those that can tell.
    """

    shares: Shares
    limited: bool
    finished: frozenset[int]
    poll_again: float
    pending: Lags = field(default_factory=dict)


@record(kw_only=True)
class InputArrived:
    """A source that was asked in vain has something to read."""


@record(kw_only=True)
class SlotsLost:
    """A process that an execution needs is gone; its next epoch will say which, and fail."""

    attempt: int


@record(kw_only=True)
class SlotsCounted:
    """So many slots are there for the job, those that it uses among them."""

    slots: int


@record(kw_only=True)
class PositionsRead:
    """How far the sources have been dealt out."""

    positions: Positions


@record(kw_only=True)
class EpochFinished:
    """All subtasks have done their part of an epoch."""

    reports: list[SlotReport]


@record(kw_only=True)
class ManifestWritten:
    """The manifest of a checkpoint is safely on storage."""

    checkpoint: int
    location: str


@record(kw_only=True)
class ManifestFailed:
    """The manifest of a checkpoint could not be written; it may be on storage in spite of what was said.

    Attributes:
        deposed: whether that is because another leader has the job.
    """

    checkpoint: int
    reason: str
    deposed: bool = False


@record(kw_only=True)
class OutputOpened:
    """The committers of the sinks are there; the output of some has to wait for a checkpoint."""

    transactional: frozenset[str]


@record(kw_only=True)
class OutputCommitted:
    """Sinks have committed, aborted or finished output.

    Attributes:
        checkpoint: the checkpoint that named it, if one did.
        waiting: what was committed and is not done with, by operator: checkpoints go on naming it.
        wants_checkpoints: whether something waits for checkpoints, though nothing may happen any more.
    """

    checkpoint: int | None = None
    waiting: dict[str, list[tuple[int, Any]]]
    wants_checkpoints: bool


@record(kw_only=True)
class CheckpointsDiscarded:
    """Checkpoints have been deleted; those that were asked for and are not named could not be."""

    checkpoints: frozenset[int]


@record(kw_only=True)
class OriginDeleted:
    """The checkpoint that the job has started from is gone."""


@record(kw_only=True)
class Replanned:
    """The program's plan for another parallelism was made."""

    plan: JobPlan


@record(kw_only=True)
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
