"""The process and its workers."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from millstream import __version__
from millstream.common.job_status import JobStatus
from millstream.common.masking import masked
from millstream.jobmaster.machine.view import JobView
from millstream.operators.runtime.messages import JobPlan
from millstream.service.responses.jobs import is_over
from millstream.service.responses.metrics import Value

# The version whose REST interface this is; clients compare it with their own.
FLINK_VERSION = "2.3.0"


def dashboard(refresh_ms: int, submits: bool, cancels: bool, history: bool = False) -> dict[str, Any]:
    """Return what a page must know first."""
    zone = datetime.now().astimezone()
    offset = zone.utcoffset()
    return {
        "refresh-interval": refresh_ms,
        "timezone-name": zone.tzname() or "UTC",
        "timezone-offset": 0 if offset is None else int(offset.total_seconds() * 1000),
        "flink-version": FLINK_VERSION,
        "flink-revision": f"millstream {__version__}",
        "features": {
            "web-submit": submits,
            "web-cancel": cancels,
            "web-rescale": cancels,
            "web-history": history,
        },
    }


@dataclass(frozen=True)
class Slots:
    """How many slots there are, and how many of them no job has."""

    total: int
    free: int


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker: one of Spark's executors, or this process where jobs run without Spark.

    Attributes:
        id: by which it is known.
        address: where it is.
        tasks: how many subtasks run there.
        memory: how many bytes its machine has, as far as that is known, of which `free_memory` are not in use.
        metrics: what is measured of it.
        logs: where logs of its own are, by name.
    """

    id: str
    address: str
    slots: Slots
    tasks: int
    cores: int
    memory: int
    free_memory: int
    metrics: dict[str, Value] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)


def slots_needed(plan: JobPlan) -> int:
    """Return how many slots a job has."""
    return max(plan.slots(level) for level in range(plan.levels))


def slots_beside(views: Iterable[JobView], slots: int) -> Slots:
    """Return the slots there are where nobody counts them before a job is started."""
    taken = sum(slots_needed(v.plan) for v in views if not is_over(v))
    return Slots(max(slots, taken), max(slots - taken, 0))


def overview(lines: Iterable[Mapping[str, Any]], slots: Slots, workers: int) -> dict[str, Any]:
    """Return how many workers, slots and jobs there are, from the list of jobs."""
    states = [line["state"] for line in lines]
    over = [JobStatus.FINISHED.name, JobStatus.CANCELED.name, JobStatus.FAILED.name]
    return {
        "taskmanagers": workers,
        "taskmanagers-blocked": 0,
        "slots-total": slots.total,
        "slots-available": slots.free,
        "slots-free-and-blocked": 0,
        "jobs-running": sum(state not in over for state in states),
        "jobs-finished": states.count(JobStatus.FINISHED.name),
        "jobs-cancelled": states.count(JobStatus.CANCELED.name),
        "jobs-failed": states.count(JobStatus.FAILED.name),
        "flink-version": FLINK_VERSION,
        "flink-commit": f"millstream {__version__}",
    }


def task_manager(worker: Worker, now_ms: int) -> dict[str, Any]:
    """Return a worker."""
    nothing = {"cpuCores": 0.0, "taskHeapMemory": 0, "taskOffHeapMemory": 0, "managedMemory": 0, "networkMemory": 0}
    return {
        "id": worker.id,
        "path": worker.address,
        "dataPort": 0,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": now_ms,
        "slotsNumber": worker.slots.total,
        "freeSlots": worker.slots.free,
        "assignedTasks": worker.tasks,
        "blocked": False,
        "totalResource": {**nothing, "cpuCores": float(worker.slots.total)},
        "freeResource": {**nothing, "cpuCores": float(worker.slots.free)},
        "hardware": {
            "cpuCores": worker.cores,
            "physicalMemory": worker.memory,
            "freeMemory": worker.free_memory,
            "managedMemory": 0,
        },
        "memoryConfiguration": {},
    }


def settings(configuration: Mapping[str, str]) -> list[dict[str, str]]:
    """Return settings as a list, secrets hidden."""
    return [{"key": key, "value": value} for key, value in sorted(masked(configuration).items())]


def environment() -> dict[str, Any]:
    """Return what this process runs on."""
    return {
        "jvm": {
            "version": f"Python {platform.python_version()}",
            "arch": platform.machine(),
            "options": [],
        },
        "classpath": [p for p in sys.path if p],
    }
