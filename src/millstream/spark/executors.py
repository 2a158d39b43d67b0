"""Spark's executors: their status, logs and thread dumps."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from millstream.common.errors import MillstreamError

# Maximum bytes of the end of a log, and timeout of reading it.
_MOST_BYTES = 1 << 20
_PATIENCE = 5.0
# Paths of an executor's log on a standalone worker: as a page, and as text.
_PAGE, _TEXT = "/logPage/", "/log/"
# A separator that occurs in no thread's name.
_BETWEEN = "\x01"


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
    found = _items(spark.statusStore().executorList(True))
    those = [_executor(one) for one in found if one.isActive()]
    # The driver counts only if it is the only one.
    return [e for e in those if e.cores > 0] or those


def _spark() -> Any:
    # A process that has not imported PySpark has no Spark.
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    active = None if context is None else context._active_spark_context
    return None if active is None else active._jsc.sc()


def _executor(one: Any) -> Executor:
    return Executor(
        id=str(one.id()),
        address=str(one.hostPort()),
        cores=int(one.totalCores()),
        memory=int(one.maxMemory()),
        used=int(one.memoryUsed()),
        active_tasks=int(one.activeTasks()),
        failed_tasks=int(one.failedTasks()),
        completed_tasks=int(one.completedTasks()),
        started_ms=int(one.addTime().getTime()),
        gc_ms=int(one.totalGCTime()),
        peaks=_peaks(one),
        logs={str(pair.productElement(0)): str(pair.productElement(1)) for pair in _items(one.executorLogs().toSeq())},
    )


def _peaks(one: Any) -> dict[str, int]:
    told = one.peakMemoryMetrics()
    if told.isEmpty():
        return {}
    return {name: int(told.get().getMetricValue(name)) for name in ("JVMHeapMemory", "JVMOffHeapMemory")}


def _items(found: Any) -> list[Any]:
    return [found.apply(i) for i in range(found.length())]


def threads_of(executor_id: str) -> list[tuple[str, str]] | None:
    """Return a thread dump of an executor's JVM, by thread name; None if unavailable."""
    spark = _spark()
    jvm: Any = None if spark is None else sys.modules["pyspark"].SparkContext._jvm
    told = None if spark is None else spark.getExecutorThreadDump(executor_id)
    if told is None or told.isEmpty():
        return None
    # One call: each one to Java is expensive.
    text = str(jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(told.get()).mkString(_BETWEEN))
    return [(_name(one), one) for one in text.split(_BETWEEN)]


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
        raise MillstreamError(f"This log can be read only where it is: {url}")
    asked = url.replace(_PAGE, _TEXT, 1) + f"&byteLength={_MOST_BYTES}"
    try:
        with urllib.request.urlopen(asked, timeout=_PATIENCE) as answer:
            said: bytes = answer.read(2 * _MOST_BYTES)
    except urllib.error.URLError as e:
        raise MillstreamError(f"The log at {url} cannot be read: {e.reason}.") from None
    except OSError as e:
        raise MillstreamError(f"The log at {url} cannot be read: {e}.") from None
    # The first line states the byte range.
    return said.decode(errors="replace").partition("\n")[2]
