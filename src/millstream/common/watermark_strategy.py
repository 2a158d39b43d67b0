"""Timestamps and watermarks: WatermarkStrategy and watermark generators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, WrongTypeError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.time import Duration, to_millis
from millstream.common.unsupported import JAVA, missing_class

__all__ = [
    "MAX_WATERMARK",
    "MIN_WATERMARK",
    "AssignerWithPeriodicWatermarksWrapper",
    "TimestampAssigner",
    "Watermark",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]

MIN_WATERMARK = -(1 << 63)
MAX_WATERMARK = (1 << 63) - 1


class TimestampAssigner(ABC):
    """Extracts a record's event time, for `with_timestamp_assigner()`, which also takes a plain function.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.common.watermark_strategy import TimestampAssigner
        >>> class ByField(TimestampAssigner):
        ...     def extract_timestamp(self, value, record_timestamp):
        ...         return value["millis"]
        >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByField())
        >>> list(env.from_collection([{"millis": 7}]).assign_timestamps_and_watermarks(strategy).execute_and_collect())
        [{'millis': 7}]
    """

    @abstractmethod
    def extract_timestamp(self, value: Value, record_timestamp: int) -> int:
        """Return the event time of `value` in milliseconds since 1970.

        Args:
            value: the record.
            record_timestamp: its timestamp so far, for example of its Kafka message; -2^63 if it has none.
        """


@fast_dataclass
class Watermark:
    """Declares that no record with this timestamp or an earlier one will follow.

    Example:
        >>> from millstream.common.watermark_strategy import Watermark
        >>> Watermark(1_000).timestamp
        1000
    """

    timestamp: int


class WatermarkOutput(ABC):
    """Receives a generator's watermarks: the last argument of its methods."""

    @abstractmethod
    def emit_watermark(self, watermark: Watermark) -> None:
        """Emit a watermark."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Mark the output idle, so that other inputs need not wait for it, until the next watermark."""

    @abstractmethod
    def mark_active(self) -> None:
        """Mark the output active."""


class WatermarkGenerator(ABC):
    """Generates watermarks from the records of one split. Not in PyFlink.

    Example:
        >>> from millstream.common import WatermarkStrategy
        >>> from millstream.common.watermark_strategy import Watermark, WatermarkGenerator
        >>> from millstream.datastream.window import TumblingEventTimeWindows
        >>> class AtEveryRecord(WatermarkGenerator):
        ...     def on_event(self, event, event_timestamp, output):
        ...         output.emit_watermark(Watermark(event_timestamp - 1))
        ...     def on_periodic_emit(self, output):
        ...         pass
        >>> strategy = WatermarkStrategy.for_generator(AtEveryRecord).with_timestamp_assigner(lambda time, _: time)
        >>> times = env.from_collection([3, 12, 5]).assign_timestamps_and_watermarks(strategy)
        >>> windows = times.window_all(TumblingEventTimeWindows.of(10))
        >>> list(windows.apply(lambda window, inputs: [list(inputs)]).execute_and_collect())
        [[3], [12]]
    """

    @abstractmethod
    def on_event(self, event: Value, event_timestamp: int, output: WatermarkOutput) -> None:
        """Process a record; a punctuated generator emits its watermarks here."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Emit a periodic watermark; called at the end of the split's part of an epoch."""


@fast_dataclass
class WatermarkStrategy:
    """Timestamp assignment and watermark generation; the `with_*` methods return a modified copy.

    Example:
        >>> from millstream.common import Duration, WatermarkStrategy
        >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        >>> strategy = strategy.with_timestamp_assigner(lambda event, _: event["millis"])
        >>> events = env.from_collection([{"millis": 7_000}]).assign_timestamps_and_watermarks(strategy)
        >>> list(events.execute_and_collect())
        [{'millis': 7000}]
    """

    out_of_orderness: Duration | None = None
    assigner: Callable[[Value, int], int] | None = None
    idleness: Duration | None = None
    alignment: tuple[str, Duration, Duration] | None = None
    generator: Callable[[], WatermarkGenerator] | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Assume timestamps that never decrease within a split.

        Example:
            >>> WatermarkStrategy.for_monotonous_timestamps().out_of_orderness.to_millis()
            0
        """
        return WatermarkStrategy(out_of_orderness=Duration.of_millis(0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Allow timestamps to lag behind by no more than a duration; records that lag more are late.

        Example:
            >>> WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5)).out_of_orderness.to_millis()
            5000
        """
        if to_millis(max_out_of_orderness) < 0:
            raise InvalidProgramError("The out-of-orderness of a watermark strategy must not be negative.")
        return WatermarkStrategy(out_of_orderness=Duration.of_millis(to_millis(max_out_of_orderness)))

    @staticmethod
    def for_generator(generator_supplier: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Use a user-defined generator; the supplier creates one for each split. Not in PyFlink.

        Example:
            >>> class Never(WatermarkGenerator):
            ...     def on_event(self, event, event_timestamp, output):
            ...         pass
            ...     def on_periodic_emit(self, output):
            ...         pass
            >>> strategy = WatermarkStrategy.for_generator(Never).with_timestamp_assigner(lambda time, _: time)
            >>> list(env.from_collection([3, 12]).assign_timestamps_and_watermarks(strategy).execute_and_collect())
            [3, 12]
        """
        if not callable(generator_supplier):
            raise InvalidProgramError(
                f"for_generator() takes something that makes a WatermarkGenerator, not {generator_supplier!r}."
            )
        return WatermarkStrategy(generator=generator_supplier)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Generate no watermarks; event time advances only at the end of input.

        Example:
            >>> strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda time, _: time)
            >>> list(env.from_collection([3, 12]).assign_timestamps_and_watermarks(strategy).execute_and_collect())
            [3, 12]
        """
        return WatermarkStrategy()

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Value, int], int]
    ) -> WatermarkStrategy:
        """Extract timestamps with a function of the record and its timestamp so far, or a TimestampAssigner.

        Example:
            >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time, _: time)
            >>> list(env.from_collection([3, 12]).assign_timestamps_and_watermarks(strategy).execute_and_collect())
            [3, 12]
        """
        if isinstance(timestamp_assigner, type):
            name = timestamp_assigner.__name__
            raise WrongTypeError(f"with_timestamp_assigner() was given the class {name}: give {name}().")
        assigner = getattr(timestamp_assigner, "extract_timestamp", timestamp_assigner)
        if not callable(assigner):
            raise WrongTypeError(
                "with_timestamp_assigner() takes a callable or an object with a method extract_timestamp(), not "
                f"{assigner!r}."
            )
        return replace(self, assigner=assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        """Mark a split idle after a time without records, so that its watermark holds back no other.

        Example:
            >>> WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_minutes(1)).idleness.to_millis()
            60000
        """
        if to_millis(idle_timeout) <= 0:
            raise InvalidProgramError("The idle timeout of a watermark strategy must be above 0.")
        return replace(self, idleness=Duration.of_millis(to_millis(idle_timeout)))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> WatermarkStrategy:
        """Pause sources that are further ahead of the slowest of their group than a drift.

        Args:
            watermark_group: the name of the group.
            max_allowed_watermark_drift: how far a source may be ahead.
            update_interval: how often sources are compared; by default every second.

        Example:
            >>> strategy = WatermarkStrategy.for_monotonous_timestamps()
            >>> group, drift, interval = strategy.with_watermark_alignment("shops", Duration.of_seconds(20)).alignment
            >>> group, drift.to_millis(), interval.to_millis()
            ('shops', 20000, 1000)
        """
        interval = update_interval or Duration.of_seconds(1)
        return replace(self, alignment=(watermark_group, max_allowed_watermark_drift, interval))


AssignerWithPeriodicWatermarksWrapper = missing_class(
    __name__, "AssignerWithPeriodicWatermarksWrapper", f"{JAVA}; use WatermarkStrategy"
)
