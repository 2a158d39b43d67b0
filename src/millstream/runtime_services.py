"""Services that are passed to the pure packages: clocks and concurrent requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.event_loop import Requests


def wall_clock() -> int:
    """Return the time in milliseconds since 1970."""
    return int(time.time() * 1000)


def stopwatch(clock: Callable[[], int]) -> Callable[[], float]:
    """Return a monotonic clock in seconds, which follows a test's clock, but no adjustment of the wall clock."""
    return time.monotonic if clock is wall_clock else lambda: clock() / 1000


def timer_lag(clock: Callable[[], int]) -> int:
    """Return the delay of timers of a clock in milliseconds.

    It is 1, as in Flink: when a timer fires, no further record can arrive in its millisecond, which may be the last of
    a window. It is 0 for a test's clock, which no record can share.
    """
    return 1 if clock is wall_clock else 0


def requests(capacity: int) -> Requests:
    """Return asynchronous requests with a maximum concurrency."""
    # Lazy: importing asyncio takes 20 ms, and few programs need it.
    from millstream.event_loop import Requests

    return Requests(capacity)
