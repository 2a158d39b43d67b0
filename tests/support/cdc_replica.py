"""A replica that a job builds from a database's changes, and its checks.

Every change of a row is checked against the row in the job's state, and emitted with the number of the row's changes,
so that lost and duplicate changes show at once. As a program, the module runs such a job until it is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.base import Source
from millstream.datastream.connectors.cdc import JsonDebeziumDeserializationSchema, MySqlSource, PostgresSource
from millstream.datastream.connectors.sql import SqlSink
from millstream.datastream.state import ValueStateDescriptor

UNAVAILABLE = "__debezium_unavailable_value"
FACTS = "CREATE TABLE facts (tbl text, key text, version int, body text)"


class Replica(KeyedProcessFunction):
    """Keeps each row's current value; fails on a change that does not fit it."""

    def open(self, runtime_context: Any) -> None:
        self.row = runtime_context.get_state(ValueStateDescriptor("row", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        op, table, key, after = value
        stored: tuple[int, Any] = self.row.value() or (0, None)
        version, row = stored
        if (row is None) != (op in "rc"):
            raise AssertionError(f"{op} of {table} {key}, but the stored row is {row}")
        if after is not None:
            after = {k: row[k] if v == UNAVAILABLE else v for k, v in after.items()}
        self.row.update((version + 1, after))
        body = None if after is None else json.dumps(after, sort_keys=True)
        yield table, key, version + 1, body


KEYS = {"accounts": ["id"], "notes": ["title"], "pairs": ["a", "b"]}


def parsed_change(text: str) -> tuple[str, str, str, Any]:
    change = json.loads(text)
    table = change["source"]["table"]
    row = change["after"] if change["after"] is not None else change["before"]
    return change["op"], table, json.dumps([row[k] for k in KEYS[table]]), change["after"]


class Kills:
    """Kills its own process once per entry of `after`, each time after that many records."""

    def __init__(self, flags: Path, after: list[int]) -> None:
        self._flags, self._after = flags, after
        self._seen = 0

    def __call__(self, text: str) -> str:
        self._seen += 1
        killed = len(list(self._flags.iterdir()))
        if killed < len(self._after) and self._seen == self._after[killed]:
            (self._flags / str(killed)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return text


def build(
    env: StreamExecutionEnvironment, source: Source, facts: Callable[[], Any], kills: Kills | None = None
) -> None:
    """Build the job."""
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "changes").uid("changes")
    if kills is not None:
        stream = stream.map(kills)
    rows = stream.map(parsed_change).key_by(lambda c: (c[1], c[2])).process(Replica()).uid("replica")
    rows.sink_to(SqlSink(facts, "facts", ["tbl", "key", "version", "body"])).uid("facts")


class Connect:
    """Connects to PostgreSQL in any process."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo

    def __call__(self) -> Any:
        import psycopg

        return psycopg.connect(self.conninfo)


def postgres_source(conninfo: str, slot: str) -> Source:
    words = dict(w.split("=") for w in conninfo.split())
    builder = PostgresSource.builder().hostname(words["host"]).port(int(words["port"])).database(words["dbname"])
    builder.username("postgres").slot_name(slot).table_list(r"public\.(accounts|notes|pairs)").split_size(40)
    return builder.deserializer(JsonDebeziumDeserializationSchema()).heartbeat_interval(1).build()


def mariadb_source(socket: str, database: str) -> Source:
    builder = MySqlSource.builder().hostname(socket).username("root")
    builder.table_list(rf"{database}\.(accounts|notes|pairs)").split_size(40)
    return builder.deserializer(JsonDebeziumDeserializationSchema()).heartbeat_interval(1).build()


MARIADB_TABLES = [
    "CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance decimal(12, 2))",
    "CREATE TABLE notes (title varchar(60) PRIMARY KEY, n int, body mediumtext)",
    "CREATE TABLE pairs (b varchar(60), n int, a int, body mediumtext, PRIMARY KEY (a, b))",
]
POSTGRES_TABLES = [
    "CREATE TABLE accounts (id int PRIMARY KEY, owner text, balance numeric(12, 2))",
    "CREATE TABLE notes (title text PRIMARY KEY, n int, body text)",
    "ALTER TABLE notes ALTER body SET STORAGE EXTERNAL",
    "ALTER TABLE notes REPLICA IDENTITY FULL",
    "CREATE TABLE pairs (b text, n int, a int, body text, PRIMARY KEY (a, b))",
    "ALTER TABLE pairs ALTER body SET STORAGE EXTERNAL",
]


class Workload:
    """Random transactions: deletes, changed keys, large values, some of them rolled back."""

    def __init__(self, connection: Any, seed: int, is_mysql: bool = False) -> None:
        self.connection = connection
        self.is_mysql = is_mysql
        self.rng = random.Random(seed)

    def title(self) -> str:
        # The column order differs from the byte order.
        word = self.rng.choice(["a", "B", "é", "Z", "_", "x y", "'q\\"])
        return f"{word}{self.rng.randrange(60)}"

    def statements(self) -> tuple[str, tuple[Any, ...]]:
        rng = self.rng
        n, big = rng.randrange(300), chr(97 + rng.randrange(26)) * rng.choice([3, 9000])
        title, other = self.title(), self.title()
        return rng.choice(
            [
                (self.upsert("accounts", "id", ("id", "owner", "balance")), (n, f"o{n}", f"{n}.25")),
                ("UPDATE accounts SET balance = balance + 1 WHERE id < %s", (rng.randrange(20),)),
                ("DELETE FROM accounts WHERE id = %s", (n,)),
                ("UPDATE accounts SET id = %s WHERE id = %s", (1000 + rng.randrange(10**8), n)),
                (self.upsert("notes", "title", ("title", "n", "body")), (title, n, big)),
                ("UPDATE notes SET n = n + 1 WHERE title = %s", (title,)),
                ("UPDATE notes SET title = %s WHERE title = %s", (f"{other}/{rng.randrange(10**8)}", title)),
                ("DELETE FROM notes WHERE title = %s", (title,)),
                (self.upsert("pairs", "a, b", ("b", "n", "a", "body")), (title, n, n % 30, big)),
                ("UPDATE pairs SET n = n + 1 WHERE a = %s", (n % 30,)),
                ("DELETE FROM pairs WHERE b = %s", (title,)),
            ]
        )

    def upsert(self, table: str, keys: str, columns: tuple[str, ...]) -> str:
        placeholders = ", ".join(["%s"] * len(columns))
        if self.is_mysql:
            changes = ", ".join(f"{c} = VALUES({c})" for c in columns)
            return (
                f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders}) ON DUPLICATE KEY UPDATE {changes}"
            )
        changes = ", ".join(f"{c} = EXCLUDED.{c}" for c in columns)
        insert = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders})"
        return f"{insert} ON CONFLICT ({keys}) DO UPDATE SET {changes}"

    def transaction(self) -> None:
        with self.connection.cursor() as cursor:
            for _ in range(self.rng.choice([1, 1, 3, 20])):
                cursor.execute(*self.statements())
            cursor.execute("ROLLBACK" if self.rng.random() < 0.05 else "COMMIT")

    def run(self, transactions: int, seconds: float = 0) -> None:
        """Run the transactions, spread over the given seconds."""
        began = time.monotonic()
        for i in range(transactions):
            self.transaction()
            time.sleep(max(0.0, began + seconds * (i + 1) / transactions - time.monotonic()))


def original(connection: Any) -> dict[tuple[str, str], str]:
    """Return the rows of the database."""
    rows_by_key: dict[tuple[str, str], str] = {}
    for table, keys in KEYS.items():
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            names = [d[0] for d in cursor.description]
            for values in cursor.fetchall():
                row = {
                    n: v if isinstance(v, (int, str)) or v is None else str(v)
                    for n, v in zip(names, values, strict=True)
                }
                rows_by_key[table, json.dumps([row[k] for k in keys])] = json.dumps(row, sort_keys=True)
        connection.commit()
    return rows_by_key


def replica(connection: Any) -> dict[tuple[str, str], str]:
    """Return the rows of the replica; check that every change of a row is included exactly once."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tbl, key, version, body FROM facts ORDER BY tbl, key, version")
        rows = cursor.fetchall()
    connection.commit()
    bodies: dict[tuple[str, str], Any] = {}
    versions: dict[tuple[str, str], int] = {}
    for table, key, version, body in rows:
        assert version == versions.get((table, key), 0) + 1, f"change {version} of {table} {key}"
        versions[table, key] = version
        bodies[table, key] = body
    return {where: body for where, body in bodies.items() if body is not None}


def await_equal(database: Any, facts: Any, seconds: float = 60) -> None:
    """Wait until the replica equals the original."""
    end = time.monotonic() + seconds
    while True:
        expected, actual = original(database), replica(facts)
        if expected == actual:
            return
        if time.monotonic() > end:
            missing = [k for k in expected if k not in actual][:5]
            extra = [k for k in actual if k not in expected][:5]
            other = [
                (k, expected[k][:80], actual[k][:80]) for k in expected if k in actual and expected[k] != actual[k]
            ][:3]
            raise AssertionError(f"{len(expected)} rows, {len(actual)} in the replica; {missing=} {extra=} {other=}")
        time.sleep(0.1)


def settings(checkpoints: str) -> dict[str, str]:
    options = {
        "pipeline.name": "replica",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.dir": checkpoints,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "100 ms",
        "parallelism.default": "2",
    }
    if any(Path(checkpoints).glob("*/chk-*/_metadata*")) or any(Path(checkpoints).glob("*/chk-*")):
        options["execution.state-recovery.path"] = "latest"
    return options


def main(kind: str, where: str, mode: str, facts: str, checkpoints: str) -> None:
    from millstream.testing import LocalEnvironment

    env = LocalEnvironment(Configuration.from_dict(settings(checkpoints)))
    source = {"postgres": postgres_source, "mariadb": mariadb_source}[kind](where, mode)
    build(env, source, Connect(facts))
    env.execute()


if __name__ == "__main__":
    main(*sys.argv[1:])
