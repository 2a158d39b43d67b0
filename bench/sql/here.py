"""Runs one query of the benchmark on millstream after a warm-up run; prints JSON with records and seconds."""

from __future__ import annotations

import json
import sys
import time

from bench.sql.queries import BY_NAME, SINK
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import DataTypes, StreamTableEnvironment
from millstream.table.udf import udf

SOURCE = """
CREATE TABLE {name} (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n / 10, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
WITH ('connector' = 'datagen', 'rows-per-second' = '2000000000', 'fields.n.kind' = 'sequence', 'fields.n.start' = '0',
  'fields.n.end' = '{last}')
"""
PLAIN = SOURCE.replace("ts AS TO_TIMESTAMP_LTZ(n / 10, 3), WATERMARK FOR ts AS ts - INTERVAL '1' SECOND", "").replace(
    "(n BIGINT, )", "(n BIGINT)"
)


@udf(result_type=DataTypes.BIGINT())
def plus_one(n: int) -> int:
    return n + 1


@udf(result_type=DataTypes.BIGINT(), func_type="pandas")
def plus_one_pandas(n):  # type: ignore[no-untyped-def]
    return n + 1


def run(t_env: StreamTableEnvironment, name: str, records: int, number: int) -> float:
    query = BY_NAME[name]
    source = SOURCE if "ts" in query.insert else PLAIN
    t_env.execute_sql(source.format(name=f"seq{number}", last=records - 1))
    t_env.execute_sql(SINK.format(name=f"sink{number}", columns=query.columns))
    started = time.perf_counter()
    statement = query.insert.replace("seq", f"seq{number}")
    t_env.execute_sql(f"INSERT INTO sink{number} {statement}").wait()
    return time.perf_counter() - started


def main() -> None:
    name, records, engine = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "spark"
    config = Configuration().set_string("parallelism.default", "2").set_string("millstream.engine", engine)
    config.set_string("millstream.quiet", "true")
    t_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(config))
    for key, value in BY_NAME[name].settings:
        t_env.get_config().set(key, value)
    t_env.create_temporary_system_function("plus_one", plus_one)
    t_env.create_temporary_system_function("plus_one_pandas", plus_one_pandas)
    run(t_env, name, max(records // 20, 1000), 0)
    print(json.dumps({"records": records, "seconds": run(t_env, name, records, 1)}))


if __name__ == "__main__":
    main()
