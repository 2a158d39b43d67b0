"""ScalingOptions: whether a job follows the slots there are, and how long it waits for what; Flink's settings."""

from __future__ import annotations

import math
from enum import Enum, auto

from millstream.checkpoint.options import CheckpointOptions
from millstream.common.configuration import Configuration
from millstream.common.fast_dataclass import record
from millstream.common.setting import ChoiceSetting, DurationSetting, IntegerSetting, at_least, in_words

_PREFIX = "jobmanager.adaptive-scheduler"


class _Scheduler(Enum):
    DEFAULT = auto()
    ADAPTIVE = auto()
    # For batch jobs, of which stages are run one after the other here in any case.
    ADAPTIVEBATCH = auto()


class _Mode(Enum):
    # What Flink has no name for: the mode is not set.
    DEFAULT = auto()
    REACTIVE = auto()


SCHEDULER = ChoiceSetting("jobmanager.scheduler", _Scheduler.DEFAULT)
MODE = ChoiceSetting("scheduler-mode", _Mode.DEFAULT)
WAIT = DurationSetting(f"{_PREFIX}.submission.resource-wait-timeout", 300_000, (f"{_PREFIX}.resource-wait-timeout",))
SETTLE_AT_START = DurationSetting(
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
SETTLE = DurationSetting(f"{_PREFIX}.executing.resource-stabilization-timeout", 60_000, limit=at_least(0, in_words))
MAX_DELAY = DurationSetting(f"{_PREFIX}.rescale-trigger.max-delay", 0, limit=at_least(0, in_words))
MAX_FAILURES = IntegerSetting(f"{_PREFIX}.rescale-trigger.max-checkpoint-failures", 2, limit=at_least(1))


@record(frozen=True, kw_only=True)
class ScalingOptions:
    """How a job follows the slots there are. Times are in seconds.

    Attributes:
        reactive: whether it takes all slots there are, whatever its parallelism.
        wait: how long it waits for all slots it wants before it starts, or starts again.
        settle_at_start: how long it waits for more slots once there are enough to start with.
        cooldown: how long it stays as it is after it has started or was rescaled.
        settle: how long it waits, while it runs, for more slots once there are others than it uses.
        max_delay: how long a change waits for a checkpoint to be completed, behind which the job is rescaled.
        max_failures: so many checkpoints may fail before it is rescaled without one.
    """

    reactive: bool = False
    wait: float = 300.0
    settle_at_start: float = 10.0
    cooldown: float = 30.0
    settle: float = 60.0
    max_delay: float = 0.0
    max_failures: int = 2

    @staticmethod
    def read(config: Configuration, checkpoints: CheckpointOptions) -> ScalingOptions | None:
        """Return how a job follows the slots there are; None where it keeps its parallelism."""
        scheduler, reactive = SCHEDULER.read(config), MODE.read(config) is _Mode.REACTIVE
        if not reactive and scheduler is not _Scheduler.ADAPTIVE:
            return None
        failures = MAX_FAILURES.read(config)
        delay = checkpoints.interval * (failures + 1) if checkpoints.enabled else 0.0
        wait = WAIT.read(config) if WAIT.is_set(config) or not reactive else -1
        settle_at_start = SETTLE_AT_START.read(config) if SETTLE_AT_START.is_set(config) or not reactive else 0
        return ScalingOptions(
            reactive=reactive,
            wait=math.inf if wait < 0 else wait / 1000,
            settle_at_start=settle_at_start / 1000,
            cooldown=COOLDOWN.read(config) / 1000,
            settle=SETTLE.read(config) / 1000,
            max_delay=MAX_DELAY.read(config) / 1000 if MAX_DELAY.is_set(config) else delay,
            max_failures=failures,
        )
