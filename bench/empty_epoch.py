"""The cost of an empty epoch with 1, 2 and 3 levels, compared with the same Spark job without millstream.

Prints one JSON object: levels -> milliseconds of each: bare Spark, an epoch as a Spark job (millstream), and an epoch
in resident slots (resident). Medians of many runs; the sides alternate in separate processes, so that noise on the
machine affects all of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator

LEVELS = (1, 2, 3)
WARM_UP = 30


def median_ms(run: Any, rounds: int) -> float:
    for _ in range(WARM_UP):
        run()
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        samples.append((time.perf_counter() - start) * 1000)
    return statistics.median(samples)


def bare_spark(levels: int, cores: int, rounds: int) -> float:
    """The equivalent job of bare PySpark on the stock daemon, with the same socket setting."""
    from pyspark import RDD, SparkConf, SparkContext

    conf = SparkConf().setMaster(f"local[{cores}]").setAppName("bare").set("spark.ui.enabled", "false")
    conf.set("spark.python.unix.domain.socket.enabled", "true").set("spark.ui.showConsoleProgress", "false")
    context = SparkContext(conf=conf)
    context.setLogLevel("OFF")

    def run() -> None:
        rdd: RDD[Any] = context.parallelize([], cores).mapPartitions(list)
        for _ in range(levels - 1):
            rdd = rdd.map(lambda x: (x, x)).partitionBy(cores).mapPartitions(list)
        rdd.collect()

    result = median_ms(run, rounds)
    context.stop()
    return result


class EmptyEpochs(Source):
    """A source without records that logs the time of every poll."""

    poll_times: ClassVar[list[float]] = []

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _EmptyEnumerator(self.epochs, parallelism)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _EmptyReader()


class _EmptyEnumerator(SplitEnumerator):
    def __init__(self, epochs: int, parallelism: int) -> None:
        self.left = epochs
        self.parallelism = parallelism

    def poll(self, budget: int, now: float) -> SplitAssignment:
        EmptyEpochs.poll_times.append(time.perf_counter())
        self.left -= 1
        return SplitAssignment({i: [()] for i in range(self.parallelism)})

    def is_finished(self) -> bool:
        return self.left <= 0

    def snapshot(self) -> int:
        return self.left


class _EmptyReader(SourceReader):
    def read(self, split_range: Any) -> Iterator[list[Any]]:
        return iter(())


def millstream(levels: int, cores: int, rounds: int, exchange: str = "spark") -> float:
    """The whole loop of a real job, from one poll of the source to the next."""
    settings = {"spark.master": f"local[{cores}]", "millstream.quiet": "true", "millstream.exchange": exchange}
    config = Configuration.from_dict(settings)
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(cores).set_buffer_timeout(0)
    stream = env.from_source(EmptyEpochs(rounds + WARM_UP))
    for _ in range(levels - 1):
        stream = stream.key_by(lambda x: x).map(lambda x: x)
    stream.add_sink(print)
    env.execute()
    times = EmptyEpochs.poll_times[WARM_UP:]
    return statistics.median((b - a) * 1000 for a, b in itertools.pairwise(times))


def resident(levels: int, cores: int, rounds: int) -> float:
    return millstream(levels, cores, rounds, "resident")


SIDES = {"spark": bare_spark, "millstream": millstream, "resident": resident}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=[*SIDES])
    parser.add_argument("--levels", type=int)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(SIDES[options.side](options.levels, 2, options.rounds)))
        return
    results: dict[str, dict[str, float]] = {}
    for levels in LEVELS:
        for side in SIDES:
            arguments = ["--side", side, "--levels", str(levels), "--rounds", str(options.rounds)]
            command = [sys.executable, __file__, *arguments]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results.setdefault(str(levels), {})[f"{side}_ms"] = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(results))


if __name__ == "__main__":
    main()
