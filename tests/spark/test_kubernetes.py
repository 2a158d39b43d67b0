"""Jobs on Spark's Kubernetes scheduler, against a simulated API server whose pods are processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kubernetes import Kubernetes

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.skipif("MILLSTREAM_TEST_CLUSTER" not in os.environ, reason="takes a minute: make test-cluster"),
]

PROGRAM = """
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
sums = env.from_collection(list(range(100))).key_by(lambda x: x % 3).reduce(lambda a, b: a + b)
print(max(sums.execute_and_collect()))
"""

SETTINGS = {
    "spark.kubernetes.container.image": "millstream",
    "spark.executor.instances": "2",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
    # The simulation does not support watches.
    "spark.kubernetes.executor.enableApiWatcher": "false",
    "spark.kubernetes.executor.apiPollingInterval": "1s",
}


@pytest.mark.parametrize("exchange", ["spark", "resident"])
def test_executors_run_as_pods(tmp_path: Path, exchange: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with Kubernetes() as kubernetes:
        settings = {**SETTINGS, "spark.executor.cores": "2", "millstream.exchange": exchange}
        command = [sys.executable, "-m", "millstream", "run", "-m", f"k8s://{kubernetes.url}"]
        command += [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]
        done = subprocess.run(
            [*command, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=240, cwd=tmp_path
        )
        assert (done.returncode, done.stdout) == (0, "1683\n"), done.stderr[-3000:]
        assert len(kubernetes.pods) == 2
        # Spark deletes the pods it created.
        assert kubernetes.created("pods") == []
