"""Threads of the job master that watch the running epoch and the number of slots."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

# Maximum seconds between checks: the start of an epoch need not wake the thread.
_SECONDS = 1.0


class EpochWatchdog:
    """Cancels an epoch that does not end: the job's thread waits for the epoch."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        """Set the function that cancels the running epoch; it may be called from any thread."""
        self._cancel = cancel
        self._lock = threading.Lock()
        self._deadline = math.inf
        self._has_expired = False
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, seconds: float) -> None:
        """Watch an epoch with a timeout."""
        with self._lock:
            self._deadline, self._has_expired = time.monotonic() + seconds, False
        if seconds < math.inf and self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="epoch-watchdog", daemon=True)
            self._thread.start()

    def end(self) -> bool:
        """Stop watching the epoch; return whether it was cancelled."""
        with self._lock:
            self._deadline = math.inf
            return self._has_expired

    def stop(self) -> None:
        self._is_stopped.set()

    def _watch(self) -> None:
        while not self._is_stopped.wait(min(_SECONDS, self._remaining())):
            with self._lock:
                if time.monotonic() < self._deadline:
                    continue
                self._deadline, self._has_expired = math.inf, True
            self._cancel()

    def _remaining(self) -> float:
        return max(0.0, self._deadline - time.monotonic())


log = logging.getLogger("millstream")

_SLOT_POLL_SECONDS = 0.5


class SlotMonitor:
    """Polls the number of slots every half second and reports changes."""

    def __init__(self, count: Callable[[int], int], report: Callable[[int], None]) -> None:
        """Set `count`, which takes the number of desired slots, and `report`, which receives the number available."""
        self._count = count
        self._report = report
        self._desired = 0
        self._last_count: int | None = None
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slot-watch", daemon=True)

    def now(self, desired: int) -> int:
        """Return the number of slots; changes are reported from the first call on."""
        with self._lock:
            self._desired = desired
            self._last_count = self._count(desired)
        self._begin()
        return self._last_count

    def _begin(self) -> None:
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        self._is_stopped.set()

    def _run(self) -> None:
        while not self._is_stopped.wait(_SLOT_POLL_SECONDS):
            with self._lock:
                try:
                    count = self._count(self._desired)
                except Exception as error:
                    # The job learns of engine errors from its epochs.
                    log.debug("slots could not be counted: %s", error)
                    continue
                has_changed, self._last_count = count != self._last_count, count
            if has_changed:
                self._report(count)
