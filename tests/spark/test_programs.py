"""Programs in their own processes: README, demo, command line, existing Spark contexts, other Javas."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.demo_output import check_demo_output
from tests.support.paths import ROOT

MILLSTREAM = Path(sys.executable).with_name("millstream")
pytestmark = pytest.mark.spark


def run(*command: str | Path, timeout: float = 100, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(c) for c in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        cwd=ROOT,
    )


def readme_blocks() -> tuple[str, str]:
    """Return the README's program and its documented output."""
    blocks = re.findall(r"```(python)?\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return blocks[0][1], blocks[1][1]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    program = tmp_path / "words.py"
    program.write_text(readme_blocks()[0])
    return program


def test_readme_program_prints_documented_output_and_maps_class_archive(words: Path, tmp_path: Path) -> None:
    """The first start writes an archive of Spark's classes; the second JVM maps it."""
    with words.open("a") as program:
        program.write(
            "import psutil, sys\n"
            "java = next(p for p in psutil.Process().children() if p.name() == 'java')\n"
            "maps = {m.path for m in java.memory_maps(grouped=False)}\n"
            "print('mapped:', sum('millstream/java/' in path for path in maps), file=sys.stderr)\n"
        )
    runs = r"millstream: running on Spark 4\.3\.\d+ \(local\[\*], \d+ cores, Java \d+\)"
    writes = re.escape(
        f"millstream: writing Spark's classes to {tmp_path}/cache/millstream/java, once, for faster starts"
    )
    for expected in ([runs, "mapped: 0", writes], [runs, "mapped: 1"]):
        done = run(sys.executable, words, XDG_CACHE_HOME=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
        assert done.stdout == readme_blocks()[1]
        errors = done.stderr.splitlines()
        assert len(errors) == len(expected), errors
        assert all(re.fullmatch(a, b) for a, b in zip(expected, errors, strict=True)), errors


def test_program_uses_java_package_without_java_of_machine(words: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    # There is also no directory for an archive of Spark's classes.
    nowhere = str(words)
    done = run(sys.executable, words, PATH=str(tmp_path / "bin"), JAVA_HOME="", XDG_CACHE_HOME=nowhere)
    assert done.stdout == readme_blocks()[1], done.stderr
    assert "Java 25" in done.stderr


def test_demo_survives_killed_worker_savepoint_and_upgrade() -> None:
    # It starts slots three times, which takes long on a busy machine.
    done = run(MILLSTREAM, "demo", timeout=230)
    assert done.returncode == 0, done.stderr
    check_demo_output(done.stdout)
    before, after = (
        set(re.findall("[0-9]+", re.search(pattern, done.stdout).group(1)))  # type: ignore[union-attr]
        for pattern in ("of (.*) \\(kill -9\\)", "Its worker processes are (.*) now")
    )
    assert len(before) == len(after) == 2
    assert before != after


def test_run_passes_settings_and_arguments(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(
        "import sys\n"
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection(sys.argv[1:]).print()\n"
        "env.execute()\n"
        "from pyspark import SparkContext\n"
        "print(env.get_parallelism(), SparkContext.getOrCreate().getConf().get('spark.driver.memory'), __name__)\n"
    )
    settings = ["-p", "1", "-m", "local[1]", "-D", "spark.driver.memory=512m"]
    done = run(MILLSTREAM, "run", *settings, program, "-x", "a")
    assert done.stdout.splitlines() == ["-x", "a", "1 512m __main__"], done.stderr
    assert "local[1]" in done.stderr


def test_run_exits_with_code_1_and_short_message_on_user_error(tmp_path: Path) -> None:
    program = tmp_path / "bad.py"
    program.write_text(
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "def halve(x):\n"
        "    return 1 / x\n"
        "env.from_collection([1, 0]).map(halve).name('halving').print()\n"
        "env.execute()\n"
    )
    done = run(MILLSTREAM, "run", "-p", "1", program)
    assert done.returncode == 1
    text = done.stderr
    assert "return 1 / x" in text
    assert "ZeroDivisionError: division by zero" in text
    assert "in operator 'halving'" in text
    assert "record: 0" in text
    assert "py4j" not in text.lower()
    assert "at org.apache.spark" not in text
    assert len(text.splitlines()) < 15


def test_info_prints_and_draws_flinks_plan(words: Path) -> None:
    done = run(MILLSTREAM, "info", words)
    nodes = json.loads(done.stdout)["nodes"]
    assert nodes[0]["type"].startswith("Source")
    assert nodes[2]["predecessors"][0]["ship_strategy"] == "HASH"
    drawn = run(MILLSTREAM, "info", "--svg", words)
    assert drawn.stdout.startswith("<svg")
    assert "Reduce" in drawn.stdout


def test_info_reports_missing_plan_of_program_without_job(tmp_path: Path) -> None:
    program = tmp_path / "nothing.py"
    program.write_text("pass\n")
    done = run(MILLSTREAM, "info", program)
    assert done.returncode == 1
    assert "there is no plan" in done.stderr


def test_doctor_reports_ready() -> None:
    done = run(MILLSTREAM, "doctor")
    assert done.returncode == 0
    assert "Java        " in done.stdout
    assert done.stdout.splitlines()[-1] == "Ready."


def test_program_uses_existing_spark_context(tmp_path: Path) -> None:
    """Spark's stock daemon has no slots: tasks run in any process, with the same results."""
    program = tmp_path / "foreign.py"
    program.write_text(
        "from pyspark import SparkConf, SparkContext\n"
        "conf = SparkConf().setMaster('local[2]').set('spark.ui.enabled', 'false')\n"
        "context = SparkContext(conf=conf)\n"
        "context.setLogLevel('OFF')\n"
        "from millstream.common import Configuration\n"
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "from millstream.datastream.connectors.number_seq import NumberSequenceSource\n"
        "config = Configuration.from_dict({'millstream.epoch.max-records': '50'})\n"
        "env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(3)\n"
        "pairs = env.from_source(NumberSequenceSource(0, 999)).map(lambda x: (x % 7, 1))\n"
        "counts = pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))\n"
        "results = list(counts.execute_and_collect())\n"
        "print(len(results), sorted(dict(sorted(results)).items()))\n"
    )
    done = run(sys.executable, program)
    expected = sorted((k, len(range(k, 1000, 7))) for k in range(7))
    assert done.stdout.splitlines()[-1:] == [f"1000 {expected}"], done.stderr
    assert "was not started by millstream" in done.stderr


def test_program_runs_next_job_after_java_died(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        """
import psutil
from millstream.datastream import StreamExecutionEnvironment

def run():
    env = StreamExecutionEnvironment.get_execution_environment()
    print(sorted(env.from_collection([1, 2]).map(lambda x: x * 2).execute_and_collect()))

run()
for child in psutil.Process().children():
    if child.name() == "java":
        child.kill()
        child.wait()
run()
"""
    )
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[2, 4]\n[2, 4]\n", done.stderr
