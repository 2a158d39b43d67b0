"""Responses about the cluster and its workers."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from millstream import __version__
from millstream.common.aliases import Json
from millstream.common.job_status import JobStatus
from millstream.common.masking import masked
from millstream.jobmaster.machine.view import JobView
from millstream.operators.runtime.messages import JobPlan
from millstream.service.responses.jobs import has_ended
from millstream.service.responses.metrics import Value

# The Flink version of this REST API; clients compare it with their own.
FLINK_VERSION = "2.3.0"


def dashboard(refresh_ms: int, submits: bool, cancels: bool, history: bool = False) -> dict[str, Json]:
    """Return the configuration of the web page."""
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
    """Total and free slots."""

    total: int
    free: int


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker: one of Spark's executors, or this process where jobs run without Spark.

    Attributes:
        id: its id.
        address: its host and port.
        tasks: the number of running subtasks.
        memory: bytes of its machine, if known; `free_memory` of them are free.
        metrics: its metrics.
        logs: locations of Spark's logs, by name.
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
    """Return the number of slots of a job."""
    return max(plan.slots(level) for level in range(plan.levels))


def slots_without_cluster(views: Iterable[JobView], slots: int) -> Slots:
    """Return the slots of a process outside a cluster, where jobs may use more than `slots`."""
    used = sum(slots_needed(v.plan) for v in views if not has_ended(v))
    return Slots(max(slots, used), max(slots - used, 0))


def overview(lines: Iterable[Mapping[str, Json]], slots: Slots, workers: int) -> dict[str, Json]:
    """Return the numbers of workers, slots and jobs, from the job overviews."""
    states = [line["state"] for line in lines]
    ended = [JobStatus.FINISHED.name, JobStatus.CANCELED.name, JobStatus.FAILED.name]
    return {
        "taskmanagers": workers,
        "taskmanagers-blocked": 0,
        "slots-total": slots.total,
        "slots-available": slots.free,
        "slots-free-and-blocked": 0,
        "jobs-running": sum(state not in ended for state in states),
        "jobs-finished": states.count(JobStatus.FINISHED.name),
        "jobs-cancelled": states.count(JobStatus.CANCELED.name),
        "jobs-failed": states.count(JobStatus.FAILED.name),
        "flink-version": FLINK_VERSION,
        "flink-commit": f"millstream {__version__}",
    }


def task_manager(worker: Worker, now_ms: int) -> dict[str, Json]:
    """Return a worker."""
    none = {
        "cpuCores": 0.0,
        "taskHeapMemory": 0,
        "taskOffHeapMemory": 0,
        "managedMemory": 0,
        "networkMemory": 0,
    }
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
        "totalResource": {**none, "cpuCores": float(worker.slots.total)},
        "freeResource": {**none, "cpuCores": float(worker.slots.free)},
        "hardware": {
            "cpuCores": worker.cores,
            "physicalMemory": worker.memory,
            "freeMemory": worker.free_memory,
            "managedMemory": 0,
        },
        "memoryConfiguration": {},
    }


def settings(configuration: Mapping[str, str]) -> list[dict[str, str]]:
    """Return options as a list, with secrets masked."""
    return [{"key": key, "value": value} for key, value in sorted(masked(configuration).items())]


def environment() -> dict[str, Json]:
    """Return the runtime environment of this process."""
    return {
        "jvm": {
            "version": f"Python {platform.python_version()}",
            "arch": platform.machine(),
            "options": [],
        },
        "classpath": [p for p in sys.path if p],
    }
