"""Breaks off an epoch that does not end, from a thread of its own: the job's thread waits for the epoch."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

# Looks are so many seconds apart, at most: an epoch that begins need not wake anybody.
_SECONDS = 1.0


class EpochWatchdog:
    """Watches one epoch at a time. Nobody is woken for an epoch that ends in time."""

    def __init__(self, break_off: Callable[[], None]) -> None:
        """Take what breaks the running epoch off; it may be called from any thread."""
        self._break_off = break_off
        self._lock = threading.Lock()
        self._deadline = math.inf
        self._has_struck = False
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, seconds: float) -> None:
        """An epoch begins that may take so long."""
        with self._lock:
            self._deadline, self._has_struck = time.monotonic() + seconds, False
        if seconds < math.inf and self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="epoch-watchdog", daemon=True)
            self._thread.start()

    def end(self) -> bool:
        """The epoch has ended; tell whether it was broken off."""
        with self._lock:
            self._deadline = math.inf
            return self._has_struck

    def stop(self) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.wait(min(_SECONDS, self._left())):
            with self._lock:
                if time.monotonic() < self._deadline:
                    continue
                self._deadline, self._has_struck = math.inf, True
            self._break_off()

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


log = logging.getLogger("millstream")

_SLOT_POLL_SECONDS = 0.5


class SlotMonitor:
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
        while not self._is_over.wait(_SLOT_POLL_SECONDS):
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
