"""What this machine has of what millstream needs."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from importlib import metadata

from millstream import __version__
from millstream.common.errors import JavaNotFoundError
from millstream.spark.java import find_java


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
