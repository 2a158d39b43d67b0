"""The phases of the job machine, and the plan of an epoch."""

from __future__ import annotations

import math
from dataclasses import field
from enum import Enum, auto

from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.runtime.messages import SplitRanges


class JobPhase(Enum):
    """The phase the machine is in; the diagram is in `job_machine.py`."""

    # Claim the directory, and recover the output of the checkpoint the job starts from.
    OPENING = auto()
    # Too few slots to start, or more may become available.
    WAITING_FOR_SLOTS = auto()
    # Open slots.
    DEPLOYING = auto()
    # Nothing is in progress.
    READY = auto()
    POLLING = auto()
    # Wait until input, a timer or a checkpoint is due.
    WAITING = auto()
    EPOCH = auto()
    EPOCH_ENDED = auto()
    # Wait briefly for the manifest of the epoch's checkpoint.
    AWAITING_MANIFEST = auto()
    # Let input gather for the rest of the buffer timeout.
    GATHERING = auto()
    # A checkpoint without an epoch: wait until one may be taken, read the positions, wait for its manifest.
    DELAYING = auto()
    SNAPSHOTTING = auto()
    WRITING = auto()
    # A request: plan again, store its checkpoint, write its savepoint.
    REPLANNING = auto()
    SERVING = auto()
    EXPORTING = auto()
    # A failure: wait for the restart delay, then for manifests being written.
    BACKING_OFF = auto()
    ABANDONING = auto()
    # All input is processed and all output is committed.
    FINISHED = auto()
    ENDING = auto()
    ENDED = auto()


class SnapshotPurpose(Enum):
    """The purpose of a checkpoint without an epoch."""

    # AT_MOST_ONCE: save the position before the input is processed.
    SAVE_POSITION = auto()
    # All input is processed, but the last checkpoint may have failed: commit the remaining output.
    COMMIT_REMAINING = auto()


@fast_dataclass(kw_only=True)
class EpochPlan:
    """The plan of one epoch, and the phase after it."""

    split_ranges: SplitRanges = field(default_factory=dict)
    ending: frozenset[int] = frozenset()
    limited: bool = False
    # Whether it processes pending input of earlier epochs.
    has_pending_input: bool = False
    # Whether sources must not read because of backpressure.
    is_backpressured: bool = False
    # How many seconds subtasks may work, and whether sources read.
    slice: float = math.inf
    reads: bool = True
    checkpoint: bool = False
    flush: bool = False
    savepoint: str | None = None
    # Whether a snapshot is needed at its end in any case.
    snapshot: bool = False
    then: JobPhase = JobPhase.READY
