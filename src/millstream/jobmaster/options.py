"""JobOptions: how a job is run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from millstream.checkpoint.manifest import Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.jobmaster.flow import EpochSizer
from millstream.jobmaster.restart import NoRestart, RestartStrategy


@dataclass(kw_only=True)
class JobOptions:
    """How a job is run.

    Attributes:
        buffer_timeout: for how many seconds input may gather.
        gathers_always: whether it does so even where epochs are short.
        slice: for how many seconds a subtask reads in an epoch; what it does not get to is read in the next.
        origin: the checkpoint or savepoint it goes on from.
    """

    buffer_timeout: float = 0.1
    gathers_always: bool = False
    slice: float = 1.0
    sizer: EpochSizer = field(default_factory=EpochSizer)
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    restart: RestartStrategy = field(default_factory=NoRestart)
    origin: Origin | None = None

    def __post_init__(self) -> None:
        if self.at_most_once:
            # What was dealt out counts as processed: nobody may read the rest of it after a failure.
            self.slice = math.inf

    @property
    def exactly_once(self) -> bool:
        return self.checkpoints.enabled and self.checkpoints.mode is CheckpointingMode.EXACTLY_ONCE

    @property
    def at_most_once(self) -> bool:
        return self.checkpoints.enabled and self.checkpoints.mode is CheckpointingMode.AT_MOST_ONCE
