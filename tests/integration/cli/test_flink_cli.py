"""Flink's own command line (package apache-flink) against the service: list, savepoint [-d], stop, cancel."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.common import WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.service.app import make_app
from millstream.service.options import ServiceOptions
from millstream.service.registry import Registry
from millstream.service.server import PublicServer, service_of
from millstream.spark.java import find_java
from tests.support.apache_flink import SKIP_REASON, flink_folder, flink_python
from tests.support.helpers import job_of

TOKEN = "t" * 32
SETTINGS = {"millstream.engine": "local", "millstream.quiet": "true", "parallelism.default": "1"}


def _slowly(x: int) -> int:
    time.sleep(0.002)
    return x


class World:
    """A service with two jobs, and Flink's command line pointed at it."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.jobs = [self._start(name) for name in ("first", "second")]
        options = ServiceOptions.read(Configuration.from_dict({"rest.port": "auto"}))
        assert options is not None
        self.server = PublicServer(make_app(service_of(self.registry, SETTINGS, TOKEN, 1000)), options)
        self.server.start()

    def _start(self, name: str) -> str:
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(SETTINGS))
        numbers = env.from_source(NumberSequenceSource(1, 10**12), WatermarkStrategy.no_watermarks(), "numbers")
        numbers.map(_slowly).key_by(lambda x: x % 10).reduce(lambda a, b: a + b).add_sink(lambda v: None)
        client = env.execute_async(name)
        self.registry.add(job_of(client), SETTINGS)
        return str(client.get_job_id())

    def flink(self, command: str, *words: str) -> str:
        home = flink_folder()
        assert home is not None
        java = Path(find_java().path).parents[1]
        environment = {
            **os.environ,
            "FLINK_HOME": str(home),
            "JAVA_HOME": str(java),
            "FLINK_REST_CLIENT_HEADERS": f"Authorization:Bearer {TOKEN}",
        }
        address = self.server.url.removeprefix("http://")
        done = subprocess.run(
            ["bash", str(home / "bin" / "flink"), command, "-m", address, *words],
            env=environment, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def state(self, job: str) -> str:
        entry = self.registry.find(job)
        assert entry is not None
        return entry.view.status.name

    def close(self) -> None:
        for entry in self.registry.entries():
            entry.job.cancel()
            entry.job.result.exception()
        self.server.stop()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


@pytest.mark.skipif(flink_python() is None, reason=SKIP_REASON)
@pytest.mark.timeout(300)
def test_flink_cli_lists_savepoints_stops_and_cancels_jobs(world: World, tmp_path: Path) -> None:
    first, second = world.jobs
    listed = world.flink("list")
    assert f"{first} : first (RUNNING)" in listed and f"{second} : second (RUNNING)" in listed
    result = world.flink("savepoint", first, str(tmp_path))
    (saved,) = tmp_path.iterdir()
    assert str(saved) in result and (saved / "_metadata").exists()
    world.flink("savepoint", "-d", str(saved))
    assert not (saved / "_metadata").exists()
    result = world.flink("stop", "-p", str(tmp_path / "stopped"), first)
    (stopped,) = (tmp_path / "stopped").iterdir()
    assert str(stopped) in result and (stopped / "_metadata").exists()
    assert world.state(first) == "FINISHED"
    world.flink("cancel", second)
    end = time.monotonic() + 10
    while world.state(second) != "CANCELED":
        assert time.monotonic() < end
        time.sleep(0.02)
    assert f"{second} : second (CANCELED)" in world.flink("list", "-a")
