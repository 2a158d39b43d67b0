"""The real world, as the pure half is handed it: the wall clock, and requests that run at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.event_loop import Requests

_PAGE = os.sysconf("SC_PAGE_SIZE")


def wall_clock() -> int:
    """Return the time in milliseconds since 1970."""
    return int(time.time() * 1000)


def stopwatch(clock: Callable[[], int]) -> Callable[[], float]:
    """Return what tells how many seconds have passed: not moved when the wall clock is set, but a test's own clock."""
    return time.monotonic if clock is wall_clock else lambda: clock() / 1000


def timer_lag(clock: Callable[[], int]) -> int:
    """Return how many milliseconds after their time timers fire that follow a clock.

    One, as in Flink: when they fire no record can come any more in the millisecond they are for, which may be the last
    of a window. What a test's own clock is set to is over.
    """
    return 1 if clock is wall_clock else 0


def resident() -> int:
    """Return how many bytes of memory this process has for itself, without files that are mapped into it."""
    with open("/proc/self/statm", "rb") as f:
        _, pages, shared, *_ = map(int, f.read().split())
    return (pages - shared) * _PAGE


def requests(capacity: int) -> Requests:
    """Return what makes asynchronous requests, so many at once."""
    # Not above: asyncio takes 20 ms to import, and few programs need it.
    from millstream.event_loop import Requests

    return Requests(capacity)
