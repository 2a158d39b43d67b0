"""Jobs on a real Spark cluster whose machines have separate networks and disks."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.elastic import ADAPTIVE, Elastic
from tests.machines.fault_run import FaultRun
from tests.support.object_store import BUCKET, object_store
from tests.support.spark_cluster import SparkCluster, can_separate

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

# Tests that take minutes run in `make test-cluster`.
LONG = "MILLSTREAM_TEST_CLUSTER" in os.environ
long_form = pytest.mark.skipif(not LONG, reason="takes minutes: make test-cluster")

# Debian's own Python has only the standard library.
BARE_PYTHON = f"/usr/bin/python3.{sys.version_info.minor}"

PROGRAM = """
import sys
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

def where(x):
    import brought, sys
    return brought.twice(x), sys.executable

config = Configuration.from_dict(dict(argument.split("=", 1) for argument in sys.argv[2:]))
env = StreamExecutionEnvironment.get_execution_environment(config)
env.set_parallelism(2)
env.add_python_file(sys.argv[1])
sums = env.from_collection(list(range(100))).key_by(lambda x: x % 3).reduce(lambda a, b: a + b)
print(sorted(sums.map(where).execute_and_collect())[-1])
"""


SUMS = """
import sys
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
sums = env.from_collection(list(range(100))).key_by(lambda x: x % 3).reduce(lambda a, b: a + b)
with open(sys.argv[1], "w") as file:
    file.write(str(max(sums.execute_and_collect())))
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def cluster(shared: Path) -> Iterator[SparkCluster]:
    with SparkCluster(3 if LONG else 2, shared=str(shared)) as cluster:
        yield cluster


def run(cluster: SparkCluster, directory: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a program on the cluster, as a separate driver."""
    (directory / "program.py").write_text(PROGRAM)
    (directory / "brought.py").write_text("def twice(x):\n    return 2 * x\n")
    options = {**cluster.settings(), "millstream.quiet": "true", **settings}
    command = [sys.executable, str(directory / "program.py"), str(directory / "brought.py")]
    command += [f"{key}={value}" for key, value in options.items()]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=directory)


@pytest.mark.skipif(not os.path.exists(BARE_PYTHON), reason=f"there is no {BARE_PYTHON}")
def test_cluster_hosts_need_only_python_and_spark(cluster: SparkCluster, tmp_path: Path) -> None:
    done = run(
        cluster, tmp_path, **{"spark.pyspark.python": BARE_PYTHON, "spark.pyspark.driver.python": sys.executable}
    )
    # The largest of three sums of every third number, doubled.
    assert done.stdout.split() == ["(3366,", f"'{os.path.realpath(BARE_PYTHON)}')"], done.stderr[-2000:]


@pytest.mark.skipif(not can_separate(), reason="workers' disks can be kept apart by root only")
def test_doctor_names_hosts_without_checkpoint_directory(cluster: SparkCluster, tmp_path: Path) -> None:
    settings = {**cluster.settings(), "execution.checkpointing.dir": str(tmp_path / "own")}
    command = [sys.executable, "-m", "millstream", "doctor", "-m", settings.pop("spark.master")]
    command += [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    hosts = [line.split()[1] for line in done.stdout.splitlines() if f"cannot use {tmp_path / 'own'}" in line]
    assert (done.returncode, len(set(hosts))) == (1, len(cluster.workers)), done.stdout + done.stderr[-2000:]
    assert "cannot reach" not in done.stdout
    # The attempt leaves no files.
    assert os.listdir(tmp_path / "own") == []


@long_form
@pytest.mark.skipif(not can_separate(), reason="workers' disks can be kept apart by root only")
def test_job_rejects_checkpoint_directory_not_shared_by_hosts(cluster: SparkCluster, tmp_path: Path) -> None:
    own = {"execution.checkpointing.dir": str(tmp_path / "own"), "execution.checkpointing.interval": "1 s"}
    done = run(cluster, tmp_path, **own)
    assert done.returncode
    # A restart would not help.
    assert done.stderr.count("cannot access the job's state in") == 1
    assert "set execution.checkpointing.dir to storage that the driver and all executors share" in done.stderr


@long_form
@pytest.mark.parametrize("mode", ["per job", "session"])
def test_cli_runs_programs_on_cluster(cluster: SparkCluster, tmp_path: Path, mode: str) -> None:
    (tmp_path / "sums.py").write_text(SUMS)
    settings = cluster.settings()
    n_alive = ["-m", settings.pop("spark.master"), "-D", "rest.port=auto"]
    n_alive += [word for key, value in settings.items() for word in ("-D", f"{key}={value}")]

    def millstream(*words: str) -> None:
        command = [sys.executable, "-m", "millstream", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]

    if mode == "per job":
        millstream("run", *n_alive, "sums.py", "out")
    else:
        millstream("cluster", "start", "-d", *n_alive)
        try:
            millstream("run", "-t", "session", "sums.py", str(tmp_path / "out"))
        finally:
            millstream("cluster", "stop")
    assert (tmp_path / "out").read_text() == "1683"


@long_form
def test_object_store_checkpoints_survive_executor_kills(cluster: SparkCluster, shared: Path) -> None:
    directory = shared / "object-store"
    directory.mkdir()
    with object_store(cluster.host) as s3:
        url = f"s3://{BUCKET}/machines"
        settings = {
            **s3,
            "execution.checkpointing.dir": url,
            "execution.checkpointing.interval": "500 ms",
        }
        fault_run = FaultRun(cluster, directory, "auto", random.Random(2), settings)
        assert fault_run.run("kill-executor") == 0
        assert fault_run.outages[0] > 0.5
    # All state is in the object store.
    assert not (directory / "checkpoints").exists()


@long_form
def test_job_survives_lost_host(cluster: SparkCluster, shared: Path) -> None:
    fault_run = FaultRun(cluster, shared, os.environ.get("MILLSTREAM_TEST_EXCHANGE", "auto"), random.Random(1))
    assert fault_run.run("kill") == 0
    # The host ran slots of the job, so results paused.
    assert fault_run.outages[0] > 0.5


REACTIVE = {**ADAPTIVE, "scheduler-mode": "reactive", "parallelism.default": "1", "pipeline.max-parallelism": "9"}


@long_form
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("exchange", "settings"), [("auto", ADAPTIVE), ("spark", ADAPTIVE), ("auto", REACTIVE)])
def test_adaptive_job_follows_added_and_removed_hosts(
    cluster: SparkCluster, shared: Path, exchange: str, settings: dict[str, str]
) -> None:
    n_alive = alive(cluster)
    settings = {"parallelism.default": str(n_alive + 5), **settings, "millstream.exchange": exchange}
    with Elastic(cluster, shared / f"elastic-{len(list(shared.iterdir()))}", settings) as job:
        job.until_parallelism(n_alive)
        worker = cluster.add_worker()
        job.until_parallelism(n_alive + 1)
        # So far nothing has failed.
        assert job.metric("numRestarts") == 0
        worker.kill()
        job.until_parallelism(n_alive)
        job.until_complete()
        assert 0 < job.metric("stateLocalShare") < 1


def alive(cluster: SparkCluster) -> int:
    return sum(worker.process.poll() is None for worker in cluster.workers)


@long_form
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("exchange", "scheduler"), [("auto", "default"), ("resident", "default"), ("auto", "adaptive")]
)
def test_dynamic_allocation_adds_and_removes_executors(
    cluster: SparkCluster, shared: Path, exchange: str, scheduler: str
) -> None:
    n_alive = alive(cluster)
    settings = {
        **ADAPTIVE,
        "jobmanager.scheduler": scheduler,
        "millstream.exchange": exchange,
        "parallelism.default": str(n_alive),
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.executorIdleTimeout": "10s",
        "spark.decommission.enabled": "true",
    }
    with Elastic(cluster, shared / f"dynamic-{exchange}-{scheduler}", settings) as job:
        job.until_parallelism(n_alive)
        job.until_complete()
        if exchange == "resident" or scheduler == "adaptive":
            # Tasks that hold slots never end: no executor is removed, and each slot has its own machine.
            time.sleep(13)
            assert [len(w.slots()) for w in job.cluster.workers if w.has_executor()] == [1] * n_alive
        else:
            wait_until_executors(cluster, 0)
        job.write()
        job.until_complete()


@long_form
@pytest.mark.parametrize(
    ("settings", "error_text"),
    [
        ({"scheduler-mode": "reactive"}, "scheduler-mode: reactive uses all available slots"),
        ({**ADAPTIVE, "millstream.exchange": "spark"}, "Spark removes them whenever no epoch runs"),
    ],
)
def test_adaptive_scheduler_rejects_dynamic_allocation(
    cluster: SparkCluster, tmp_path: Path, settings: dict[str, str], error_text: str
) -> None:
    done = run(cluster, tmp_path, **settings, **{"spark.dynamicAllocation.enabled": "true"})
    assert done.returncode and error_text in done.stderr


def wait_until_executors(cluster: SparkCluster, count: int) -> None:
    end = time.monotonic() + 120
    while (n := sum(w.has_executor() for w in cluster.workers)) != count:
        assert time.monotonic() < end, f"there are {n} executors"
        time.sleep(0.2)
