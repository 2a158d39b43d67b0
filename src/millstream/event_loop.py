"""Requests that run at the same time, on an event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger("millstream")

# How long requests may take to end when they are cancelled.
_PATIENCE = 1.0

Request = tuple[int, Callable[[], Coroutine[Any, Any, Any]]]
Answer = tuple[int, Any, Exception | None]


class Requests:
    """Asynchronous requests, so many at once, on an event loop with a thread of its own.

    They go on whatever their slot does, also between two epochs. The loop lives as long as the function whose clients
    were made for it. Its thread starts with the first request and ends with `stop`: `open()` and `close()` of the
    function find a loop that nobody runs.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        # Also when whoever has it is simply forgotten, after a failure: the loop has sockets.
        weakref.finalize(self, _close, self._loop).atexit = False
        self._thread: threading.Thread | None = None
        # Touched by the loop's thread alone.
        self._waiting: deque[Request] = deque()
        self._running: set[asyncio.Task[None]] = set()
        # From there to whoever asks.
        self._answers: deque[Answer] = deque()
        self._answered = threading.Event()

    def start(self, requests: list[Request]) -> None:
        """Make requests, each under a number of its own, as soon as the capacity allows."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="requests", daemon=True)
            self._thread.start()
        self._loop.call_soon_threadsafe(self._take, requests)

    def answers(self) -> list[Answer]:
        """Return what has come since this was last asked: (number, result, error), in the order it came."""
        # First: what comes from here on is told once more.
        self._answered.clear()
        return [self._answers.popleft() for _ in range(len(self._answers))]

    def wait(self, seconds: float) -> bool:
        """Wait until there is an answer, but no longer than so many seconds; tell whether there is."""
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
        self._thread.join(_PATIENCE)

    def close(self) -> None:
        """Close the loop, if its thread has ended."""
        if self._thread is not None and self._thread.is_alive():
            log.warning("an async request does not end when it is cancelled; it is left behind")
        else:
            self._loop.close()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, seconds: float, request: Awaitable[Any], otherwise: Callable[[], Any]) -> Any:
        """Wait for a request; when it takes longer, cancel it and return something else."""
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
        self._waiting.extend(requests)
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and len(self._running) < self._capacity:
            number, request = self._waiting.popleft()
            task = self._loop.create_task(self._answer(number, request))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._go_on()

    async def _answer(self, number: int, request: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        result, error = None, None
        try:
            result = await request()
        except Exception as e:
            error = e
        except BaseException as e:
            # User code that exits, or cancels itself: it must not end the loop, nor leave its record without an answer.
            error = RuntimeError(f"the request has ended with {e!r}")
            error.__cause__ = e
        self._answers.append((number, result, error))
        self._answered.set()

    def _drop(self) -> None:
        self._waiting.clear()
        for task in self._running:
            task.cancel()

    def _end(self) -> None:
        self._drop()
        self._last = self._loop.create_task(self._stop())

    async def _stop(self) -> None:
        """Let all tasks end, also those that user code has made, and then the loop."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self._loop.stop()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_running():
        loop.close()
