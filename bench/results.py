"""Stored results of benchmarks: one JSON file each in bench/results/, with the machine, date, commit and command.

docs/performance.md, its charts and the figures of the README are generated from these files (bench.performance), so
each published figure names the run that measured it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.venvs import existing_venv

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
CORES = len(os.sched_getaffinity(0))
_PACKAGES = {"pyspark": None, "apache-flink": "pyflink", "bytewax": "bytewax"}


def store(name: str, data: Any) -> None:
    """Write the result of one benchmark; an earlier result of the same name is replaced."""
    result = {
        "command": _command(),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": _commit(),
        "machine": _machine(),
        # Of the last minute, so of the benchmark itself; other load shows as more than the number of cores.
        "load": round(os.getloadavg()[0], 1),
        "data": data,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


def stored() -> dict[str, dict[str, Any]]:
    """Return all stored results by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}


def _command() -> str:
    module = sys.modules["__main__"].__spec__
    name = "?" if module is None else module.name
    return " ".join(["python -m", name.removesuffix(".__main__"), *sys.argv[1:]])


def _commit() -> str:
    """Return the commit of the working tree, with a plus sign if src differs from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short=8", "HEAD") + ("+" if git("status", "--porcelain", "src") else "")


def _machine() -> dict[str, Any]:
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'"([^"]+)"', java)
    return {
        "cpu": _cpu(),
        "cores": CORES,
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "os": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": found[1] if found else None,
        "packages": {name: _version(name, peer) for name, peer in _PACKAGES.items()},
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(package: str, peer: str | None) -> str | None:
    """Return the version of a package in this environment or in a peer's; None if it is not installed."""
    if peer is None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None
    python = existing_venv(peer)
    if python is None:
        return None
    program = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
