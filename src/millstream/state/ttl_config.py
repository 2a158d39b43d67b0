"""StateTtlConfig: the time to live of state after it was written or read."""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum

from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.time import Duration, Time, to_millis

# Flink's default of rows that are checked for every record.
_DEFAULT_CLEANUP_SIZE = 5


class UpdateType(Enum):
    """The accesses that restart a value's time to live."""

    Disabled = 0
    OnCreateAndWrite = 1
    OnReadAndWrite = 2


class StateVisibility(Enum):
    """Whether an expired value is returned before its removal."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class TtlTimeCharacteristic(Enum):
    """The clock of expiry: only the wall clock."""

    ProcessingTime = 0


class CleanupStrategy:
    """A strategy to remove expired values."""


class EmptyCleanupStrategy(CleanupStrategy):
    """A strategy without parameters."""


@fast_dataclass
class IncrementalCleanupStrategy(CleanupStrategy):
    """Checks some rows for every record."""

    cleanup_size: int
    every_record: bool = False

    def get_cleanup_size(self) -> int:
        """Return how many values are checked at once."""
        return self.cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Return whether values are checked for every record."""
        return self.every_record


@fast_dataclass
class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
    """Has no effect, because there is no RocksDB: expired values are removed when a complete base is written."""

    query_time_after_num_entries: int = 1000
    periodic_compaction_time: Duration | None = None

    def get_query_time_after_num_entries(self) -> int:
        """Return the parameter; it has no effect."""
        return self.query_time_after_num_entries

    def get_periodic_compaction_time(self) -> Duration | None:
        """Return the parameter; it has no effect."""
        return self.periodic_compaction_time


@fast_dataclass
class CleanupStrategies:
    """The removal of expired values that are not read.

    Complete bases never contain them. Besides, `incremental_size` rows are checked for every changed row: by default
    as many as in Flink, unless the user has disabled cleanup in the background.
    """

    in_background: bool = True
    full_snapshot: bool = False
    incremental_size: int = 0
    every_record: bool = False
    rocksdb: RocksdbCompactFilterCleanupStrategy | None = None

    class Strategies(Enum):
        """The strategies by name."""

        FULL_STATE_SCAN_SNAPSHOT = 0
        INCREMENTAL_CLEANUP = 1
        ROCKSDB_COMPACTION_FILTER = 2

    EMPTY_STRATEGY = EmptyCleanupStrategy()

    @property
    def rows_to_check(self) -> int:
        """The number of rows to check for every changed row."""
        return self.incremental_size or (_DEFAULT_CLEANUP_SIZE if self.in_background else 0)

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """Return the incremental strategy, None if there is none."""
        size = self.incremental_size
        return IncrementalCleanupStrategy(size, self.every_record) if size else None

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
        """Return the RocksDB strategy, None if there is none."""
        return self.rocksdb

    def is_cleanup_in_background(self) -> bool:
        """Return whether values are removed without being read."""
        return self.in_background

    def in_full_snapshot(self) -> bool:
        """Return whether complete checkpoints omit expired values."""
        return self.full_snapshot


@fast_dataclass
class StateTtlConfig:
    """The time to live of state.

    Example:
        >>> config = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write().build()
        >>> config.ttl_ms
        3600000
    """

    ttl_ms: int
    update_type: UpdateType = UpdateType.OnCreateAndWrite
    visibility: StateVisibility = StateVisibility.NeverReturnExpired
    cleanup: CleanupStrategies = field(default_factory=CleanupStrategies)

    @staticmethod
    def new_builder(ttl: Time | Duration | int) -> StateTtlConfig.Builder:
        """Return a builder with a time to live."""
        return StateTtlConfig.Builder(ttl)

    def get_ttl(self) -> Time:
        """Return the time to live."""
        return Time.milliseconds(self.ttl_ms)

    def get_update_type(self) -> UpdateType:
        """Return the accesses that restart the time to live."""
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        """Return whether expired values may be returned."""
        return self.visibility

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Return the clock: the wall clock."""
        return TtlTimeCharacteristic.ProcessingTime

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """Return the strategies to remove expired values."""
        return self.cleanup

    def is_enabled(self) -> bool:
        """Return whether values expire."""
        return self.update_type is not UpdateType.Disabled

    class Builder:
        """Builds a StateTtlConfig."""

        def __init__(self, ttl: Time | Duration | int) -> None:
            self._config = StateTtlConfig(1)
            self.set_ttl(ttl)

        def _with(self, **changes: object) -> StateTtlConfig.Builder:
            self._config = replace(self._config, **changes)  # type: ignore[arg-type]
            return self

        def set_ttl(self, ttl: Time | Duration | int) -> StateTtlConfig.Builder:
            """Set the time to live."""
            millis = to_millis(ttl)
            if millis <= 0:
                raise InvalidProgramError(f"A time to live must be above 0, it is {millis} ms.")
            return self._with(ttl_ms=millis)

        def set_update_type(self, update_type: UpdateType) -> StateTtlConfig.Builder:
            """Set the accesses that restart the time to live."""
            return self._with(update_type=update_type)

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Restart the time to live on writes (the default)."""
            return self._with(update_type=UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Restart the time to live on reads and writes."""
            return self._with(update_type=UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: StateVisibility) -> StateTtlConfig.Builder:
            """Set whether expired values may be returned."""
            return self._with(visibility=state_visibility)

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Return expired values until they are removed."""
            return self._with(visibility=StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Never return expired values (the default)."""
            return self._with(visibility=StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(self, ttl_time_characteristic: TtlTimeCharacteristic) -> StateTtlConfig.Builder:
            """Set the clock: only the wall clock exists."""
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Use the wall clock (the default)."""
            return self

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Omit expired values from checkpoints that write the complete state."""
            return self._with(cleanup=replace(self._config.cleanup, full_snapshot=True))

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool = False
        ) -> StateTtlConfig.Builder:
            """Remove expired values while state is used."""
            cleanup = replace(
                self._config.cleanup, incremental_size=cleanup_size, every_record=run_cleanup_for_every_record
            )
            return self._with(cleanup=cleanup)

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int = 1000, periodic_compaction_time: Duration | None = None
        ) -> StateTtlConfig.Builder:
            """Has no effect: expired values are removed when a complete base is written."""
            rocksdb = RocksdbCompactFilterCleanupStrategy(query_time_after_num_entries, periodic_compaction_time)
            return self._with(cleanup=replace(self._config.cleanup, rocksdb=rocksdb))

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Remove expired values only when they are read."""
            return self._with(cleanup=replace(self._config.cleanup, in_background=False))

        def build(self) -> StateTtlConfig:
            """Return the configuration."""
            return self._config


# PyFlink nests these in the class.
StateTtlConfig.UpdateType = UpdateType  # type: ignore[attr-defined]
StateTtlConfig.StateVisibility = StateVisibility  # type: ignore[attr-defined]
StateTtlConfig.TtlTimeCharacteristic = TtlTimeCharacteristic  # type: ignore[attr-defined]
StateTtlConfig.CleanupStrategies = CleanupStrategies  # type: ignore[attr-defined]
for _strategy in (
    CleanupStrategy,
    EmptyCleanupStrategy,
    IncrementalCleanupStrategy,
    RocksdbCompactFilterCleanupStrategy,
):
    setattr(CleanupStrategies, _strategy.__name__, _strategy)
