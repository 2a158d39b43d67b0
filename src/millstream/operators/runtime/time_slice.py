"""ChunkSizer: a loop is handed its records piece by piece, and between two pieces somebody looks at the clock."""

from __future__ import annotations

from collections.abc import Callable

# A piece is as large as takes about so long: hundreds of times what it costs to begin one and to look at the clock. And
# no larger, because the piece in hand has to be done even when records suddenly get slow.
_AIM_SECONDS = 0.0002
_MOST = 2048


class ChunkSizer:
    """How many records go through the loop of a subtask at once.

    Args:
        stopwatch: tells how many seconds have passed.
        most: how many it may be at most, however little time they take.
    """

    def __init__(self, stopwatch: Callable[[], float], most: int = _MOST) -> None:
        self._stopwatch = stopwatch
        self._most = min(most, _MOST)
        # What a record costs is known when there was one.
        self.size = 1
        self._began = 0.0

    def begin(self) -> float:
        """The next piece begins; return the time."""
        self._began = self._stopwatch()
        return self._began

    def went(self, records: int) -> float:
        """A piece of so many records is done, and the next one begins; return the time."""
        now = self._stopwatch()
        took, self._began = now - self._began, now
        if took > _AIM_SECONDS:
            self.size = max(int(records * _AIM_SECONDS / took), 1)
        elif took < _AIM_SECONDS / 2 and records == self.size < self._most:
            self.size = min(2 * self.size, self._most)
        return now
