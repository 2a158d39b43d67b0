"""Instructions of the job machine. The job master carries them out one after the other.

The docstring of an instruction names the event that answers it. A failed instruction is answered by InstructionFailed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable
from dataclasses import field
from typing import Any

from millstream.checkpoint.manifest import Manifest, Origin
from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_status import JobStatus
from millstream.jobmaster.machine.execution import Positions
from millstream.jobmaster.machine.requests import Request
from millstream.operators.diagnostics.failures import Failure
from millstream.operators.runtime.messages import JobPlan, LevelTask, LogLine


@fast_dataclass(kw_only=True)
class ClaimDirectory:
    """Claim the job's directory, and make sure that no other job restores from another checkpoint."""


@fast_dataclass(kw_only=True)
class OpenOutput:
    """Create the committers of the job's sinks: OutputOpened.

    Attributes:
        from_scratch: whether the job starts from scratch, with no output to recover.
    """

    plan: JobPlan
    from_scratch: bool = True


@fast_dataclass(kw_only=True)
class CountSlots:
    """Count the slots available to the job: SlotsCounted, now and on every change.

    Attributes:
        desired: the number of slots the job can use.
    """

    desired: int


@fast_dataclass(kw_only=True)
class OpenSlots:
    """Begin an execution: open the sources at their positions, and new slots."""

    plan: JobPlan
    attempt: int
    positions: Positions


@fast_dataclass(kw_only=True)
class ReleaseSlots:
    """Release the slots of the execution.

    Attributes:
        must: whether a failure is an error. Slots of a failed execution do no harm: nothing reads what they write.
    """

    must: bool = True


@fast_dataclass(kw_only=True)
class PollSources:
    """Poll sources for their next input, up to a budget of records per subtask: SourcesPolled.

    Attributes:
        ahead: splits that watermark alignment holds back.
    """

    budgets: dict[int, int]
    running: frozenset[int]
    ahead: dict[int, frozenset[Hashable]] = field(default_factory=dict)


@fast_dataclass(kw_only=True)
class ReadPositions:
    """Read the current positions of the sources: PositionsRead."""


@fast_dataclass(kw_only=True)
class RunEpoch:
    """Run the levels of one epoch within a timeout: EpochFinished."""

    tasks: list[LevelTask]
    timeout: float = math.inf


@fast_dataclass(kw_only=True)
class ConfirmSources:
    """Notify sources of processed positions; None: of all assigned input, except for sources with pending input."""

    positions: Positions | None
    pending: frozenset[int] = frozenset()


# --- output


@fast_dataclass(kw_only=True)
class CommitOutput:
    """Commit staged output, by operator: OutputCommitted."""

    staged: dict[str, list[tuple[int, Value]]]
    checkpoint: int | None = None


@fast_dataclass(kw_only=True)
class RecoverOutput:
    """Commit the output that a checkpoint names and abort all other output of these sinks: OutputCommitted."""

    named: dict[str, bytes]
    former_job_id: str
    operators: Collection[str] | None = None


@fast_dataclass(kw_only=True)
class FinishOutput:
    """Finalize all committed output: OutputCommitted."""


# --- storage


@fast_dataclass(kw_only=True)
class WriteManifest:
    """Write the manifest of a checkpoint in the background: later ManifestWritten or ManifestFailed."""

    manifest: Manifest


@fast_dataclass(kw_only=True)
class WriteSavepoint:
    """Write the manifest of a savepoint whose state files are written: SavepointWritten."""

    location: str
    manifest: Manifest


@fast_dataclass(kw_only=True)
class DiscardCheckpoints:
    """Delete checkpoints, as far as possible now: CheckpointsDiscarded."""

    checkpoints: frozenset[int]


@fast_dataclass(kw_only=True)
class DiscardOthers:
    """Delete all other checkpoints on storage; this must succeed before output is aborted."""

    retained: frozenset[int]


@fast_dataclass(kw_only=True)
class DeleteState:
    """Delete state files that are no longer needed."""

    names: frozenset[str]


@fast_dataclass(kw_only=True)
class SweepState:
    """Delete all state files that are not needed, including those of failed epochs."""

    needed: frozenset[str]


@fast_dataclass(kw_only=True)
class DeleteOrigin:
    """Delete checkpoints of earlier drivers, and the claimed checkpoint the job was restored from: OriginDeleted."""

    origin: Origin | None


@fast_dataclass(kw_only=True)
class RecordOutcome:
    """Record the outcome of the job for other job managers."""

    outcome: JobStatus
    message: str


@fast_dataclass(kw_only=True)
class RemoveDirectory:
    """Delete the job's directory."""


@fast_dataclass(kw_only=True)
class ReleaseDirectory:
    """Release the job's directory."""


# --- requests and logs


@fast_dataclass(kw_only=True)
class Replan:
    """Plan the program for another parallelism: Replanned."""

    parallelism: int


@fast_dataclass(kw_only=True)
class Answer:
    """Answer a request with its result."""

    request: Request
    # Any: each kind of request has its own result.
    result: Any


@fast_dataclass(kw_only=True)
class Refuse:
    """Answer a request with an error."""

    request: Request
    error: Exception


@fast_dataclass(kw_only=True)
class Print:
    """Print the output of user code."""

    text: str


@fast_dataclass(kw_only=True)
class Log:
    """Pass on log lines of user code."""

    lines: list[LogLine]


@fast_dataclass(kw_only=True)
class Warn:
    """Log a warning."""

    text: str


@fast_dataclass(kw_only=True)
class WriteFailureReport:
    """Write a report that allows the failed operator to be replayed."""

    plan: JobPlan
    number: int
    failure: Failure


# --- the end


@fast_dataclass(kw_only=True)
class CloseSources:
    """Close the sources: the job has ended."""


@fast_dataclass(kw_only=True)
class CloseOutput:
    """Close the committers: the job has ended."""


@fast_dataclass(kw_only=True)
class CleanUp:
    """Delete the job's files on this machine."""


@fast_dataclass(kw_only=True)
class Finish:
    """Complete the job with its result or error."""

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
