"""Requests of other threads to a running job, served between two epochs."""

from __future__ import annotations

import uuid
from concurrent.futures import Future
from dataclasses import field

from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.jobmaster.machine.parallelism_bounds import Bounds, Parallelisms


def _new_name() -> str:
    return uuid.uuid4().hex[:12]


@fast_dataclass
class SavepointRequest:
    """Take a savepoint; optionally stop, and optionally fire all windows and timers before (drain).

    Attributes:
        directory: where the savepoint's directory is created.
        name: the unique name of the savepoint.
    """

    directory: str
    stop: bool = False
    drain: bool = False
    name: str = field(default_factory=_new_name)
    done: Future[str] = field(default_factory=Future, compare=False)


@fast_dataclass
class CheckpointRequest:
    """Take a checkpoint."""

    done: Future[str] = field(default_factory=Future, compare=False)


@fast_dataclass
class RescaleRequest:
    """Rescale to another parallelism."""

    parallelism: int
    done: Future[None] = field(default_factory=Future, compare=False)


@fast_dataclass
class RequirementsRequest:
    """Change the bounds of the parallelism of an adaptive job, by vertex."""

    bounds: dict[str, Bounds] = field(compare=False)
    done: Future[None] = field(default_factory=Future, compare=False)


@fast_dataclass
class AdaptiveRescaleRequest:
    """Rescale to these parallelisms: sent by the scheduler itself."""

    parallelisms: Parallelisms = field(compare=False)
    done: Future[None] = field(default_factory=Future, compare=False)


class RequestFailedError(MillstreamError):
    """A request failed; the job continues."""


Request = SavepointRequest | CheckpointRequest | RescaleRequest | RequirementsRequest | AdaptiveRescaleRequest
