"""Maps Flink's memory options to Spark.

An executor is a task manager: a Spark JVM, and a Python process for each slot. Flink's framework and network memory is
the JVM's heap; the rest of Total Flink Memory is divided equally among the slots. Spark requests heap and "overhead"
from the cluster, which together are the Total Process Memory.
"""

from __future__ import annotations

from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.memory import (
    JobManagerMemory,
    TaskManagerMemory,
    job_manager_memory,
    readable,
    task_manager_memory,
)
from millstream.common.setting import IntegerSetting, at_least

SLOTS = IntegerSetting("taskmanager.numberOfTaskSlots", 1, limit=at_least(1))

_MIB = 1 << 20
# Spark's minimum heap of an executor or driver.
_MIN_HEAP = 480 * _MIB
# An empty slot: Python with a worker's imports.
_MIN_SLOT = 96 * _MIB
# Assumed memory of a slot if no option sets it.
_DEFAULT_SLOT = 1 << 30
# In BATCH, buffered rows take at most this fraction of a slot: joining or sorting them takes several times their size,
# in addition to rows in transit and Python itself.
_WAITING_PART = 4
BATCH_MEMORY = IntegerSetting("millstream.batch.memory", 0, limit=at_least(0))
_TOTALS = ("process.size", "flink.size", "task.heap.size", "managed.size", "heap.size")


@fast_dataclass
class ExecutorMemory:
    """The division of a task manager's memory."""

    parts: TaskManagerMemory
    slots: int
    heap: int
    # Memory of each slot.
    slot: int

    def settings(self) -> dict[str, str]:
        """Return Spark's settings."""
        return {
            "spark.executor.memory": _mib(self.heap),
            "spark.executor.memoryOverhead": _mib(self.parts.process - self.heap),
            "spark.executor.cores": str(self.slots),
        }


@fast_dataclass
class DriverMemory:
    """The division of the job manager's memory."""

    parts: JobManagerMemory
    heap: int

    def settings(self) -> dict[str, str]:
        """Return Spark's settings."""
        return {
            "spark.driver.memory": _mib(self.heap),
            "spark.driver.memoryOverhead": _mib(self.parts.process - self.heap),
        }


def executor_memory(config: Configuration) -> ExecutorMemory | None:
    """Return the division of a task manager's memory; None if no option sets it."""
    if not _is_configured(config, "taskmanager.memory"):
        return None
    parts, slots = task_manager_memory(config), SLOTS.read(config)
    heap = max(parts.framework_heap + parts.framework_off_heap + parts.network, _MIN_HEAP)
    slot = (parts.flink - heap) // slots
    if slot < _MIN_SLOT:
        raise InvalidProgramError(
            f"Of the Total Flink Memory of a task manager ({readable(parts.flink)}) Spark's Java takes "
            f"{readable(heap)}, which leaves {readable(max(0, slot))} for each of {slots} slots; a slot needs "
            f"{readable(_MIN_SLOT)}. Raise taskmanager.memory.process.size, or lower taskmanager.numberOfTaskSlots."
        )
    return ExecutorMemory(parts, slots, heap, slot)


def batch_memory(config: Configuration) -> int:
    """Return how many bytes of rows the operators of a slot buffer in BATCH before they spill."""
    if BATCH_MEMORY.is_set(config):
        return BATCH_MEMORY.read(config)
    memory = executor_memory(config)
    if memory is None:
        return _DEFAULT_SLOT // _WAITING_PART
    return min(memory.parts.managed // memory.slots, memory.slot // _WAITING_PART)


def driver_memory(config: Configuration) -> DriverMemory | None:
    """Return the division of the job manager's memory; None if no option sets it."""
    if not _is_configured(config, "jobmanager.memory"):
        return None
    parts = job_manager_memory(config)
    heap = max(parts.heap, _MIN_HEAP)
    if heap > parts.process:
        raise InvalidProgramError(
            f"The job manager's Total Process Memory ({readable(parts.process)}) is less than the heap that Spark "
            f"needs ({readable(_MIN_HEAP)}): raise jobmanager.memory.process.size."
        )
    return DriverMemory(parts, heap)


def spark_settings(config: Configuration) -> dict[str, str]:
    """Return Spark's settings for Flink's memory options."""
    parts = [memory.settings() for memory in (executor_memory(config), driver_memory(config)) if memory is not None]
    settings = {key: value for part in parts for key, value in part.items()}
    if SLOTS.is_set(config):
        settings["spark.executor.cores"] = str(SLOTS.read(config))
    return settings


def _is_configured(config: Configuration, prefix: str) -> bool:
    return any(config.contains_key(f"{prefix}.{name}") for name in _TOTALS)


def _mib(size: int) -> str:
    return f"{size // _MIB}m"
