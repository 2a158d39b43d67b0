"""CheckpointOptions: the checkpoint settings of a job."""

from __future__ import annotations

import math

from millstream.common.checkpointing_mode import CheckpointingMode, ExternalizedCheckpointRetention
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.setting import (
    ChoiceSetting,
    DurationSetting,
    FlagSetting,
    IntegerSetting,
    Limit,
    TextSetting,
    at_least,
    in_words,
)

__all__ = ["CheckpointOptions"]

_PREFIX = "execution.checkpointing"
_STORAGES = ("jobmanager", "filesystem")

INTERVAL = DurationSetting(f"{_PREFIX}.interval", -1, limit=at_least(10, in_words))
MODE = ChoiceSetting(f"{_PREFIX}.mode", CheckpointingMode.EXACTLY_ONCE)
TIMEOUT = DurationSetting(f"{_PREFIX}.timeout", 600_000, limit=at_least(10, in_words))
MIN_PAUSE = DurationSetting(f"{_PREFIX}.min-pause", 0, limit=at_least(0, in_words))
MAX_CONCURRENT = IntegerSetting(f"{_PREFIX}.max-concurrent-checkpoints", 1, limit=at_least(1))
TOLERABLE_FAILURES = IntegerSetting(f"{_PREFIX}.tolerable-failed-checkpoints", 0, limit=at_least(0))
RETENTION = ChoiceSetting(
    f"{_PREFIX}.externalized-checkpoint-retention", ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
)
RETAINED = IntegerSetting(f"{_PREFIX}.num-retained", 1, ("state.checkpoints.num-retained",), at_least(1))
COMPRESSION = FlagSetting(f"{_PREFIX}.snapshot-compression", False)
INCREMENTAL = FlagSetting(f"{_PREFIX}.incremental", False, ("state.backend.incremental",))
STORAGE = TextSetting(
    f"{_PREFIX}.storage",
    None,
    ("state.checkpoint-storage",),
    Limit("jobmanager or filesystem", lambda name: name is not None and name.lower() in _STORAGES),
)
DIRECTORY = TextSetting(f"{_PREFIX}.dir", None, ("state.checkpoints.dir", "state.backend.fs.checkpointdir"))
SAVEPOINT_DIRECTORY = TextSetting(
    f"{_PREFIX}.savepoint-dir", None, ("state.savepoints.dir", "savepoints.state.backend.fs.dir")
)


def storage_type(config: Configuration) -> str | None:
    """Return the configured kind of storage: jobmanager, filesystem, or None."""
    name = STORAGE.read(config)
    return None if name is None else name.lower()


@fast_dataclass
class CheckpointOptions:
    """How a job takes checkpoints. Times are in seconds.

    Args:
        enabled: whether it takes periodic checkpoints; savepoints are always possible.
        interval: from the start of one checkpoint to the start of the next; infinite if not enabled.
        mode: the processing guarantee.
        timeout: how long a checkpoint may take.
        min_pause: the minimum time from the end of one to the start of the next.
        max_concurrent: the maximum number of concurrent checkpoints; 1 with a minimum pause.
        tolerable_failures: how many consecutive checkpoints may fail before the job fails.
        retention: when checkpoints outlive the job.
        retained: the number of retained checkpoints.
        compression: whether state files are compressed.
        incremental: None if not configured; False writes the complete state each time.
        directory: where checkpoints are stored; None for the job's own directory.
        savepoint_directory: the default directory of savepoints.

    Example:
        >>> config = Configuration.from_dict({"execution.checkpointing.interval": "10 s"})
        >>> options = CheckpointOptions.read(config)
        >>> options.enabled, options.interval, options.timeout
        (True, 10.0, 600.0)
    """

    enabled: bool = False
    interval: float = math.inf
    mode: CheckpointingMode = MODE.default
    timeout: float = TIMEOUT.default / 1000
    min_pause: float = MIN_PAUSE.default / 1000
    max_concurrent: int = MAX_CONCURRENT.default
    tolerable_failures: int = TOLERABLE_FAILURES.default
    retention: ExternalizedCheckpointRetention = RETENTION.default
    retained: int = RETAINED.default
    compression: bool = COMPRESSION.default
    incremental: bool | None = None
    directory: str | None = None
    savepoint_directory: str | None = None

    @staticmethod
    def read(config: Configuration) -> CheckpointOptions:
        """Read and check the settings of a job."""
        enabled = INTERVAL.is_set(config)
        min_pause = MIN_PAUSE.read(config)
        max_concurrent = MAX_CONCURRENT.read(config)
        directory = DIRECTORY.read(config)
        if storage_type(config) == "filesystem" and directory is None:
            raise InvalidProgramError(
                f"{STORAGE.key} is filesystem: also set {DIRECTORY.key}, for example to 'file:///checkpoints'."
            )
        return CheckpointOptions(
            enabled=enabled,
            interval=INTERVAL.read(config) / 1000 if enabled else math.inf,
            mode=MODE.read(config),
            timeout=TIMEOUT.read(config) / 1000,
            min_pause=min_pause / 1000,
            # Overlapping checkpoints have no pause.
            max_concurrent=1 if min_pause else max_concurrent,
            tolerable_failures=TOLERABLE_FAILURES.read(config),
            retention=RETENTION.read(config),
            retained=RETAINED.read(config),
            compression=COMPRESSION.read(config),
            incremental=INCREMENTAL.read(config) if INCREMENTAL.is_set(config) else None,
            directory=directory,
            savepoint_directory=SAVEPOINT_DIRECTORY.read(config),
        )
