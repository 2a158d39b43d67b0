"""The directory whose path is in golden files: positions of files and staged output are absolute paths."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORKDIR = Path("/tmp/millstream-golden")


@contextmanager
def locked_workdir(contents: Path | None = None) -> Iterator[Path]:
    """Lock the directory and fill it with these contents; without contents it is empty."""
    # Concurrent test runs on one machine wait for each other.
    with open(f"{WORKDIR}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(WORKDIR, ignore_errors=True)
        try:
            if contents is not None and contents.exists():
                shutil.copytree(contents, WORKDIR)
            else:
                WORKDIR.mkdir()
            yield WORKDIR
        finally:
            shutil.rmtree(WORKDIR, ignore_errors=True)
