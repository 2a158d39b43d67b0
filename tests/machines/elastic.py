"""A job on a cluster with changing machines: it follows them, and its sink holds exactly the expected rows.

    python -m tests.machines.elastic <directory> [--set KEY=VALUE]

This command runs the job once, as a separate driver, which reads the files in `directory`/input until it is killed.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.job import make_database, results
from tests.support.spark_cluster import SparkCluster

from millstream.common import Configuration, Duration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSource, StreamFormat
from millstream.datastream.connectors.sql import SqlSink
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.testing.servers.databases import free_ports

ROOT = Path(__file__).resolve().parents[2]
KEYS = 7
# The timeout of steps that take seconds on an idle machine.
TIMEOUT = 120.0

# A job that follows the available slots after short delays.
ADAPTIVE = {
    "jobmanager.scheduler": "adaptive",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "1 s",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "1 s",
}


class Count(KeyedProcessFunction):
    """Numbers the records of each key, so that duplicate and missing records show in the results."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[str, int, int]]:
        n = (self.count.value() or 0) + 1
        self.count.update(n)
        yield "count", value % KEYS, n


def build(directory: Path, config: Configuration) -> StreamExecutionEnvironment:
    """Return an environment with the job."""
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "100",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "100",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "millstream.quiet": "true",
    }
    merged = Configuration.from_dict(settings)
    merged.add_all(config)
    env = StreamExecutionEnvironment.get_execution_environment(merged)
    path = str(directory / "sink.db")
    sink = SqlSink(lambda: sqlite3.connect(path, timeout=30), "facts", ["kind", "number", "value"])
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(directory / "input"))
    source = lines.monitor_continuously(Duration.of_millis(200)).build()
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers").map(int)
    numbers.key_by(lambda v: v % KEYS).process(Count()).uid("count").sink_to(sink).uid("sink")
    return env


@dataclass
class Elastic:
    """One run of the job, with its input and its observed output."""

    cluster: SparkCluster
    directory: Path
    settings: dict[str, str] = field(default_factory=dict)
    written: int = 0

    def __enter__(self) -> Elastic:
        (self.directory / "input").mkdir(parents=True)
        make_database(self.directory)
        [self._port] = free_ports(1)
        settings = {**self.cluster.settings(), **self.settings, "rest.port": str(self._port)}
        command = [sys.executable, "-m", "tests.machines.elastic", str(self.directory)]
        command += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        with (self.directory / "driver.log").open("wb") as log:
            self._driver = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.kill()
        self._driver.wait(10)

    def write(self, records: int = 100) -> None:
        """Write an input file, which appears as a whole."""
        numbers = range(self.written, self.written + records)
        hidden = self.directory / f".{self.written}"
        hidden.write_text("".join(f"{n}\n" for n in numbers))
        hidden.rename(self.directory / "input" / f"{self.written}.txt")
        self.written += records

    def wait_for(self, holds: Callable[[], bool], condition: str) -> None:
        """Wait until a condition holds; meanwhile write input whenever little is left."""
        end = time.monotonic() + TIMEOUT
        while not holds():
            assert self._driver.poll() is None, f"the job has ended before {condition}:\n{self.log()}"
            assert time.monotonic() < end, f"timeout before {condition}:\n{self.log()}"
            if self.written - self.results() < 500:
                self.write()
            time.sleep(0.25)

    def until_parallelism(self, parallelism: int) -> None:
        """Wait until the job runs at a parallelism, and has emitted results at it."""
        self.wait_for(lambda: self.parallelism() == parallelism, f"parallelism {parallelism}")
        seen = self.results()
        self.wait_for(lambda: self.results() > seen, f"results with parallelism {parallelism}")

    def until_complete(self) -> None:
        """Stop writing, and wait until the results equal the expected ones."""
        end = time.monotonic() + TIMEOUT
        while (actual := results(self.directory)) != self.expected():
            assert not actual - self.expected(), f"duplicates: {actual - self.expected()}\n{self.log()}"
            text = f"{self.results()} of {self.written} results, with parallelism {self.parallelism()}"
            assert self._driver.poll() is None and time.monotonic() < end, f"{text}:\n{self.log()}"
            time.sleep(0.2)

    def expected(self) -> Counter[tuple[str, int, int]]:
        """The results, computed by brute force."""
        return Counter(("count", k, n) for k in range(KEYS) for n in range(1, len(range(k, self.written, KEYS)) + 1))

    def results(self) -> int:
        return sum(results(self.directory).values())

    def parallelism(self) -> int | None:
        """Return the parallelism of the counting vertex, if the job runs."""
        job = self.job()
        if job is None or job["state"] != "RUNNING":
            return None
        return int(job["vertices"][-1]["parallelism"])

    def job(self) -> dict[str, Any] | None:
        jobs = self.get("/jobs")
        return self.get(f"/jobs/{jobs['jobs'][0]['id']}") if jobs and jobs["jobs"] else None

    def metric(self, name: str) -> float:
        job = self.job()
        assert job is not None
        (metric,) = self.get(f"/jobs/{job['jid']}/metrics?get={name}")
        return float(metric["value"])

    def get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=30) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError):
            return None

    def log(self) -> str:
        return (self.directory / "driver.log").read_text(errors="replace")[-3000:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    build(options.directory, Configuration.from_dict(dict(s.split("=", 1) for s in options.set))).execute("elastic")


if __name__ == "__main__":
    main()
