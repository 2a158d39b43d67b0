"""Workers of a service: Spark's executors, or this process for jobs without Spark."""

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
from millstream.service.http import RequestError
from millstream.service.logs import JobOutput, RecentLines, text_of
from millstream.service.registry import Registry
from millstream.service.responses.cluster import Slots, Worker
from millstream.service.responses.jobs import has_ended
from millstream.service.responses.metrics import Value
from millstream.service.responses.tasks import LOCAL
from millstream.spark.executors import Executor, executors, read_log, threads_of

# How long the list of executors is cached: it seldom changes, and a call to Java takes time.
_CACHE_SECONDS = 5.0
# Log lines of functions on a worker.
LOG = "taskmanager.log"


@dataclass(frozen=True)
class ExecutorUse:
    """The resources that jobs use on an executor: slots and running subtasks, and the memory of its machine."""

    slots: int = 0
    tasks: int = 0
    memory: int = 0


class Workers(Protocol):
    """Provides the workers."""

    async def all(self) -> list[Worker]:
        """Return the workers."""
        ...

    async def log(self, worker: Worker, name: str) -> str:
        """Return one of a worker's logs."""
        ...

    async def printed(self, worker: Worker) -> str:
        """Return text printed by functions on a worker."""
        ...

    async def threads(self, worker: Worker) -> list[tuple[str, str]]:
        """Return thread names and stack traces."""
        ...


class NoWorkers:
    """No workers, for servers without running jobs; implements `Workers`."""

    async def all(self) -> list[Worker]:
        return []

    async def log(self, worker: Worker, name: str) -> str:
        raise AssertionError(worker)

    async def printed(self, worker: Worker) -> str:
        raise AssertionError(worker)

    async def threads(self, worker: Worker) -> list[tuple[str, str]]:
        raise AssertionError(worker)


class SparkExecutors:
    """Spark's executors, queried in another thread, at most every five seconds."""

    def __init__(self) -> None:
        self._executors: list[Executor] = []
        self._until = 0.0
        self._lock = threading.Lock()

    async def all(self) -> list[Executor]:
        return await asyncio.to_thread(self._poll)

    def _poll(self) -> list[Executor]:
        with self._lock:
            if time.monotonic() >= self._until:
                self._executors = executors()
                self._until = time.monotonic() + _CACHE_SECONDS
            return self._executors


class OwnWorkers:
    """The workers of the jobs of this process; implements `Workers`."""

    def __init__(self, registry: Registry, slots: Callable[[], Slots], log: RecentLines, output: JobOutput) -> None:
        """Create the workers.

        Args:
            registry: the jobs of this process.
            slots: returns the slots.
            log: log lines of this process.
            output: log lines and printed text of user functions.
        """
        self._registry = registry
        self._slots = slots
        self._log = log
        self._output = output
        self._spark = SparkExecutors()

    async def all(self) -> list[Worker]:
        executors = await self._spark.all()
        if not executors:
            return [self._this_process()]
        return workers_of(executors, self._slots(), executor_use(self._registry))

    def _this_process(self) -> Worker:
        running = (e.view for e in self._registry.entries() if not has_ended(e.view))
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
        # Without Spark, functions log in this process.
        return self._log.text() if worker.id == LOCAL else text_of(self._output.logged(executor=worker.id))

    async def printed(self, worker: Worker) -> str:
        return self._output.printed(executor="" if worker.id == LOCAL else worker.id)

    async def threads(self, worker: Worker) -> list[tuple[str, str]]:
        return python_threads() if worker.id == LOCAL else await spark_threads(worker)


def executor_use(registry: Registry) -> dict[str, ExecutorUse]:
    """Return what the running jobs of a registry use on each executor."""
    usage: dict[str, ExecutorUse] = {}
    for view in (e.view for e in registry.entries() if not has_ended(e.view)):
        for slot, location in view.progress.locations.items():
            subtasks = sum(v.slot_offset <= slot < v.slot_offset + v.parallelism for v in view.plan.vertices)
            before = usage.get(location.executor, ExecutorUse())
            usage[location.executor] = ExecutorUse(before.slots + 1, before.tasks + subtasks, location.memory)
    return usage


def workers_of(executors: Iterable[Executor], slots: Slots, usage: dict[str, ExecutorUse]) -> list[Worker]:
    """Return executors as workers, with slots in proportion to their cores.

    Args:
        executors: the executors.
        slots: the slots of all executors.
        usage: what jobs use on each.
    """
    ordered = sorted(executors, key=lambda e: (len(e.id), e.id))
    shares = apportion(slots.total, [e.cores for e in ordered])
    return [_worker(e, share, usage.get(e.id, ExecutorUse())) for e, share in zip(ordered, shares, strict=True)]


def apportion(total: int, weights: list[int]) -> list[int]:
    """Split a number into integers in proportion to weights.

    Example:
        >>> apportion(7, [2, 2, 4]), apportion(3, [0, 0])
        ([2, 2, 3], [2, 1])
    """
    parts = weights if sum(weights) else [1] * len(weights)
    ends = [round(total * sum(parts[: i + 1]) / sum(parts)) for i in range(len(parts))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _worker(executor: Executor, share: int, usage: ExecutorUse) -> Worker:
    slots = Slots(max(share, usage.slots), max(share - usage.slots, 0))
    memory = usage.memory or (machine_memory() if executor.id == "driver" else executor.memory)
    return Worker(
        id=executor.id,
        address=executor.address,
        slots=slots,
        tasks=usage.tasks,
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
    """Return the names and stack traces of this process's threads."""
    names = {t.ident: t.name for t in threading.enumerate()}
    frames = sys._current_frames()
    return [(names.get(i, str(i)), "".join(traceback.format_stack(frame))) for i, frame in frames.items()]


async def spark_threads(worker: Worker) -> list[tuple[str, str]]:
    """Return the names and stack traces of an executor's Java threads."""
    threads = await asyncio.to_thread(threads_of, worker.id)
    if threads is None:
        raise RequestError(404, f"Executor {worker.id} provides no thread dump.")
    return threads


async def spark_log(worker: Worker, name: str) -> str:
    """Return one of Spark's logs of an executor."""
    if name not in worker.logs:
        raise RequestError(404, f"Worker {worker.id} has no log of that name.")
    try:
        return await asyncio.to_thread(read_log, worker.logs[name])
    except MillstreamError as e:
        raise RequestError(404, str(e)) from None
