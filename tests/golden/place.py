"""The directory whose path is in golden files: positions of files and staged output are absolute paths."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PLACE = Path("/tmp/millstream-golden")


@contextmanager
def placed(contents: Path | None = None) -> Iterator[Path]:
    """Have the directory to ourselves for a while, with these contents or with none."""
    # Two runs of the tests on one machine take turns.
    with open(f"{PLACE}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        try:
            if contents is not None and contents.exists():
                shutil.copytree(contents, PLACE)
            else:
                PLACE.mkdir()
            yield PLACE
        finally:
            shutil.rmtree(PLACE, ignore_errors=True)
