"""The dependencies of a program are available in its workers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.common.errors import InvalidProgramError
from millstream.datastream import DataStream, StreamExecutionEnvironment

Env = StreamExecutionEnvironment
Collect = Callable[[DataStream], list[Any]]
pytestmark = pytest.mark.spark


def twice(module: str) -> Callable[[int], int]:
    def call(value: int) -> int:
        import importlib

        result: int = importlib.import_module(module).twice(value)
        return result

    return call


def code(factor: int = 2) -> str:
    return f"def twice(x):\n    return {factor} * x\n"


def test_python_files_accept_module_package_and_zip(env: Env, collect: Collect, tmp_path: Path) -> None:
    (tmp_path / "brought_module.py").write_text(code())
    package = tmp_path / "sources" / "brought_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code())
    with zipfile.ZipFile(tmp_path / "brought.zip", "w") as z:
        z.writestr("brought_zipped.py", code())
    for path in ("brought_module.py", "sources", "brought.zip"):
        env.add_python_file(str(tmp_path / path))
    stream = env.from_collection([1]).map(twice("brought_module")).map(twice("brought_package"))
    assert collect(stream.map(twice("brought_zipped"))) == [8]
    # The driver itself does not have them.
    with pytest.raises(ImportError):
        twice("brought_module")(1)


def test_python_files_are_copied_at_job_start(env: Env, collect: Collect, tmp_path: Path) -> None:
    file = tmp_path / "brought_early.py"
    file.write_text(code())
    env.add_python_file(str(file))
    stream = env.from_collection([1]).map(twice("brought_early")).execute_and_collect()
    file.write_text(code(3))
    assert list(stream) == [2]


def test_python_archives_are_extracted_in_working_directory(env: Env, collect: Collect, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as z:
        z.writestr("inner/words.txt", "hello")
    env.add_python_archive(str(tmp_path / "data.zip"))
    env.add_python_archive(str(tmp_path / "data.zip"), "named")

    def read(_: int) -> tuple[str, bool]:
        words = Path("data.zip/inner/words.txt").read_text() + Path("named/inner/words.txt").read_text()
        # As in PyFlink's workers.
        return words, os.environ["python"] == sys.executable  # noqa: SIM112

    assert collect(env.from_collection([1]).map(read)) == [("hellohello", True)]


def test_python_requirements_are_installed(env: Env, collect: Collect, tmp_path: Path) -> None:
    """From a directory of packages, as on a machine without a package index."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "brought_required.py").write_text(code())
    wheel = tmp_path / "packages" / "brought_required-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as z:
        z.write(project / "brought_required.py", "brought_required.py")
        meta = "brought_required-1.0.dist-info"
        z.writestr(f"{meta}/METADATA", "Metadata-Version: 2.1\nName: brought-required\nVersion: 1.0\n")
        z.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{meta}/RECORD", "")
    (tmp_path / "requirements.txt").write_text("brought-required==1.0\n")
    env.set_python_requirements(str(tmp_path / "requirements.txt"), str(wheel.parent))
    assert collect(env.from_collection([1]).map(twice("brought_required"))) == [2]


def test_python_executable_selects_interpreter(env: Env, collect: Collect, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python-of-mine"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nMARK=mine exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    env.set_python_executable(str(python))
    assert collect(env.from_collection([1]).map(lambda _: os.environ.get("MARK"))) == ["mine"]


def test_missing_dependencies_are_reported(env: Env, tmp_path: Path) -> None:
    for bring, match in (
        (lambda e: e.add_python_file("/no/such.py"), r"/no/such\.py does not exist"),
        (lambda e: e.add_python_archive("/no/such.zip"), r"/no/such\.zip does not exist"),
        (lambda e: e.set_python_requirements("/no/such.txt"), r"/no/such\.txt does not exist"),
        (lambda e: e.set_python_executable("/no/python"), r"interpreter /no/python does not exist"),
    ):
        other = Env.get_execution_environment(env.get_configuration())
        bring(other)  # type: ignore[no-untyped-call]
        other.from_collection([1]).print()
        with pytest.raises(InvalidProgramError, match=match):
            other.execute()


def test_cli_options_add_dependencies(tmp_path: Path) -> None:
    (tmp_path / "brought_by_command.py").write_text(code())
    (tmp_path / "here").mkdir()
    job = tmp_path / "here" / "job.py"
    job.write_text(
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "import brought_by_command\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([21]).map(brought_by_command.twice).print()\n"
        "env.execute()\n"
    )
    command = [sys.executable, "-m", "millstream.cli.main", "run", "-p", "1"]
    done = subprocess.run(
        [*command, "-pyfs", str(tmp_path / "brought_by_command.py"), str(job)], capture_output=True, text=True
    )
    assert done.stdout == "42\n", done.stderr
