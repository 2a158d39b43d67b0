"""What other threads ask of a running job; the job's own thread sees to it between two epochs."""

from __future__ import annotations

import queue
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from millstream.common.errors import MillstreamError


@dataclass
class SavepointRequest:
    """Take a savepoint; then stop, if asked, and before that let all windows and timers fire, if asked."""

    directory: str
    stop: bool = False
    drain: bool = False
    done: Future[str] = field(default_factory=Future)


@dataclass
class CheckpointRequest:
    """Take a checkpoint now."""

    done: Future[str] = field(default_factory=Future)


@dataclass
class RescaleRequest:
    """Go on with another parallelism."""

    parallelism: int
    done: Future[None] = field(default_factory=Future)


class RequestFailedError(MillstreamError):
    """What was asked could not be done; the job itself goes on."""


Request = SavepointRequest | CheckpointRequest | RescaleRequest


class Inbox:
    """Requests on their way from other threads to the job's own."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()

    def put(self, request: Request) -> None:
        self._waiting.put(request)

    def take(self) -> Request | None:
        """Return the request that waits longest, None when there is none."""
        try:
            return self._waiting.get_nowait()
        except queue.Empty:
            return None


def refuse(request: Any, error: BaseException) -> None:
    if not request.done.done():
        request.done.set_exception(error)
