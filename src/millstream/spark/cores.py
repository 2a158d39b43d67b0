"""How many tasks Spark can run at once, which executors are still to come, and which cores executions hold."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

# How long executors may take to register, or to be replaced; and where their number is not known, how long none may
# have come until those that are there count as all.
_REGISTER_SECONDS = 30.0
_SETTLE_SECONDS = 1.0
_POLL_SECONDS = 0.05

# More executors than any cluster has.
_ANY_NUMBER = 1 << 20

_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,.*\]")

# When each job has asked for executors; it does so again after a while.
_asked: dict[str, float] = {}
_ASK_SECONDS = 10.0

# The executions of this program that hold slots, and how many tasks each has for that.
_held: dict[str, int] = {}


# How many slots a cluster has allotted to the jobs of this program, by job; others are not theirs.
_allotted: dict[str, int] = {}


def allot(job: str, slots: int) -> None:
    """Note that a job has so many slots of a cluster's."""
    _allotted[job] = slots


def hold(execution: str, tasks: int) -> None:
    """Note that an execution holds so many cores."""
    _held[execution] = tasks


def let_go(execution: str) -> None:
    """Note that an execution holds no cores any more."""
    _held.pop(execution, None)


def executions_that_hold() -> int:
    """Return how many executions hold slots, and with them a core each on a local Spark."""
    return len(_held)


def is_local(context: SparkContext) -> bool:
    """Return whether tasks run on this machine, in the driver's own Java."""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


def may_grow(context: SparkContext) -> bool:
    """Return whether Spark takes executors away that have nothing to do, and asks for others."""
    return str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true"


def ask_for(context: SparkContext, cores: int) -> None:
    """Have Spark bring executors with so many cores in all, where it brings as many as it is asked for.

    By itself it brings them for tasks that wait; a job that waits for slots has none. Those that nobody uses it takes
    away again.
    """
    if may_grow(context):
        executors = min(-(-cores // _slots_each(context)), _most_executors(context))
        jvm: Any = context._jvm
        _java(context).requestTotalExecutors(executors, 0, jvm.PythonUtils.toScalaMap({}))


def most_cores(context: SparkContext) -> int:
    """Return how many tasks could run at once on all executors that Spark may bring."""
    return _slots_each(context) * _most_executors(context)


def _slots_each(context: SparkContext) -> int:
    settings = context.getConf()
    return max(1, int(settings.get("spark.executor.cores", "1")) // int(settings.get("spark.task.cpus", "1")))


def _most_executors(context: SparkContext) -> int:
    return int(context.getConf().get("spark.dynamicAllocation.maxExecutors", str(_ANY_NUMBER)))


def free_cores(context: SparkContext, wanted: int, is_off: Callable[[], bool] = lambda: False) -> int:
    """Return how many tasks could run beside those that hold slots.

    Executors that are registering, or are being replaced, are waited for: a job that is dealt out over those that
    happen to be there would stay there.

    Args:
        context: Spark.
        wanted: so many are enough.
        is_off: tells whether nobody wants to know any more.
    """
    expected, started = _expected_executors(context), time.monotonic()
    seen, since = 0, started
    while not is_off():
        slots = min(_task_slots(context), sum(_allotted.values())) if _allotted else _task_slots(context)
        free, executors, now = slots - sum(_held.values()), _executors(context), time.monotonic()
        if executors != seen:
            seen, since = executors, now
        is_all = seen >= expected if expected else seen > 0 and now - since >= _SETTLE_SECONDS
        if free >= wanted or is_all or now - started >= _REGISTER_SECONDS:
            return max(0, free)
        time.sleep(_POLL_SECONDS)
    return 0


def slots_of(context: SparkContext, job: str, wanted: int) -> int:
    """Return how many slots there are for a job: the cores that others do not hold.

    Where Spark brings executors that are asked for, and there are fewer than are wanted, it is asked.
    """
    if is_local(context):
        # There are more permits than processors, and all processes have the same of these.
        return int(context.defaultParallelism)
    held = sum(tasks for execution, tasks in _held.items() if not execution.startswith(job))
    found = max(0, _task_slots(context) - held)
    if found < wanted and time.monotonic() - _asked.get(job, -_ASK_SECONDS) >= _ASK_SECONDS:
        _asked[job] = time.monotonic()
        ask_for(context, wanted + held)
    return found


def _expected_executors(context: SparkContext) -> int:
    """Return how many executors there will be; 0 if that is not known."""
    found = _LOCAL_CLUSTER.fullmatch(str(context.master))
    return int(found.group(1) if found else context.getConf().get("spark.executor.instances", "0") or 0)


def _executors(context: SparkContext) -> int:
    # The driver is one of them.
    return int(_java(context).getExecutorMemoryStatus().size()) - 1


def _task_slots(context: SparkContext) -> int:
    spark = _java(context)
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))


def _java(context: SparkContext) -> Any:
    return context._jsc.sc()
