"""Nexmark on millstream, like `Nexmark.java` on Flink.

nexmark_here.py ddl.sql query.sql [key=value ...] reads commands from stdin. "run EVENTS" runs the query into blackhole
and prints its seconds and the CPU seconds of this process. "rows EVENTS" prints its rows, which have one column.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import bench.sql.nexmark_events  # noqa: F401 - registers its connectors
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import StreamTableEnvironment, TableDescriptor
from millstream.table.udf import udf


@udf(result_type="BIGINT")
def count_char(text: str, letter: str) -> int:
    return text.count(letter)


def environment(ddl: str, settings: dict[str, str], events: int) -> StreamTableEnvironment:
    """Return a table environment with Nexmark's tables, over a number of events."""
    config = Configuration()
    for key, value in {"parallelism.default": "2", "table.local-time-zone": "UTC", **settings}.items():
        config.set_string(key, value)
    t_env = StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment(config))
    t_env.create_temporary_system_function("count_char", count_char)
    for statement in ddl.replace("{events}", str(events)).split(";"):
        if statement.strip():
            t_env.execute_sql(statement)
    return t_env


def run(t_env: StreamTableEnvironment, query: str) -> float:
    """Run a query into a blackhole table; return the seconds it takes."""
    started = time.perf_counter()
    t_env.sql_query(query).execute_insert(TableDescriptor.for_connector("blackhole").build()).wait()
    return time.perf_counter() - started


def main() -> None:
    ddl, query = (Path(p).read_text() for p in sys.argv[1:3])
    settings = {"millstream.quiet": "true", **dict(a.split("=", 1) for a in sys.argv[3:])}
    print("@0", flush=True)
    for line in sys.stdin:
        action, events = line.split()
        t_env = environment(ddl, settings, int(events))
        if action == "run":
            cpu = time.process_time()
            print(f"@{run(t_env, query)} {time.process_time() - cpu}", flush=True)
            continue
        with t_env.execute_sql(query).collect() as rows:
            for row in rows:
                print(f"={row[0]}")
        print("@0", flush=True)


if __name__ == "__main__":
    main()
