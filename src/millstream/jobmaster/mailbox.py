"""What reaches a job's thread from outside: events of other threads, and of work that goes on beside it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from millstream.jobmaster.machine.events import Event

# Locks cannot be waited for any longer; nobody notices a look at the clock once a day.
_DAY = 86_400.0

# What is less than this, sums of times may lose.
_INSTANT = 1e-6


class Mailbox(Protocol):
    """Events on their way to a job's thread."""

    def put(self, event: Event) -> None:
        """Add an event. May be called from any thread."""
        ...

    def take(self, seconds: float) -> Event | None:
        """Return the event that waits longest; None when there is none for so many seconds."""
        ...

    def work(self, work: Callable[[], Event]) -> None:
        """Do something beside the job, which raises nothing; the event it returns is put here."""
        ...


class ThreadMailbox:
    """An inbox between real threads. Every piece of work has a thread of its own."""

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


def patience(deadline: float, now: float) -> float:
    """Return for how many seconds there is nothing to do: none, or so many that the clock gets past the deadline."""
    left = deadline - now
    return max(left, _INSTANT) if left > 0 else 0.0


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
