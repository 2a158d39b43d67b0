"""Spark's executors: their status, logs and thread dumps."""

from __future__ import annotations

import urllib.error
import urllib.request
from dataclasses import dataclass, field

from millstream.common.aliases import JavaObject
from millstream.common.errors import MillstreamError
from millstream.spark.pyspark_internals import active_context, jvm, scala_context

# Maximum bytes of the end of a log, and timeout of reading it.
_MAX_BYTES = 1 << 20
_TIMEOUT_SECONDS = 5.0
# Paths of an executor's log on a standalone worker: as a page, and as text.
_PAGE, _TEXT = "/logPage/", "/log/"
# A separator that occurs in no thread's name.
_SEPARATOR = "\x01"


@dataclass(frozen=True, kw_only=True)
class Executor:
    """One of Spark's executors.

    Attributes:
        id: Spark's id; `driver` for local Spark.
        address: host and port.
        memory: bytes of Spark's storage memory, of which `used` are in use.
        started_ms: when it registered.
        gc_ms: total garbage collection time of its JVM.
        logs: addresses of its logs, by name.
    """

    id: str
    address: str
    cores: int
    memory: int
    used: int
    active_tasks: int
    failed_tasks: int
    completed_tasks: int
    started_ms: int
    gc_ms: int
    peaks: dict[str, int] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)


def executors() -> list[Executor]:
    """Return the executors of this process's Spark; none if it has no Spark."""
    spark = _spark()
    if spark is None:
        return []
    items = _items(spark.statusStore().executorList(True))
    active = [_executor(one) for one in items if one.isActive()]
    # The driver counts only if it is the only one.
    return [e for e in active if e.cores > 0] or active


def _spark() -> JavaObject:
    context = active_context()
    return None if context is None else scala_context(context)


def _executor(executor: JavaObject) -> Executor:
    return Executor(
        id=str(executor.id()),
        address=str(executor.hostPort()),
        cores=int(executor.totalCores()),
        memory=int(executor.maxMemory()),
        used=int(executor.memoryUsed()),
        active_tasks=int(executor.activeTasks()),
        failed_tasks=int(executor.failedTasks()),
        completed_tasks=int(executor.completedTasks()),
        started_ms=int(executor.addTime().getTime()),
        gc_ms=int(executor.totalGCTime()),
        peaks=_peaks(executor),
        logs={
            str(pair.productElement(0)): str(pair.productElement(1)) for pair in _items(executor.executorLogs().toSeq())
        },
    )


def _peaks(executor: JavaObject) -> dict[str, int]:
    metrics = executor.peakMemoryMetrics()
    if metrics.isEmpty():
        return {}
    return {name: int(metrics.get().getMetricValue(name)) for name in ("JVMHeapMemory", "JVMOffHeapMemory")}


def _items(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(i) for i in range(sequence.length())]


def threads_of(executor_id: str) -> list[tuple[str, str]] | None:
    """Return a thread dump of an executor's JVM, by thread name; None if unavailable."""
    spark = _spark()
    dump = None if spark is None else spark.getExecutorThreadDump(executor_id)
    if dump is None or dump.isEmpty():
        return None
    # One call: each one to Java is expensive.
    text = str(jvm().scala.collection.immutable.ArraySeq.unsafeWrapArray(dump.get()).mkString(_SEPARATOR))
    return [(_name(thread), thread) for thread in text.split(_SEPARATOR)]


def _name(thread: str) -> str:
    """Return a thread's name from the start of its dump.

    Example:
        >>> _name('"main" prio=5 Id=1 RUNNABLE')
        'main'
    """
    return thread.partition('" ')[0].removeprefix('"')


def read_log(url: str) -> str:
    """Return the end of a log that a standalone worker serves."""
    if _PAGE not in url:
        raise MillstreamError(f"This log can be read only at {url}.")
    text_url = url.replace(_PAGE, _TEXT, 1) + f"&byteLength={_MAX_BYTES}"
    try:
        with urllib.request.urlopen(text_url, timeout=_TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read(2 * _MAX_BYTES)
    except urllib.error.URLError as e:
        raise MillstreamError(f"The log at {url} cannot be read: {e.reason}.") from None
    except OSError as e:
        raise MillstreamError(f"The log at {url} cannot be read: {e}.") from None
    # The first line states the byte range.
    return content.decode(errors="replace").partition("\n")[2]
