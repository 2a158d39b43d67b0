"""`millstream info --memory`: the memory model of the options, and Spark's settings for it."""

from __future__ import annotations

from millstream.cli.output import table
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.display_text import in_bytes
from millstream.common.memory import JobManagerMemory, TaskManagerMemory
from millstream.common.memory_on_spark import driver_memory, executor_memory, spark_settings

_NOTHING = (
    "No memory option is set, so Spark's defaults apply (spark.driver.memory, spark.executor.memory): set "
    "taskmanager.memory.process.size and jobmanager.memory.process.size, for example with -D."
)


def facts(config: Configuration) -> dict[str, Json]:
    """Return the memory model as values, in bytes."""
    executor, driver = executor_memory(config), driver_memory(config)
    return {
        "taskmanager": None if executor is None else _named(_task_manager(executor.parts)) | {"slot": executor.slot},
        "slots": None if executor is None else executor.slots,
        "jobmanager": None if driver is None else _named(_job_manager(driver.parts)),
        "spark": dict(sorted(spark_settings(config).items())),
    }


def _named(rows: list[tuple[str, int]]) -> dict[str, int]:
    return {name.strip().lower().replace(" ", "-"): size for name, size in rows}


def report(config: Configuration) -> str:
    """Return the memory model as tables."""
    executor, driver = executor_memory(config), driver_memory(config)
    if executor is None and driver is None:
        return _NOTHING
    parts: list[str] = []
    if executor is not None:
        parts.append(_table("TASK MANAGER", [*_task_manager(executor.parts), ("each of its slots", executor.slot)]))
        parts.append(f"slots: {executor.slots}")
    if driver is not None:
        parts.append(_table("JOB MANAGER", _job_manager(driver.parts)))
    settings = sorted(spark_settings(config).items())
    return "\n\n".join([*parts, table(["SPARK", "VALUE"], [list(s) for s in settings])])


def _table(title: str, rows: list[tuple[str, int]]) -> str:
    return table([title, "SIZE"], [[name, in_bytes(size)] for name, size in rows], right=["SIZE"])


def _task_manager(m: TaskManagerMemory) -> list[tuple[str, int]]:
    return [
        ("Total Process Memory", m.process),
        ("  Total Flink Memory", m.flink),
        ("    Framework Heap", m.framework_heap),
        ("    Framework Off-Heap", m.framework_off_heap),
        ("    Task Heap", m.task_heap),
        ("    Task Off-Heap", m.task_off_heap),
        ("    Network", m.network),
        ("    Managed", m.managed),
        ("  JVM Metaspace", m.java.metaspace),
        ("  JVM Overhead", m.java.overhead),
    ]


def _job_manager(m: JobManagerMemory) -> list[tuple[str, int]]:
    return [
        ("Total Process Memory", m.process),
        ("  Total Flink Memory", m.flink),
        ("    JVM Heap", m.heap),
        ("    JVM Off-Heap", m.off_heap),
        ("  JVM Metaspace", m.java.metaspace),
        ("  JVM Overhead", m.java.overhead),
    ]
