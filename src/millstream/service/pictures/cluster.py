"""The process and its workers."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from millstream import __version__
from millstream.common.execution_state import ExecutionState
from millstream.common.job_status import JobStatus
from millstream.jobmaster.view import JobView
from millstream.service.masking import masked
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


def overview(views: Iterable[JobView], slots: int) -> dict[str, Any]:
    """Return how many workers, slots and jobs there are."""
    jobs = list(views)
    taken = sum(_slots(v) for v in jobs if not is_over(v))
    states = [v.status for v in jobs]
    return {
        "taskmanagers": 1,
        "taskmanagers-blocked": 0,
        "slots-total": max(slots, taken),
        "slots-available": max(slots - taken, 0),
        "slots-free-and-blocked": 0,
        "jobs-running": sum(not is_over(v) for v in jobs),
        "jobs-finished": states.count(JobStatus.FINISHED),
        "jobs-cancelled": states.count(JobStatus.CANCELED),
        "jobs-failed": states.count(JobStatus.FAILED),
        "flink-version": FLINK_VERSION,
        "flink-commit": f"millstream {__version__}",
    }


def _slots(view: JobView) -> int:
    return max(view.plan.slots(level) for level in range(view.plan.levels))


def task_manager(views: Iterable[JobView], slots: int, heartbeat: int) -> dict[str, Any]:
    """Return the worker there is to see."""
    running = [v for v in views if not is_over(v)]
    taken = sum(_slots(v) for v in running)
    tasks = sum(t.state is ExecutionState.RUNNING for v in running for t in v.tasks.values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    nothing = {"cpuCores": 0.0, "taskHeapMemory": 0, "taskOffHeapMemory": 0, "managedMemory": 0, "networkMemory": 0}
    return {
        "id": TASK_MANAGER,
        "path": "local",
        "dataPort": 0,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": heartbeat,
        "slotsNumber": max(slots, taken),
        "freeSlots": max(slots - taken, 0),
        "assignedTasks": tasks,
        "blocked": False,
        "totalResource": {**nothing, "cpuCores": float(slots)},
        "freeResource": {**nothing, "cpuCores": float(max(slots - taken, 0))},
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
