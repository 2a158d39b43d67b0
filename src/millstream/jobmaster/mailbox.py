"""The mailbox of a job's thread, for events of other threads and background work, and the job's clock."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from millstream.jobmaster.machine.events import Event

# Locks cannot wait longer than this.
_DAY = 86_400.0

# Smaller differences may be lost in sums of times.
_INSTANT = 1e-6


class Mailbox(Protocol):
    """Events on their way to a job's thread."""

    def put(self, event: Event) -> None:
        """Add an event. May be called from any thread."""
        ...

    def take(self, seconds: float) -> Event | None:
        """Return the oldest event; None after `seconds` without one."""
        ...

    def work(self, work: Callable[[], Event]) -> None:
        """Run something in the background, which must not raise; its result is put here."""
        ...


class ThreadMailbox:
    """A mailbox between real threads. Each piece of work runs on its own thread."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def put(self, event: Event) -> None:
        self._events.put(event)

    def take(self, seconds: float) -> Event | None:
        try:
            return self._events.get(timeout=min(seconds, _DAY)) if seconds > 0 else self._events.get_nowait()
        except queue.Empty:
            return None

    def work(self, work: Callable[[], Event]) -> None:
        threading.Thread(target=lambda: self.put(work()), daemon=True).start()


def timeout_until(deadline: float, now: float) -> float:
    """Return the seconds until the deadline, long enough for the clock to pass it."""
    left = deadline - now
    return max(left, _INSTANT) if left > 0 else 0.0


class JobClock:
    """A monotonic clock in seconds that starts at the wall clock's time.

    Example:
        >>> times = {"wall": 1_000.0, "steady": 5.0}
        >>> clock = JobClock(lambda: times["wall"], lambda: times["steady"])
        >>> times.update(wall=1_000.0 - 3600, steady=7.0)
        >>> clock.now(), clock.ahead()
        (1002.0, -3602.0)
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def now(self) -> float:
        return self._monotonic() + self._offset

    def ahead(self) -> float:
        """Return how far the wall clock, which user code sees, is ahead of this clock."""
        return self._wall() - self.now()
