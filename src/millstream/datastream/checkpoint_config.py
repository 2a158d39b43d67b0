"""CheckpointConfig: the settings of checkpoints by methods, over the same Configuration that keys reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from millstream.checkpoint.options import (
    DIRECTORY,
    INTERVAL,
    MAX_CONCURRENT,
    MIN_PAUSE,
    MODE,
    RETENTION,
    STORAGE,
    TIMEOUT,
    TOLERABLE_FAILURES,
)
from millstream.common.call_site import old_names, warn_deprecated
from millstream.common.checkpointing_mode import CheckpointingMode, ExternalizedCheckpointRetention
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.setting import DurationSetting, FlagSetting, IntegerSetting, Setting, at_least, in_words
from millstream.common.time import Duration, to_millis
from millstream.datastream.checkpoint_storage import CheckpointStorage, clean_path, configured_storage

__all__ = ["CheckpointConfig"]

T = TypeVar("T")

# Between two epochs nothing is in flight, so every checkpoint is aligned without waiting: these are kept for their
# getters and nothing reads them.
_UNALIGNED = FlagSetting("execution.checkpointing.unaligned.enabled", False, ("execution.checkpointing.unaligned",))
_FORCED = FlagSetting("execution.checkpointing.unaligned.forced", False)
_ALIGNED_TIMEOUT = DurationSetting(
    "execution.checkpointing.aligned-checkpoint-timeout",
    0,
    ("execution.checkpointing.alignment-timeout",),
    at_least(0, in_words),
)
_IGNORED_IN_FLIGHT = IntegerSetting(
    "execution.state-recovery.without-channel-state.checkpoint-id",
    -1,
    ("execution.checkpointing.recover-without-channel-state.checkpoint-id",),
)
_PREFER_CHECKPOINT = FlagSetting("execution.checkpointing.prefer-checkpoint-for-recovery", False)

_ANY_NUMBER = 2**31 - 1


class CheckpointConfig:
    """The settings of a job's checkpoints. Lengths of time are in milliseconds.

    Differs from Flink 2.3: a getter returns what was set, also while checkpoints are not enabled.

    Example:
        >>> config = CheckpointConfig(Configuration())
        >>> config.set_checkpoint_interval(10_000).set_min_pause_between_checkpoints(500).is_checkpointing_enabled()
        True
        >>> config.get_checkpointing_mode()
        <CheckpointingMode.EXACTLY_ONCE: 0>
    """

    DEFAULT_MODE = MODE.default
    DEFAULT_TIMEOUT = TIMEOUT.default
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS = MIN_PAUSE.default
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS = MAX_CONCURRENT.default

    def __init__(self, configuration: Configuration) -> None:
        self._config = configuration

    def _set(self, setting: Setting[T], value: T) -> CheckpointConfig:
        setting.write(self._config, value)
        return self

    # --- when

    def is_checkpointing_enabled(self) -> bool:
        """Return whether checkpoints are taken: whether an interval is set."""
        return INTERVAL.is_set(self._config)

    def disable_checkpointing(self) -> None:
        """Take no checkpoints."""
        INTERVAL.clear(self._config)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return what a failure may do to results."""
        return MODE.read(self._config)

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Choose what a failure may do to results."""
        return self._set(MODE, checkpointing_mode)

    def get_checkpoint_interval(self) -> int:
        """Return the time from the start of one checkpoint to the next, -1 when there are none."""
        return INTERVAL.read(self._config)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Take a checkpoint so often; at least 10 ms."""
        return self._set(INTERVAL, checkpoint_interval)

    def get_checkpoint_timeout(self) -> int:
        """Return after how many milliseconds a checkpoint counts as failed."""
        return TIMEOUT.read(self._config)

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Give a checkpoint up that takes longer; at least 10 ms."""
        return self._set(TIMEOUT, checkpoint_timeout)

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the least milliseconds from the end of one to the start of the next."""
        return MIN_PAUSE.read(self._config)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Leave so much time from the end of one checkpoint to the start of the next, which then never overlap."""
        return self._set(MIN_PAUSE, min_pause_between_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many may be under way at once."""
        return MAX_CONCURRENT.read(self._config)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set how many may be under way at once."""
        return self._set(MAX_CONCURRENT, max_concurrent_checkpoints)

    # --- when one fails

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return how many in a row may fail before the job does."""
        return TOLERABLE_FAILURES.read(self._config)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Let so many checkpoints in a row fail before the job does."""
        return self._set(TOLERABLE_FAILURES, tolerable_checkpoint_failure_number)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether the first checkpoint that fails fails the job; an older form of the number above."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Old: set how many may fail with set_tolerable_checkpoint_failure_number()."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else _ANY_NUMBER)

    # --- what is kept, and where

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether checkpoints can outlive the job."""
        retention = self.get_externalized_checkpoint_retention()
        return retention != ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return when checkpoints outlive the job."""
        return RETENTION.read(self._config)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Choose when checkpoints outlive the job."""
        return self._set(RETENTION, retention_mode)

    def enable_externalized_checkpoints(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """Old: use set_externalized_checkpoint_retention()."""
        warn_deprecated("enable_externalized_checkpoints()", "use set_externalized_checkpoint_retention()")
        return self._set(RETENTION, cleanup_mode)

    def set_externalized_checkpoint_cleanup(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """Old: use set_externalized_checkpoint_retention()."""
        warn_deprecated("set_externalized_checkpoint_cleanup()", "use set_externalized_checkpoint_retention()")
        return self._set(RETENTION, cleanup_mode)

    def get_externalized_checkpoint_cleanup(self) -> ExternalizedCheckpointRetention | None:
        """Return what is set, None when nothing is."""
        warn_deprecated("get_externalized_checkpoint_cleanup()", "use get_externalized_checkpoint_retention()")
        return RETENTION.read(self._config) if RETENTION.is_set(self._config) else None

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Keep checkpoints in a storage."""
        warn_deprecated("set_checkpoint_storage()", f"set {DIRECTORY.key} in the configuration")
        if not isinstance(storage, CheckpointStorage):
            raise InvalidProgramError(
                f"set_checkpoint_storage() takes a CheckpointStorage, not {storage!r}: "
                "use FileSystemCheckpointStorage(path)."
            )
        storage._write(self._config)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Keep checkpoints in a directory."""
        warn_deprecated("set_checkpoint_storage_dir()", f"set {DIRECTORY.key} in the configuration")
        self._set(STORAGE, "filesystem")
        return self._set(DIRECTORY, clean_path(checkpoint_path, type(self)))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Return where checkpoints are kept, None when nothing is said."""
        warn_deprecated("get_checkpoint_storage()", f"read {DIRECTORY.key} of the configuration")
        return configured_storage(self._config)

    def is_prefer_checkpoint_for_recovery(self) -> bool:
        """Return what was set; it has no effect."""
        return _PREFER_CHECKPOINT.read(self._config)

    def set_prefer_checkpoint_for_recovery(self, prefer_checkpoint_for_recovery: bool) -> CheckpointConfig:
        """Accepted; a job goes on from what completed last."""
        warn_deprecated("set_prefer_checkpoint_for_recovery()", "leave it out, it has no effect")
        return self._set(_PREFER_CHECKPOINT, prefer_checkpoint_for_recovery)

    # --- what is in flight: nothing, here

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return what was set; every checkpoint is aligned without waiting."""
        return _UNALIGNED.read(self._config)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accepted; no checkpoint waits for records in flight, since between two epochs there are none."""
        return self._set(_UNALIGNED, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Accepted: every checkpoint is aligned without waiting."""
        return self._set(_UNALIGNED, False)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return what was set; it has no effect."""
        return Duration.of_millis(_ALIGNED_TIMEOUT.read(self._config))

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Accepted; no checkpoint waits for records in flight, since between two epochs there are none."""
        return self._set(_ALIGNED_TIMEOUT, to_millis(alignment_timeout))

    def get_alignment_timeout(self) -> Duration:
        """Return the same, under its older name."""
        return self.get_aligned_checkpoint_timeout()

    def set_alignment_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Old: accepted, without effect."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return what was set; it has no effect."""
        return _FORCED.read(self._config)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accepted; no checkpoint waits for records in flight, since between two epochs there are none."""
        return self._set(_FORCED, force_unaligned_checkpoints)

    def get_checkpoint_id_of_ignored_in_flight_data(self) -> int:
        """Return what was set; it has no effect."""
        return _IGNORED_IN_FLIGHT.read(self._config)

    def set_checkpoint_id_of_ignored_in_flight_data(
        self, checkpoint_id_of_ignored_in_flight_data: int
    ) -> CheckpointConfig:
        """Accepted; a checkpoint holds no records in flight that could be ignored."""
        return self._set(_IGNORED_IN_FLIGHT, checkpoint_id_of_ignored_in_flight_data)


# Type checkers would take any name for one of the module's.
if not TYPE_CHECKING:
    __getattr__ = old_names(__name__, {"ExternalizedCheckpointCleanup": ExternalizedCheckpointRetention})
