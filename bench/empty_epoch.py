"""The cost of an empty epoch with 1, 2 and 3 levels, against the same Spark job without millstream.

Prints one JSON object: levels -> milliseconds of each. Medians of many runs, the two sides taking turns in two
processes, so that noise on the machine falls on both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

LEVELS = (1, 2, 3)


def median_ms(run: Any, rounds: int) -> float:
    for _ in range(10):
        run()
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        samples.append((time.perf_counter() - start) * 1000)
    return statistics.median(samples)


def bare_spark(levels: int, cores: int, rounds: int) -> float:
    """The job a user of bare PySpark would run on the stock daemon, with the same socket setting."""
    from pyspark import SparkConf, SparkContext

    conf = SparkConf().setMaster(f"local[{cores}]").setAppName("bare").set("spark.ui.enabled", "false")
    conf.set("spark.python.unix.domain.socket.enabled", "true").set("spark.ui.showConsoleProgress", "false")
    context = SparkContext(conf=conf)
    context.setLogLevel("OFF")

    def run() -> None:
        rdd = context.parallelize([], cores).mapPartitions(list)
        for _ in range(levels - 1):
            rdd = rdd.map(lambda x: (x, x)).partitionBy(cores).mapPartitions(list)
        rdd.collect()

    result = median_ms(run, rounds)
    context.stop()
    return result


def millstream(levels: int, cores: int, rounds: int) -> float:
    """Epochs of a real job whose source has nothing to give."""
    from millstream.common import Configuration
    from millstream.datastream import StreamExecutionEnvironment
    from millstream.datastream.connectors.number_seq import NumberSequenceSource
    from millstream.operators.slot import LevelTask

    config = Configuration.from_dict({"spark.master": f"local[{cores}]", "millstream.quiet": "true"})
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(cores)
    stream = env.from_source(NumberSequenceSource(0, 0))
    for _ in range(levels - 1):
        stream = stream.key_by(lambda x: x).map(lambda x: x)
    stream.add_sink(lambda x: None)
    job = env._launch_pending("empty")
    job.result.result()
    epochs = job._runner
    epochs.open()
    number = [0]

    def run() -> None:
        number[0] += 1
        epochs.run([LevelTask(number[0], level) for level in range(levels)])

    from millstream.spark.launch import reopen_for_measurement

    with reopen_for_measurement(job):
        return median_ms(run, rounds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=["spark", "millstream"])
    parser.add_argument("--levels", type=int)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    if options.side:
        side = bare_spark if options.side == "spark" else millstream
        print(json.dumps(side(options.levels, 2, options.rounds)))
        return
    results: dict[str, dict[str, float]] = {}
    for levels in LEVELS:
        for side in ("spark", "millstream"):
            command = [sys.executable, __file__, "--side", side, "--levels", str(levels), "--rounds", str(options.rounds)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            results.setdefault(str(levels), {})[f"{side}_ms"] = json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(results))


if __name__ == "__main__":
    main()
