"""SqlSink: real SQLite files and a real PostgreSQL server, driven as the engine drives it."""

from __future__ import annotations

import gc
import os
import pickle
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cloudpickle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.common import Row
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.jdbc import connection as sql_database
from millstream.connectors.jdbc import sql_sink as sql
from millstream.connectors.jdbc.connection import Driver
from millstream.connectors.jdbc.sql_sink import Table
from millstream.datastream.connectors.base import CommitContext, SinkWriter
from millstream.datastream.connectors.sql import SqlSink
from tests.support.chaos import OPERATOR, ChaoticJob, Crash, runtime_context, travelled

CONTEXT = CommitContext("job", OPERATOR)
Connect = Callable[[], Any]


def run_sql(connect: Connect, *statements: str) -> list[Any]:
    """Run statements in a transaction; return the rows of the last one."""
    with closing(connect()) as connection:
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        rows = [tuple(row) for row in cursor.fetchall()] if cursor.description else []
        connection.commit()
        return rows


def sqlite_file(path: str) -> Connect:
    return lambda: sqlite3.connect(path)


def postgres_database(conninfo: str) -> Connect:
    def connect() -> Any:
        import psycopg

        return psycopg.connect(conninfo)

    return connect


def mariadb_database(socket: str, database: str) -> Connect:
    def connect() -> Any:
        import pymysql

        return pymysql.connect(unix_socket=socket, user="root", database=database, charset="utf8mb4")

    return connect


def is_sqlite(connect: Connect) -> bool:
    with closing(connect()) as connection:
        return isinstance(connection, sqlite3.Connection)


@pytest.fixture(params=["sqlite", "postgres"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """Return a function that connects to an empty database."""
    if request.param == "sqlite":
        return sqlite_file(str(tmp_path / "test.db"))
    return postgres_database(request.getfixturevalue("postgres").new_database())


@pytest.fixture
def words(connect: Connect) -> Connect:
    """Return a function that connects to a database with a table."""
    run_sql(connect, "CREATE TABLE words (word TEXT PRIMARY KEY, count INTEGER, remark TEXT)")
    return connect


@contextmanager
def writer_of(sink: SqlSink) -> Iterator[SinkWriter]:
    """Return a writer as in another process."""
    writer: SinkWriter = pickle.loads(cloudpickle.dumps(sink)).create_writer(runtime_context())
    try:
        yield writer
    finally:
        writer.close()


def epoch(sink: SqlSink, name: str, values: list[Any], flush: bool = True) -> Any:
    """Run an epoch in a writer of its own; return its committable."""
    with writer_of(sink) as writer:
        writer.begin(f"job-{OPERATOR}-{name}")
        for value in values:
            writer.write(value)
        committable = travelled(writer.prepare_commit(flush))
        assert writer.runtime_snapshot() is None
        return committable


def commit(sink: SqlSink, *committables: Any) -> None:
    sink.create_committer(CONTEXT).commit([(0, c) for c in committables if c is not None])


def counts(connect: Connect) -> list[Any]:
    return run_sql(connect, "SELECT word, count FROM words ORDER BY word")


def staged_rows(connect: Connect, table: str = "words") -> int:
    ((n,),) = run_sql(connect, f"SELECT COUNT(*) FROM {table}__staged")
    return int(n)


def test_sql_sink_publishes_rows_on_commit_only(words: Connect) -> None:
    sink = SqlSink(words, "words", ["word", "count"])
    staged = [epoch(sink, "0-1-a", [("a", 1), ("b", 2)]), epoch(sink, "0-2-a", []), epoch(sink, "1-2-a", [("c", 3)])]
    assert staged[1] is None
    assert counts(words) == []
    commit(sink, *staged)
    assert counts(words) == [("a", 1), ("b", 2), ("c", 3)]
    assert staged_rows(words) == 0


def test_sql_sink_commit_is_idempotent(words: Connect) -> None:
    run_sql(words, "CREATE TABLE plain (word TEXT, count INTEGER)")
    sink = SqlSink(words, "plain", ["word", "count"])
    staged = epoch(sink, "0-1-a", [("a", 1)])
    commit(sink, staged)
    commit(sink, staged)
    sink.create_committer(CommitContext("other", OPERATOR)).recover([(0, staged)], "job")
    assert run_sql(words, "SELECT * FROM plain") == [("a", 1)]


def test_sql_sink_commit_is_atomic_when_driver_crashes(words: Connect) -> None:
    sink = SqlSink(words, "words", ["word", "count"])
    staged = [epoch(sink, f"0-{i}-a", [(word, i)]) for i, word in enumerate("abc")]
    for steps in range(3):
        with pytest.raises(Crash), crashing(steps):
            sink.create_committer(CONTEXT).commit([(0, s) for s in staged])
        assert counts(words) == []
        assert staged_rows(words) == 3
    commit(sink, *staged)
    assert counts(words) == [("a", 0), ("b", 1), ("c", 2)]


def test_sql_sink_commit_is_atomic_when_table_rejects_row(words: Connect) -> None:
    sink = SqlSink(words, "words", ["word", "count"])
    staged = [epoch(sink, "0-1-a", [("a", 1)]), epoch(sink, "0-2-a", [("a", 2)])]
    with pytest.raises(MillstreamError, match="could not be moved into table words"):
        commit(sink, *staged)
    assert counts(words) == []


def test_sql_sink_with_keys_keeps_last_row_per_key(words: Connect) -> None:
    sink = SqlSink(words, "words", ["count", "word"], key_columns=["word"])
    run_sql(words, "INSERT INTO words VALUES ('a', 0, 'kept'), ('z', 26, NULL)")
    staged = [
        epoch(sink, "0-1-a", [(1, "a"), (1, "b"), (2, "a"), (3, "a")]),
        epoch(sink, "1-1-a", [(9, "b"), (10, "c")]),
        epoch(sink, "0-2-a", [(4, "a")]),
    ]
    commit(sink, *staged)
    expected = [("a", 4, "kept"), ("b", 9, None), ("c", 10, None), ("z", 26, None)]
    assert run_sql(words, "SELECT * FROM words ORDER BY word") == expected


def test_sql_sink_with_only_key_columns_inserts_distinct_rows(connect: Connect) -> None:
    run_sql(connect, "CREATE TABLE seen (a INTEGER, b TEXT, UNIQUE (a, b))")
    sink = SqlSink(connect, "seen", ["a", "b"], key_columns=["a", "b"])
    commit(sink, epoch(sink, "0-1-a", [(1, "x"), (1, "x"), (1, "y")]), epoch(sink, "0-2-a", [(1, "x"), (2, "x")]))
    assert sorted(run_sql(connect, "SELECT a, b FROM seen")) == [(1, "x"), (1, "y"), (2, "x")]


def test_sql_sink_treats_null_keys_as_distinct(connect: Connect) -> None:
    run_sql(connect, "CREATE TABLE seen (a INTEGER UNIQUE, b TEXT)")
    sink = SqlSink(connect, "seen", ["a", "b"], key_columns=["a"])
    commit(
        sink, epoch(sink, "0-1-a", [(None, "x"), (None, "y"), (1, "p")]), epoch(sink, "0-2-a", [(None, "x"), (1, "q")])
    )
    expected = [(1, "q"), (None, "x"), (None, "x"), (None, "y")]
    assert sorted(run_sql(connect, "SELECT a, b FROM seen"), key=str) == sorted(expected, key=str)


def test_sql_sink_recover_deletes_staged_rows_without_commit(words: Connect) -> None:
    sink = SqlSink(words, "words", ["word", "count"])
    counting = epoch(sink, "0-1-a", [("a", 1)])
    epoch(sink, "0-1-b", [("twin", 1)])
    epoch(sink, "0-2-a", [("failed", 2)])
    others = ["job-beef-0-1-a", f"jobs-{OPERATOR}-0-1-a", f"JOB-{OPERATOR}-0-1-a"]
    with writer_of(sink) as writer:
        for name in [*others, f"other-{OPERATOR}-0-1-a"]:
            writer.begin(name)
            writer.write((name, 0))
            writer.prepare_commit(True)
    sink.create_committer(CommitContext("other", OPERATOR)).recover([(0, counting)], "job")
    assert counts(words) == [("a", 1)]
    left = run_sql(words, "SELECT transaction_name FROM words__staged")
    assert sorted(left) == sorted((name,) for name in others)


def test_sql_sink_aborted_epoch_leaves_no_rows(words: Connect) -> None:
    sink = SqlSink(words, "words", ["word", "count"])
    with writer_of(sink) as writer, patch.object(sql, "BATCH", 2):
        writer.begin(f"job-{OPERATOR}-0-1-a")
        for word in "abc":
            writer.write((word, 1))
        writer.begin(f"job-{OPERATOR}-0-1-b")
        writer.write(("d", 1))
        staged = writer.prepare_commit(False)
    commit(sink, staged)
    assert counts(words) == [("d", 1)]


def test_sql_sink_stages_more_rows_than_batch_size(words: Connect) -> None:
    sink = SqlSink(words, "words", ["word", "count"], key_columns=["word"])
    with patch.object(sql, "BATCH", 3):
        staged = epoch(sink, "0-1-a", [(f"w{i % 4}", i) for i in range(20)])
    commit(sink, staged)
    assert counts(words) == [("w0", 16), ("w1", 17), ("w2", 18), ("w3", 19)]


def test_sql_sink_preserves_order(connect: Connect) -> None:
    serial = "INTEGER PRIMARY KEY" if is_sqlite(connect) else "SERIAL PRIMARY KEY"
    run_sql(connect, f"CREATE TABLE log (id {serial}, line TEXT)")
    sink = SqlSink(connect, "log", ["line"])
    values = [(f"line {i * 7919 % 1000}",) for i in range(1000)]
    commit(sink, epoch(sink, "0-1-a", values[:500]), epoch(sink, "0-2-a", values[500:]))
    assert run_sql(connect, "SELECT line FROM log ORDER BY id") == values


def test_sql_sink_accepts_tuples_lists_rows_and_dicts(words: Connect) -> None:
    sink = SqlSink(words, "words", ["word", "count"])
    values = [
        ("a", 1),
        ["b", 2],
        Row("c", 3),
        Row(count=4, word="d"),
        {"count": 5, "word": "e"},
    ]
    commit(sink, epoch(sink, "0-1-a", values))
    assert counts(words) == [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)]


@pytest.mark.parametrize(
    "record",
    [
        ("a",),
        ("a", 1, 2),
        ["a"],
        Row("a"),
        Row(word="a", number=1),
        {"word": "a"},
        {"word": 1, "count": 2, "x": 3},
        "ab",
        7,
    ],
)
def test_sql_sink_reports_record_that_does_not_match_columns(tmp_path: Path, record: Any) -> None:
    with writer_of(SqlSink(sqlite_file(str(tmp_path / "x.db")), "words", ["word", "count"])) as writer:
        writer.begin("t")
        with pytest.raises(MillstreamError, match=r"does not fit the 2 columns word, count of table words") as error:
            writer.write(record)
    assert repr(record) in str(error.value)


def test_sql_sink_accepts_quoted_names_and_schemas(connect: Connect) -> None:
    schema = "main" if is_sqlite(connect) else "public"
    table = f'{schema}."Order"'
    run_sql(connect, f'CREATE TABLE {table} ("from" TEXT PRIMARY KEY, "select" INTEGER)')
    sink = SqlSink(connect, table, ['"from"', '"select"'], key_columns=['"from"'])
    commit(sink, epoch(sink, "0-1-a", [{"from": "a", "select": 1}, ("a", 2)]))
    assert run_sql(connect, f"SELECT * FROM {table}") == [("a", 2)]
    assert run_sql(connect, f'SELECT * FROM {schema}."Order__staged"') == []


def test_sql_sinks_share_one_table(words: Connect) -> None:
    one = SqlSink(words, "words", ["word", "count"], key_columns=["word"])
    two = SqlSink(words, "words", ["word", "remark"], key_columns=["word"])
    commit(one, epoch(one, "0-1-a", [("a", 1)]))
    commit(two, epoch(two, "0-1-a", [("a", "good")]))
    assert run_sql(words, "SELECT * FROM words") == [("a", 1, "good")]


# --- errors before the job starts


def test_sql_sink_reports_missing_table(connect: Connect) -> None:
    with pytest.raises(InvalidProgramError, match="Create the table words with these columns before the job starts"):
        SqlSink(connect, "words", ["word"]).create_committer(CONTEXT)


def test_sql_sink_reports_missing_column(words: Connect) -> None:
    with pytest.raises(InvalidProgramError, match="colour.*Create the table words"):
        SqlSink(words, "words", ["word", "colour"]).create_committer(CONTEXT)


def test_sql_sink_reports_outdated_staging_table(words: Connect) -> None:
    SqlSink(words, "words", ["word"]).create_committer(CONTEXT)
    run_sql(words, "ALTER TABLE words ADD COLUMN colour TEXT")
    with pytest.raises(InvalidProgramError, match="drop words__staged if it is older than"):
        SqlSink(words, "words", ["word", "colour"]).create_committer(CONTEXT)


def test_sql_sink_reports_missing_unique_key(words: Connect) -> None:
    with pytest.raises(InvalidProgramError, match="needs the columns word, count and a unique key over count"):
        SqlSink(words, "words", ["word", "count"], key_columns=["count"]).create_committer(CONTEXT)


def test_sql_sink_reports_value_that_database_rejects(words: Connect) -> None:
    sink = SqlSink(words, "words", ["word", "count"])
    with pytest.raises(MillstreamError, match=r"the first of them \('a', <object object.*could not be staged"):
        epoch(sink, "0-1-a", [("a", object())])


def test_sql_sink_reports_failed_connection() -> None:
    def connect() -> Any:
        raise OSError("no route")

    with pytest.raises(MillstreamError, match="connect\\(\\) failed: OSError\\('no route'\\)"):
        SqlSink(connect, "words", ["word"]).create_committer(CONTEXT)


def test_sql_sink_rejects_connect_function_without_dbapi_connection() -> None:
    with pytest.raises(InvalidProgramError, match="no connection of a DB-API module"):
        SqlSink(dict, "words", ["word"]).create_committer(CONTEXT)


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        (("not callable", "t", ["a"], None), "without arguments"),
        ((dict, "", ["a"], None), "name of the table"),
        ((dict, "t", "abc", None), "columns must be a list"),
        ((dict, "t", ["a", "a"], None), "different names"),
        ((dict, "t", [], None), "some of the columns"),
        ((dict, "t", ["a"], ["b"]), "some of the columns"),
        ((dict, "t", ["a"], []), "some of the columns"),
    ],
)
def test_sql_sink_rejects_invalid_arguments(arguments: Any, error_text: str) -> None:
    *rest, keys = arguments
    with pytest.raises(InvalidProgramError, match=error_text):
        SqlSink(*rest, key_columns=keys)


# --- concurrency


def test_driver_uses_parameter_style_of_dbapi_module(connect: Connect) -> None:
    class Extended(sqlite3.Connection):
        pass

    with closing(sqlite3.connect(":memory:", factory=Extended)) as connection:
        assert Driver.of(connection) == Driver("?", sqlite3.Error, True)
    with closing(connect()) as connection:
        driver = Driver.of(connection)
        assert driver.placeholder == ("?" if driver.is_sqlite else "%s")
    assert "(?, ?, ?)" in Table("t", ("a",)).stage("?")


def test_sql_sink_commits_atomically_with_autocommit_connections(words: Connect) -> None:
    def connect() -> Any:
        connection = words()
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
        if hasattr(connection, "autocommit"):
            # SQLite has it since Python 3.12.
            connection.autocommit = True
        return connection

    sink = SqlSink(connect, "words", ["word", "count"])
    staged = [epoch(sink, "0-1-a", [("a", 1)]), epoch(sink, "0-2-a", [("b", 1)])]
    with pytest.raises(Crash), crashing(1):
        commit(sink, *staged)
    assert counts(words) == []
    commit(sink, *staged)
    assert counts(words) == [("a", 1), ("b", 1)]


def test_sql_sink_concurrent_committers_move_rows_once(words: Connect) -> None:
    run_sql(words, "CREATE TABLE plain (word TEXT)")
    sink = SqlSink(words, "plain", ["word"])
    for round_number in range(20):
        staged = [(0, epoch(sink, f"0-{round_number}-a", [(f"{round_number}-{i}",) for i in range(50)]))]
        committers = [sink.create_committer(CommitContext(f"job{i}", OPERATOR)) for i in range(3)]
        in_threads([partial(committer.commit, staged) for committer in committers])
    assert run_sql(words, "SELECT COUNT(*), COUNT(DISTINCT word) FROM plain") == [(1000, 1000)]
    assert staged_rows(words, "plain") == 0


def test_sql_sink_committer_retries_after_serialization_failure(postgres: Any) -> None:
    connect = postgres_database(postgres.new_database())
    run_sql(connect, "CREATE TABLE plain (word TEXT)")
    sink = SqlSink(connect, "plain", ["word"])
    staged = [(0, epoch(sink, "0-1-a", [("a",)]))]
    unstage = Table.unstage
    overtaken = threading.Event()

    def slow(table: Table, p: str) -> str:
        # The other one commits after this one inserted and before it deletes.
        if threading.current_thread() is threading.main_thread() and not overtaken.is_set():
            overtaken.set()
            in_threads([lambda: sink.create_committer(CONTEXT).commit(staged)])
        return unstage(table, p)

    committer = sink.create_committer(CONTEXT)
    with patch.object(Table, "unstage", slow):
        committer.commit(staged)
    assert overtaken.is_set()
    assert run_sql(connect, "SELECT word FROM plain") == [("a",)]


def test_sql_sink_writers_create_staging_table_concurrently(words: Connect) -> None:
    for round_number in range(10):
        table = f"t{round_number}"
        run_sql(words, f"CREATE TABLE {table} (word TEXT)")
        sink = SqlSink(words, table, ["word"])
        staged: list[Any] = []
        start = threading.Barrier(8)

        def stage(i: int, sink: SqlSink = sink, staged: list[Any] = staged, start: Any = start) -> None:
            start.wait()
            staged.append(epoch(sink, f"{i}-1-a", [(str(i),)]))

        in_threads([lambda i=i: stage(i) for i in range(8)])  # type: ignore[misc]
        commit(sink, *staged)
        assert len(run_sql(words, f"SELECT * FROM {table}")) == 8


def in_threads(actions: list[Callable[[], Any]]) -> None:
    errors: list[BaseException] = []

    def run(action: Callable[[], Any]) -> None:
        try:
            action()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_sql_sink_processes_share_sqlite_file(tmp_path: Path) -> None:
    path = str(tmp_path / "test.db")
    connect = sqlite_file(path)
    run_sql(connect, "CREATE TABLE words (word TEXT, count INTEGER)")
    script = f"""
import sys, pickle
from {__name__} import *
sink = SqlSink(sqlite_file({path!r}), "words", ["word", "count"])
committer = sink.create_committer(CommitContext("job" + sys.argv[1], OPERATOR))
with writer_of(sink) as writer:
    for number in range(30):
        writer.begin(f"job{{sys.argv[1]}}-{{OPERATOR}}-0-{{number}}-a")
        for i in range(100):
            writer.write((sys.argv[1], number * 100 + i))
        committer.commit([(0, writer.prepare_commit(True))])
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [subprocess.Popen([sys.executable, "-c", script, str(i)], env=env) for i in range(4)]
    assert [process.wait(100) for process in running] == [0] * 4
    assert run_sql(connect, "SELECT word, COUNT(*), COUNT(DISTINCT count) FROM words GROUP BY word ORDER BY word") == [
        (str(i), 3000, 3000) for i in range(4)
    ]
    assert staged_rows(connect) == 0


def test_sql_sink_waits_for_locked_sqlite_file(tmp_path: Path) -> None:
    connect = sqlite_file(str(tmp_path / "test.db"))
    run_sql(connect, "CREATE TABLE words (word TEXT)")
    sink = SqlSink(connect, "words", ["word"])
    staged = epoch(sink, "0-1-a", [("a",)])
    with closing(sqlite3.connect(str(tmp_path / "test.db"), check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")
        release = threading.Timer(0.5, other.rollback)
        release.start()
        # SQLite's own wait times out at once, so that the sink's is tested.
        with patch.object(sql_database, "_SQLITE_SECONDS", 0):
            commit(sink, staged)
        release.join()
    assert run_sql(connect, "SELECT word FROM words") == [("a",)]


def test_sql_sink_writer_reconnects_after_lost_connection(postgres: Any) -> None:
    connect = postgres_database(postgres.new_database())
    run_sql(connect, "CREATE TABLE words (word TEXT)")
    sink = SqlSink(connect, "words", ["word"])
    staged = []
    with writer_of(sink) as writer:
        for number in range(3):
            writer.begin(f"job-{OPERATOR}-0-{number}-a")
            writer.write((str(number),))
            staged.append(writer.prepare_commit(False))
            run_sql(
                connect,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
    commit(sink, *staged)
    assert sorted(run_sql(connect, "SELECT word FROM words")) == [("0",), ("1",), ("2",)]


@pytest.mark.parametrize("copies", [True, False])
def test_sql_sink_preserves_postgres_types_in_staging_table(postgres: Any, copies: bool) -> None:
    connect = postgres_database(postgres.new_database())
    run_sql(
        connect,
        "CREATE TABLE things (id BIGSERIAL PRIMARY KEY, price NUMERIC(10, 2) NOT NULL, tags TEXT[], doc JSONB, "
        "at TIMESTAMPTZ DEFAULT now(), name VARCHAR(5), raw BYTEA, added INTEGER NOT NULL DEFAULT 7)",
    )
    sink = SqlSink(connect, "things", ["price", "tags", "doc", "name", "raw"])
    of = Driver.of
    # Drivers other than psycopg have no COPY.
    with patch.object(Driver, "of", lambda connection: replace(of(connection), copies=copies)):
        commit(sink, epoch(sink, "0-1-a", [("1.5", ["a", "b"], '{"x": [1, null]}', "abc", b"\0\1")]))
    results = run_sql(connect, "SELECT id, price::text, tags, doc, at IS NOT NULL, name, raw, added FROM things")
    assert results == [(1, "1.50", ["a", "b"], {"x": [1, None]}, True, "abc", b"\0\1", 7)]


# --- randomized


@contextmanager
def crashing(steps: int) -> Iterator[None]:
    """Crash the driver in a transaction, after a number of statements."""
    left = steps
    unstage = Table.unstage

    def dying(table: Table, p: str) -> str:
        nonlocal left
        if left == 0:
            raise Crash
        left -= 1
        return unstage(table, p)

    with patch.object(Table, "unstage", dying):
        yield


def run_chaos(connect: Connect, table: str, dice: random.Random) -> None:
    keyed = dice.random() < 0.5
    run_sql(connect, f"CREATE TABLE {table} (k INTEGER {'PRIMARY KEY' if keyed else ''}, v INTEGER)")
    sink = SqlSink(connect, table, ["k", "v"], key_columns=["k"] if keyed else None)
    # The same key is always in the same subtask, as after key_by.
    shares = [
        [(dice.randrange(6) * 3 + i, n) for n in range(dice.randrange(5, 40))] for i in range(dice.choice([1, 2, 3]))
    ]
    expected: Callable[[list[Any]], Any] = (lambda rows: Counter(dict(rows).items())) if keyed else Counter
    with patch.object(sql, "BATCH", 3):
        visible = lambda: Counter(run_sql(connect, f"SELECT k, v FROM {table}"))  # noqa: E731
        ChaoticJob(sink, shares, dice, visible, crashing, expected).run()
    assert staged_rows(connect, table) == 0


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_sql_sink_writes_each_record_once_to_sqlite_under_failures(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        connect = sqlite_file(os.path.join(folder, "test.db"))
        # The disk does not fail here, and fsync would leave time for fewer runs.
        run_sql(connect, "PRAGMA journal_mode = WAL", "PRAGMA synchronous = OFF")
        run_chaos(connect, "t", random.Random(seed))


@pytest.fixture(scope="module")
def shared_database(postgres: Any) -> Connect:
    return postgres_database(postgres.new_database())


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_sql_sink_writes_each_record_once_to_postgres_under_failures(shared_database: Connect, seed: int) -> None:
    # Crashed writers of the last example left connections open, which close when they are collected.
    gc.collect()
    run_sql(shared_database, "DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS t__staged")
    run_chaos(shared_database, "t", random.Random(seed))


# --- MariaDB, whose SQL dialect differs


@pytest.fixture
def maria(mariadb: Any) -> Connect:
    connect = mariadb_database(mariadb.socket, mariadb.new_database())
    run_sql(connect, "CREATE TABLE words (word VARCHAR(100) PRIMARY KEY, count INTEGER, remark TEXT)")
    return connect


def test_sql_sink_upserts_rows_in_mariadb(maria: Connect) -> None:
    sink = SqlSink(maria, "words", ["word", "count"], key_columns=["word"])
    run_sql(maria, "INSERT INTO words VALUES ('a', 0, 'stays')")
    first = epoch(sink, "0-1-a", [("a", 1), ("b", 2), ("a", 3)])
    assert counts(maria) == [("a", 0)]
    commit(sink, first, epoch(sink, "0-2-a", [("b", 4), ("c", 5)]))
    # Again, as after a failure.
    commit(sink, first)
    assert run_sql(maria, "SELECT * FROM words ORDER BY word") == [("a", 3, "stays"), ("b", 4, None), ("c", 5, None)]
    assert staged_rows(maria) == 0
    only_keys = SqlSink(maria, "words", ["word"], key_columns=["word"])
    commit(only_keys, epoch(only_keys, "0-3-a", [("a",), ("d",)]))
    assert [row[0] for row in counts(maria)] == ["a", "b", "c", "d"]


def test_sql_sink_reports_missing_table_of_mariadb(maria: Connect) -> None:
    with pytest.raises(InvalidProgramError, match="Create the table nothing with these columns"):
        SqlSink(maria, "nothing", ["word"]).create_committer(CONTEXT)


# Crashed writers leave connections open, which Python warns about.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(3))
def test_sql_sink_writes_each_record_once_to_mariadb_under_failures(mariadb: Any, seed: int) -> None:
    connect = mariadb_database(mariadb.socket, mariadb.new_database())
    run_chaos(connect, "t", random.Random(seed))
