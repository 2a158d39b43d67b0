"""keyed_reduce on Spark's own transformWithState from Python (rows, RocksDB state store).

The input is written to Parquet beforehand and read by one streaming query with the
availableNow trigger; the map to (key, 1) is a Spark SQL expression, which is the cheapest
Spark has. A first batch of a few records starts the Python workers, opens the state store
and compiles the plan; S is the sum of the triggerExecution times the query reports for
the batches after it (--batches, one by default: fewer batches are faster).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.query import StreamingQuery

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
WARM_UP_RECORDS = 100


def add(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    return (a[0], a[1] + b[1])


class RunningAdd(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("sum", "k long, v long")

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: Any
    ) -> Iterator[Row]:
        # Spark passes all rows of a key in a batch at once: one read, one write.
        state = self._state.get()
        for row in rows:
            state = (row[0], row[1]) if state is None else add(state, row)
            yield Row(k=state[0], v=state[1])
        self._state.update(state)

    def close(self) -> None:
        pass


def write_input(folder: Path, records: int, files: int, warm_up_files: int) -> None:
    """Warm-up files first: the source reads files in order of modification time."""
    warm_up = np.array_split(np.arange(WARM_UP_RECORDS), warm_up_files)
    main = [np.arange(i, records, files) for i in range(files)]
    for i, numbers in enumerate([*warm_up, *main]):
        path = folder / f"{i:05}.parquet"
        pq.write_table(pa.table({"x": numbers.astype("int64")}), path)
        os.utime(path, (1_000_000_000 + i, 1_000_000_000 + i))


def session(parallelism: int) -> SparkSession:
    spark = (
        SparkSession.builder.master(f"local[{parallelism}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", str(parallelism))
        .config("spark.sql.streaming.stateStore.providerClass", PROVIDER)
        .getOrCreate()
    )
    # Spark logs a warning for every new key, which would be measured too.
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def start(spark: SparkSession, folder: Path, keys: int, files_per_batch: int) -> StreamingQuery:
    numbers = (
        spark.readStream.schema("x long")
        .option("maxFilesPerTrigger", files_per_batch)
        .parquet(str(folder / "input"))
    )
    pairs = numbers.selectExpr(f"x * 7919 % {keys} AS k", "1L AS v")
    sums = pairs.groupBy("k").transformWithState(
        statefulProcessor=RunningAdd(),
        outputStructType="k long, v long",
        outputMode="Update",
        timeMode="None",
    )
    return (
        sums.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def seconds_after_warm_up(query: StreamingQuery, records: int) -> float:
    main = [p for p in query.recentProgress if p.batchId > 0]
    seen = sum(p.numInputRows for p in main)
    if seen != records:
        raise SystemExit(f"the query read {seen} records after the warm-up, not {records}")
    return sum(p.durationMs["triggerExecution"] for p in main) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", choices=["keyed_reduce"], default="keyed_reduce")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--batches", type=int, default=1)
    args = parser.parse_args()
    # The workers must use this venv's Python, regardless of PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "input").mkdir()
        files = args.parallelism
        write_input(folder / "input", args.records, files * args.batches, files)
        spark = session(args.parallelism)
        query = start(spark, folder, args.keys, files)
        query.awaitTermination()
        seconds = seconds_after_warm_up(query, args.records)
        spark.stop()
    print(json.dumps({"records": args.records, "seconds": seconds}))


if __name__ == "__main__":
    main()
