"""The process and its workers."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millstream import __version__
from millstream.common.job_status import JobStatus
from millstream.jobmaster.view import JobView
from millstream.operators.protocol import JobPlan
from millstream.common.masking import masked
from millstream.service.pictures.jobs import is_over
from millstream.service.pictures.tasks import TASK_MANAGER

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


def slots_needed(plan: JobPlan) -> int:
    """Return how many slots a job has."""
    return max(plan.slots(level) for level in range(plan.levels))


def slots_beside(views: Iterable[JobView], slots: int) -> Slots:
    """Return the slots there are where nobody counts them before a job is started."""
    taken = sum(slots_needed(v.plan) for v in views if not is_over(v))
    return Slots(max(slots, taken), max(slots - taken, 0))


def overview(lines: Iterable[Mapping[str, Any]], slots: Slots) -> dict[str, Any]:
    """Return how many workers, slots and jobs there are, from the list of jobs."""
    states = [line["state"] for line in lines]
    over = [JobStatus.FINISHED.name, JobStatus.CANCELED.name, JobStatus.FAILED.name]
    return {
        "taskmanagers": 1 if slots.total else 0,
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


def task_manager(lines: Iterable[Mapping[str, Any]], slots: Slots, heartbeat: int) -> dict[str, Any]:
    """Return the worker there is to see."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    nothing = {"cpuCores": 0.0, "taskHeapMemory": 0, "taskOffHeapMemory": 0, "managedMemory": 0, "networkMemory": 0}
    return {
        "id": TASK_MANAGER,
        "path": "local",
        "dataPort": 0,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": heartbeat,
        "slotsNumber": slots.total,
        "freeSlots": slots.free,
        "assignedTasks": sum(line["tasks"].get("running", 0) for line in lines if line["end-time"] == -1),
        "blocked": False,
        "totalResource": {**nothing, "cpuCores": float(slots.total)},
        "freeResource": {**nothing, "cpuCores": float(slots.free)},
        "hardware": {
            "cpuCores": os.cpu_count() or 1,
            "physicalMemory": memory,
            "freeMemory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"),
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
