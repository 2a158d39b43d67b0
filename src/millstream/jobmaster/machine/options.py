"""JobOptions and ScalingOptions: the settings of a job's execution."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from enum import Enum, auto

from millstream.checkpoint.manifest import Origin
from millstream.checkpoint.options import CheckpointOptions
from millstream.common.checkpointing_mode import CheckpointingMode
from millstream.common.configuration import Configuration
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.job_status import JobStatus
from millstream.common.setting import ChoiceSetting, DurationSetting, IntegerSetting, at_least, in_words
from millstream.jobmaster.engine import SliceBounds
from millstream.jobmaster.machine.flow import EpochSizer
from millstream.jobmaster.machine.restart import NoRestart, RestartStrategy

_PREFIX = "jobmanager.adaptive-scheduler"


class _Scheduler(Enum):
    DEFAULT = auto()
    ADAPTIVE = auto()
    # For batch jobs, whose stages run one after the other here in any case.
    ADAPTIVEBATCH = auto()


class _Mode(Enum):
    # The mode is not set; Flink has no name for this.
    DEFAULT = auto()
    REACTIVE = auto()


SCHEDULER = ChoiceSetting("jobmanager.scheduler", _Scheduler.DEFAULT)
MODE = ChoiceSetting("scheduler-mode", _Mode.DEFAULT)
WAIT = DurationSetting(f"{_PREFIX}.submission.resource-wait-timeout", 300_000, (f"{_PREFIX}.resource-wait-timeout",))
START_STABILIZATION_TIMEOUT = DurationSetting(
    f"{_PREFIX}.submission.resource-stabilization-timeout",
    10_000,
    (f"{_PREFIX}.resource-stabilization-timeout",),
    at_least(0, in_words),
)
COOLDOWN = DurationSetting(
    f"{_PREFIX}.executing.cooldown-after-rescaling",
    30_000,
    (f"{_PREFIX}.scaling-interval.min",),
    at_least(0, in_words),
)
STABILIZATION_TIMEOUT = DurationSetting(
    f"{_PREFIX}.executing.resource-stabilization-timeout", 60_000, limit=at_least(0, in_words)
)
MAX_DELAY = DurationSetting(f"{_PREFIX}.rescale-trigger.max-delay", 0, limit=at_least(0, in_words))
MAX_FAILURES = IntegerSetting(f"{_PREFIX}.rescale-trigger.max-checkpoint-failures", 2, limit=at_least(1))


@fast_dataclass(kw_only=True)
class ScalingOptions:
    """How a job adapts to the available slots. Times are in seconds.

    Attributes:
        reactive: whether it uses all available slots, regardless of its parallelism.
        wait: how long it waits for all desired slots before it starts or restarts.
        start_stabilization_timeout: how long it waits for more slots once it has enough to start.
        cooldown: the minimum time between two rescales.
        stabilization_timeout: how long a running job waits for the slots to stabilize.
        max_delay: how long a rescale waits for a completed checkpoint.
        max_failures: how many checkpoints may fail before it is rescaled without one.
    """

    reactive: bool = False
    wait: float = 300.0
    start_stabilization_timeout: float = 10.0
    cooldown: float = 30.0
    stabilization_timeout: float = 60.0
    max_delay: float = 0.0
    max_failures: int = 2

    @staticmethod
    def read(config: Configuration, checkpoints: CheckpointOptions) -> ScalingOptions | None:
        """Return how a job adapts to the available slots; None for a fixed parallelism."""
        scheduler, reactive = SCHEDULER.read(config), MODE.read(config) is _Mode.REACTIVE
        if not reactive and scheduler is not _Scheduler.ADAPTIVE:
            return None
        failures = MAX_FAILURES.read(config)
        delay = checkpoints.interval * (failures + 1) if checkpoints.enabled else 0.0
        wait = WAIT.read(config) if WAIT.is_set(config) or not reactive else -1
        stabilizes = START_STABILIZATION_TIMEOUT.is_set(config) or not reactive
        return ScalingOptions(
            reactive=reactive,
            wait=math.inf if wait < 0 else wait / 1000,
            start_stabilization_timeout=START_STABILIZATION_TIMEOUT.read(config) / 1000 if stabilizes else 0.0,
            cooldown=COOLDOWN.read(config) / 1000,
            stabilization_timeout=STABILIZATION_TIMEOUT.read(config) / 1000,
            max_delay=MAX_DELAY.read(config) / 1000 if MAX_DELAY.is_set(config) else delay,
            max_failures=failures,
        )


log = logging.getLogger("millstream")


class FailoverStrategy(Enum):
    """The scope of a restart: the whole job, or the region connected with the failure."""

    FULL = "full"
    REGION = "region"


FAILOVER_STRATEGY = ChoiceSetting("jobmanager.execution.failover-strategy", FailoverStrategy.REGION)


def full_failover(config: Configuration, batch: bool) -> bool:
    """Return whether a job restarts as a whole."""
    is_set = config.contains_key(FAILOVER_STRATEGY.key)
    if is_set and batch and FAILOVER_STRATEGY.read(config) is FailoverStrategy.REGION:
        log.warning("%s=region has no effect in BATCH: a batch job restarts as a whole.", FAILOVER_STRATEGY.key)
    return batch or FAILOVER_STRATEGY.read(config) is FailoverStrategy.FULL


@fast_dataclass
class JobOutcome:
    """The outcome of a job, and the error message."""

    outcome: JobStatus
    message: str


@dataclass(kw_only=True)
class JobOptions:
    """How a job is executed.

    Attributes:
        buffer_timeout: the maximum seconds that input gathers.
        always_gathers: whether input gathers that long even if epochs are short.
        slice: the maximum seconds that slots work in an epoch, if configured; the rest of the input is processed in the
            next epoch.
        slice_factor: below 1 for low latency: slices are shorter in that proportion.
        origin: the checkpoint or savepoint the job starts from.
        scaling: how it adapts to the available slots; None for a fixed parallelism.
        ended: its outcome under an earlier leader; None if it has not ended.
        full_failover: whether unconnected regions restart together.
    """

    buffer_timeout: float = 0.1
    always_gathers: bool = False
    slice: float | None = None
    slice_factor: float = 1.0
    sizer: EpochSizer = field(default_factory=EpochSizer)
    checkpoints: CheckpointOptions = field(default_factory=CheckpointOptions)
    restart: RestartStrategy = field(default_factory=NoRestart)
    origin: Origin | None = None
    scaling: ScalingOptions | None = None
    ended: JobOutcome | None = None
    full_failover: bool = False

    def __post_init__(self) -> None:
        if self.at_most_once:
            # Assigned input counts as processed: the rest of it must not be read after a failure.
            self.slice = math.inf

    def slice_within(self, bounds: SliceBounds) -> float:
        """Return the seconds that slots work in an epoch, within the bounds of the engine."""
        if self.slice is not None:
            return self.slice
        return max(bounds.longest * min(self.slice_factor, 1.0), bounds.shortest)

    @property
    def exactly_once(self) -> bool:
        return self.checkpoints.enabled and self.checkpoints.mode is CheckpointingMode.EXACTLY_ONCE

    @property
    def at_most_once(self) -> bool:
        return self.checkpoints.enabled and self.checkpoints.mode is CheckpointingMode.AT_MOST_ONCE
