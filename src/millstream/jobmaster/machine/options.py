"""JobOptions: how a job is run."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from enum import Enum

from millstream.checkpoint.manifest import Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.configuration import Configuration
from millstream.common.fast_dataclass import record
from millstream.common.job_status import JobStatus
from millstream.common.setting import ChoiceSetting
from millstream.jobmaster.machine.flow import EpochSizer, Slices
from millstream.jobmaster.machine.restart import NoRestart, RestartStrategy
from millstream.jobmaster.machine.scaling_options import ScalingOptions

log = logging.getLogger("millstream")


class FailoverStrategy(Enum):
    """What restarts after a failure: all of a job, or the part that is connected with what failed."""

    FULL = "full"
    REGION = "region"


FAILOVER_STRATEGY = ChoiceSetting("jobmanager.execution.failover-strategy", FailoverStrategy.REGION)


def fails_whole(config: Configuration, batch: bool) -> bool:
    """Tell whether a job restarts as a whole."""
    is_set = config.contains_key(FAILOVER_STRATEGY.key)
    if is_set and batch and FAILOVER_STRATEGY.read(config) is FailoverStrategy.REGION:
        log.warning("%s=region has no effect in BATCH: a batch job restarts as a whole.", FAILOVER_STRATEGY.key)
    return batch or FAILOVER_STRATEGY.read(config) is FailoverStrategy.FULL


@record(frozen=True)
class Ended:
    """How a job has ended, and why."""

    outcome: JobStatus
    message: str


@dataclass(kw_only=True)
class JobOptions:
    """How a job is run.

    Attributes:
        buffer_timeout: for how many seconds input may gather.
        gathers_always: whether it does so even where epochs are short.
        slice: for how many seconds slots work in an epoch, if the user says so; what they do not get to is processed in
            the next.
        haste: less than 1 where latency is asked for: slices are then shorter in that proportion.
        origin: the checkpoint or savepoint it goes on from.
        scaling: how it follows the slots there are; None where it keeps its parallelism.
        ended: how it has ended under another leader; None where it has not.
        fails_whole: whether parts of it that are not connected fail together.
    """

    buffer_timeout: float = 0.1
    gathers_always: bool = False
    slice: float | None = None
    haste: float = 1.0
    sizer: EpochSizer = field(default_factory=EpochSizer)
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    restart: RestartStrategy = field(default_factory=NoRestart)
    origin: Origin | None = None
    scaling: ScalingOptions | None = None
    ended: Ended | None = None
    fails_whole: bool = False

    def __post_init__(self) -> None:
        if self.at_most_once:
            # What was dealt out counts as processed: nobody may read the rest of it after a failure.
            self.slice = math.inf

    def slice_within(self, bounds: Slices) -> float:
        """Return for how many seconds slots work in an epoch where the engine has these bounds."""
        if self.slice is not None:
            return self.slice
        return max(bounds.longest * min(self.haste, 1.0), bounds.shortest)

    @property
    def exactly_once(self) -> bool:
        return self.checkpoints.enabled and self.checkpoints.mode is CheckpointingMode.EXACTLY_ONCE

    @property
    def at_most_once(self) -> bool:
        return self.checkpoints.enabled and self.checkpoints.mode is CheckpointingMode.AT_MOST_ONCE
