"""What other threads ask of a running job, to be done between two epochs."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from dataclasses import field

from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import record
from millstream.jobmaster.machine.parallelism_bounds import Bounds, Parallelisms


def _new_name() -> str:
    return uuid.uuid4().hex[:12]


@record
class SavepointRequest:
    """Take a savepoint; then stop, if asked, and before that let all windows and timers fire, if asked.

    Attributes:
        directory: where its own directory is made.
        name: tells it from every other savepoint there.
    """

    directory: str
    stop: bool = False
    drain: bool = False
    name: str = field(default_factory=_new_name)
    done: Future[str] = field(default_factory=Future, compare=False)


@record
class CheckpointRequest:
    """Take a checkpoint now."""

    done: Future[str] = field(default_factory=Future, compare=False)


@record
class RescaleRequest:
    """Go on with another parallelism."""

    parallelism: int
    done: Future[None] = field(default_factory=Future, compare=False)


@record
class RequirementsRequest:
    """Run with other numbers of subtasks, by vertex, as far as there are slots for them."""

    bounds: dict[str, Bounds] = field(compare=False)
    done: Future[None] = field(default_factory=Future, compare=False)


@record
class AdaptiveRescaleRequest:
    """Go on with so many subtasks of each vertex: the scheduler's own."""

    parallelisms: Parallelisms = field(compare=False)
    done: Future[None] = field(default_factory=Future, compare=False)


class RequestFailedError(MillstreamError):
    """What was asked could not be done; the job itself goes on."""


Request = SavepointRequest | CheckpointRequest | RescaleRequest | RequirementsRequest | AdaptiveRescaleRequest
