"""Concurrent requests on an event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine

from millstream.common.aliases import Value

log = logging.getLogger("millstream")

# Seconds that cancelled requests have to end.
_CANCEL_SECONDS = 1.0

MakeCoroutine = Callable[[], Coroutine[object, None, Value]]
Request = tuple[int, MakeCoroutine]
Answer = tuple[int, Value, Exception | None]


class Requests:
    """Asynchronous requests with a maximum concurrency, on an event loop with a thread of its own.

    Requests run independently of their slot, also between two epochs. The loop lives as long as the user's function,
    whose clients are bound to it. Its thread starts with the first request and ends with `stop`, so that `open()` and
    `close()` of the function may run the loop themselves.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        # Also closes the loop, which has sockets, if its owner is garbage-collected after a failure.
        weakref.finalize(self, _close, self._loop).atexit = False
        self._thread: threading.Thread | None = None
        # Used by the loop's thread only.
        self._queued: deque[Request] = deque()
        self._running: set[asyncio.Task[None]] = set()
        # Appended by the loop's thread, taken by the slot's.
        self._answers: deque[Answer] = deque()
        self._answered = threading.Event()

    def start(self, requests: list[Request]) -> None:
        """Start requests, each with a unique number, as soon as the capacity allows."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="requests", daemon=True)
            self._thread.start()
        self._loop.call_soon_threadsafe(self._take, requests)

    def answers(self) -> list[Answer]:
        """Return the answers since the last call as (number, result, error), in the order of arrival."""
        # First, so that later answers set the event again.
        self._answered.clear()
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def wait(self, seconds: float) -> bool:
        """Wait for an answer for a number of seconds; return whether there is one."""
        return self._answered.wait(None if seconds == math.inf else seconds)

    def cancel(self) -> None:
        """Cancel all requests; they may still be answered."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._drop)

    def stop(self) -> None:
        """Cancel all requests, and end the thread."""
        if self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(_CANCEL_SECONDS)

    def close(self) -> None:
        """Close the loop, if its thread has ended."""
        if self._thread is not None and self._thread.is_alive():
            log.warning("An async request does not end after its cancellation: its thread remains.")
        else:
            self._loop.close()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, seconds: float, request: Awaitable[Value], otherwise: Callable[[], Value]) -> Value:
        """Wait for a request; after a number of seconds cancel it and return an alternative."""
        try:
            async with asyncio.timeout(seconds) as limit:
                return await request
        except TimeoutError:
            if not limit.expired():
                # The request itself has raised it.
                raise
        return otherwise()

    # --- on the loop's thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _take(self, requests: list[Request]) -> None:
        self._queued.extend(requests)
        self._start_queued()

    def _start_queued(self) -> None:
        while self._queued and len(self._running) < self._capacity:
            number, request = self._queued.popleft()
            task = self._loop.create_task(self._answer(number, request))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_queued()

    async def _answer(self, number: int, request: MakeCoroutine) -> None:
        result, error = None, None
        try:
            result = await request()
        except Exception as e:
            error = e
        except BaseException as e:
            # User code that exits or cancels itself must neither end the loop nor leave its record without an answer.
            error = RuntimeError(f"the request ended with {e!r}")
            error.__cause__ = e
        self._answers.append((number, result, error))
        self._answered.set()

    def _drop(self) -> None:
        self._queued.clear()
        for task in self._running:
            task.cancel()

    def _end(self) -> None:
        self._drop()
        self._last = self._loop.create_task(self._stop())

    async def _stop(self) -> None:
        """End all tasks, including those that user code has created, then the loop."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._loop.stop()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_running():
        loop.close()
