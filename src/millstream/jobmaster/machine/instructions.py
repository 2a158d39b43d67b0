"""What the job machine asks for. The job master carries instructions out, one after the other.

Where an instruction has an answer, its docstring names the event. One that cannot be carried out is told as InstructionFailed.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import field
from typing import Any

from millstream.checkpoint.manifest import Manifest, Origin
from millstream.common.fast_dataclass import record
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_status import JobStatus
from millstream.jobmaster.machine.execution import Positions
from millstream.jobmaster.machine.requests import Request
from millstream.operators.diagnostics.failures import Failure
from millstream.operators.runtime.messages import JobPlan, LevelTask, LogLine


@record(kw_only=True)
class ClaimDirectory:
    """Make the job's directory its own, and see to it that nobody goes on from another checkpoint."""


@record(kw_only=True)
class OpenOutput:
    """Make the committers of the job's sinks: OutputOpened.

    Attributes:
        afresh: whether the job starts from nothing, so that there is no output to recover.
    """

    plan: JobPlan
    afresh: bool = True


@record(kw_only=True)
class CountSlots:
    """Say how many slots there are for the job: SlotsCounted; and again whenever that changes.

    Attributes:
        wanted: how many it would use.
    """

    wanted: int


@record(kw_only=True)
class OpenSlots:
    """Begin an execution: sources at their positions, and slots of its own."""

    plan: JobPlan
    attempt: int
    positions: Positions


@record(kw_only=True)
class ReleaseSlots:
    """End the slots of the execution.

    Attributes:
        must: whether that has to succeed. What is left of an execution that failed does no harm: it writes under names
            that nobody reads.
    """

    must: bool = True


@record(kw_only=True)
class PollSources:
    """Ask sources what to read next, so many records for each subtask of each that may be read: SourcesPolled.

    Attributes:
        ahead: the splits of sources that must wait for slower ones.
    """

    budgets: dict[int, int]
    running: frozenset[int]
    ahead: dict[int, frozenset[Any]] = field(default_factory=dict)


@record(kw_only=True)
class ReadPositions:
    """Say how far sources have been dealt out: PositionsRead."""


@record(kw_only=True)
class RunEpoch:
    """Run the levels of one epoch, within so many seconds: EpochFinished."""

    tasks: list[LevelTask]
    patience: float = math.inf


@record(kw_only=True)
class ConfirmSources:
    """Tell the sources what has been processed for good; None: all that was dealt out, but where that is unread."""

    positions: Positions | None
    unread: frozenset[int] = frozenset()


# --- output


@record(kw_only=True)
class CommitOutput:
    """Commit what sinks have staged, by operator: OutputCommitted."""

    staged: dict[str, list[tuple[int, Any]]]
    checkpoint: int | None = None


@record(kw_only=True)
class RecoverOutput:
    """Commit what a checkpoint names and abort all other output, of all sinks or of some: OutputCommitted."""

    named: dict[str, bytes]
    former_job_id: str
    operators: Collection[str] | None = None


@record(kw_only=True)
class FinishOutput:
    """Let no output wait that has been committed: OutputCommitted."""


# --- storage


@record(kw_only=True)
class WriteManifest:
    """Write the manifest of a checkpoint while the job goes on: later ManifestWritten or ManifestFailed."""

    manifest: Manifest


@record(kw_only=True)
class WriteSavepoint:
    """Write the manifest of a savepoint whose state is there: SavepointWritten."""

    location: str
    manifest: Manifest


@record(kw_only=True)
class DiscardCheckpoints:
    """Delete checkpoints, as far as that can be done now: CheckpointsDiscarded."""

    checkpoints: frozenset[int]


@record(kw_only=True)
class DiscardOthers:
    """Delete every checkpoint on storage but these; that must succeed before output is aborted."""

    kept: frozenset[int]


@record(kw_only=True)
class DeleteState:
    """Delete state files that nobody needs any more."""

    names: frozenset[str]


@record(kw_only=True)
class SweepState:
    """Delete every state file that nobody needs, also those of epochs that failed."""

    needed: frozenset[str]


@record(kw_only=True)
class DeleteOrigin:
    """Delete what earlier drivers have left, and the checkpoint the job has started from, if any: OriginDeleted."""

    origin: Origin | None


@record(kw_only=True)
class RecordOutcome:
    """Write down how the job has ended, where others could go on with it."""

    outcome: JobStatus
    message: str


@record(kw_only=True)
class RemoveDirectory:
    """Delete the job's directory with all that is in it."""


@record(kw_only=True)
class ReleaseDirectory:
    """Leave the job's directory to whoever comes next."""


# --- people


@record(kw_only=True)
class Replan:
    """Plan the program for another parallelism: Replanned."""

    parallelism: int


@record(kw_only=True)
class Answer:
    """What was requested is done."""

    request: Request
    result: Any


@record(kw_only=True)
class Refuse:
    """What was requested cannot be done."""

    request: Request
    error: Exception


@record(kw_only=True)
class Print:
    """Write what user code printed."""

    text: str


@record(kw_only=True)
class Log:
    """Pass on what user code logged."""

    lines: list[LogLine]


@record(kw_only=True)
class Warn:
    """Tell the log."""

    text: str


@record(kw_only=True)
class WriteFailureReport:
    """Write down what is needed to run an operator again on what it has failed on."""

    plan: JobPlan
    number: int
    failure: Failure


# --- the end


@record(kw_only=True)
class CloseSources:
    """Tell the sources that the job has ended."""


@record(kw_only=True)
class CloseOutput:
    """Tell the committers that the job has ended."""


@record(kw_only=True)
class CleanUp:
    """Delete what the job had on this machine."""


@record(kw_only=True)
class Finish:
    """The job is over: its result, or why there is none."""

    result: JobExecutionResult | None
    error: Exception | None


Instruction = (
    ClaimDirectory
    | OpenOutput
    | CountSlots
    | OpenSlots
    | ReleaseSlots
    | PollSources
    | ReadPositions
    | RunEpoch
    | ConfirmSources
    | CommitOutput
    | RecoverOutput
    | FinishOutput
    | WriteManifest
    | WriteSavepoint
    | DiscardCheckpoints
    | DiscardOthers
    | DeleteState
    | SweepState
    | DeleteOrigin
    | RecordOutcome
    | RemoveDirectory
    | ReleaseDirectory
    | Replan
    | Answer
    | Refuse
    | Print
    | Log
    | Warn
    | WriteFailureReport
    | CloseSources
    | CloseOutput
    | CleanUp
    | Finish
)
