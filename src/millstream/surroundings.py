"""The real world, as the pure half is handed it: the wall clock, and requests that run at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any


def wall_clock() -> int:
    """Return the time in milliseconds since 1970."""
    return int(time.time() * 1000)


def stopwatch(clock: Callable[[], int]) -> Callable[[], float]:
    """Return what tells how many seconds have passed: not moved when the wall clock is set, but a test's own clock."""
    return time.monotonic if clock is wall_clock else lambda: clock() / 1000


class Requests:
    """An event loop for asynchronous requests. It lives as long as the function whose clients were made for it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def close(self) -> None:
        self._loop.close()

    def run(
        self,
        request: Callable[[Any], Awaitable[Any]],
        values: list[Any],
        capacity: int,
        ordered: bool,
        take: Callable[[int, Any], None],
    ) -> None:
        """Make a request for every value, `capacity` at once; hand over (index, answer) in order or as they come."""
        self._loop.run_until_complete(_run(request, values, capacity, ordered, take))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, seconds: float, request: Awaitable[Any]) -> Any:
        """Wait for an answer; raise TimeoutError when it takes longer."""
        try:
            return await asyncio.wait_for(request, seconds)
        except TimeoutError:
            raise TimeoutError(f"took longer than {seconds:g} s") from None


async def _run(
    request: Callable[[Any], Awaitable[Any]],
    values: list[Any],
    capacity: int,
    ordered: bool,
    take: Callable[[int, Any], None],
) -> None:
    free = asyncio.Semaphore(capacity)

    async def one(value: Any) -> Any:
        async with free:
            return await request(value)

    tasks = {asyncio.ensure_future(one(value)): i for i, value in enumerate(values)}
    try:
        if ordered:
            for task, i in tasks.items():
                take(i, await task)
            return
        pending = set(tasks)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=tasks.__getitem__):
                take(tasks[task], task.result())
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
