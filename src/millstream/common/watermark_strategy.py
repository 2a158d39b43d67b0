"""WatermarkStrategy: how a stream gets its timestamps and its notion of how far time has come."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millstream.common.time import Duration

__all__ = ["MAX_WATERMARK", "MIN_WATERMARK", "TimestampAssigner", "WatermarkStrategy"]

MIN_WATERMARK = -(1 << 63)
MAX_WATERMARK = (1 << 63) - 1


class TimestampAssigner(ABC):
    """Gives a record its event time."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of `value` in milliseconds since 1970."""


@dataclass(frozen=True)
class WatermarkStrategy:
    """A description of timestamps and watermarks; the `with_*` methods return a changed copy."""

    out_of_orderness: Duration | None = None
    assigner: Callable[[Any, int], int] | None = None
    idleness: Duration | None = None
    alignment: tuple[str, Duration, Duration] | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        return WatermarkStrategy(out_of_orderness=Duration.of_millis(0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration) -> WatermarkStrategy:
        return WatermarkStrategy(out_of_orderness=max_out_of_orderness)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        return WatermarkStrategy()

    def with_timestamp_assigner(
        self, timestamp_assigner: TimestampAssigner | Callable[[Any, int], int]
    ) -> WatermarkStrategy:
        if isinstance(timestamp_assigner, TimestampAssigner):
            return replace(self, assigner=timestamp_assigner.extract_timestamp)
        return replace(self, assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Duration) -> WatermarkStrategy:
        return replace(self, idleness=idle_timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration,
        update_interval: Duration | None = None,
    ) -> WatermarkStrategy:
        interval = update_interval or Duration.of_seconds(1)
        return replace(self, alignment=(watermark_group, max_allowed_watermark_drift, interval))
