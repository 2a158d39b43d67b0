"""Older versions, taken from the repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# While there is no release: the first commit of format 3.
FIRST = "446f18bd"
OLDER = (FIRST,)


def is_there(commit: str) -> bool:
    """Tell whether the repository has it: a shallow clone has no history."""
    asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(asked, capture_output=True).returncode == 0


def extract(commit: str, into: Path) -> Path:
    """Put the files of a commit somewhere; return where."""
    if not is_there(commit):
        raise SystemExit(f"There is no commit {commit} here: fetch the whole history (git fetch --unshallow).")
    into.mkdir(parents=True)
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True)
    subprocess.run(["tar", "x", "-C", str(into)], input=packed.stdout, check=True)
    return into
