"""The cost of exactly-once: checkpoints by size of the state, recovery, throughput with and without checkpoints.

python -m bench.checkpoints sizes --keys 100000     duration and bytes of checkpoints, 1% of the keys changed
python -m bench.checkpoints recovery --keys 100000  from a worker's death to the next output
python -m bench.checkpoints cost --records N [--interval 1000]   records per second
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.testing import CollectSink

Env = StreamExecutionEnvironment


class RangesSource(Source, SplitEnumerator, SourceReader):
    """Reads ranges of numbers that the benchmark adds while the job runs."""

    name = "Ranges Source"
    ranges: ClassVar[list[tuple[int, int]]] = []

    @property
    def is_bounded(self) -> bool:
        return False

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return self

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return self

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if not self.ranges:
            return SplitAssignment({})
        start, end = self.ranges.pop(0)
        middle = (start + end) // 2
        return SplitAssignment({0: [(start, middle)], 1: [(middle, end)]})

    def is_finished(self) -> bool:
        return False

    def snapshot(self) -> None:
        return None

    def next_poll(self, now: float) -> float:
        return now + 0.005

    def read(self, split_range: tuple[int, int]) -> Iterator[range]:
        yield range(*split_range)


def environment(directory: str, interval: int, **settings: Any) -> Env:
    config = Configuration.from_dict({"execution.checkpointing.dir": directory, "millstream.quiet": "true", **settings})
    env = Env.get_execution_environment(config).set_parallelism(2)
    if interval:
        env.enable_checkpointing(interval)
    return env


def count(env: Env, keys: int, sink: Any) -> None:
    pairs = env.from_source(RangesSource()).map(lambda i: (i % keys, 1))
    pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).filter(lambda t: t[0] == 0).sink_to(sink)


def wait_for(condition: Callable[[], bool]) -> float:
    start = time.perf_counter()
    while not condition():
        time.sleep(0.001)
    return time.perf_counter() - start


def sizes(options: argparse.Namespace, directory: str) -> dict[str, Any]:
    env, sink, keys = environment(directory, 3_600_000), CollectSink(), options.keys
    count(env, keys, sink)
    job = env.execute_async()
    RangesSource.ranges.append((0, keys))
    wait_for(lambda: not RangesSource.ranges)
    job.trigger_checkpoint().result()
    checkpoint_stats = []
    for _ in range(9):
        RangesSource.ranges.append((0, keys // 100))
        wait_for(lambda: not RangesSource.ranges)
        job.trigger_checkpoint().result()
        checkpoint_stats.append(job.get_checkpoint_statistics()["history"][-1])
    first = job.get_checkpoint_statistics()["history"][0]
    job.cancel().result()
    return {
        "keys": keys,
        "first_bytes": first["state_bytes"],
        "first_ms": first["end_to_end_duration_ms"],
        "bytes": statistics.median(t["state_bytes"] for t in checkpoint_stats),
        "ms": statistics.median(t["end_to_end_duration_ms"] for t in checkpoint_stats),
    }


def recovery(options: argparse.Namespace, directory: str) -> dict[str, Any]:
    """Kill a worker process with all keys in state; measure the time until the next output."""
    restart = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "0 ms"}
    env, sink, keys = environment(directory, 3_600_000, **restart), CollectSink(), options.keys
    marker = os.path.join(directory, "..", f"{os.path.basename(directory)}-dead")

    def kill_once(value: Any) -> Any:
        if value[1] == -1 and not os.path.exists(marker):
            open(marker, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    pairs = env.from_source(RangesSource()).map(lambda i: (abs(i) % keys, -1 if i < 0 else 1)).map(kill_once)
    counted = pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + abs(b[1])))
    counted.filter(lambda t: t[0] == 1).sink_to(sink)
    job = env.execute_async()
    RangesSource.ranges.append((0, keys))
    wait_for(lambda: not RangesSource.ranges)
    job.trigger_checkpoint().result()
    before = len(sink.results())
    killed = time.perf_counter()
    RangesSource.ranges.append((-1, 1))
    wait_for(lambda: os.path.exists(marker))
    dead = time.perf_counter()
    # This source does not replay the input of the failed epoch: add more.
    RangesSource.ranges.append((1, 3))
    wait_for(lambda: not RangesSource.ranges)
    job.trigger_checkpoint().result()
    wait_for(lambda: len(sink.results()) > before)
    took = time.perf_counter() - dead
    job.cancel().result()
    os.unlink(marker)
    return {"keys": keys, "seconds": took, "to_death": dead - killed}


def discard(value: Any) -> None:
    """Discard a record."""


def cost(options: argparse.Namespace, directory: str) -> dict[str, Any]:
    env = environment(directory, options.interval)
    keys = options.keys
    pairs = env.from_source(NumberSequenceSource(0, options.records - 1)).map(lambda x: (x * 7919 % keys, 1))
    pairs.key_by(lambda t: t[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).add_sink(discard)
    started = time.perf_counter()
    env.execute()
    seconds = time.perf_counter() - started
    return {"records": options.records, "seconds": seconds, "per_second": options.records / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sizes", "recovery", "cost"])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--interval", type=int, default=0, help="milliseconds between checkpoints; 0 for none")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="millstream-bench-")
    # The start of Spark is not measured.
    warm = environment(directory, 0)
    warm.from_collection([1]).add_sink(discard)
    warm.execute()
    try:
        print(json.dumps(globals()[options.what](options, directory)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
