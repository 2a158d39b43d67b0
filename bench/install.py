"""Installation and first result: the package's wheel, its dependencies and the duration, compared with PyFlink.

Creates an empty venv, runs `pip install` and a word count until its first line. Does so twice; the second run counts,
since pip's cache is warm by then. Prints a table, then JSON.

    python -m bench.install [--without pyflink]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYFLINK = "apache-flink==2.3.0"
# The contents of an empty venv.
EMPTY_VENV = ("pip", "setuptools", "_distutils_hack", "pkg_resources", "distutils-precedence")

PROGRAM = """
from {package}.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
lines = env.from_collection(["to be or not to be", "that is the question"])
words = lines.flat_map(lambda line: [(word, 1) for word in line.split()])
words.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).print()
env.execute("word count")
"""


def clean_environment(binaries: Path) -> dict[str, str]:
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    return {**variables, "PATH": f"{binaries}{os.pathsep}{variables['PATH']}"}


def own_wheel(requirement: str, directory: Path) -> Path:
    """Download or build the wheel of the package itself."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), requirement]
    subprocess.run(command, check=True)
    (wheel,) = directory.glob("*.whl")
    return wheel


def first_result(python: Path, package: str, directory: Path) -> tuple[str, float]:
    """Run the word count; return its first line of output and the time of that line."""
    program = directory / "words.py"
    program.write_text(PROGRAM.format(package=package))
    process = subprocess.Popen(
        [str(python), str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        env=clean_environment(python.parent),
    )
    assert process.stdout is not None
    line, when = process.stdout.readline().strip(), time.monotonic()
    errors = process.communicate()[1]
    if not line or process.returncode != 0:
        raise RuntimeError(f"{package}'s word count failed:\n{errors[-2000:]}")
    return line, when


def measure(package: str, wheel: Path) -> dict[str, Any]:
    """Install into an empty venv, run the word count, and measure the venv."""
    directory = Path(tempfile.mkdtemp(prefix=f"bench-install-{package}-"))
    try:
        venv.create(directory / "venv", with_pip=True)
        python = directory / "venv" / "bin" / "python"
        started = time.monotonic()
        install = [str(python), "-m", "pip", "install", "--quiet", str(wheel)]
        subprocess.run(install, check=True, env=clean_environment(python.parent))
        installed = time.monotonic()
        line, answered = first_result(python, package, directory)
        (packages,) = (directory / "venv" / "lib").glob("python*/site-packages")
        mine = [p for p in packages.iterdir() if not p.name.startswith(EMPTY_VENV)]
        files = [f for p in mine for f in ([p] if p.is_file() else p.rglob("*")) if f.is_file() and not f.is_symlink()]
        return {
            "wheel_bytes": wheel.stat().st_size,
            "packages": sum(p.name.endswith(".dist-info") for p in mine),
            "disk_bytes": sum(f.stat().st_size for f in files),
            "install_seconds": round(installed - started, 1),
            "first_result_seconds": round(answered - started, 1),
            "first_result": line,
        }
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without", default="")
    systems = {"millstream": str(ROOT), "pyflink": PYFLINK}
    without = parser.parse_args().without.split(",")
    results = {}
    for package, requirement in systems.items():
        if package in without:
            continue
        with tempfile.TemporaryDirectory() as directory:
            wheel = own_wheel(requirement, Path(directory))
            measure(package, wheel)
            results[package] = measure(package, wheel)
        print(package, results[package], flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
