"""Moves the job between wheels, each in a venv of its own: python -m tests.upgrade [--older COMMIT ...] [--local]."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .commits import OLDER, ROOT, extract
from .moves import Move, Package

_CACHE = Path.home() / ".cache" / "millstream-upgrade"


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.upgrade", description=__doc__)
    parser.add_argument("--older", nargs="*", default=list(OLDER), help="commits of older versions")
    parser.add_argument("--local", action="store_true", help="without Spark; not all versions can")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millstream-upgrade-") as name:
        newer = _installed("newer", ROOT, Path(name))
        for commit in options.older:
            older = _installed(commit, extract(commit, Path(name) / commit), Path(name))
            for how in ("by_savepoint", "by_checkpoint"):
                for parallelism in (2, 3):
                    began = time.monotonic()
                    with tempfile.TemporaryDirectory(prefix="millstream-upgrade-") as directory:
                        move = Move(Path(directory), older, newer, options=("--local",) if options.local else ())
                        getattr(move, how)(parallelism)
                    text = f"{commit} to this version, {how.replace('_', ' ')}, 2 subtasks to {parallelism}"
                    print(f"{text}: exactly once, {time.monotonic() - began:.0f} s", flush=True)
    return 0


def _installed(name: str, source: Path, scratch: Path) -> Package:
    """Build a wheel of the source and install it, with all that it asks for, into a venv that has nothing else."""
    wheels, folder = scratch / f"{name}-wheel", _CACHE / name
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, *pip, "wheel", "--no-deps", "-w", wheels, source], check=True)
    (wheel,) = wheels.glob("millstream-*.whl")
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    # Versions of this house have no numbers of their own yet: it is the other wheel all the same.
    subprocess.run([python, *pip, "install", wheel], check=True)
    subprocess.run([python, *pip, "install", "--no-deps", "--force-reinstall", wheel], check=True)
    where = "import millstream; print(millstream.__file__)"
    result = subprocess.run([python, "-I", "-c", where], cwd=scratch, capture_output=True, text=True, check=True)
    location = result.stdout
    assert location.startswith(str(folder)), location
    print(f"{name}: {wheel.name} ({wheel.stat().st_size:,} bytes) in {folder}", flush=True)
    return Package(name, python)


if __name__ == "__main__":
    sys.exit(main())
