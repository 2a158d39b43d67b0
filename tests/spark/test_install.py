"""The wheel, installed into an empty environment and run there.

`make release-check` sets MILLSTREAM_TEST_DIST, the directory of the release's files, and MILLSTREAM_TEST_PYTHONS, the
versions of Python to install the wheel for. Otherwise the wheel is built from the working tree, for this Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.test_programs import readme_blocks
from tests.support.demo_output import check_demo_output
from tests.support.interpreters import interpreter
from tests.support.paths import ROOT

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millstream-test"
DIST = os.environ.get("MILLSTREAM_TEST_DIST")
PYTHONS = os.environ.get("MILLSTREAM_TEST_PYTHONS", "{}.{}".format(*sys.version_info)).split()
# The installation unpacks half a gigabyte; from pip's cache this takes seconds.
pytestmark = pytest.mark.timeout(600)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    # Packages of this process must not be importable in the child.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = ROOT / DIST if DIST else tmp_path_factory.mktemp("wheel")
    if not DIST:
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(params=PYTHONS)
def empty_venv(request: pytest.FixtureRequest) -> Iterator[Path]:
    python = interpreter(request.param)
    assert python is not None, f"There is no Python {request.param}: put python{request.param} into the PATH."
    CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=CACHE))
    run(python, "-m", "venv", directory)
    yield directory / "bin"
    shutil.rmtree(directory)


def test_wheel_contains_only_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        names = files.namelist()
        (metadata,) = [n for n in names if n.endswith(".dist-info/METADATA")]
        assert "## Ten lines" in files.read(metadata).decode()
    tops = {name.partition("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"millstream"}
    packaged = {n for n in names if n.startswith("millstream/")}
    tree = (ROOT / "src" / "millstream").rglob("*")
    files_of_tree = [p for p in tree if p.is_file() and "__pycache__" not in p.parts]
    assert packaged == {str(p.relative_to(ROOT / "src")) for p in files_of_tree}
    assert "millstream/py.typed" in packaged
    others = [n for n in packaged if not n.endswith((".py", "py.typed", "_keys.txt"))]
    # Besides code, the wheel holds only the files of the dashboard and the templates of projects.
    assert all(n.startswith(("millstream/service/page/", "millstream/cli/templates/")) for n in others), others
    assert wheel.stat().st_size < 2_200_000


@pytest.mark.spark
def test_readme_program_runs_with_only_the_wheel_installed(wheel: Path, empty_venv: Path, tmp_path: Path) -> None:
    has_java = shutil.which("java") is not None or "JAVA_HOME" in os.environ
    run(empty_venv / "python", "-m", "pip", "install", "--quiet", f"{wheel}" if has_java else f"{wheel}[java]")
    run(empty_venv / "python", "-m", "pip", "check")
    where = run(empty_venv / "python", "-c", "import millstream; print(millstream.__file__)", cwd=tmp_path)
    assert Path(where).is_relative_to(empty_venv.parent)
    assert run(empty_venv / "millstream", "doctor", cwd=tmp_path).endswith("Ready.\n")
    (tmp_path / "words.py").write_text(readme_blocks()[0])
    assert run(empty_venv / "millstream", "run", "--local", "words.py", cwd=tmp_path) == readme_blocks()[1]
    assert run(empty_venv / "millstream", "run", "words.py", cwd=tmp_path) == readme_blocks()[1]
    # Templates and the demo's program are in the wheel; neither needs anything else.
    run(empty_venv / "millstream", "init", "first", cwd=tmp_path)
    project = tmp_path / "first"
    counts = run(empty_venv / "millstream", "run", "--local", "--config", "config.yaml", "first.py", cwd=project)
    assert "('to', 4)" in counts
    check_demo_output(run(empty_venv / "millstream", "demo", "--local", cwd=tmp_path))
