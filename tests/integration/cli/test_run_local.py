"""`millstream run --local`: runs a program in this process, without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MILLSTREAM = [sys.executable, "-m", "millstream.cli.main"]
START_MESSAGE = "millstream: running in this process, without Spark (millstream.engine=local)\n"

SUMS = """
import sys
from millstream.common import Encoder
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.connectors.datagen import DataGeneratorSource

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(10)
numbers = env.from_source(DataGeneratorSource(lambda i: i, 200, 1000), source_name="numbers")
sums = numbers.key_by(lambda i: i % 3).reduce(lambda a, b: a + b)
sums.sink_to(FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()).build())
result = env.execute("sums")
print(sorted(m for m in sys.modules if m in ("pyspark", "py4j", "asyncio", "pyarrow", "lmdb")), env.get_parallelism())
"""


def run(tmp_path: Path, text: str, *options: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    (tmp_path / "job.py").write_text(text)
    command = [*MILLSTREAM, "run", *options, str(tmp_path / "job.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("option", ["--local", "-Dmillstream.engine=local"])
def test_run_local_writes_checkpoints_and_files_in_this_process(tmp_path: Path, option: str) -> None:
    out = tmp_path / "out"
    done = run(tmp_path, SUMS, option, "-p", "3", arguments=(str(out),))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[] 3\n", START_MESSAGE)
    written = sorted(int(line) for file in out.rglob("part-*") for line in file.read_text().splitlines())
    expected = sorted(sum(range(i % 3, i + 1, 3)) for i in range(200))
    assert written == expected
    assert not list(out.rglob("*.inprogress*"))


PYTHON = """
import os, sys
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
print(list(env.from_collection([1]).map(lambda x: os.environ["python"] == sys.executable).execute_and_collect()))
"""


def test_run_local_functions_see_interpreter_of_worker(tmp_path: Path) -> None:
    done = run(tmp_path, PYTHON, "--local")
    assert (done.stdout, done.stderr) == ("[True]\n", START_MESSAGE)


COUNTED = """
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import ABORT, TestingSource

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.enable_checkpointing(10)
numbers = env.from_source(TestingSource([1, 2, 3, ABORT, 4, 5, 6]))
numbers.key_by(lambda x: 0).reduce(lambda a, b: a + b).print()
env.execute()
"""


def test_run_local_restores_checkpoint_after_failure(tmp_path: Path) -> None:
    done = run(tmp_path, COUNTED, "--local", "-Drestart-strategy.fixed-delay.delay=1 ms")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "21"


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        ("", ["--local", "-m", "local[2]"], "--local runs without Spark, and -m is a Spark master"),
        (
            "from millstream.datastream import StreamExecutionEnvironment as E\nimport threading\n"
            "e = E.get_execution_environment()\nlock = threading.Lock()\n"
            "e.from_collection([1]).map(lambda x: (lock, x)).print()\ne.execute()\n",
            ["--local"],
            "cannot be sent to the workers: the variable 'lock'",
        ),
        (
            "from millstream.datastream import StreamExecutionEnvironment as E\n"
            "e = E.get_execution_environment()\ne.add_python_archive(__file__ + '.zip')\n"
            "e.from_collection([1]).print()\ne.execute()\n",
            ["--local"],
            "The archive",
        ),
        (
            "from millstream.datastream import StreamExecutionEnvironment as E\n"
            "e = E.get_execution_environment()\ne.from_collection([1]).print()\ne.execute()\n",
            ["-Dmillstream.engine=flink"],
            "millstream.engine is 'flink': it must be one of SPARK, LOCAL.",
        ),
    ],
)
def test_run_local_rejects_contradictory_options(
    tmp_path: Path, program: str, options: list[str], message: str
) -> None:
    done = run(tmp_path, program, *options)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
