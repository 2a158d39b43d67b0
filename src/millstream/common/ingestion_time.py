"""Ingestion-time timestamps. A separate module because it needs a clock."""

from __future__ import annotations

import time

from millstream.common.aliases import Value
from millstream.common.watermark_strategy import TimestampAssigner

__all__ = ["IngestionTimeAssigner"]


class IngestionTimeAssigner(TimestampAssigner):
    """Assigns the wall-clock time at which a record enters."""

    def extract_timestamp(self, value: Value, record_timestamp: int) -> int:
        return int(time.time() * 1000)
