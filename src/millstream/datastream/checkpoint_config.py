"""CheckpointConfig: reads and writes the checkpoint options of a Configuration."""

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
from millstream.datastream.checkpoint_storage import CheckpointStorage, clean_path, configured_storage, write_storage

__all__ = ["CheckpointConfig"]

T = TypeVar("T")

# No data is in flight between two epochs, so every checkpoint is aligned without waiting: these settings only serve
# their getters.
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

    Differs from Flink 2.3: getters return the configured value even while checkpointing is disabled.

    Example:
        >>> config = env.get_checkpoint_config()
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
        """Return whether a checkpoint interval is set.

        Example:
            >>> env.get_checkpoint_config().is_checkpointing_enabled()
            False
        """
        return INTERVAL.is_set(self._config)

    def disable_checkpointing(self) -> None:
        """Disable checkpointing: remove the interval.

        Example:
            >>> config = env.get_checkpoint_config().set_checkpoint_interval(10_000)
            >>> config.disable_checkpointing()
            >>> config.is_checkpointing_enabled()
            False
        """
        INTERVAL.clear(self._config)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the consistency guarantee after a failure.

        Example:
            >>> env.get_checkpoint_config().get_checkpointing_mode()
            <CheckpointingMode.EXACTLY_ONCE: 0>
        """
        return MODE.read(self._config)

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Set the consistency guarantee after a failure.

        Example:
            >>> from millstream.datastream import CheckpointingMode
            >>> config = env.get_checkpoint_config().set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
            >>> config.get_checkpointing_mode()
            <CheckpointingMode.AT_LEAST_ONCE: 1>
        """
        return self._set(MODE, checkpointing_mode)

    def get_checkpoint_interval(self) -> int:
        """Return the checkpoint interval in milliseconds, -1 if checkpointing is disabled.

        Example:
            >>> env.get_checkpoint_config().get_checkpoint_interval()
            -1
        """
        return INTERVAL.read(self._config)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> CheckpointConfig:
        """Set the checkpoint interval in milliseconds; at least 10.

        Example:
            >>> env.get_checkpoint_config().set_checkpoint_interval(10_000).get_checkpoint_interval()
            10000
        """
        return self._set(INTERVAL, checkpoint_interval)

    def get_checkpoint_timeout(self) -> int:
        """Return the milliseconds after which a checkpoint fails.

        Example:
            >>> env.get_checkpoint_config().get_checkpoint_timeout()
            600000
        """
        return TIMEOUT.read(self._config)

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> CheckpointConfig:
        """Set the milliseconds after which a checkpoint fails; at least 10.

        Example:
            >>> env.get_checkpoint_config().set_checkpoint_timeout(60_000).get_checkpoint_timeout()
            60000
        """
        return self._set(TIMEOUT, checkpoint_timeout)

    def get_min_pause_between_checkpoints(self) -> int:
        """Return the minimum milliseconds from the end of one checkpoint to the start of the next.

        Example:
            >>> env.get_checkpoint_config().get_min_pause_between_checkpoints()
            0
        """
        return MIN_PAUSE.read(self._config)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> CheckpointConfig:
        """Set the minimum milliseconds from the end of one checkpoint to the start of the next.

        Example:
            >>> env.get_checkpoint_config().set_min_pause_between_checkpoints(500).get_min_pause_between_checkpoints()
            500
        """
        return self._set(MIN_PAUSE, min_pause_between_checkpoints)

    def get_max_concurrent_checkpoints(self) -> int:
        """Return the maximum number of concurrent checkpoints.

        Example:
            >>> env.get_checkpoint_config().get_max_concurrent_checkpoints()
            1
        """
        return MAX_CONCURRENT.read(self._config)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Set the maximum number of concurrent checkpoints.

        Example:
            >>> env.get_checkpoint_config().set_max_concurrent_checkpoints(2).get_max_concurrent_checkpoints()
            2
        """
        return self._set(MAX_CONCURRENT, max_concurrent_checkpoints)

    # --- when one fails

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """Return the number of consecutive failed checkpoints that the job tolerates.

        Example:
            >>> env.get_checkpoint_config().get_tolerable_checkpoint_failure_number()
            0
        """
        return TOLERABLE_FAILURES.read(self._config)

    def set_tolerable_checkpoint_failure_number(self, tolerable_checkpoint_failure_number: int) -> CheckpointConfig:
        """Set the number of consecutive failed checkpoints that the job tolerates.

        Example:
            >>> config = env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(3)
            >>> config.get_tolerable_checkpoint_failure_number()
            3
        """
        return self._set(TOLERABLE_FAILURES, tolerable_checkpoint_failure_number)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether the first checkpoint that fails fails the job; an older form of the number above.

        Example:
            >>> env.get_checkpoint_config().is_fail_on_checkpointing_errors()
            True
        """
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> CheckpointConfig:
        """Deprecated: use set_tolerable_checkpoint_failure_number()."""
        return self.set_tolerable_checkpoint_failure_number(0 if fail_on_checkpointing_errors else _ANY_NUMBER)

    # --- retention and storage

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether checkpoints can outlive the job.

        Example:
            >>> env.get_checkpoint_config().is_externalized_checkpoints_enabled()
            False
        """
        retention = self.get_externalized_checkpoint_retention()
        return retention != ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return when checkpoints outlive the job.

        Example:
            >>> env.get_checkpoint_config().get_externalized_checkpoint_retention().name
            'NO_EXTERNALIZED_CHECKPOINTS'
        """
        return RETENTION.read(self._config)

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Choose when checkpoints outlive the job.

        Example:
            >>> from millstream.datastream import ExternalizedCheckpointRetention
            >>> retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
            >>> config = env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
            >>> config.is_externalized_checkpoints_enabled()
            True
        """
        return self._set(RETENTION, retention_mode)

    def enable_externalized_checkpoints(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """Deprecated: use set_externalized_checkpoint_retention()."""
        warn_deprecated("enable_externalized_checkpoints()", "use set_externalized_checkpoint_retention()")
        return self._set(RETENTION, cleanup_mode)

    def set_externalized_checkpoint_cleanup(self, cleanup_mode: ExternalizedCheckpointRetention) -> CheckpointConfig:
        """Deprecated: use set_externalized_checkpoint_retention()."""
        warn_deprecated("set_externalized_checkpoint_cleanup()", "use set_externalized_checkpoint_retention()")
        return self._set(RETENTION, cleanup_mode)

    def get_externalized_checkpoint_cleanup(self) -> ExternalizedCheckpointRetention | None:
        """Deprecated: use get_externalized_checkpoint_retention(). Return the configured retention, or None."""
        warn_deprecated("get_externalized_checkpoint_cleanup()", "use get_externalized_checkpoint_retention()")
        return RETENTION.read(self._config) if RETENTION.is_set(self._config) else None

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> CheckpointConfig:
        """Deprecated: set `execution.checkpointing.dir`. Store checkpoints in a storage.

        Example:
            >>> from millstream.common import Configuration
            >>> env.configure(Configuration().set_string("execution.checkpointing.dir", "file:///var/checkpoints"))
        """
        warn_deprecated("set_checkpoint_storage()", f"set {DIRECTORY.key} in the configuration")
        if not isinstance(storage, CheckpointStorage):
            raise InvalidProgramError(
                f"set_checkpoint_storage() takes a CheckpointStorage, not {storage!r}: "
                "use FileSystemCheckpointStorage(path)."
            )
        write_storage(storage, self._config)
        return self

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        """Deprecated: set `execution.checkpointing.dir`. Store checkpoints in a directory."""
        warn_deprecated("set_checkpoint_storage_dir()", f"set {DIRECTORY.key} in the configuration")
        self._set(STORAGE, "filesystem")
        return self._set(DIRECTORY, clean_path(checkpoint_path, type(self)))

    def get_checkpoint_storage(self) -> CheckpointStorage | None:
        """Deprecated: read `execution.checkpointing.dir`. Return the checkpoint storage, or None if not configured."""
        warn_deprecated("get_checkpoint_storage()", f"read {DIRECTORY.key} of the configuration")
        return configured_storage(self._config)

    def is_prefer_checkpoint_for_recovery(self) -> bool:
        """Return the configured value; it has no effect."""
        return _PREFER_CHECKPOINT.read(self._config)

    def set_prefer_checkpoint_for_recovery(self, prefer_checkpoint_for_recovery: bool) -> CheckpointConfig:
        """Accepted without effect: a job always restores its latest completed checkpoint or savepoint."""
        warn_deprecated("set_prefer_checkpoint_for_recovery()", "remove the call: it has no effect")
        return self._set(_PREFER_CHECKPOINT, prefer_checkpoint_for_recovery)

    # --- in-flight data: none between epochs

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return the configured value; every checkpoint is aligned without waiting."""
        return _UNALIGNED.read(self._config)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accepted without effect: no data is in flight between two epochs."""
        return self._set(_UNALIGNED, enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Accepted: every checkpoint is aligned without waiting."""
        return self._set(_UNALIGNED, False)

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """Return the configured value; it has no effect."""
        return Duration.of_millis(_ALIGNED_TIMEOUT.read(self._config))

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Accepted without effect: no data is in flight between two epochs."""
        return self._set(_ALIGNED_TIMEOUT, to_millis(alignment_timeout))

    def get_alignment_timeout(self) -> Duration:
        """Return the aligned checkpoint timeout, under its older name."""
        return self.get_aligned_checkpoint_timeout()

    def set_alignment_timeout(self, alignment_timeout: Duration) -> CheckpointConfig:
        """Deprecated: accepted without effect, as `set_aligned_checkpoint_timeout()`."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return the configured value; it has no effect."""
        return _FORCED.read(self._config)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> CheckpointConfig:
        """Accepted without effect: no data is in flight between two epochs."""
        return self._set(_FORCED, force_unaligned_checkpoints)

    def get_checkpoint_id_of_ignored_in_flight_data(self) -> int:
        """Return the configured value; it has no effect."""
        return _IGNORED_IN_FLIGHT.read(self._config)

    def set_checkpoint_id_of_ignored_in_flight_data(
        self, checkpoint_id_of_ignored_in_flight_data: int
    ) -> CheckpointConfig:
        """Accepted; a checkpoint holds no records in flight that could be ignored."""
        return self._set(_IGNORED_IN_FLIGHT, checkpoint_id_of_ignored_in_flight_data)


# Type checkers would accept any name.
if not TYPE_CHECKING:
    __getattr__ = old_names(__name__, {"ExternalizedCheckpointCleanup": ExternalizedCheckpointRetention})
