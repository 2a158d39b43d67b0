"""When a slot's process collects garbage."""

from __future__ import annotations

import gc
import time


class Collector:
    """Collects garbage between tasks.

    The collector never runs inside a user's loop. After a task it looks at what was made since it last did, and less
    often at everything; the longer that takes, as it does with much state, the more seldom: each is given at most a
    hundredth of the time.
    """

    _SHARE = 100
    _FULL = 2
    _LEAST_SECONDS = {1: 0.0, _FULL: 5.0}

    def __init__(self) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()
        self._due = {1: 0.0, self._FULL: time.monotonic() + self._LEAST_SECONDS[self._FULL]}

    def after_task(self) -> None:
        start = time.monotonic()
        for generation in (self._FULL, 1):
            if start >= self._due[generation]:
                gc.collect(generation)
                end = time.monotonic()
                self._due[generation] = end + max(self._LEAST_SECONDS[generation], (end - start) * self._SHARE)
                return
