"""Change data capture compared with pg_recvlogical: how fast a job catches up with a log of changes.

    python -m bench.cdc [rows] [rounds]

Both read the same changes of one table (an int, a text, a numeric, a timestamp with zone), each from its own
replication slot of one server. pg_recvlogical writes the server's output to /dev/null. The job on Spark converts the
changes to Rows, reads each, and takes checkpoints. The two alternate, and the best round of each counts. The ratio is
that of changes per second.
"""

from __future__ import annotations

import glob
import json
import subprocess
import sys
import time
from typing import Any

import psycopg

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.cdc import PostgresSource, RowDeserializationSchema, StartupOptions
from millstream.testing.servers.databases import PostgresServer

TABLE = "CREATE TABLE t (id int PRIMARY KEY, name text, n numeric, at timestamptz DEFAULT now())"
INSERT = "INSERT INTO t (id, name, n) SELECT g, 'name ' || g, g * 1.5 FROM generate_series(%s::int, %s::int) g"
# The number of changes per transaction.
TRANSACTION = 1000


def fill(connection: psycopg.Connection[Any], rows: int) -> str:
    for start in range(0, rows, TRANSACTION):
        connection.execute(INSERT, (start, min(start + TRANSACTION, rows) - 1))
    row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


def recvlogical_seconds(server: PostgresServer, database: str, slot: str, end: str) -> float:
    """Let pg_recvlogical read the log up to a position; return the seconds it takes."""
    program = sorted(glob.glob("/usr/lib/postgresql/*/bin/pg_recvlogical"))[-1]
    where = ["-h", server.directory, "-p", str(server.port), "-U", "postgres", "-d", database, "-S", slot]
    options = ["-o", "proto_version=1", "-o", "publication_names=dbz_publication", "--endpos", end]
    began = time.perf_counter()
    subprocess.run([program, *where, "--start", "-f", "/dev/null", *options], check=True)
    return time.perf_counter() - began


def job_seconds(server: PostgresServer, database: str, slot: str, rows: int) -> float:
    """Let a job read the changes; return the seconds from its first record to its last."""
    config = {
        "spark.master": "local[2]",
        "millstream.quiet": "true",
        "parallelism.default": "1",
        "execution.checkpointing.interval": "1 s",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(config))
    builder = PostgresSource.builder().hostname(server.directory).port(server.port).database(database)
    builder.username("postgres").slot_name(slot).table_list("public.t")
    builder.deserializer(RowDeserializationSchema(changelog_mode="upsert"))
    source = builder.startup_options(StartupOptions.committed_offset()).build()
    last = rows - 1
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "changes")
    ends = stream.filter(lambda row: row[0] in (0, last)).map(lambda row: (row[0], time.time()))
    times: dict[int, float] = {}
    with_records = ends.execute_and_collect()
    for id_, arrival in with_records:
        times[id_] = arrival
        if id_ == last:
            break
    with_records.close()
    return times[last] - times[0]


def rates(rows: int, rounds: int) -> tuple[float, float]:
    """Return the changes per second of pg_recvlogical and of the job."""
    with PostgresServer() as server:
        with psycopg.connect(server.new_database(), autocommit=True) as connection:
            connection.execute(TABLE)
            connection.execute("CREATE PUBLICATION dbz_publication FOR TABLE t")
            for slot in (f"{reader}{i}" for reader in ("bare", "job") for i in range(rounds)):
                connection.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
            end = fill(connection, rows)
            database = connection.info.dbname
        times = [
            (recvlogical_seconds(server, database, f"bare{i}", end), job_seconds(server, database, f"job{i}", rows))
            for i in range(rounds)
        ]
    return rows / min(bare for bare, _ in times), rows / min(job for _, job in times)


def main(rows: int, rounds: int) -> None:
    bare, job = rates(rows, rounds)
    results = {
        "pg_recvlogical_per_second": round(bare),
        "millstream_per_second": round(job),
        "ratio": round(job / bare, 2),
    }
    print(json.dumps({"changes": rows, **results}))


if __name__ == "__main__":
    main(*(int(a) for a in (sys.argv[1:] + ["300000", "3"][len(sys.argv) - 1 :])))
