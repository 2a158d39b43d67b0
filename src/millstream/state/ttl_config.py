"""StateTtlConfig: how long state lives after it was written or read."""

from __future__ import annotations

from dataclasses import field, replace
from enum import Enum

from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.time import Duration, Time, to_millis

# As many rows Flink looks at for every record, when nothing else was said.
_LOOKED_AT = 5


class UpdateType(Enum):
    """What gives a value its full time again."""

    Disabled = 0
    OnCreateAndWrite = 1
    OnReadAndWrite = 2


class StateVisibility(Enum):
    """Whether a value that has expired but is still there is returned."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class TtlTimeCharacteristic(Enum):
    """The clock of expiry: only the wall's."""

    ProcessingTime = 0


class CleanupStrategy:
    """One way in which expired values go."""


class EmptyCleanupStrategy(CleanupStrategy):
    """A way with nothing to set."""


@fast_dataclass
class IncrementalCleanupStrategy(CleanupStrategy):
    """Looks at some rows for every record."""

    cleanup_size: int
    every_record: bool = False

    def get_cleanup_size(self) -> int:
        """Return how many values are looked at at once."""
        return self.cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        """Tell whether that is done for every record."""
        return self.every_record


@fast_dataclass
class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
    """Remembered: there is no RocksDB; expired values go whenever a whole base is written."""

    query_time_after_num_entries: int = 1000
    periodic_compaction_time: Duration | None = None

    def get_query_time_after_num_entries(self) -> int:
        """Return what was set; it has no effect."""
        return self.query_time_after_num_entries

    def get_periodic_compaction_time(self) -> Duration | None:
        """Return what was set; it has no effect."""
        return self.periodic_compaction_time


@fast_dataclass
class CleanupStrategies:
    """How expired values go when nobody reads them.

    Whole bases leave them out always. `incremental_size` rows are looked at for every changed one besides; when nothing
    was said of that, as many as Flink's default says, unless the user has asked for no cleanup in the background.
    """

    in_background: bool = True
    full_snapshot: bool = False
    incremental_size: int = 0
    every_record: bool = False
    rocksdb: RocksdbCompactFilterCleanupStrategy | None = None

    class Strategies(Enum):
        """The ways by name."""

        FULL_STATE_SCAN_SNAPSHOT = 0
        INCREMENTAL_CLEANUP = 1
        ROCKSDB_COMPACTION_FILTER = 2

    EMPTY_STRATEGY = EmptyCleanupStrategy()

    @property
    def rows_to_look_at(self) -> int:
        """How many rows are looked at for every changed one."""
        return self.incremental_size or (_LOOKED_AT if self.in_background else 0)

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        """Return how values are removed while state is used, None if they are not."""
        size = self.incremental_size
        return IncrementalCleanupStrategy(size, self.every_record) if size else None

    def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
        """Return what was set of RocksDB's, None for nothing."""
        return self.rocksdb

    def is_cleanup_in_background(self) -> bool:
        """Tell whether values are removed without being read."""
        return self.in_background

    def in_full_snapshot(self) -> bool:
        """Tell whether expired values are left out of complete checkpoints."""
        return self.full_snapshot


@fast_dataclass
class StateTtlConfig:
    """How long state lives.

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
        """Begin with a time to live."""
        return StateTtlConfig.Builder(ttl)

    def get_ttl(self) -> Time:
        """Return the time to live."""
        return Time.milliseconds(self.ttl_ms)

    def get_update_type(self) -> UpdateType:
        """Return what makes a value live longer."""
        return self.update_type

    def get_state_visibility(self) -> StateVisibility:
        """Return whether values that have expired may still be seen."""
        return self.visibility

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Return by which clock: the wall's."""
        return TtlTimeCharacteristic.ProcessingTime

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """Return how expired values are removed."""
        return self.cleanup

    def is_enabled(self) -> bool:
        """Tell whether values expire at all."""
        return self.update_type is not UpdateType.Disabled

    class Builder:
        """Puts a StateTtlConfig together."""

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
            """Set what makes a value live longer."""
            return self._with(update_type=update_type)

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Let writing make a value live longer (the default)."""
            return self._with(update_type=UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Let reading make a value live longer, too."""
            return self._with(update_type=UpdateType.OnReadAndWrite)

        def set_state_visibility(self, state_visibility: StateVisibility) -> StateTtlConfig.Builder:
            """Set whether values that have expired may still be seen."""
            return self._with(visibility=state_visibility)

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """Let values be seen until they are removed."""
            return self._with(visibility=StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """Let values not be seen once they have expired (the default)."""
            return self._with(visibility=StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(self, ttl_time_characteristic: TtlTimeCharacteristic) -> StateTtlConfig.Builder:
            """Set by which clock: there is the wall's."""
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """Use the wall clock (the default)."""
            return self

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave expired values out of checkpoints that write the complete state."""
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
            """Accepted: expired values go when a whole base is written."""
            rocksdb = RocksdbCompactFilterCleanupStrategy(query_time_after_num_entries, periodic_compaction_time)
            return self._with(cleanup=replace(self._config.cleanup, rocksdb=rocksdb))

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Remove expired values only when they are read."""
            return self._with(cleanup=replace(self._config.cleanup, in_background=False))

        def build(self) -> StateTtlConfig:
            """Return the settings."""
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
