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
    """The time to live of state: values expire some time after they were written, or read.

    Only the wall clock counts, as in Flink. A descriptor takes it with `enable_time_to_live()`.

    Example:
        >>> from millstream.common import Duration
        >>> from millstream.datastream.state import StateTtlConfig, ValueStateDescriptor
        >>> config = StateTtlConfig.new_builder(Duration.of_hours(1)).update_ttl_on_read_and_write().build()
        >>> session = ValueStateDescriptor("session")
        >>> session.enable_time_to_live(config)
        >>> config.get_ttl().to_milliseconds(), config.get_update_type().name
        (3600000, 'OnReadAndWrite')
    """

    ttl_ms: int
    update_type: UpdateType = UpdateType.OnCreateAndWrite
    visibility: StateVisibility = StateVisibility.NeverReturnExpired
    cleanup: CleanupStrategies = field(default_factory=CleanupStrategies)

    @staticmethod
    def new_builder(ttl: Time | Duration | int) -> StateTtlConfig.Builder:
        """Return a builder with a time to live: a Time, a Duration or milliseconds.

        Example:
            >>> StateTtlConfig.new_builder(Time.days(1)).build().get_ttl().to_milliseconds()
            86400000
        """
        return StateTtlConfig.Builder(ttl)

    def get_ttl(self) -> Time:
        """Return the time to live.

        Example:
            >>> StateTtlConfig.new_builder(60_000).build().get_ttl().to_milliseconds()
            60000
        """
        return Time.milliseconds(self.ttl_ms)

    def get_update_type(self) -> UpdateType:
        """Return the accesses that restart the time to live: writes, unless set.

        Example:
            >>> StateTtlConfig.new_builder(Time.days(1)).build().get_update_type().name
            'OnCreateAndWrite'
        """
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        """Return whether expired values may be returned: never, unless set.

        Example:
            >>> StateTtlConfig.new_builder(Time.days(1)).build().get_state_visibility().name
            'NeverReturnExpired'
        """
        return self.visibility

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Return the clock: the wall clock, as in Flink.

        Example:
            >>> StateTtlConfig.new_builder(Time.days(1)).build().get_ttl_time_characteristic().name
            'ProcessingTime'
        """
        return TtlTimeCharacteristic.ProcessingTime

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """Return how expired values are removed that are not read.

        Example:
            >>> StateTtlConfig.new_builder(Time.days(1)).build().get_cleanup_strategies().is_cleanup_in_background()
            True
        """
        return self.cleanup

    def is_enabled(self) -> bool:
        """Return whether values expire.

        Example:
            >>> StateTtlConfig.new_builder(Time.days(1)).build().is_enabled()
            True
        """
        return self.update_type is not UpdateType.Disabled

    class Builder:
        """Builds a StateTtlConfig, created by `StateTtlConfig.new_builder()`.

        Example:
            >>> builder = StateTtlConfig.new_builder(Time.days(1)).update_ttl_on_create_and_write()
            >>> builder.never_return_expired().cleanup_incrementally(10).build().is_enabled()
            True
        """

        def __init__(self, ttl: Time | Duration | int) -> None:
            self._config = StateTtlConfig(1)
            self.set_ttl(ttl)

        def _with(self, **changes: object) -> StateTtlConfig.Builder:
            self._config = replace(self._config, **changes)  # type: ignore[arg-type]
            return self

        def set_ttl(self, ttl: Time | Duration | int) -> StateTtlConfig.Builder:
            """Set the time to live: a Time, a Duration or milliseconds.

            Example:
                >>> StateTtlConfig.new_builder(Time.days(1)).set_ttl(Time.hours(1)).build().get_ttl().to_milliseconds()
                3600000
            """
            millis = to_millis(ttl)
            if millis <= 0:
                raise InvalidProgramError(f"A time to live must be above 0, it is {millis} ms.")
            return self._with(ttl_ms=millis)

        def set_update_type(self, update_type: UpdateType) -> StateTtlConfig.Builder:
            """Set the accesses that restart the time to live.

            Example:
                >>> builder = StateTtlConfig.new_builder(Time.days(1))
                >>> builder.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite).build().get_update_type().name
                'OnReadAndWrite'
            """
            return self._with(update_type=update_type)

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Restart the time to live on writes (the default).

            Example:
                >>> builder = StateTtlConfig.new_builder(Time.days(1))
                >>> builder.update_ttl_on_create_and_write().build().get_update_type().name
                'OnCreateAndWrite'
            """
            return self._with(update_type=UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Restart the time to live on reads and writes.

            Example:
                >>> builder = StateTtlConfig.new_builder(Time.days(1))
                >>> builder.update_ttl_on_read_and_write().build().get_update_type().name
                'OnReadAndWrite'
            """
            return self._with(update_type=UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: StateVisibility) -> StateTtlConfig.Builder:
            """Set whether expired values may be returned.

            Example:
                >>> visibility = StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
                >>> config = StateTtlConfig.new_builder(Time.days(1)).set_state_visibility(visibility).build()
                >>> config.get_state_visibility().name
                'ReturnExpiredIfNotCleanedUp'
            """
            return self._with(visibility=state_visibility)

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Return expired values until they are removed.

            Example:
                >>> builder = StateTtlConfig.new_builder(Time.days(1))
                >>> builder.return_expired_if_not_cleaned_up().build().get_state_visibility().name
                'ReturnExpiredIfNotCleanedUp'
            """
            return self._with(visibility=StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Never return expired values (the default).

            Example:
                >>> StateTtlConfig.new_builder(Time.days(1)).never_return_expired().build().get_state_visibility().name
                'NeverReturnExpired'
            """
            return self._with(visibility=StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(self, ttl_time_characteristic: TtlTimeCharacteristic) -> StateTtlConfig.Builder:
            """Accepted for compatibility: only the wall clock exists, as in Flink."""
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Use the wall clock (the default, and the only one)."""
            return self

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Omit expired values from checkpoints that write the complete state; here they are omitted in any case.

            Example:
                >>> config = StateTtlConfig.new_builder(Time.days(1)).cleanup_full_snapshot().build()
                >>> config.get_cleanup_strategies().in_full_snapshot()
                True
            """
            return self._with(cleanup=replace(self._config.cleanup, full_snapshot=True))

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool = False
        ) -> StateTtlConfig.Builder:
            """Check some values for every changed one, and remove those that have expired.

            Args:
                cleanup_size: the number of values to check.
                run_cleanup_for_every_record: stored without effect.

            Example:
                >>> config = StateTtlConfig.new_builder(Time.days(1)).cleanup_incrementally(10).build()
                >>> config.get_cleanup_strategies().get_incremental_cleanup_strategy().get_cleanup_size()
                10
            """
            cleanup = replace(
                self._config.cleanup, incremental_size=cleanup_size, every_record=run_cleanup_for_every_record
            )
            return self._with(cleanup=cleanup)

        def cleanup_in_rocksdb_compact_filter(
            self, query_time_after_num_entries: int = 1000, periodic_compaction_time: Duration | None = None
        ) -> StateTtlConfig.Builder:
            """Has no effect: there is no RocksDB; expired values are removed when a complete base is written."""
            rocksdb = RocksdbCompactFilterCleanupStrategy(query_time_after_num_entries, periodic_compaction_time)
            return self._with(cleanup=replace(self._config.cleanup, rocksdb=rocksdb))

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Remove expired values only when they are read.

            Example:
                >>> config = StateTtlConfig.new_builder(Time.days(1)).disable_cleanup_in_background().build()
                >>> config.get_cleanup_strategies().is_cleanup_in_background()
                False
            """
            return self._with(cleanup=replace(self._config.cleanup, in_background=False))

        def build(self) -> StateTtlConfig:
            """Return the configuration.

            Example:
                >>> StateTtlConfig.new_builder(Time.days(1)).build().get_ttl().to_milliseconds()
                86400000
            """
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
