"""The steps of the job machine, and what is to be done in them."""

from __future__ import annotations

import math
from dataclasses import field
from enum import Enum, auto

from millstream.common.fast_dataclass import record
from millstream.operators.runtime.messages import Shares


class JobPhase(Enum):
    """What the machine is at."""

    # The directory is taken, and the output of the checkpoint that the job goes on from is recovered.
    OPENING = auto()
    # There are too few slots to start, or more may come.
    WAITING_FOR_SLOTS = auto()
    # Slots are opened.
    DEPLOYING = auto()
    # Nothing is under way.
    READY = auto()
    POLLING = auto()
    # There is nothing to do before input, a timer or a checkpoint is due.
    WAITING = auto()
    EPOCH = auto()
    EPOCH_ENDED = auto()
    # The manifest of the epoch's checkpoint is usually there in a moment.
    LINGERING = auto()
    # Input gathers for the rest of the buffer timeout.
    GATHERING = auto()
    # A checkpoint without an epoch: until one may be taken, until it is known how far sources are, until it is stored.
    PAUSING = auto()
    TAKING = auto()
    STORING = auto()
    # A request: a plan is made, its checkpoint is stored, its savepoint is written.
    REPLANNING = auto()
    SERVING = auto()
    EXPORTING = auto()
    # A failure: until the restart strategy lets the job start again, until no manifest is being written.
    BACKING_OFF = auto()
    ABANDONING = auto()
    # All input has been processed and all output counts.
    FINISHED = auto()
    ENDING = auto()
    OVER = auto()


class SnapshotPurpose(Enum):
    """What a checkpoint without an epoch is for."""

    # At most once: what is about to be processed counts as processed from here on.
    NOTE_POSITION = auto()
    # All input was processed, and the last checkpoint may have failed: all output must count all the same.
    COMMIT_REST = auto()


@record(kw_only=True)
class EpochPlan:
    """What an epoch shall do, and what comes behind it."""

    shares: Shares = field(default_factory=dict)
    ending: frozenset[int] = frozenset()
    limited: bool = False
    # Whether it processes what epochs before it have left.
    goes_on: bool = False
    # Whether sources must not read, because somebody behind them can take no more.
    holds: bool = False
    # For how long subtasks may work, and whether sources read.
    slice: float = math.inf
    reads: bool = True
    checkpoint: bool = False
    flush: bool = False
    savepoint: str | None = None
    # Whether a snapshot is wanted at its end, whatever else.
    cut: bool = False
    then: JobPhase = JobPhase.READY
