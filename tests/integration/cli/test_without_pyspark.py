"""What works where PySpark is not installed: the local engine; the rest says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PROGRAM = """
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
tables = StreamTableEnvironment.create(env)
numbers = tables.from_data_stream(env.from_collection([1, 2, 3]).map(lambda n: n * 2, Types.LONG()))
tables.create_temporary_view("numbers", numbers)
print(list(tables.sql_query("SELECT SUM(f0) FROM numbers").execute().collect())[-1])
"""
MESSAGE = "PySpark is not installed: run `pip install 'pyspark>=4.3,<4.4'`"


@pytest.fixture
def millstream(tmp_path: Path) -> list[str]:
    """Return the command, for an interpreter that finds all installed packages but PySpark and its Py4J."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("pyspark", "py4j")):
            (packages / path.name).symlink_to(path)
    search_path = f"PYTHONPATH={packages}{os.pathsep}{ROOT / 'src'}"
    return ["env", search_path, sys.executable, "-S", "-m", "millstream.cli.main"]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(PROGRAM)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


def test_run_local_needs_no_pyspark(millstream: list[str], tmp_path: Path) -> None:
    done = run([*millstream, "run", "--local", "program.py"], tmp_path)
    assert done.stdout == "<Row(12)>\n", done.stderr


def test_run_names_missing_pyspark(millstream: list[str], tmp_path: Path) -> None:
    done = run([*millstream, "run", "program.py"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.count(MESSAGE) == 1, done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_names_missing_pyspark(millstream: list[str], tmp_path: Path) -> None:
    done = run([*millstream, "doctor"], tmp_path)
    assert done.returncode == 1
    assert f"Problem     {MESSAGE}" in done.stdout
