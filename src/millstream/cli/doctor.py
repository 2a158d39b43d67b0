"""What this machine has of what millstream needs."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata
from typing import TYPE_CHECKING

from millstream import __version__
from millstream.common.configuration import Configuration
from millstream.common.errors import JavaNotFoundError
from millstream.spark.java import find_java

# It brings PySpark.
if TYPE_CHECKING:
    from millstream.spark.examination import Machine

# Clocks that are further apart make processing time and timestamps of the two machines hard to compare.
_SKEW_SECONDS = 1.0


def report() -> tuple[list[str], bool]:
    """Return one line a finding, and whether jobs can run."""
    healthy = True
    lines = [f"millstream  {__version__}", f"Python      {platform.python_version()} ({sys.executable})"]
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        healthy = False
        lines.append("            not supported: use Python 3.11 to 3.13")
    lines.append(f"PySpark     {metadata.version('pyspark')}")
    try:
        java = find_java()
        lines.append(f"Java        {java.version} ({java.path}, from {java.origin})")
    except JavaNotFoundError as e:
        healthy = False
        lines.append(f"Java        {e}")
    lines.append(f"Cores       {len(os.sched_getaffinity(0))}")
    lines.append(f"Memory      {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB")
    directory = tempfile.gettempdir()
    lines.append(f"State       {directory} ({shutil.disk_usage(directory).free / 2**30:.1f} GiB free)")
    lines.append("Ready." if healthy else "Not ready: see above.")
    return lines, healthy


def cluster_report(settings: dict[str, str]) -> tuple[list[str], bool]:
    """Start Spark with settings, ask every machine; return one line a finding, and whether jobs can run there."""
    from millstream.spark.examination import examine

    config = Configuration.from_dict({**settings, "millstream.quiet": "true"})
    driver, machines = examine(config)
    storage = config.get_string("execution.checkpointing.dir", "")
    lines = [_line(driver), *map(_line, sorted(machines, key=lambda machine: machine.name))]
    problems = [problem for machine in machines for problem in found_wrong(driver, machine, storage)]
    if not storage:
        lines.append("Checkpoints no execution.checkpointing.dir is set: nothing was tried")
    elif not problems:
        lines.append(f"Checkpoints {storage} is seen by all")
    return [*lines, *problems, "Not ready: see above." if problems else "Ready."], not problems


def _line(machine: Machine) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items() if version is not None)
    ahead = "" if not machine.clock_ahead else f", clock {machine.clock_ahead:+.1f} s"
    sizes = f"{machine.memory / 2**30:.1f} GiB memory, {machine.free / 2**30:.1f} GiB free for state"
    return f"{machine.name}: Python {machine.python}, {packages}; {sizes}{ahead}"


def found_wrong(driver: Machine, machine: Machine, storage: str) -> list[str]:
    """Return what is wrong with a machine of a cluster, a sentence each, with what to do."""
    wrong = []
    if _minor(machine.python) != _minor(driver.python):
        wrong.append(
            f"has Python {machine.python} and the driver {driver.python}: set spark.pyspark.python to the same."
        )
    for name, version in machine.packages.items():
        own = driver.packages[name]
        if version is None and own is not None and name in ("pyspark", "cloudpickle"):
            wrong.append(f"has no {name}: install it there, or bring it with -pyreq.")
        elif version is not None and own is not None and version != own:
            wrong.append(f"has {name} {version} and the driver {own}: install the same.")
    if machine.millstream != driver.millstream:
        wrong.append(f"has millstream {machine.millstream} and the driver {driver.millstream}: remove it there.")
    if machine.clock_ahead is None:
        wrong.append("does not reach the driver: open the ports between them, or set spark.driver.host.")
    elif abs(machine.clock_ahead) > _SKEW_SECONDS:
        wrong.append(f"has a clock {machine.clock_ahead:+.1f} s from the driver's: synchronise them.")
    if machine.unreachable:
        others = ", ".join(machine.unreachable)
        wrong.append(f"does not reach {others}: open the ports between them, or set millstream.exchange: spark.")
    if machine.storage_problem is not None:
        wrong.append(f"cannot use {storage} ({machine.storage_problem}): name a place that all machines share.")
    return [f"{machine.name} {sentence}" for sentence in wrong]


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
