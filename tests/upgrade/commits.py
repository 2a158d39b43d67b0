"""Older versions, taken from the repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Before the first release: the first commit of format 3.
FIRST = "446f18bd"
OLDER = (FIRST,)


def exists(commit: str) -> bool:
    """Return whether the repository has a commit: a shallow clone has no history."""
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(command, capture_output=True).returncode == 0


def extract(commit: str, target: Path) -> Path:
    """Extract the files of a commit into a directory, and return it."""
    if not exists(commit):
        raise SystemExit(f"There is no commit {commit} here: fetch the whole history (git fetch --unshallow).")
    target.mkdir(parents=True)
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True)
    subprocess.run(["tar", "x", "-C", str(target)], input=packed.stdout, check=True)
    return target
