"""Options of a program, by Flink's keys and their deprecated spellings; and the engine that runs it."""

from __future__ import annotations

from enum import Enum

from millstream.common.configuration import Configuration
from millstream.common.setting import ChoiceSetting, DurationSetting, FlagSetting, IntegerSetting, at_least, in_words

PARALLELISM = IntegerSetting("parallelism.default", -1)
MAX_PARALLELISM = IntegerSetting("pipeline.max-parallelism", -1)
BUFFER_TIMEOUT = DurationSetting(
    "execution.buffer-timeout.interval", 100, ("execution.buffer-timeout",), at_least(-1, in_words)
)
BUFFER_TIMEOUT_ENABLED = FlagSetting("execution.buffer-timeout.enabled", True)
CHAINING = FlagSetting("pipeline.operator-chaining.enabled", True, ("pipeline.operator-chaining",))
CHAINING_DIFFERENT_MAX = FlagSetting("pipeline.operator-chaining.chain-operators-with-different-max-parallelism", True)
WATERMARK_INTERVAL = DurationSetting("pipeline.auto-watermark-interval", 200, limit=at_least(0, in_words))
LATENCY_INTERVAL = DurationSetting("metrics.latency.interval", 0)
CANCELLATION_INTERVAL = DurationSetting("task.cancellation.interval", 30_000, ("task.cancellation-interval",))
CANCELLATION_TIMEOUT = DurationSetting("task.cancellation.timeout", 180_000, limit=at_least(0, in_words))
OBJECT_REUSE = FlagSetting("pipeline.object-reuse", False)
GENERATED_UIDS = FlagSetting("pipeline.auto-generate-uids", True)


def buffer_timeout(config: Configuration) -> int:
    """Return the buffer timeout in milliseconds; -1 if disabled."""
    return BUFFER_TIMEOUT.read(config) if BUFFER_TIMEOUT_ENABLED.read(config) else -1


class EngineChoice(Enum):
    """The engine that runs jobs: Spark, or the program's own process."""

    SPARK = 0
    LOCAL = 1


ENGINE = ChoiceSetting("millstream.engine", EngineChoice.SPARK)


def runs_here(config: Configuration) -> bool:
    """Return whether jobs run in this process."""
    return ENGINE.read(config) is EngineChoice.LOCAL
