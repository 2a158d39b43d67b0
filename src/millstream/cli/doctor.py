"""`millstream doctor`: checks this machine, or each machine of a cluster."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from dataclasses import asdict
from importlib import metadata
from typing import TYPE_CHECKING

from millstream import __version__
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.common.errors import NO_SPARK, JavaNotFoundError
from millstream.operating_system import system
from millstream.spark.java import find_java

# It imports PySpark.
if TYPE_CHECKING:
    from millstream.spark.cluster_probe import Machine


def facts() -> dict[str, Json]:
    """Return the findings by name, and whether jobs can run."""
    problems = []
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        problems.append(f"Python {platform.python_version()} is not supported: use Python 3.11 to 3.13")
    java: dict[str, str] | None = None
    try:
        runtime = find_java()
        java = {"version": str(runtime.version), "path": str(runtime.path), "origin": str(runtime.origin)}
    except JavaNotFoundError as e:
        problems.append(str(e))
    pyspark = None
    try:
        pyspark = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        problems.append(NO_SPARK)
    directory = tempfile.gettempdir()
    return {
        "millstream": __version__,
        "python": {"version": platform.python_version(), "path": sys.executable},
        "pyspark": pyspark,
        "java": java,
        "cores": system.cores(),
        "memory": system.physical_memory(),
        "state": {"directory": directory, "free": shutil.disk_usage(directory).free},
        "problems": problems,
        "ready": not problems,
    }


def report(findings: dict[str, Json]) -> list[str]:
    """Return one line per finding."""
    java = findings["java"]
    return [
        f"millstream  {findings['millstream']}",
        f"Python      {findings['python']['version']} ({findings['python']['path']})",
        *([] if findings["pyspark"] is None else [f"PySpark     {findings['pyspark']}"]),
        *([] if java is None else [f"Java        {java['version']} ({java['path']}, from {java['origin']})"]),
        f"Cores       {findings['cores']}",
        f"Memory      {findings['memory'] / 2**30:.1f} GiB",
        f"State       {findings['state']['directory']} ({findings['state']['free'] / 2**30:.1f} GiB free)",
        *(f"Problem     {problem}" for problem in findings["problems"]),
        "Ready." if findings["ready"] else "Not ready: see above.",
    ]


# A larger clock skew makes processing time and timestamps of machines hard to compare.
_SKEW_SECONDS = 1.0


def cluster_facts(settings: dict[str, str]) -> dict[str, Json]:
    """Start Spark and probe each machine; return the findings, and whether jobs can run."""
    # A lazy import: it imports PySpark.
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


def cluster_report(findings: dict[str, Json]) -> list[str]:
    """Return one line per finding."""
    outcome = "is accessible to all" if findings["ready"] else "is the configured directory"
    directory = findings["checkpoints"]
    storage = "not checked, execution.checkpointing.dir is not set"
    return [
        *map(_line, [findings["driver"], *findings["machines"]]),
        f"Checkpoints: {storage if directory is None else f'{directory} {outcome}'}",
        *(f"Problem: {problem}" for problem in findings["problems"]),
        "Ready." if findings["ready"] else "Not ready: see above.",
    ]


def _line(machine: dict[str, Json]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version is not None)
    ahead = "" if not machine["clock_ahead"] else f", clock {machine['clock_ahead']:+.1f} s"
    sizes = f"{machine['memory'] / 2**30:.1f} GiB memory, {machine['free'] / 2**30:.1f} GiB free for state"
    return f"{machine['name']}: Python {machine['python']}, {packages}; {sizes}{ahead}"


def problems_of(driver: Machine, machine: Machine, storage: str) -> list[str]:
    """Return the problems of a machine of a cluster, each with its fix."""
    problems = []
    if _minor(machine.python) != _minor(driver.python):
        problems.append(
            f"has Python {machine.python} and the driver {driver.python}: set spark.pyspark.python to the same version."
        )
    for name, version in machine.packages.items():
        own = driver.packages[name]
        if version is None and own is not None and name in ("pyspark", "cloudpickle"):
            problems.append(f"has no {name}: install it there, or ship it with -pyreq.")
        elif version is not None and own is not None and version != own:
            problems.append(f"has {name} {version} and the driver {own}: install the same version.")
    if machine.millstream != driver.millstream:
        problems.append(f"has millstream {machine.millstream} and the driver {driver.millstream}: remove it there.")
    if machine.clock_ahead is None:
        problems.append("cannot reach the driver: open the ports between them, or set spark.driver.host.")
    elif abs(machine.clock_ahead) > _SKEW_SECONDS:
        problems.append(f"has a clock {machine.clock_ahead:+.1f} s from the driver's: synchronise the clocks.")
    if machine.unreachable:
        others = ", ".join(machine.unreachable)
        problems.append(f"cannot reach {others}: open the ports between them, or set millstream.exchange: spark.")
    if machine.storage_problem is not None:
        problems.append(f"cannot use {storage} ({machine.storage_problem}): configure a shared directory.")
    return [f"{machine.name} {sentence}" for sentence in problems]


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
