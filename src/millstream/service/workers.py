"""Workers as a service knows them: Spark's executors, or this process where jobs run without Spark."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from millstream.common.errors import MillstreamError
from millstream.service.http import Refused
from millstream.service.logs import Heard, RecentLines, text_of
from millstream.service.registry import Registry
from millstream.service.responses.cluster import Slots, Worker
from millstream.service.responses.jobs import is_over
from millstream.service.responses.metrics import Value
from millstream.service.responses.tasks import LOCAL
from millstream.spark.executors import Executor, executors, read_log, threads_of

# For so long what Spark said of its executors is told again: they seldom come and go, and to ask Java takes time.
_KEEP_SECONDS = 5.0
# What functions have logged, on any worker.
LOG = "taskmanager.log"


@dataclass(frozen=True)
class Placed:
    """What jobs have on an executor: slots, subtasks that run; and what is known of its machine."""

    slots: int = 0
    tasks: int = 0
    memory: int = 0


class Workers(Protocol):
    """Who knows the workers."""

    async def all(self) -> list[Worker]:
        """Return the workers."""
        ...

    async def log(self, worker: Worker, name: str) -> str:
        """Return one of a worker's logs."""
        ...

    async def printed(self, worker: Worker) -> str:
        """Return what functions have printed there."""
        ...

    async def threads(self, worker: Worker) -> list[tuple[str, str]]:
        """Return what its threads do, by name."""
        ...


class NoWorkers:
    """Where all jobs have ended; follows `Workers`."""

    async def all(self) -> list[Worker]:
        return []

    async def log(self, worker: Worker, name: str) -> str:
        raise AssertionError(worker)

    async def printed(self, worker: Worker) -> str:
        raise AssertionError(worker)

    async def threads(self, worker: Worker) -> list[tuple[str, str]]:
        raise AssertionError(worker)


class SparkExecutors:
    """Spark's executors, asked for every five seconds at most, never on the thread that answers others."""

    def __init__(self) -> None:
        self._found: list[Executor] = []
        self._until = 0.0
        self._lock = threading.Lock()

    async def all(self) -> list[Executor]:
        return await asyncio.to_thread(self._look)

    def _look(self) -> list[Executor]:
        with self._lock:
            if time.monotonic() >= self._until:
                self._found = executors()
                self._until = time.monotonic() + _KEEP_SECONDS
            return self._found


class OwnWorkers:
    """The workers of the jobs of this process; follows `Workers`."""

    def __init__(self, registry: Registry, slots: Callable[[], Slots], log: RecentLines, heard: Heard) -> None:
        """Take what is known in this process.

        Args:
            registry: its jobs.
            slots: returns how many slots there are.
            log: what it has logged.
            heard: what functions have said.
        """
        self._registry = registry
        self._slots = slots
        self._log = log
        self._heard = heard
        self._spark = SparkExecutors()

    async def all(self) -> list[Worker]:
        found = await self._spark.all()
        if not found:
            return [self._this_process()]
        return dealt_out(found, self._slots(), placed(self._registry))

    def _this_process(self) -> Worker:
        running = (e.view for e in self._registry.entries() if not is_over(e.view))
        tasks = sum(v.parallelism for view in running for v in view.plan.vertices)
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        cores, slots = os.cpu_count() or 1, self._slots()
        return Worker(
            id=LOCAL, address="localhost", slots=slots, tasks=tasks, cores=cores, memory=machine_memory(),
            free_memory=free, metrics={**of_slots(slots), "Status.Threads": threading.active_count()},
        )  # fmt: skip

    async def log(self, worker: Worker, name: str) -> str:
        if name != LOG:
            return await spark_log(worker, name)
        # Without Spark, functions log in this process as all others do.
        return self._log.text() if worker.id == LOCAL else text_of(self._heard.logged(executor=worker.id))

    async def printed(self, worker: Worker) -> str:
        return self._heard.printed(executor="" if worker.id == LOCAL else worker.id)

    async def threads(self, worker: Worker) -> list[tuple[str, str]]:
        return python_threads() if worker.id == LOCAL else await spark_threads(worker)


def placed(registry: Registry) -> dict[str, Placed]:
    """Return what the running jobs of a registry have on each executor."""
    found: dict[str, Placed] = {}
    for view in (e.view for e in registry.entries() if not is_over(e.view)):
        for slot, place in view.progress.places.items():
            subtasks = sum(v.slot_offset <= slot < v.slot_offset + v.parallelism for v in view.plan.vertices)
            before = found.get(place.executor, Placed())
            found[place.executor] = Placed(before.slots + 1, before.tasks + subtasks, place.memory)
    return found


def dealt_out(found: Iterable[Executor], slots: Slots, taken: dict[str, Placed]) -> list[Worker]:
    """Return executors as workers, each with its share of the slots.

    Args:
        found: the executors.
        slots: how many there are in all.
        taken: what jobs have on each.
    """
    ordered = sorted(found, key=lambda e: (len(e.id), e.id))
    shares = shared(slots.total, [e.cores for e in ordered])
    return [_worker(e, share, taken.get(e.id, Placed())) for e, share in zip(ordered, shares, strict=True)]


def shared(total: int, weights: list[int]) -> list[int]:
    """Return whole shares of a number.

    Example:
        >>> shared(7, [2, 2, 4]), shared(3, [0, 0])
        ([2, 2, 3], [2, 1])
    """
    parts = weights if sum(weights) else [1] * len(weights)
    ends = [round(total * sum(parts[: i + 1]) / sum(parts)) for i in range(len(parts))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _worker(executor: Executor, share: int, has: Placed) -> Worker:
    slots = Slots(max(share, has.slots), max(share - has.slots, 0))
    memory = has.memory or (machine_memory() if executor.id == "driver" else executor.memory)
    return Worker(
        id=executor.id,
        address=executor.address,
        slots=slots,
        tasks=has.tasks,
        cores=executor.cores,
        memory=memory,
        free_memory=max(executor.memory - executor.used, 0),
        metrics={
            **of_slots(slots),
            "Status.JVM.GarbageCollector.All.Time": executor.gc_ms,
            "Status.JVM.Memory.Heap.Peak": executor.peaks.get("JVMHeapMemory", 0),
            "Status.JVM.Memory.NonHeap.Peak": executor.peaks.get("JVMOffHeapMemory", 0),
            "Status.Spark.Memory.Used": executor.used,
            "Status.Spark.Memory.Max": executor.memory,
            "Status.Spark.Tasks.Active": executor.active_tasks,
            "Status.Spark.Tasks.Completed": executor.completed_tasks,
            "Status.Spark.Tasks.Failed": executor.failed_tasks,
            "uptime": max(int(time.time() * 1000) - executor.started_ms, 0),
        },
        logs=executor.logs,
    )


def of_slots(slots: Slots) -> dict[str, Value]:
    return {"taskSlotsTotal": slots.total, "taskSlotsAvailable": slots.free}


def machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def python_threads() -> list[tuple[str, str]]:
    """Return what the threads of this process do."""
    names = {t.ident: t.name for t in threading.enumerate()}
    frames = sys._current_frames()
    return [(names.get(i, str(i)), "".join(traceback.format_stack(frame))) for i, frame in frames.items()]


async def spark_threads(worker: Worker) -> list[tuple[str, str]]:
    """Return what the threads of an executor's Java do."""
    found = await asyncio.to_thread(threads_of, worker.id)
    if found is None:
        raise Refused(404, f"Executor {worker.id} does not say what its threads do.")
    return found


async def spark_log(worker: Worker, name: str) -> str:
    """Return a log that Spark keeps of an executor."""
    if name not in worker.logs:
        raise Refused(404, f"Worker {worker.id} has no log of that name.")
    try:
        return await asyncio.to_thread(read_log, worker.logs[name])
    except MillstreamError as e:
        raise Refused(404, str(e)) from None
