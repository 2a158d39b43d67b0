"""JdbcSource, Redis and lookups, on real servers."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Time, WatermarkStrategy
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.jdbc import source as jdbc_source
from millstream.connectors.jdbc.connection import is_conflict, is_lost_connection, is_permanent
from millstream.connectors.jdbc.source import JdbcSource, JdbcSourceBuilder, partition_bounds
from millstream.datastream import AsyncDataStream
from millstream.datastream.connectors.jdbc import JdbcConnectionOptions
from millstream.datastream.connectors.lookup import CachedLookup, TtlCache
from millstream.datastream.connectors.redis import RedisLookup, RedisSink
from millstream.testing import LocalEnvironment
from millstream.testing.servers.databases import RedisServer
from tests.support.chaos import runtime_context

NONE = WatermarkStrategy.no_watermarks()
Run = Callable[[str], None]


def options_for(url: str) -> JdbcConnectionOptions:
    return JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build()


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Run]:
    """Yield the URL of an empty database and a function that runs a statement in it."""
    if request.param == "sqlite":
        url = f"jdbc:sqlite:{tmp_path}/test.db"
    elif request.param == "postgres":
        words = dict(w.split("=") for w in request.getfixturevalue("postgres").new_database().split())
        url = f"jdbc:postgresql:///{words['dbname']}?host={words['host']}&port={words['port']}&user={words['user']}"
    else:
        server = request.getfixturevalue("mariadb")
        url = f"jdbc:mariadb:///{server.new_database()}?unix_socket={server.socket}&user=root"
    connect = jdbc_source.connector(options_for(url))  # type: ignore[attr-defined]

    def run(statement: str) -> None:
        with closing(connect()) as connection:
            connection.cursor().execute(statement)
            connection.commit()

    run("CREATE TABLE orders (id INTEGER, item VARCHAR(20))")
    run("INSERT INTO orders VALUES " + ", ".join(f"({i}, 'item {i}')" for i in range(1, 1001)))
    run("INSERT INTO orders VALUES (NULL, 'no number')")
    return url, run


def source(url: str) -> JdbcSourceBuilder:
    return JdbcSource.builder().set_connection_options(options_for(url)).set_table("orders")


def read(builder: JdbcSourceBuilder) -> list[Any]:
    env = LocalEnvironment().set_parallelism(2)
    return list(env.from_source(builder.build(), NONE, "jdbc").execute_and_collect())


def test_jdbc_source_reads_table_partitions_or_query(database: tuple[str, Run]) -> None:
    url, _ = database
    rows = read(source(url))
    assert len(rows) == 1001 and rows[0].as_dict().keys() == {"id", "item"}
    for parts in (source(url).set_partitions("id", 7), source(url).set_partitions("id", 3, lower=200, upper=300)):
        results = read(parts)
        # Rows outside the bounds and rows with NULL are included.
        assert sorted((r.id or 0) for r in results) == list(range(1001))
    few = source(url).set_sql("SELECT id, id * 2 AS double_id FROM orders WHERE id <= 3")
    assert sorted((r.id, r.double_id) for r in read(few)) == [(1, 2), (2, 4), (3, 6)]


def test_jdbc_source_reads_new_rows_by_incremental_column(database: tuple[str, Run]) -> None:
    url, run = database
    builder = source(url).set_incremental_column("id", start=990, poll_interval=0.02)
    stream = LocalEnvironment().from_source(builder.build(), NONE, "jdbc")
    with closing(stream.execute_and_collect()) as rows:
        assert [r.id for r in itertools.islice(rows, 10)] == list(range(991, 1001))
        run("INSERT INTO orders VALUES (1001, 'new')")
        run("INSERT INTO orders VALUES (1002, 'newer')")
        assert [(r.id, r.item) for r in itertools.islice(rows, 2)] == [(1001, "new"), (1002, "newer")]


def test_jdbc_source_reconnects_after_lost_connection(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    conninfo = postgres.new_database()
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders AS SELECT generate_series(1, 9000) AS id")
    builder = JdbcSource.builder().set_connection(lambda: psycopg.connect(conninfo)).set_table("orders")
    reader = builder.set_partitions("id", 2).build().create_reader(0, 1)
    results: list[int] = []
    for batch in reader.read(jdbc_source._Range("id", None, None)):
        results += [row.id for row in batch]
        if len(results) == jdbc_source._FETCH:
            with psycopg.connect(conninfo, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
    assert results == list(range(1, 9001))


def test_jdbc_source_reports_unreadable_table_in_one_sentence(database: tuple[str, Run], tmp_path: Path) -> None:
    url, _ = database
    began = time.monotonic()
    with pytest.raises(MillstreamError, match="JdbcSource: table nothing cannot be read: "):
        read(JdbcSource.builder().set_connection_options(options_for(url)).set_table("nothing"))
    with pytest.raises(MillstreamError, match="numbers, dates or times, not 'item 1'"):
        read(source(url).set_sql("SELECT * FROM orders WHERE id < 3").set_partitions("item", 2))
    away = "jdbc:postgresql://127.0.0.1:1/db?user=u" if "postgresql" in url else "jdbc:mysql://127.0.0.1:1/db?user=u"
    with pytest.raises(MillstreamError, match="JdbcSource: the database does not answer: "):
        read(JdbcSource.builder().set_connection_options(options_for(away)).set_table("t"))
    if "sqlite" not in url:
        wrong = options_for(url.replace("user=", "user=nobody_"))
        with pytest.raises(MillstreamError, match=r"rejects this user: .*nobody.*Check its URL, the user name"):
            read(JdbcSource.builder().set_connection_options(wrong).set_table("t"))
    assert time.monotonic() - began < 90


def test_jdbc_source_builder_rejects_invalid_arguments() -> None:
    with pytest.raises(InvalidProgramError, match="set the database with"):
        JdbcSource.builder().set_table("t").build()
    with pytest.raises(InvalidProgramError, match="set the table with"):
        JdbcSource.builder().set_connection(lambda: None).build()
    with pytest.raises(InvalidProgramError, match="not both"):
        source("jdbc:sqlite:/x").set_partitions("a", 2).set_incremental_column("b").build()


def test_partition_bounds_split_numbers_and_timestamps() -> None:
    assert partition_bounds(1, 10, 3) == [4, 7]
    assert partition_bounds(1, 2, 10) == []
    assert partition_bounds(datetime(2024, 1, 1), datetime(2024, 1, 3), 2) == [datetime(2024, 1, 2)]


def test_database_errors_are_classified_by_cause(mariadb: Any) -> None:
    import psycopg
    import pymysql

    assert is_conflict(psycopg.errors.DeadlockDetected()) and not is_permanent(psycopg.errors.DeadlockDetected())
    assert is_permanent(psycopg.errors.UndefinedTable()) and is_permanent(psycopg.errors.UniqueViolation())
    assert is_lost_connection(psycopg.errors.AdminShutdown())
    assert is_conflict(sqlite3.OperationalError("database is locked"))
    assert is_permanent(sqlite3.OperationalError("no such table: x"))
    with mariadb.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(pymysql.Error) as e:
            cursor.execute("SELECT nothing")
        assert is_permanent(e.value)


def test_database_transaction_is_retried_after_mariadb_deadlock(mariadb: Any) -> None:
    from millstream.connectors.jdbc.connection import Database

    name = mariadb.new_database()
    with mariadb.connect(name) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
        cursor.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
    meet = threading.Barrier(2)
    tries: list[int] = []

    def work(first: int, second: int) -> Callable[[Any], None]:
        def run(cursor: Any) -> None:
            tries.append(first)
            cursor.execute("UPDATE t SET n = n + 1 WHERE id = %s", (first,))
            if len(tries) <= 2:
                meet.wait(10)
            cursor.execute("UPDATE t SET n = n + 1 WHERE id = %s", (second,))

        return run

    def both(first: int, second: int) -> None:
        database = Database(lambda: mariadb.connect(name))
        database.run(work(first, second))
        database.close()

    others = threading.Thread(target=both, args=(2, 1))
    others.start()
    both(1, 2)
    others.join()
    with mariadb.connect(name) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT n FROM t")
        assert cursor.fetchall() == ((2,), (2,))
    # One of them lost the race and was run again.
    assert len(tries) == 3


# --- Redis


def test_redis_sink_and_lookup_write_and_read_values(redis_server: RedisServer) -> None:
    import redis

    pairs = [("a", 1), ("b", 2), ("a", 3), ("gone", None)]
    client = redis.Redis.from_url(redis_server.url, decode_responses=True)
    client.set("gone", "x")
    sink = RedisSink(redis_server.url, key=lambda p: p[0], value=lambda p: p[1])
    hashes = RedisSink(redis_server.url, key=lambda p: f"h:{p[0]}", value=lambda p: {"n": p[1] or 0}, ttl=100)
    env = LocalEnvironment()
    stream = env.from_collection(pairs)
    stream.sink_to(sink)
    stream.sink_to(hashes)
    env.execute()
    assert (client.get("a"), client.get("b"), client.get("gone")) == ("3", "2", None)
    assert client.hgetall("h:a") == {"n": "3"} and 0 < client.ttl("h:a") <= 100
    for expected, lookup in (
        ([("a", "3"), ("nobody", None)], RedisLookup(redis_server.url, key=str)),
        ([("a", {"n": "3"}), ("nobody", None)], RedisLookup(redis_server.url, key=lambda k: f"h:{k}", hashes=True)),
    ):
        names = LocalEnvironment().from_collection(["a", "nobody"])
        assert list(AsyncDataStream.ordered_wait(names, lookup, Time.seconds(60)).execute_and_collect()) == expected
    client.close()


def test_redis_sink_reports_server_that_does_not_answer() -> None:
    pytest.importorskip("redis")
    with pytest.raises(MillstreamError, match="Redis at redis://127.0.0.1:1/0 does not answer"):
        sink = RedisSink("redis://:secret@127.0.0.1:1/0", key=str, value=str, max_retries=1)
        env = LocalEnvironment()
        env.from_collection(["a"]).sink_to(sink)
        env.execute()


# --- lookups


def test_ttl_cache_evicts_by_age_and_size() -> None:
    now = [0.0]
    cache = TtlCache(10, 2, lambda: now[0])
    for key in "ab":
        cache.put(key, key.upper())
    assert cache.get("a", None) == "A"
    cache.put("c", "C")
    # The least recently used entry was evicted.
    assert [cache.get(k, None) for k in "abc"] == ["A", None, "C"]
    now[0] = 10.0
    assert [cache.get(k, None) for k in "abc"] == [None, None, None] and len(cache) == 0


def test_cached_lookup_fetches_key_once_until_expiry() -> None:
    requests: list[str] = []

    async def fetch(client: dict[str, str], key: str) -> str | None:
        requests.append(key)
        await asyncio.sleep(0.01)
        return client.get(key)

    async def run(ttl: float) -> list[Any]:
        lookup = CachedLookup(lambda: {"a": "Ann"}, fetch, key=lambda v: v[0], join=lambda v, f: (v, f), ttl=ttl)
        lookup.open(runtime_context())
        first = await asyncio.gather(*(lookup.async_invoke(v) for v in ("a1", "a2", "b1")))
        return [*first, await lookup.async_invoke("a3")]

    expected = [[("a1", "Ann")], [("a2", "Ann")], [("b1", None)], [("a3", "Ann")]]
    assert asyncio.run(run(60)) == expected and sorted(requests) == ["a", "b"]
    requests.clear()
    assert asyncio.run(run(0)) == expected and sorted(requests) == ["a", "a", "b"]
