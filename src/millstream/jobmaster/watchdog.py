"""Breaks off an epoch that does not end, from a thread of its own: the job's thread waits for the epoch."""

from __future__ import annotations

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
