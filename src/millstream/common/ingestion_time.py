"""Ingestion-time timestamps. A separate module because it needs a clock."""

from __future__ import annotations

import time

from millstream.common.aliases import Value
from millstream.common.watermark_strategy import TimestampAssigner

__all__ = ["IngestionTimeAssigner"]


class IngestionTimeAssigner(TimestampAssigner):
    """Assigns the wall-clock time at which a record enters. Not in PyFlink.

    Example:
        >>> from millstream.common import IngestionTimeAssigner, WatermarkStrategy
        >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(IngestionTimeAssigner())
        >>> list(env.from_collection(["tea"]).assign_timestamps_and_watermarks(strategy).execute_and_collect())
        ['tea']
    """

    def extract_timestamp(self, value: Value, record_timestamp: int) -> int:
        return int(time.time() * 1000)
