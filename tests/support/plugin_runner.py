"""Runs pytest on a sample file, in a process that loads the plugin as a user's does."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import millstream
from tests.support.paths import ROOT

PROJECT = ROOT


def run_pytest(folder: Path, sources: list[str], *arguments: str) -> str:
    """Run pytest on test files, with millstream as an installed package; return its output."""
    for number, source in enumerate(sources):
        (folder / f"test_sample_{number}.py").write_text(source)
    about = folder / "site" / "millstream_sample-1.dist-info"
    about.mkdir(parents=True)
    about.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: millstream-sample\nVersion: 1\n")
    points = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    about.joinpath("entry_points.txt").write_text("[pytest11]\n" + "\n".join(f"{k} = {v}" for k, v in points.items()))
    path = os.pathsep.join([str(about.parent), str(Path(millstream.__file__).parents[1])])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *arguments, str(folder)]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
