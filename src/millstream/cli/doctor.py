"""`millstream doctor`: what this machine, or each machine of a cluster, has, and what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING, Any

from millstream import __version__
from millstream.common.configuration import Configuration
from millstream.common.errors import JavaNotFoundError
from millstream.spark.java import find_java

# It brings PySpark.
if TYPE_CHECKING:
    from millstream.spark.cluster_probe import Machine


def facts() -> dict[str, Any]:
    """Return what there is, by name, and whether jobs can run."""
    problems = []
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        problems.append(f"Python {platform.python_version()} is not supported: use Python 3.11 to 3.13")
    java: dict[str, str] | None = None
    try:
        found = find_java()
        java = {"version": str(found.version), "path": str(found.path), "origin": str(found.origin)}
    except JavaNotFoundError as e:
        problems.append(str(e))
    directory = tempfile.gettempdir()
    return {
        "millstream": __version__,
        "python": {"version": platform.python_version(), "path": sys.executable},
        "pyspark": metadata.version("pyspark"),
        "java": java,
        "cores": len(os.sched_getaffinity(0)),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "state": {"directory": directory, "free": shutil.disk_usage(directory).free},
        "problems": problems,
        "ready": not problems,
    }


def report(found: dict[str, Any]) -> list[str]:
    """Return one line a finding."""
    java = found["java"]
    return [
        f"millstream  {found['millstream']}",
        f"Python      {found['python']['version']} ({found['python']['path']})",
        f"PySpark     {found['pyspark']}",
        *([] if java is None else [f"Java        {java['version']} ({java['path']}, from {java['origin']})"]),
        f"Cores       {found['cores']}",
        f"Memory      {found['memory'] / 2**30:.1f} GiB",
        f"State       {found['state']['directory']} ({found['state']['free'] / 2**30:.1f} GiB free)",
        *(f"Problem     {problem}" for problem in found["problems"]),
        "Ready." if found["ready"] else "Not ready: see above.",
    ]


# Clocks that are further apart make processing time and timestamps of the two machines hard to compare.
_SKEW_SECONDS = 1.0


def cluster_facts(settings: dict[str, str]) -> dict[str, Any]:
    """Start Spark with settings and ask every machine; return what there is, and whether jobs can run there."""
    from millstream.spark.cluster_probe import examine

    config = Configuration.from_dict({**settings, "millstream.quiet": "true"})
    driver, machines = examine(config)
    storage = config.get_string("execution.checkpointing.dir", "")
    problems = [problem for machine in machines for problem in problems_of(driver, machine, storage)]
    return {
        "driver": asdict(driver),
        "machines": [asdict(machine) for machine in sorted(machines, key=lambda machine: machine.name)],
        "checkpoints": storage or None,
        "problems": problems,
        "ready": not problems,
    }


def cluster_report(found: dict[str, Any]) -> list[str]:
    """Return one line a finding."""
    seen = "is seen by all" if found["ready"] else "is where they are to be"
    place = found["checkpoints"]
    storage = "no execution.checkpointing.dir is set: nothing was tried"
    return [
        *map(_line, [found["driver"], *found["machines"]]),
        f"Checkpoints: {storage if place is None else f'{place} {seen}'}",
        *(f"Problem: {problem}" for problem in found["problems"]),
        "Ready." if found["ready"] else "Not ready: see above.",
    ]


def _line(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version is not None)
    ahead = "" if not machine["clock_ahead"] else f", clock {machine['clock_ahead']:+.1f} s"
    sizes = f"{machine['memory'] / 2**30:.1f} GiB memory, {machine['free'] / 2**30:.1f} GiB free for state"
    return f"{machine['name']}: Python {machine['python']}, {packages}; {sizes}{ahead}"


def problems_of(driver: Machine, machine: Machine, storage: str) -> list[str]:
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
