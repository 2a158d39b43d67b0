"""Attachment of a process to a session cluster: its jobs run on the cluster's Spark, in allocated slots.

This module does not import PySpark: a program loads while the cluster is reached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypedDict

from millstream.common.errors import JobCancelledError
from millstream.jobmaster.engine import QUICK, EpochRunner, SliceBounds
from millstream.operators.runtime.messages import JobPlan, LevelTask, SlotReport


class AttachmentFields(TypedDict):
    """The fields of an `Attachment`, for JSON."""

    port: int
    secret: str
    control: str | None
    master: str


@dataclass(frozen=True)
class Attachment:
    """The address of a cluster's Spark, for processes of the same user and machine.

    Attributes:
        port, secret: of its Py4J gateway.
        control: the directory of its daemons' sockets; None if they are on other machines.
        master: its Spark master.
    """

    port: int
    secret: str
    control: str | None
    master: str

    def as_dict(self) -> AttachmentFields:
        return AttachmentFields(port=self.port, secret=self.secret, control=self.control, master=self.master)


class SlotAllocator(Protocol):
    """Allocates slots to jobs."""

    def __call__(self, plan: JobPlan, is_cancelled: Callable[[], bool]) -> int:
        """Wait for slots; return their number, or raise UnrecoverableError if they are refused."""
        ...


_attachments: list[Attachment] = []
_allocators: list[SlotAllocator] = []


def attach(attachment: Attachment, allocator: SlotAllocator) -> None:
    """Attach this process to a cluster."""
    _attachments.append(attachment)
    _allocators.append(allocator)


def attachment() -> Attachment | None:
    """Return the attachment of this process, None if it has its own Spark."""
    return _attachments[-1] if _attachments else None


def with_allocated_slots(plan: JobPlan, make: Callable[[int | None], EpochRunner]) -> EpochRunner:
    """Return the runner of epochs; in an attached process, it waits for allocated slots.

    Args:
        plan: the job.
        make: creates the runner for a number of slots; None without a cluster.
    """
    return AllocatedEpochs(_allocators[-1], plan, make) if _allocators else make(None)


class AllocatedEpochs:
    """Runs the epochs of one execution in allocated slots (an `EpochRunner`)."""

    def __init__(self, allocator: SlotAllocator, plan: JobPlan, make: Callable[[int | None], EpochRunner]) -> None:
        self.resident_slots = False
        self.slices: SliceBounds = QUICK
        self._allocator = allocator
        self._plan = plan
        self._make = make
        self._lock = threading.Lock()
        self._is_cancelled = threading.Event()
        self._runner: EpochRunner | None = None

    def open(self, lost: Callable[[], None]) -> None:
        slots = self._allocator(self._plan, self._is_cancelled.is_set)
        with self._lock:
            if self._is_cancelled.is_set():
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
            self._is_cancelled.set()
            if self._runner is not None:
                self._runner.cancel()

    def release(self) -> None:
        if self._runner is not None:
            self._runner.release()
