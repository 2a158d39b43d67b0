"""Interpreters of this machine, by their versions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def interpreter(version: str) -> Path | None:
    """Return an interpreter of a version such as "3.12": this one, or from the PATH or pyenv."""
    return next((path for path in _candidates(version) if _version(path) == version), None)


def _candidates(version: str) -> Iterator[Path]:
    yield Path(sys.executable)
    found = shutil.which(f"python{version}")
    if found:
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/{version}.*/bin/python"))


def _version(path: Path) -> str | None:
    """Return the version of an interpreter; a shim of pyenv may have none."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([str(path), "-I", "-c", program], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
