"""Pace: a loop is handed its records piece by piece, and between two pieces somebody looks at the clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# A piece is as large as takes about so long, which is much for the clock and little for whoever waits.
_AIM_SECONDS = 0.002
# More would save nothing that can be measured, and is what is yet to be done when records suddenly get slow.
_MOST = 64


class Pace:
    """How fast the records of a subtask go through its loop.

    Args:
        stopwatch: tells how many seconds have passed.
        most: how many records make one run of the loop; None for any number.

    Attributes:
        at: how many of the records last handed out have been processed.
    """

    def __init__(self, stopwatch: Callable[[], float], most: int | None = None) -> None:
        self.now = stopwatch
        self._most = math.inf if most is None else most
        # What a record costs is known when there was one.
        self._size = 1
        self.at = 0

    def pieces(self, records: Sequence[Any], at: int, until: float, width: int = 1) -> Iterator[Sequence[Any]]:
        """Yield records, from the one at a place on, until the stopwatch has come so far; at least one piece.

        Whoever asks for the next piece has processed the one before.

        Args:
            records: what can be sliced.
            at: how many of the records were processed before.
            until: when to pause.
            width: how many items a record takes.
        """
        now, size = self.now, self._size
        count = len(records) // width
        end = count if count - at <= self._most else at + int(self._most)
        self.at = at
        before = now()
        while at < end:
            to = min(at + size, end)
            yield records[at * width : to * width]
            self.at = at = to
            after = now()
            took, before = after - before, after
            if took > _AIM_SECONDS:
                size = max(int(size * _AIM_SECONDS / took), 1)
            elif took < _AIM_SECONDS / 2 and size < _MOST:
                size *= 2
            if after >= until:
                break
        self._size = size
