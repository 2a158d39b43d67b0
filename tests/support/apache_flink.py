"""Locates an installed apache-flink, for tests that compare with it."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from shutil import which

import pytest
from bench.venvs import CACHE, existing_venv, venv

FLINK = "2.3.0"
SKIP_REASON = "apache-flink is not installed: `make test-pyflink` (or MILLSTREAM_PYFLINK=1) installs it into a venv"


@cache
def flink_python() -> Path | None:
    """Return an interpreter with apache-flink; its venv is created only if the environment requests it."""
    return venv("pyflink") if os.environ.get("MILLSTREAM_PYFLINK") == "1" else existing_venv("pyflink")


@cache
def flink_folder() -> Path | None:
    """Return the folder of the package `pyflink`."""
    python = flink_python()
    if python is None:
        return None
    code = "import importlib.util as u; print(u.find_spec('pyflink').origin)"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()).parent


@cache
def flink_jar(artifact: str) -> Path | None:
    """Return a Flink jar that is not in the package; Maven fetches it only if the environment requests it."""
    jar = CACHE / "jars" / f"{artifact}-{FLINK}.jar"
    if not jar.exists() and os.environ.get("MILLSTREAM_PYFLINK") == "1" and which("mvn"):
        options = [f"-Dartifact=org.apache.flink:{artifact}:{FLINK}", f"-DoutputDirectory={jar.parent}"]
        subprocess.run(["mvn", "-q", "dependency:copy", *options], check=True, timeout=300)
    return jar if jar.exists() else None


needs_flink = pytest.mark.skipif("flink_python() is None", reason=SKIP_REASON)
