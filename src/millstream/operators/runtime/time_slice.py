"""Sizes the chunks of records between two readings of the clock."""

from __future__ import annotations

from collections.abc import Callable

# Target duration of a chunk: hundreds of times the cost of starting one and reading the clock. Not longer, because a
# started chunk has to be finished even if records suddenly become slow.
_TARGET_SECONDS = 0.0002
_MAX_RECORDS = 2048


class ChunkSizer:
    """Adapts the number of records per call of a generated loop to the time they take.

    Args:
        stopwatch: returns elapsed seconds.
        max_records: the maximum number of records.
    """

    def __init__(self, stopwatch: Callable[[], float], max_records: int = _MAX_RECORDS) -> None:
        self._stopwatch = stopwatch
        self._max_records = min(max_records, _MAX_RECORDS)
        # The cost of a record is unknown before the first.
        self.size = 1
        self._start = 0.0

    def begin(self) -> float:
        """Start a chunk; return the time."""
        self._start = self._stopwatch()
        return self._start

    def finish(self, records: int) -> float:
        """Finish a chunk and start the next; return the time."""
        now = self._stopwatch()
        seconds, self._start = now - self._start, now
        if seconds > _TARGET_SECONDS:
            self.size = max(int(records * _TARGET_SECONDS / seconds), 1)
        elif seconds < _TARGET_SECONDS / 2 and records == self.size < self._max_records:
            self.size = min(2 * self.size, self._max_records)
        return now
