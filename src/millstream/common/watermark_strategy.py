"""How event time is read off records and how far it has come: WatermarkStrategy and watermark generators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.common.errors import InvalidProgramError, WrongTypeError
from millstream.common.fast_dataclass import record
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
    """Reads a record's event time."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of `value` in milliseconds since 1970."""


@record
class Watermark:
    """A statement that no record with this timestamp or an earlier one is still to come."""

    timestamp: int


class WatermarkOutput(ABC):
    """Where a generator's watermarks go."""

    @abstractmethod
    def emit_watermark(self, watermark: Watermark) -> None:
        """Say that time has come so far, in milliseconds."""

    @abstractmethod
    def mark_idle(self) -> None:
        """Say that nothing is to be expected for now, so that nobody waits; the next watermark ends it."""

    @abstractmethod
    def mark_active(self) -> None:
        """Say that records come again."""


class WatermarkGenerator(ABC):
    """Makes watermarks from the records of one split."""

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """A record has passed; a generator of watermarks at certain records emits them here."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Called at the end of the split's share of an epoch."""


@record
class WatermarkStrategy:
    """A description of timestamps and watermarks; the `with_*` methods return a changed copy.

    Example:
        >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        >>> strategy.with_timestamp_assigner(lambda event, _: event["at"]).out_of_orderness.to_millis()
        5000
    """

    out_of_orderness: Duration | None = None
    assigner: Callable[[Any, int], int] | None = None
    idleness: Duration | None = None
    alignment: tuple[str, Duration, Duration] | None = None
    generator: Callable[[], WatermarkGenerator] | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never go back."""
        return WatermarkStrategy(out_of_orderness=Duration.of_millis(0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        """Timestamps go back by no more than this."""
        if to_millis(max_out_of_orderness) < 0:
            raise InvalidProgramError("The out-of-orderness of a watermark strategy must not be negative.")
        return WatermarkStrategy(out_of_orderness=Duration.of_millis(to_millis(max_out_of_orderness)))

    @staticmethod
    def for_generator(generator_supplier: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Watermarks are made by a generator of the user's; the supplier makes one for every split."""
        if not callable(generator_supplier):
            raise InvalidProgramError(
                f"for_generator() takes something that makes a WatermarkGenerator, not {generator_supplier!r}."
            )
        return WatermarkStrategy(generator=generator_supplier)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Timestamps at most; event time comes to its end only with the input."""
        return WatermarkStrategy()

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        """Read timestamps off the records with this."""
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
        """Nobody waits for a split that has been silent for so long."""
        if to_millis(idle_timeout) <= 0:
            raise InvalidProgramError("The idle timeout of a watermark strategy must be above 0.")
        return replace(self, idleness=Duration.of_millis(to_millis(idle_timeout)))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> WatermarkStrategy:
        """Do not read a source that is further ahead than this of the slowest one of its group."""
        interval = update_interval or Duration.of_seconds(1)
        return replace(self, alignment=(watermark_group, max_allowed_watermark_drift, interval))


AssignerWithPeriodicWatermarksWrapper = missing_class(
    __name__, "AssignerWithPeriodicWatermarksWrapper", f"{JAVA}; use WatermarkStrategy"
)
