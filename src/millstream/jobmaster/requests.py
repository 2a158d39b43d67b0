"""What other threads ask of a running job; the job's own thread sees to it between two epochs."""

from __future__ import annotations

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


def refuse(request: Any, error: BaseException) -> None:
    if not request.done.done():
        request.done.set_exception(error)
