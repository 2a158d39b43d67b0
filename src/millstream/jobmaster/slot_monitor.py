"""Watches how many slots there are for a job, on a thread of its own, and tells when that changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("millstream")

_SECONDS = 0.5


class SlotWatch:
    """Asks an engine every half second."""

    def __init__(self, count: Callable[[int], int], tell: Callable[[int], None]) -> None:
        """Begin with `count`, which is told how many slots are wanted; `tell` hears how many there are."""
        self._count = count
        self._tell = tell
        self._wanted = 0
        self._seen: int | None = None
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slot-watch", daemon=True)

    def now(self, wanted: int) -> int:
        """Return how many there are; from the first time on, changes are told."""
        with self._lock:
            self._wanted = wanted
            self._seen = self._count(wanted)
        self._begin()
        return self._seen

    def _begin(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(_SECONDS):
            with self._lock:
                try:
                    count = self._count(self._wanted)
                except Exception as error:
                    # What is wrong with the engine, the job hears from its epochs.
                    log.debug("slots could not be counted: %s", error)
                    continue
                is_news, self._seen = count != self._seen, count
            if is_news:
                self._tell(count)
