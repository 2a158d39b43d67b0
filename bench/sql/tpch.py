"""TPC-H beside Spark SQL: the same Parquet files and queries in turns, two cores; answers are compared with DuckDB's.

    python bench/sql/tpch.py [--scale 1] [--only 1,3,18] [--rounds 2]

Both sides are warm: a process runs q6 first. The best of the rounds counts, because neighbours on the machine only ever
make a run slower. Of Millstream the largest resident size of a worker is told, too.
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

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "bench")]

from tests.sql import tpch  # noqa: E402
from venvs import CACHE  # noqa: E402

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

    settings = {
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
    """The largest resident size of a Python process below this one, in bytes."""

    def __init__(self) -> None:
        self.largest = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        import psutil

        own = psutil.Process()
        while True:
            for child in own.children(recursive=True):
                try:
                    if "python" in child.name():
                        self.largest = max(self.largest, child.memory_info().rss)
                except psutil.Error:
                    continue
            time.sleep(0.1)


def run_side(side: str, folder: Path, numbers: list[int]) -> None:
    """Run queries, a JSON line each."""
    run, queries, sizes = SIDES[side](folder), tpch.queries(), Sizes()
    run(queries[6])
    for number in numbers:
        sizes.largest = 0
        started = time.perf_counter()
        rows = run(queries[number])
        seconds = time.perf_counter() - started
        told = {"query": number, "seconds": seconds, "size": sizes.largest, "rows": tpch.plain(rows)}
        print(json.dumps(told), flush=True)


def measured(side: str, folder: Path, numbers: list[int]) -> dict[int, dict[str, Any]]:
    asked = ",".join(map(str, numbers))
    command = [sys.executable, __file__, "--side", side, "--folder", str(folder), "--only", asked]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=dict(os.environ))
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {told["query"]: told for told in found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--only", default=",".join(map(str, tpch.queries())))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--side")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    numbers = [int(number) for number in asked.only.split(",")]
    if asked.side:
        run_side(asked.side, asked.folder, numbers)
        return
    folder = CACHE / f"tpch-{asked.scale:g}"
    if not folder.exists():
        tpch.generate(folder, asked.scale)
    compare(folder, numbers, asked.rounds)


def compare(folder: Path, numbers: list[int], rounds: int) -> None:
    from tests.sql.tpch.record import ask

    wanted = {int(n): rows for n, rows in json.loads(ask(folder)).items()}
    best: dict[str, dict[int, float]] = {side: {} for side in SIDES}
    size, wrong = 0, []
    for _ in range(rounds):
        for side in SIDES:
            for number, told in measured(side, folder, numbers).items():
                best[side][number] = min(told["seconds"], best[side].get(number, math.inf))
                if side == "millstream":
                    size = max(size, told["size"])
                    if not tpch.are_equal(told["rows"], wanted[number]):
                        wrong.append(number)
    print(f"{'query':>6} {'millstream':>11} {'Spark SQL':>10} {'ratio':>6}")
    for number in numbers:
        ours, theirs = best["millstream"][number], best["spark"][number]
        answer = "  other answer than DuckDB's" if number in wrong else ""
        print(f"{number:>6} {ours:>9.2f} s {theirs:>8.2f} s {ours / theirs:>6.2f}{answer}")
    ours, theirs = (sum(best[side].values()) for side in ("millstream", "spark"))
    print(f"{'all':>6} {ours:>9.2f} s {theirs:>8.2f} s {ours / theirs:>6.2f}")
    print(f"largest worker: {size / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
