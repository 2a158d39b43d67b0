"""Spark's task slots: how many there are, expected executors, and cores held by executions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from pyspark import SparkContext

from millstream.spark.pyspark_internals import jvm, scala_context

# Timeout of executors that register or are replaced. If their number is unknown, the registered ones count as all after
# a pause without another.
_REGISTER_SECONDS = 30.0
_SETTLE_SECONDS = 1.0
_POLL_SECONDS = 0.05

# More executors than any cluster has.
_ANY_NUMBER = 1 << 20

_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,.*\]")

# Time of each job's last request for executors.
_requested_at: dict[str, float] = {}
_REQUEST_SECONDS = 10.0

# Tasks that hold slots, by execution of this program.
_held: dict[str, int] = {}


# Slots that a session cluster has allocated, by job of this program.
_allocated: dict[str, int] = {}


def record_allocation(job: str, slots: int) -> None:
    """Record the slots that a session cluster has allocated to a job."""
    _allocated[job] = slots


def hold_cores(execution: str, tasks: int) -> None:
    """Record the cores that an execution holds."""
    _held[execution] = tasks


def release_cores(execution: str) -> None:
    """Record that an execution has released its cores."""
    _held.pop(execution, None)


def executions_that_hold() -> int:
    """Return the number of executions that hold slots, and with them one core each on local Spark."""
    return len(_held)


def is_local(context: SparkContext) -> bool:
    """Return whether tasks run in the driver's own JVM."""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


def may_grow(context: SparkContext) -> bool:
    """Return whether dynamic allocation is enabled."""
    return str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true"


def request_executors(context: SparkContext, cores: int) -> None:
    """Request executors for a total number of cores, if dynamic allocation is enabled.

    Spark itself requests them only for pending tasks, and a job that waits for slots has none. It removes idle ones
    again.
    """
    if may_grow(context):
        executors = min(-(-cores // _slots_each(context)), _max_executors(context))
        scala_context(context).requestTotalExecutors(executors, 0, jvm().PythonUtils.toScalaMap({}))


def max_cores(context: SparkContext) -> int:
    """Return the maximum number of concurrent tasks on all executors that Spark may allocate."""
    return _slots_each(context) * _max_executors(context)


def _slots_each(context: SparkContext) -> int:
    settings = context.getConf()
    return max(1, int(settings.get("spark.executor.cores", "1")) // int(settings.get("spark.task.cpus", "1")))


def _max_executors(context: SparkContext) -> int:
    return int(context.getConf().get("spark.dynamicAllocation.maxExecutors", str(_ANY_NUMBER)))


def free_cores(context: SparkContext, enough: int, is_cancelled: Callable[[], bool] = lambda: False) -> int:
    """Return the number of free task slots.

    Waits for executors that are registering or being replaced: a job that starts on the present ones would stay there.

    Args:
        context: Spark.
        enough: the number of free slots at which the wait ends.
        is_cancelled: returns whether the wait is cancelled.
    """
    expected, started = _expected_executors(context), time.monotonic()
    seen, since = 0, started
    while not is_cancelled():
        slots = min(_task_slots(context), sum(_allocated.values())) if _allocated else _task_slots(context)
        free, executors, now = slots - sum(_held.values()), _executors(context), time.monotonic()
        if executors != seen:
            seen, since = executors, now
        is_all = seen >= expected if expected else seen > 0 and now - since >= _SETTLE_SECONDS
        if free >= enough or is_all or now - started >= _REGISTER_SECONDS:
            return max(0, free)
        time.sleep(_POLL_SECONDS)
    return 0


def slots_of(context: SparkContext, job: str, requested: int) -> int:
    """Return the number of slots for a job: the cores that other jobs do not hold.

    With dynamic allocation, missing executors are requested.
    """
    if is_local(context):
        # Cores of local Spark are only permits; all processes share the processors.
        return int(context.defaultParallelism)
    held = sum(tasks for execution, tasks in _held.items() if not execution.startswith(job))
    free = max(0, _task_slots(context) - held)
    if free < requested and time.monotonic() - _requested_at.get(job, -_REQUEST_SECONDS) >= _REQUEST_SECONDS:
        _requested_at[job] = time.monotonic()
        request_executors(context, requested + held)
    return free


def _expected_executors(context: SparkContext) -> int:
    """Return the expected number of executors; 0 if unknown."""
    match = _LOCAL_CLUSTER.fullmatch(str(context.master))
    return int(match.group(1) if match else context.getConf().get("spark.executor.instances", "0") or 0)


def _executors(context: SparkContext) -> int:
    # The driver is one of them.
    return int(scala_context(context).getExecutorMemoryStatus().size()) - 1


def _task_slots(context: SparkContext) -> int:
    spark = scala_context(context)
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))
