"""TPC-H compared with Spark SQL: the same Parquet files and queries in turns, two cores; DuckDB checks the results.

    python -m bench.sql.tpch [--scale 1] [--only 1,3,18] [--rounds 2] [--memory [1024]]

Both systems are warm: a process runs q6 first. The best round counts, because other load on the machine only slows a
run down. With `--memory`, a worker of Millstream that exceeds that many MiB is killed, so that its query fails, and
each query's peak memory per worker is printed, from the kernel's high-water mark (VmHWM).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.sql import tpch

from bench.results import store
from bench.venvs import CACHE

Run = Callable[[str], list[Any]]


def millstream(folder: Path) -> Run:
    from millstream.common import Configuration
    from millstream.datastream import StreamExecutionEnvironment
    from millstream.table import EnvironmentSettings, StreamTableEnvironment

    config = Configuration().set_string("parallelism.default", "2").set_string("millstream.quiet", "true")
    stream_env = StreamExecutionEnvironment.get_execution_environment(config)
    env = StreamTableEnvironment.create(stream_env, EnvironmentSettings.in_batch_mode())
    tpch.create_tables(env, folder)
    return lambda query: list(env.execute_sql(query).collect())


def spark(folder: Path) -> Run:
    from pyspark.sql import SparkSession

    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
    }
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    for table in tpch.TABLES:
        session.read.parquet(str(folder / f"{table}.parquet")).createOrReplaceTempView(table)
    return lambda query: list(session.sql(query).collect())


SIDES = {"millstream": millstream, "spark": spark}


class Sizes:
    """The maximum resident size of a worker below this process, in bytes; a worker above the limit is killed."""

    def __init__(self, limit: int | None) -> None:
        self.largest = 0
        self._limit = limit
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        import psutil

        own = psutil.Process()
        while True:
            for child in own.children(recursive=True):
                try:
                    if child.name() == "java":
                        continue
                    size = _peak_resident(child.pid)
                    self.largest = max(self.largest, size)
                    if self._limit is not None and size > self._limit:
                        print(f"killed: {child.name()} had {size >> 20} MiB", file=sys.stderr, flush=True)
                        child.kill()
                except (psutil.Error, OSError):
                    continue
            time.sleep(0.02)


def _peak_resident(process: int) -> int:
    """Return the peak resident size of a process, in bytes."""
    with open(f"/proc/{process}/status") as lines:
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)


def run_side(side: str, folder: Path, numbers: list[int], limit: int | None) -> None:
    """Run queries; print a JSON line for each."""
    run, queries, sizes = SIDES[side](folder), tpch.queries(), Sizes(limit)
    run(queries[6])
    for number in numbers:
        sizes.largest = 0
        started = time.perf_counter()
        rows = run(queries[number])
        seconds = time.perf_counter() - started
        reported = {"query": number, "seconds": seconds, "size": sizes.largest, "rows": tpch.plain(rows)}
        print(json.dumps(reported), flush=True)


def measured(side: str, folder: Path, numbers: list[int], memory: int | None) -> dict[int, dict[str, Any]]:
    selection = ",".join(map(str, numbers))
    command = [sys.executable, "-m", "bench.sql.tpch", "--side", side, "--folder", str(folder), "--only", selection]
    if memory is not None and side == "millstream":
        command += ["--memory", str(memory)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {reported["query"]: reported for reported in results}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default=",".join(map(str, tpch.queries())))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory", type=int, nargs="?", const=1024)
    parser.add_argument("--side")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    numbers = [int(number) for number in options.only.split(",")]
    if options.side:
        run_side(options.side, options.folder, numbers, None if options.memory is None else options.memory << 20)
        return
    folder = CACHE / f"tpch-{options.scale:g}"
    if not folder.exists():
        tpch.generate(folder, options.scale)
    compare(folder, numbers, options.rounds, options.memory)


def compare(folder: Path, numbers: list[int], rounds: int, memory: int | None) -> None:
    from tests.sql.tpch.record import results_of_duckdb

    expected = {int(n): rows for n, rows in json.loads(results_of_duckdb(folder)).items()}
    best: dict[str, dict[int, float]] = {side: {} for side in SIDES}
    sizes: dict[int, int] = {}
    failed: list[int] = []
    for _ in range(rounds):
        for side in SIDES:
            for number, reported in measured(side, folder, numbers, memory).items():
                best[side][number] = min(reported["seconds"], best[side].get(number, math.inf))
                if side == "millstream":
                    sizes[number] = max(reported["size"], sizes.get(number, 0))
                    if not tpch.are_equal(reported["rows"], expected[number]):
                        failed.append(number)
    print(f"{'query':>6} {'millstream':>11} {'Spark SQL':>10} {'ratio':>6}")
    for number in numbers:
        ours, theirs = best["millstream"][number], best["spark"][number]
        answer = "  differs from DuckDB" if number in failed else ""
        size = "" if memory is None else f" {sizes[number] >> 20:>6} MiB"
        print(f"{number:>6} {ours:>9.2f} s {theirs:>8.2f} s {ours / theirs:>6.2f}{size}{answer}")
    ours, theirs = (sum(best[side].values()) for side in ("millstream", "spark"))
    print(f"{'all':>6} {ours:>9.2f} s {theirs:>8.2f} s {ours / theirs:>6.2f}")
    if rounds > 1 and len(numbers) == len(tpch.queries()) and not failed:
        data = {"scale": folder.name.removeprefix("tpch-"), "seconds": best, "max_worker_bytes": max(sizes.values())}
        store("tpch", data)
    print(f"largest worker: {max(sizes.values()) >> 20} MiB")


if __name__ == "__main__":
    main()
