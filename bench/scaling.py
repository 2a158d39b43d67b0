"""How a job scales: with executors of one core, and with the number of its subtasks.

    python -m bench.scaling [--subtasks 2,8,32,128] [--executors 1,2,4] [--records 4000000]

Prints one JSON object. `executors`: records per second of a keyed reduce on Spark's standalone cluster, with as many
subtasks as executors, and the bytes per record that the exchange transfers. `subtasks`: a job with one shuffle in
resident slots on this machine: milliseconds of an empty epoch, its CPU milliseconds of the driver's Python and of all
slots, seconds from the start to the first epoch's end, and memory of the driver's Python, of Java and of all slots in
MB (memory shared by processes is divided among them).
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from bench.empty_epoch import EmptyEpochs
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.launch_context import watch_jobs

KEYS = 1000
SETTLING, EPOCHS = 20, 60


def environment(settings: dict[str, str], parallelism: int) -> StreamExecutionEnvironment:
    reported = {"millstream.quiet": "true", "millstream.exchange": "resident", **settings}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(reported))
    return env.set_parallelism(parallelism)


# --- with the number of subtasks


def with_subtasks(subtasks: int) -> dict[str, float]:
    """Run empty epochs in one job at a parallelism."""
    env = environment({"spark.master": "local[2]"}, subtasks).set_buffer_timeout(0)
    env.from_source(EmptyEpochs(1 << 30)).key_by(lambda x: x).map(lambda x: x).add_sink(print)
    watch = _Watch()
    looking = threading.Thread(target=watch.measure)
    began = time.perf_counter()
    looking.start()
    job = env.execute_async()
    looking.join()
    job.cancel().result()
    times = EmptyEpochs.poll_times
    measured = times[SETTLING : SETTLING + EPOCHS + 1]
    return {
        "subtasks": subtasks,
        "epoch_ms": statistics.median((b - a) * 1000 for a, b in itertools.pairwise(measured)),
        "start_s": times[1] - began,
        **watch.cpu_ms(),
        **watch.memory_mb,
    }


class _Watch:
    """Measures the processes of a job at two moments between its epochs."""

    def __init__(self) -> None:
        self.memory_mb: dict[str, float] = {}
        self._samples: list[tuple[int, dict[str, float]]] = []

    def measure(self) -> None:
        for moment in (SETTLING, SETTLING + EPOCHS):
            while len(EmptyEpochs.poll_times) <= moment:
                time.sleep(0.001)
            self._samples.append((len(EmptyEpochs.poll_times), _cpu_seconds()))
        self.memory_mb = _memory_mb()

    def cpu_ms(self) -> dict[str, float]:
        """Return the CPU time of an epoch, by process."""
        (first, before), (last, after) = self._samples
        return {f"{kind}_cpu_ms": 1000 * (after[kind] - before[kind]) / (last - first) for kind in before}


def _processes() -> list[tuple[str, psutil.Process]]:
    """Return the processes of the job: the driver's Python, Java, and the slots."""
    processes = [("driver", psutil.Process())]
    for process in psutil.Process().children(recursive=True):
        if "java" in process.name():
            processes.append(("java", process))
        elif process.name().startswith("millstream-s"):
            processes.append(("slots", process))
    return processes


def _cpu_seconds() -> dict[str, float]:
    seconds = {"driver": 0.0, "java": 0.0, "slots": 0.0}
    for kind, process in _processes():
        times = process.cpu_times()
        seconds[kind] += times.user + times.system
    return seconds


def _memory_mb() -> dict[str, float]:
    memory = {"driver_mb": 0.0, "java_mb": 0.0, "slots_mb": 0.0}
    for kind, process in _processes():
        memory[f"{kind}_mb"] += process.memory_full_info().pss / 1e6
    return memory


# --- with the number of executors


def with_executors(executors: int, records: int) -> dict[str, float]:
    """Run a keyed reduce on a cluster with a number of workers, each with one core."""
    from tests.support.spark_cluster import SparkCluster

    with tempfile.TemporaryDirectory() as shared, SparkCluster(executors, shared=shared) as cluster:
        settings = json.dumps(cluster.settings())
        return _own_process("--job", settings, "--subtasks", str(executors), "--records", str(records))


def keyed_reduce(settings: dict[str, str], subtasks: int, records: int) -> dict[str, float]:
    env = environment(settings, subtasks)
    _add_reduce(env, 20_000)
    env.execute()
    _add_reduce(env, records)
    moved: list[int] = []
    watch_jobs(lambda job: lambda: moved.append(sum(s.bytes_out for s in job.view.progress.subtasks.values())))
    seconds = env.execute().get_net_runtime() / 1000
    return {"executors": subtasks, "per_second": records / seconds, "bytes_per_record": moved[-1] / records}


def _add_reduce(env: StreamExecutionEnvironment, records: int) -> None:
    numbers = env.from_source(NumberSequenceSource(0, records - 1))
    pairs = numbers.map(lambda i: (i % KEYS, 1)).key_by(lambda t: t[0])
    pairs.reduce(lambda a, b: (a[0], a[1] + b[1])).add_sink(lambda value: None)


def _own_process(*arguments: str) -> dict[str, float]:
    """Run one of them in a separate process, because each starts its own Spark."""
    command = [sys.executable, str(Path(__file__)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subtasks", default="2,8,32,128")
    parser.add_argument("--executors", default="1,2,4")
    parser.add_argument("--records", type=int, default=12_000_000)
    parser.add_argument("--epochs", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.epochs:
        print(json.dumps(with_subtasks(int(options.subtasks))))
        return
    if options.job:
        print(json.dumps(keyed_reduce(json.loads(options.job), int(options.subtasks), options.records)))
        return
    results: dict[str, Any] = {
        "subtasks": [_own_process("--epochs", "--subtasks", n) for n in options.subtasks.split(",") if n],
        "executors": [with_executors(int(n), options.records) for n in options.executors.split(",") if n],
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
