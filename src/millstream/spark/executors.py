"""Spark's executors: which there are, what they have logged, what their threads do."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from millstream.common.errors import MillstreamError

# So much of the end of a log is read, and so long may its machine take to send it.
_MOST_BYTES = 1 << 20
_PATIENCE = 5.0
# Where the workers of a Spark cluster show an executor's log as a page, and where as text.
_PAGE, _TEXT = "/logPage/", "/log/"
# What stands in no thread's name.
_BETWEEN = "\x01"


@dataclass(frozen=True, kw_only=True)
class Executor:
    """One of Spark's executors.

    Attributes:
        id: Spark's; `driver` for the one of a Spark on this machine.
        address: host and port.
        memory: how many bytes it has for what Spark stores, of which `used` are in use.
        started_ms: when it came.
        gc_ms: how long its Java has collected garbage.
        logs: where its logs are, by name.
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
    # Where there are others, the driver is none.
    return [e for e in those if e.cores > 0] or those


def _spark() -> Any:
    # Who has not imported it has none.
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
    """Return what the threads of an executor's Java do, by name; None if it does not tell."""
    spark = _spark()
    jvm: Any = None if spark is None else sys.modules["pyspark"].SparkContext._jvm
    told = None if spark is None else spark.getExecutorThreadDump(executor_id)
    if told is None or told.isEmpty():
        return None
    # All at once: each word with Java costs.
    text = str(jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(told.get()).mkString(_BETWEEN))
    return [(_name(one), one) for one in text.split(_BETWEEN)]


def _name(thread: str) -> str:
    """Return the name of a thread, with which what it does begins.

    Example:
        >>> _name('"main" prio=5 Id=1 RUNNABLE')
        'main'
    """
    return thread.partition('" ')[0].removeprefix('"')


def read_log(url: str) -> str:
    """Return the end of a log that a worker of a Spark cluster serves."""
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
    # Its first line says which bytes these are.
    return said.decode(errors="replace").partition("\n")[2]
