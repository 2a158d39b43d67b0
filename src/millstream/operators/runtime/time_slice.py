"""Sizes the chunks of records between two looks at the clock."""

from __future__ import annotations

from collections.abc import Callable

# Target duration of a chunk: hundreds of times the cost of starting one and reading the clock. Not longer, because a
# started chunk has to be finished even if records suddenly become slow.
_AIM_SECONDS = 0.0002
_MOST = 2048


class ChunkSizer:
    """Adapts the number of records per call of a generated loop to the time they take.

    Args:
        stopwatch: returns elapsed seconds.
        most: the maximum number of records.
    """

    def __init__(self, stopwatch: Callable[[], float], most: int = _MOST) -> None:
        self._stopwatch = stopwatch
        self._most = min(most, _MOST)
        # The cost of a record is unknown before the first.
        self.size = 1
        self._began = 0.0

    def begin(self) -> float:
        """Start a chunk; return the time."""
        self._began = self._stopwatch()
        return self._began

    def went(self, records: int) -> float:
        """Finish a chunk and start the next; return the time."""
        now = self._stopwatch()
        took, self._began = now - self._began, now
        if took > _AIM_SECONDS:
            self.size = max(int(records * _AIM_SECONDS / took), 1)
        elif took < _AIM_SECONDS / 2 and records == self.size < self._most:
            self.size = min(2 * self.size, self._most)
        return now
