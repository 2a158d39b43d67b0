"""The clock of a job: starts at the wall clock's time, and goes on steadily whatever somebody does to that one."""

from __future__ import annotations

import time
from collections.abc import Callable


class JobClock:
    """Time in seconds that never goes back.

    Example:
        >>> times = {"wall": 1_000.0, "steady": 5.0}
        >>> clock = JobClock(lambda: times["wall"], lambda: times["steady"])
        >>> times.update(wall=1_000.0 - 3600, steady=7.0)
        >>> clock.now(), clock.ahead()
        (1002.0, -3602.0)
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._offset = wall() - steady()

    def now(self) -> float:
        return self._steady() + self._offset

    def ahead(self) -> float:
        """Return by how much the wall clock is ahead of this one: what user code calls the time."""
        return self._wall() - self.now()
