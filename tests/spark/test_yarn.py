"""Jobs on a real YARN: a local program with slots on YARN, and a whole application on YARN."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.ha_runs import PROGRAM as HA_PROGRAM
from tests.support.ha_runs import Managers, expected_lines, quick, written_lines
from tests.support.helpers import wait_until
from tests.support.yarn_cluster import YarnCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.skipif("MILLSTREAM_TEST_CLUSTER" not in os.environ, reason="takes minutes: make test-cluster"),
]

PROGRAM = """
import sys
import brought
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
numbers = env.from_collection(list(range(100)))
sums = numbers.map(brought.twice).key_by(lambda x: x % 3).reduce(lambda a, b: a + b)
# Where this file is.
with open(sys.argv[1], "w") as file:
    file.write(f"{max(sums.execute_and_collect())} {__file__} {sys.argv[2]}")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[YarnCluster]:
    with YarnCluster() as cluster:
        yield cluster


def run(cluster: YarnCluster, directory: Path, *options: str) -> list[str]:
    """Run the program and return its output: the largest of three sums, its own file, its second argument."""
    (directory / "program.py").write_text(PROGRAM)
    (directory / "brought.py").write_text("def twice(x):\n    return 2 * x\n")
    settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.pyspark.python": sys.executable}
    command = [sys.executable, "-m", "millstream", "run", "-pyfs", str(directory / "brought.py"), *options]
    for key, value in settings.items():
        command += ["-D", f"{key}={value}"]
    command += [str(directory / "program.py"), str(directory / "out"), 'a "b"']
    variables = {**os.environ, **cluster.variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=variables)
    assert done.returncode == 0, done.stderr[-3000:] + cluster.logs("*")[-3000:]
    return (directory / "out").read_text().split(maxsplit=2)


@pytest.mark.parametrize("exchange", ["spark", "resident"])
def test_slots_run_on_yarn(cluster: YarnCluster, tmp_path: Path, exchange: str) -> None:
    result = run(
        cluster, tmp_path, "-m", "yarn", "-D", "spark.executor.cores=2", "-D", f"millstream.exchange={exchange}"
    )
    assert result == ["3366", str(tmp_path / "program.py"), 'a "b"']


def test_application_runs_on_yarn(cluster: YarnCluster, tmp_path: Path) -> None:
    # A file in the container.
    assert run(cluster, tmp_path, "-t", "application", "-m", "yarn") == ["3366", "program.py", 'a "b"']


def test_application_continues_on_yarn_after_leader_is_killed(cluster: YarnCluster, tmp_path: Path) -> None:
    """Both job managers run on the cluster; the leader is killed, and the other restores its checkpoint."""
    settings = {
        **quick(tmp_path),
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.pyspark.python": sys.executable,
        # YARN does not restart the killed attempt: there is a standby.
        "spark.yarn.maxAppAttempts": "1",
    }
    # More records than it processes before the throttle is released.
    records, out = 60_000, tmp_path / "out"
    (tmp_path / "job.py").write_text(HA_PROGRAM)
    command = [sys.executable, "-m", "millstream", "run", "-t", "application", "-m", "yarn"]
    command += [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]
    command += [str(tmp_path / "job.py"), str(records), str(out)]
    variables = {**os.environ, **cluster.variables}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=variables, cwd=tmp_path)

    leaders = Managers(tmp_path, settings)
    leader = standby = start()
    try:
        wait_until(lambda: leaders.term() == 1, 240)
        standby = start()
        # The main function has started when it requests the lease, which is not visible here.
        wait_until(lambda: len(_mains()) == 2 and sum(written_lines(out).values()) > 50, 240)
        assert leaders.term() == 1
        first, _ = _mains()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: leaders.term() == 2, 240)
        Path(f"{out}.go").touch()
        assert standby.wait(240) == 0, cluster.logs("*")[-3000:]
        assert leader.wait(120) != 0
        assert written_lines(out) == expected_lines(records)
    finally:
        for process in (leader, standby):
            process.kill()
            process.wait()


def _mains() -> list[int]:
    """Return the processes on the cluster that run a program's main function, by start time."""
    processes = [
        p for p in psutil.process_iter(["cmdline"]) if "application_main.py" in " ".join(p.info["cmdline"] or [])
    ]
    pythons = [p for p in processes if "python" in p.name() and "spark-submit" not in " ".join(p.info["cmdline"])]
    return [p.pid for p in sorted(pythons, key=lambda p: p.create_time())]
