"""The memory of jobs of a session cluster: PSS, USS and RSS by kind of process, in MiB.

    python -m bench.session_memory [--jobs 50] [--sql]

Starts a cluster on this machine and small jobs of one slot that wait for input, and prints one JSON object. The
proportional set size counts 1/n of a page that n processes share, so the sum is the memory used by all together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

PROGRAM = """
import sys, time
from millstream.datastream import StreamExecutionEnvironment

class Quiet:
    def initialOffset(self): return {"at": 0}
    def latestOffset(self): return {"at": 1000}
    def partitions(self, start, end): return [range(start["at"], end["at"])]
    def read(self, partition): return [(i % 100, i) for i in partition]

env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
counts = env.from_source(Quiet()).key_by(lambda t: t[0]).reduce(lambda a, b: b)
counts.add_sink(lambda value: None)
env.execute_async(sys.argv[1])
"""
SQL_PROGRAM = """
import sys
from millstream.table import EnvironmentSettings, TableEnvironment

env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
env.get_config().set("parallelism.default", "1")
env.get_config().set("pipeline.name", sys.argv[1])
env.execute_sql("CREATE TABLE numbers (k INT, v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1')")
env.execute_sql("CREATE TABLE nowhere (k INT, v BIGINT) WITH ('connector' = 'blackhole')")
env.execute_sql("INSERT INTO nowhere SELECT k, SUM(v) FROM numbers GROUP BY k")
"""
_FIELDS = {"Pss": "pss", "Private_Clean": "uss", "Private_Dirty": "uss", "Rss": "rss"}
# By then the jobs have read their input, and the JVM has compiled its hot code.
_SETTLING = 20.0


def kind_of(process: psutil.Process, cluster: int) -> str:
    name, words = process.name(), process.cmdline()
    if process.pid == cluster:
        return "cluster"
    if "java" in name:
        return "java"
    if "millstream.spark.daemon" in words:
        return "slots" if name.startswith("millstream-s") else name if name.startswith("millstream-") else "daemon"
    return "fork server" if name == "millstream-fork" else "programs"


def memory_of(pid: int) -> dict[str, float]:
    """Return the memory of one process, in MiB."""
    memory: dict[str, float] = defaultdict(float)
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        field, _, rest = line.partition(":")
        if field in _FIELDS:
            memory[_FIELDS[field]] += int(rest.split()[0]) / 1024
    return memory


def measure(cluster: int) -> dict[str, dict[str, float]]:
    """Return the number of processes and their total memory, by kind."""
    results: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for process in (psutil.Process(cluster), *psutil.Process(cluster).children(recursive=True)):
        kind = kind_of(process, cluster)
        for where in (results[kind], results["all"]):
            where["processes"] += 1
            for field, size in memory_of(process.pid).items():
                where[field] += size
    return {kind: {field: round(size, 1) for field, size in sizes.items()} for kind, sizes in results.items()}


class Session:
    """A cluster with its own directory, and its command line."""

    def __init__(self, folder: Path, jobs: int, program: str) -> None:
        self.folder = folder
        (folder / "job.py").write_text(program)
        (folder / "run").mkdir(mode=0o700)
        self.call("cluster", "start", "-d", "-D", "rest.port=auto", "-D", f"taskmanager.numberOfTaskSlots={jobs}")
        (run_file,) = (folder / "run" / "millstream").glob("*.json")
        self.pid = int(run_file.stem)

    def call(self, *words: str) -> None:
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.folder / "run")}
        subprocess.run(
            [sys.executable, "-m", "millstream", *words], cwd=self.folder, env=environment, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip


def run(jobs: int, program: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="ms-") as folder:
        session = Session(Path(folder), jobs, program)
        try:
            empty = measure(session.pid)
            began = time.monotonic()
            for number in range(jobs):
                session.call("run", "-t", "session", "-d", "job.py", f"job-{number}")
            took = time.monotonic() - began
            time.sleep(_SETTLING)
            full = measure(session.pid)
        finally:
            session.call("cluster", "stop")
    each = (full["all"]["pss"] - empty["all"]["pss"]) / jobs
    return {"jobs": jobs, "empty": empty, "full": full, "pss_a_job": round(each, 1), "start_seconds": round(took, 1)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--sql", action="store_true", help="jobs of SQL in place of the DataStream API")
    options = parser.parse_args()
    print(json.dumps(run(options.jobs, SQL_PROGRAM if options.sql else PROGRAM), indent=1))


if __name__ == "__main__":
    main()
