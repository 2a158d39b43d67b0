"""What this machine has of what millstream needs."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata
from typing import Any

from millstream import __version__
from millstream.common.errors import JavaNotFoundError
from millstream.spark.java import find_java


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
