"""Ingestion time: a record's timestamp is when it came in. Apart, because it needs a clock."""

from __future__ import annotations

import time
from typing import Any

from millstream.common.watermark_strategy import TimestampAssigner

__all__ = ["IngestionTimeAssigner"]


class IngestionTimeAssigner(TimestampAssigner):
    """Gives a record the time at which it came in, by the wall clock."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(time.time() * 1000)
