"""JdbcSink: statements and URLs written for JDBC, batches, retries."""

from __future__ import annotations

import pickle
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import cloudpickle
import pytest

from millstream.common import Row, Types
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.jdbc import connection as jdbc_url
from millstream.connectors.jdbc.connection import connector, count_parameters, translated
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import SinkWriter
from millstream.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcExecutionOptions, JdbcSink
from millstream.testing import LocalJob
from tests.integration.connectors.test_sql_sink import run_sql
from tests.support.chaos import runtime_context

WORDS = Types.ROW([Types.STRING(), Types.INT()])
INSERT = "INSERT INTO words (word, number) VALUES (?, ?)"


def options_for(url: str, user: str | None = None, password: str | None = None) -> JdbcConnectionOptions:
    builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).with_driver_name("org.any.Driver")
    if user is not None:
        builder.with_user_name(user)
    if password is not None:
        builder.with_password(password)
    return builder.build()


def postgres_url(conninfo: str) -> str:
    """The server's address is a directory, which a JDBC URL cannot express but libpq parameters can."""
    words = dict(word.split("=") for word in conninfo.split())
    return f"jdbc:postgresql:///{words['dbname']}?host={words['host']}&port={words['port']}&user={words['user']}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database with a table."""
    if request.param == "sqlite":
        database_url = f"jdbc:sqlite:{tmp_path}/test.db"
    else:
        database_url = postgres_url(request.getfixturevalue("postgres").new_database())
    run_sql(connector(options_for(database_url)), "CREATE TABLE words (word TEXT, number INTEGER)")
    return database_url


def words(url: str) -> list[Any]:
    return run_sql(connector(options_for(url)), "SELECT word, number FROM words ORDER BY word, number")


def writer_of(url: str, sql: str = INSERT, **options: int) -> SinkWriter:
    """A writer as another process has it."""
    builder = JdbcExecutionOptions.builder()
    for name, value in options.items():
        getattr(builder, f"with_{name}")(value)
    jdbc_sink = JdbcSink.sink(sql, WORDS, options_for(url), builder.build())
    writer: SinkWriter = pickle.loads(cloudpickle.dumps(jdbc_sink)).create_writer(runtime_context())
    writer.begin("1")
    return writer


# --- writing


def test_jdbc_sink_flushes_at_the_end_of_the_epoch(url: str) -> None:
    writer = writer_of(url)
    for record in (("a", 1), Row("b", 2), {"f1": 3, "f0": "c"}, ["d", None]):
        writer.write(record)
    assert words(url) == []
    assert writer.prepare_commit(False) is None
    assert words(url) == [("a", 1), ("b", 2), ("c", 3), ("d", None)]
    writer.begin("2")
    assert writer.prepare_commit(True) is None
    writer.write(("e", 5))
    # The failed epoch discards its buffered rows, and writes them again.
    writer.begin("3")
    writer.prepare_commit(True)
    assert len(words(url)) == 4
    writer.close()


def test_jdbc_sink_flushes_full_batches(url: str) -> None:
    writer = writer_of(url, batch_size=2)
    for i in range(5):
        writer.write(("a", i))
    assert len(words(url)) == 4
    writer.prepare_commit(False)
    assert len(words(url)) == 5
    writer.close()


def test_jdbc_sink_flushes_after_the_batch_interval(url: str) -> None:
    writer = writer_of(url, batch_interval_ms=1000)
    # Only the sink's clock: threads of other tests may read the time.
    clock = SimpleNamespace(monotonic=iter([10.0, 10.5, 11.0, 20.0, 20.5]).__next__)
    with patch("millstream.connectors.jdbc.sink.time", clock):
        for i in range(3):
            writer.write(("a", i))
            assert len(words(url)) == (2 if i else 0)
    writer.close()


def test_jdbc_sink_accepts_any_statement(url: str) -> None:
    run_sql(connector(options_for(url)), "CREATE UNIQUE INDEX by_word ON words (word)")
    upsert = f"{INSERT} ON CONFLICT (word) DO UPDATE SET number = words.number + excluded.number"
    writer = writer_of(url, upsert)
    for record in (("a", 1), ("b", 2), ("a", 3)):
        writer.write(record)
    writer.prepare_commit(True)
    assert words(url) == [("a", 4), ("b", 2)]
    writer.close()


def test_jdbc_sink_keeps_quoted_question_marks_and_percents(url: str) -> None:
    sql = "INSERT INTO words (word, number) /* ? */ VALUES (? || '? 100% ''?''', ?) -- ?"
    writer = writer_of(url, sql)
    writer.write(("a", 7 % 4))
    writer.prepare_commit(True)
    assert words(url) == [("a? 100% '?'", 3)]
    writer.close()


def test_jdbc_sink_rejects_values_that_do_not_fit(url: str) -> None:
    writer = writer_of(url)
    with pytest.raises(MillstreamError):
        writer.write(("a", "not a number"))
    writer.close()


# --- retries


class Flaky:
    """A connection whose first batches fail."""

    def __init__(self, connection: Any, failures: list[str], closed: list[int]) -> None:
        self.connection, self.failures, self.closed = connection, failures, closed

    def cursor(self) -> Any:
        return self.connection.cursor()

    def commit(self) -> None:
        if self.failures:
            raise sqlite3.OperationalError(self.failures.pop())
        self.connection.commit()

    def close(self) -> None:
        self.closed.append(1)
        self.connection.close()


Flaky.__module__ = "sqlite3"


def flaky_writer(url: str, failures: list[str], closed: list[int], **options: int) -> SinkWriter:
    connect = connector(options_for(url))
    settings = JdbcExecutionOptions(**options)
    writer = JdbcSink(INSERT, WORDS, lambda: Flaky(connect(), failures, closed), settings).create_writer(
        runtime_context()
    )
    writer.begin("1")
    return writer


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    run_sql(lambda: sqlite3.connect(tmp_path / "test.db"), "CREATE TABLE words (word TEXT, number INTEGER)")
    return f"jdbc:sqlite:{tmp_path}/test.db"


def test_jdbc_sink_retries_a_failed_batch_on_a_new_connection(sqlite_url: str) -> None:
    pauses: list[float] = []
    closed: list[int] = []
    writer = flaky_writer(sqlite_url, ["once", "twice"], closed)
    with patch.object(time, "sleep", pauses.append):
        writer.write(("a", 1))
        writer.prepare_commit(False)
    assert words(sqlite_url) == [("a", 1)]
    # Like Flink, it retries at once the first time.
    assert pauses == [0.0, 1.0] and len(closed) == 2
    writer.close()


def test_jdbc_sink_fails_after_max_retries(sqlite_url: str) -> None:
    closed: list[int] = []
    writer = flaky_writer(sqlite_url, ["the disk is full"] * 3, closed, max_retries=2)
    writer.write(("a", 1))
    with (
        patch.object(time, "sleep"),
        pytest.raises(MillstreamError, match=r"1 records, the first of them \('a', 1\), could not .*the disk is full"),
    ):
        writer.prepare_commit(False)
    assert words(sqlite_url) == [] and len(closed) == 3
    # The epoch runs again.
    writer.begin("2")
    writer.write(("a", 1))
    writer.prepare_commit(False)
    assert words(sqlite_url) == [("a", 1)]
    writer.close()


def test_jdbc_sink_error_includes_the_database_message(tmp_path: Path) -> None:
    writer = writer_of(f"jdbc:sqlite:{tmp_path}/empty.db", max_retries=0)
    writer.write(("a", 1))
    with pytest.raises(MillstreamError, match="no such table: words"):
        writer.prepare_commit(True)


# --- options


def test_jdbc_sink_options() -> None:
    defaults = JdbcExecutionOptions.defaults()
    assert (defaults.get_batch_size(), defaults.get_batch_interval_ms(), defaults.get_max_retries()) == (5000, 0, 3)
    builder: Any = JdbcExecutionOptions.Builder()
    built = builder.with_batch_size(1).with_batch_interval_ms(2).with_max_retries(0).build()
    assert (built.get_batch_size(), built.get_batch_interval_ms(), built.get_max_retries()) == (1, 2, 0)
    options = options_for("jdbc:sqlite:/x", "me", "secret")
    assert options.get_db_url() == "jdbc:sqlite:/x" and options.get_driver_name() == "org.any.Driver"
    assert (options.get_user_name(), options.get_password()) == ("me", "secret")
    assert "secret" not in repr(options)


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("jdbc:postgresql://db.example/words", {"host": "db.example", "dbname": "words"}),
        (
            "jdbc:postgresql://db:5433/words?sslmode=require&ApplicationName=x",
            {"host": "db", "port": 5433, "dbname": "words", "sslmode": "require", "application_name": "x"},
        ),
        ("jdbc:postgresql:words", {"dbname": "words"}),
        ("jdbc:postgresql:///words?host=/run/pg&user=u", {"host": "/run/pg", "dbname": "words", "user": "u"}),
    ],
)
def test_jdbc_url_of_postgresql(url: str, settings: dict[str, Any]) -> None:
    # The connection timeout limits the wait for an unreachable server.
    settings = {"connect_timeout": 10, **settings}
    assert jdbc_url._postgresql_settings(options_for(url)) == settings
    assert jdbc_url._postgresql_settings(options_for(url, "me", "pw")) == {"user": "me", "password": "pw"} | settings


def test_jdbc_statement_placeholders() -> None:
    assert translated("SELECT '?', ? -- ?\n, ?", "?") == "SELECT '?', ? -- ?\n, ?"
    assert translated("""SELECT '%''?', "?", ? % 2 -- ?\n, ?""", "%s") == """SELECT '%%''?', "?", %s %% 2 -- ?\n, %s"""
    assert count_parameters("VALUES (?, '?', \"?\", /* ? */ ?) -- ?") == 2


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: options_for(""), "set the database with with_url"),
        (
            lambda: JdbcSink.sink(INSERT, WORDS, options_for("jdbc:oracle://h/db")),
            r"jdbc:oracle: URLs are not supported; .*connectors.sql",
        ),
        (lambda: JdbcSink.sink(INSERT, WORDS, options_for("jdbc:sqlite::memory:")), "must name a file"),
        (lambda: JdbcSink.sink("VALUES (?)", WORDS, options_for("jdbc:sqlite:/x")), r"has 1 of \?, but .* 2 fields"),
        (lambda: JdbcSink.sink("VALUES (?)", Types.INT(), options_for("jdbc:sqlite:/x")), "row type"),  # type: ignore[arg-type]
        (lambda: JdbcExecutionOptions.builder().with_batch_size(0), "at least 1, not 0"),
        (lambda: JdbcExecutionOptions.builder().with_max_retries(-1), "at least 0, not -1"),
    ],
)
def test_jdbc_sink_rejects_invalid_arguments(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidProgramError, match=message):
        build()


def test_jdbc_sink_names_package_when_psycopg_is_missing() -> None:
    with (
        patch.object(jdbc_url, "find_spec", return_value=None),
        pytest.raises(InvalidProgramError, match=r"pip install 'psycopg\[binary\]'"),
    ):
        JdbcSink.sink(INSERT, WORDS, options_for("jdbc:postgresql://h/db"))


@pytest.mark.parametrize("method", ["add_sink", "sink_to"])
def test_jdbc_sink_in_a_stream(sqlite_url: str, method: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([("a", 1), ("b", 2)], WORDS)
    getattr(stream, method)(JdbcSink.sink(INSERT, WORDS, options_for(sqlite_url)))
    LocalJob(env).run()
    assert words(sqlite_url) == [("a", 1), ("b", 2)]
    with closing(sqlite3.connect(sqlite_url.removeprefix("jdbc:sqlite:"))) as connection:
        assert connection.execute("SELECT typeof(number) FROM words").fetchone() == ("integer",)
