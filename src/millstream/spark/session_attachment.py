"""A process that belongs to a session cluster: its jobs run on the cluster's Spark, in slots that the cluster allots.

Nothing here imports PySpark at once: a program is read while the cluster is reached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from millstream.common.errors import JobCancelledError
from millstream.jobmaster.engine import QUICK, EpochRunner, SliceBounds
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotReport


@dataclass(frozen=True)
class Attachment:
    """How the Spark of a cluster is reached: for processes of the same user on the same machine.

    Attributes:
        port, secret: the way into its Java.
        control: where its daemons are reached; None where they are on other machines.
        master: where it runs.
    """

    port: int
    secret: str
    control: str | None
    master: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Allotment(Protocol):
    """Who allots slots to jobs."""

    def __call__(self, plan: JobPlan, is_off: Callable[[], bool]) -> int:
        """Return how many slots a job has been given, once it has; raise IncurableError when it gets none."""
        ...


_attachments: list[Attachment] = []
_allotments: list[Allotment] = []


def belong_to(attachment: Attachment, allotment: Allotment) -> None:
    """Make this process one of a cluster's."""
    _attachments.append(attachment)
    _allotments.append(allotment)


def attachment() -> Attachment | None:
    """Return the cluster's Spark that this process belongs to; None for a process that has its own."""
    return _attachments[-1] if _attachments else None


def with_allotment(plan: JobPlan, make: Callable[[int | None], EpochRunner]) -> EpochRunner:
    """Return what runs epochs: in a process of a cluster, only in slots that the cluster has allotted.

    Args:
        plan: the job.
        make: makes what runs them, given how many slots there are; None where nobody counts.
    """
    return AllottedEpochs(_allotments[-1], plan, make) if _allotments else make(None)


class AllottedEpochs:
    """The epochs of one execution, when its slots are allotted; follows `EpochRunner`."""

    def __init__(self, allotment: Allotment, plan: JobPlan, make: Callable[[int | None], EpochRunner]) -> None:
        self.resident_slots = False
        self.slices: SliceBounds = QUICK
        self._allotment = allotment
        self._plan = plan
        self._make = make
        self._lock = threading.Lock()
        self._is_off = threading.Event()
        self._runner: EpochRunner | None = None

    def open(self, lost: Callable[[], None]) -> None:
        slots = self._allotment(self._plan, self._is_off.is_set)
        with self._lock:
            if self._is_off.is_set():
                raise JobCancelledError(
                    f"Job '{self._plan.settings.job_name}' was cancelled while it waited for slots."
                )
            runner = self._runner = self._make(slots)
        self.resident_slots, self.slices = runner.resident_slots, runner.slices
        runner.open(lost)

    def run(self, tasks: list[LevelTask]) -> list[SlotReport]:
        assert self._runner is not None
        return self._runner.run(tasks)

    def cancel(self) -> None:
        with self._lock:
            self._is_off.set()
            if self._runner is not None:
                self._runner.cancel()

    def release(self) -> None:
        if self._runner is not None:
            self._runner.release()
