"""Runs one query of the benchmark on Spark SQL, over all numbers at once; prints JSON with records and seconds."""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession

from bench.sql.queries import BY_NAME


def run(spark: SparkSession, query: str, records: int) -> float:
    spark.range(0, records, 1, 2).selectExpr("id AS n", "timestamp_millis(id div 10) AS ts").createOrReplaceTempView(
        "seq"
    )
    started = time.perf_counter()
    spark.sql(query).write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started


def main() -> None:
    name, records = sys.argv[1], int(sys.argv[2])
    query = BY_NAME[name].spark
    assert query is not None
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").config(map=settings)
    # Both sides of the join have the same size, so neither is broadcast, as in a stream join.
    spark = builder.config("spark.sql.autoBroadcastJoinThreshold", "-1").getOrCreate()
    run(spark, query, records // 4)
    print(json.dumps({"records": records, "seconds": run(spark, query, records)}))
    spark.stop()


if __name__ == "__main__":
    main()
