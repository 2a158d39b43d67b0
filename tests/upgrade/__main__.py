"""Upgrades the job between wheels, each in its own venv: python -m tests.upgrade [--older COMMIT ...] [--local]."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .commits import OLDER, ROOT, extract
from .upgrades import Package, Upgrade

_CACHE = Path.home() / ".cache" / "millstream-upgrade"


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.upgrade", description=__doc__)
    parser.add_argument("--older", nargs="*", default=list(OLDER), help="commits of older versions")
    parser.add_argument("--local", action="store_true", help="without Spark; not supported by all versions")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="millstream-upgrade-") as name:
        newer = _installed("newer", ROOT, Path(name))
        for commit in options.older:
            older = _installed(commit, extract(commit, Path(name) / commit), Path(name))
            for method in ("by_savepoint", "by_checkpoint"):
                for parallelism in (2, 3):
                    began = time.monotonic()
                    with tempfile.TemporaryDirectory(prefix="millstream-upgrade-") as directory:
                        upgrade = Upgrade(Path(directory), older, newer, ("--local",) if options.local else ())
                        getattr(upgrade, method)(parallelism)
                    text = f"{commit} to this version, {method.replace('_', ' ')}, 2 subtasks to {parallelism}"
                    print(f"{text}: exactly once, {time.monotonic() - began:.0f} s", flush=True)
    return 0


def _installed(name: str, source: Path, temporary: Path) -> Package:
    """Build a wheel of the source and install it with its dependencies into a venv of its own."""
    wheels, folder = temporary / f"{name}-wheel", _CACHE / name
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, *pip, "wheel", "--no-deps", "-w", wheels, source], check=True)
    (wheel,) = wheels.glob("millstream-*.whl")
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(folder / "bin" / "python")
    # All versions have the same version number so far, so the wheel is reinstalled in any case.
    subprocess.run([python, *pip, "install", wheel], check=True)
    subprocess.run([python, *pip, "install", "--no-deps", "--force-reinstall", wheel], check=True)
    program = "import millstream; print(millstream.__file__)"
    result = subprocess.run([python, "-I", "-c", program], cwd=temporary, capture_output=True, text=True, check=True)
    location = result.stdout
    assert location.startswith(str(folder)), location
    print(f"{name}: {wheel.name} ({wheel.stat().st_size:,} bytes) in {folder}", flush=True)
    return Package(name, python)


if __name__ == "__main__":
    sys.exit(main())
