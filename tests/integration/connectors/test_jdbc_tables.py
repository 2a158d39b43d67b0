"""JDBC tables of real databases in SQL: scan, sink and lookup."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from millstream.common.errors import MillstreamError
from millstream.connectors.jdbc.connection import connector
from millstream.connectors.jdbc.table import parts_of
from millstream.connectors.lookup_cache import FullCache, PartialCache, Periodic, Timed
from millstream.datastream.connectors.jdbc import JdbcConnectionOptions
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.connector_contract import LookupResult, LookupSource
from millstream.sql.errors import CatalogException, TableException, ValidationException
from millstream.sql.operators.join.lookup_join import Retrying
from millstream.sql.types import DataTypes
from millstream.table import EnvironmentSettings, PlanReference, StreamTableEnvironment
from millstream.table.catalog import JdbcCatalog
from millstream.testing import LocalEnvironment, ValuesTable
from millstream.testing.servers.databases import PostgresServer

PARTITION = [f"scan.partition.{o}" for o in ("column", "num", "lower-bound", "upper-bound")]
Run = Callable[..., list[Any]]
Database = tuple[str, Run]


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Yield the URL of an empty database and a function that runs a statement in it."""
    if request.param == "sqlite":
        url = f"jdbc:sqlite:{tmp_path}/test.db"
    elif request.param == "postgres":
        conninfo = dict(w.split("=") for w in request.getfixturevalue("postgres").new_database().split())
        url = f"jdbc:postgresql:///{conninfo['dbname']}?host={conninfo['host']}&port={conninfo['port']}&user={conninfo['user']}"
    else:
        server = request.getfixturevalue("mariadb")
        url = f"jdbc:mariadb:///{server.new_database()}?unix_socket={server.socket}&user=root"
    return url, runner(url)


@pytest.fixture
def sqlite(tmp_path: Path) -> Database:
    url = f"jdbc:sqlite:{tmp_path}/one.db"
    return url, runner(url)


def runner(url: str) -> Run:
    connect = connector(JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url).build())

    def run(*statements: str) -> list[Any]:
        rows: list[Any] = []
        with closing(connect()) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
        return rows

    return run


def local(parallelism: int = 1, batch: bool = False) -> StreamTableEnvironment:
    settings = EnvironmentSettings.in_batch_mode() if batch else EnvironmentSettings.in_streaming_mode()
    t_env = StreamTableEnvironment.create(LocalEnvironment().set_parallelism(parallelism), settings)
    t_env.get_config().set("table.local-time-zone", "UTC")
    return t_env


def table(t_env: StreamTableEnvironment, url: str, name: str, columns: str, **options: str) -> None:
    """Declare a table of the database; options have underscores for dashes and two for dots."""
    settings = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    about = {"connector": "jdbc", "url": url, "table-name": name, **settings}
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in about.items())
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({listed})")


def rows(t_env: StreamTableEnvironment, query: str) -> list[Any]:
    return [tuple(r) for r in t_env.execute_sql(query).collect()]


# --- reading


def test_jdbc_table_round_trips_values_of_all_types(database: Database) -> None:
    url, run = database
    double = "double precision" if "postgres" in url else "DOUBLE"
    data = "bytea" if "postgres" in url else "BLOB"
    run(
        f"CREATE TABLE things (i INTEGER PRIMARY KEY, b BIGINT, d {double}, n NUMERIC(10, 2), s VARCHAR(20), "
        f"f BOOLEAN, x {data}, day DATE, moment TIMESTAMP NULL, clock TIME)"
    )
    columns = (
        "i INT, b BIGINT, d DOUBLE, n DECIMAL(10, 2), s STRING, f BOOLEAN, x BYTES, `day` DATE, moment TIMESTAMP(0), "
        "clock TIME, PRIMARY KEY (i) NOT ENFORCED"
    )
    t_env = local()
    table(t_env, url, "things", columns)
    values = (
        "(1, 9000000000, 1.5, 12.25, 'ä', TRUE, x'00ff', DATE '2024-02-29', TIMESTAMP '2024-01-02 03:04:05', "
        "TIME '06:07:08'), "
    )
    nulls = ", ".join(
        f"CAST(NULL AS {t})"
        for t in ("BIGINT", "DOUBLE", "DECIMAL(10,2)", "STRING", "BOOLEAN", "BYTES", "DATE", "TIMESTAMP(0)", "TIME")
    )
    t_env.execute_sql(f"INSERT INTO things VALUES {values}(2, {nulls})").wait()
    first, second = sorted(rows(t_env, "SELECT * FROM things"))
    assert first == (
        1,
        9_000_000_000,
        1.5,
        Decimal("12.25"),
        "ä",
        True,
        b"\x00\xff",
        dt.date(2024, 2, 29),
        dt.datetime(2024, 1, 2, 3, 4, 5),
        dt.time(6, 7, 8),
    )
    assert second == (2, *([None] * 9))


def test_jdbc_table_scans_partitions_within_bounds(database: Database) -> None:
    url, run = database
    run("CREATE TABLE orders (id INTEGER, item VARCHAR(20))")
    run("INSERT INTO orders VALUES " + ", ".join(f"({i}, 'item {i}')" for i in range(1, 101)))
    t_env = local(parallelism=2)
    parts = {"column": "id", "num": "7", "lower-bound": "11", "upper-bound": "90"}
    options = {f"scan__partition__{k}".replace("-", "_"): v for k, v in parts.items()}
    table(t_env, url, "orders", "id INT, item STRING", **options)
    # Like Flink, rows outside the bounds are not read.
    assert sorted(rows(t_env, "SELECT * FROM orders")) == [(i, f"item {i}") for i in range(11, 91)]


def test_parts_of_match_partitions_of_flink() -> None:
    assert parts_of(0, 9, 3) == [(0, 3), (4, 6), (7, 9)]
    assert parts_of(5, 6, 4) == [(5, 5), (6, 6)]
    assert parts_of(-10, 9, 2) == [(-10, -1), (0, 9)]
    assert parts_of(3, 3, 1) == [(3, 3)]


def test_jdbc_table_reads_projected_columns_only(database: Database) -> None:
    url, run = database
    run("CREATE TABLE orders (id INTEGER, item VARCHAR(20))")
    run("INSERT INTO orders VALUES " + ", ".join(f"({i}, 'item {i}')" for i in range(1, 21)))
    run("CREATE VIEW odd AS SELECT id, item, id AS missing FROM orders")
    t_env = local()
    # The table lacks a declared column, which is an error only if it is read.
    table(t_env, url, "odd", "id INT, item STRING, nowhere INT")
    assert rows(t_env, "SELECT item FROM odd WHERE id > 17 AND id <= 19") == [("item 18",), ("item 19",)]
    assert len(rows(t_env, "SELECT id FROM odd LIMIT 3")) == 3
    assert rows(t_env, "SELECT id FROM odd WHERE item = 'item 7'") == [(7,)]
    with pytest.raises(MillstreamError, match="JDBC: table 'odd' cannot be read: .*nowhere"):
        rows(t_env, "SELECT * FROM odd")


def test_jdbc_table_pushes_filters_and_limit_down(sqlite: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    url, run = sqlite
    run("CREATE TABLE t (id INTEGER, item TEXT)", "INSERT INTO t VALUES (1, 'a'), (2, 'B')")
    queries: list[str] = []
    from millstream.connectors.jdbc import table as jdbc_reading

    original = jdbc_reading.TableQuery.text

    def text(self: Any, part: Any) -> Any:
        query = original(self, part)
        queries.append(query[0])
        return query

    monkeypatch.setattr(jdbc_reading.TableQuery, "text", text)
    t_env = local()
    table(t_env, url, "t", "id INT, item STRING, PRIMARY KEY (id) NOT ENFORCED")
    assert rows(t_env, "SELECT item FROM t WHERE id > 1 AND item = 'B'") == [("B",)]
    # The collation of texts is the database's own, so ranges of texts are not pushed down.
    assert rows(t_env, "SELECT id FROM t WHERE item < 'a'") == [(2,)]
    assert len(rows(t_env, "SELECT id FROM t LIMIT 1")) == 1
    assert queries == [
        "SELECT `id`, `item` FROM `t` WHERE `id` > ? AND `item` = ? ORDER BY `id`",
        "SELECT `id`, `item` FROM `t` ORDER BY `id`",
        "SELECT `id` FROM `t` ORDER BY `id` LIMIT 1",
    ]


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"url": "jdbc:oracle:thin"}, "Could not find any jdbc dialect factory that can handle url 'jdbc:oracle:thin'"),
        ({"scan.partition.num": "3"}, "Either all or none of the following options should be provided:\nscan.part"),
        (
            dict(zip(PARTITION, ("a", "2", "9", "1"), strict=True)),
            "'scan.partition.lower-bound'='9' must not be larger",
        ),
        ({"password": "x"}, "Either all or none of the following options should be provided:\nusername"),
        ({"lookup.cache": "FULL"}, "Missing 'lookup.full-cache.periodic-reload.interval'"),
        ({"lookup.cache": "SOME"}, "'SOME' is none of NONE, PARTIAL, FULL"),
        ({"lookup.cache.ttl": "1 s"}, "Either all or none of the following options should be provided:\nlookup.cache"),
        ({"nope": "1"}, "Unsupported options found for 'jdbc'"),
    ],
)
def test_jdbc_table_rejects_invalid_options(options: dict[str, str], error_text: str) -> None:
    t_env = local()
    settings = {"connector": "jdbc", "url": "jdbc:sqlite:/nowhere.db", "table-name": "t", **options}
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in settings.items())
    t_env.execute_sql(f"CREATE TABLE t (a INT) WITH ({listed})")
    with pytest.raises(ValidationException, match=error_text):
        t_env.execute_sql("SELECT * FROM t")


def test_jdbc_table_rejects_unsupported_types(sqlite: Database) -> None:
    t_env = local()
    table(t_env, sqlite[0], "t", "m MAP<STRING, INT>")
    with pytest.raises(ValidationException, match="The sqlite dialect doesn't support type: MAP"):
        t_env.execute_sql("SELECT * FROM t")


# --- sink


def test_jdbc_sink_appends_or_upserts_and_deletes_by_key(database: Database) -> None:
    url, run = database
    run(
        "CREATE TABLE added (k INTEGER, n BIGINT)",
        "CREATE TABLE counted (k INTEGER PRIMARY KEY, n BIGINT)",
        "INSERT INTO counted VALUES (99, 1)",
    )
    t_env = local(parallelism=2)
    table(t_env, url, "added", "k INT, n BIGINT", sink__buffer_flush__max_rows="2")
    table(t_env, url, "counted", "k INT, n BIGINT, PRIMARY KEY (k) NOT ENFORCED")
    t_env.execute_sql("INSERT INTO added VALUES (1, 10), (1, 10), (2, 20)").wait()
    assert sorted(run("SELECT k, n FROM added")) == [(1, 10), (1, 10), (2, 20)]
    values = "(VALUES (1), (2), (1), (3), (1)) AS v(k)"
    t_env.execute_sql(f"INSERT INTO counted SELECT k, COUNT(*) FROM {values} GROUP BY k").wait()
    assert sorted(run("SELECT k, n FROM counted")) == [(1, 3), (2, 1), (3, 1), (99, 1)]
    # A key counted once is inserted, and deleted when it is counted twice.
    once = f"SELECT k, n FROM (SELECT k, COUNT(*) AS n FROM {values} GROUP BY k) AS c WHERE n < 2"
    run("DELETE FROM counted", "INSERT INTO counted VALUES (1, 77)")
    t_env.execute_sql(f"INSERT INTO counted {once}").wait()
    assert sorted(run("SELECT k, n FROM counted")) == [(2, 1), (3, 1)]
    with pytest.raises(TableException, match="doesn't support consuming update changes"):
        t_env.execute_sql(f"INSERT INTO added SELECT k, COUNT(*) FROM {values} GROUP BY k")


def test_jdbc_sink_reports_row_and_table_when_database_rejects_it(database: Database) -> None:
    url, run = database
    run("CREATE TABLE t (k INTEGER PRIMARY KEY)")
    t_env = local()
    table(t_env, url, "t", "k INT", sink__max_retries="0")
    with pytest.raises(MillstreamError) as error:
        t_env.execute_sql("INSERT INTO t VALUES (1), (1)").wait()
    # The driver's own traceback would not help.
    assert str(error.value).startswith("JDBC: 2 rows for table 't', the first of them (1,), could not be written: ")
    assert run("SELECT * FROM t") == []


# --- catalog


def test_jdbc_catalog_lists_databases_and_tables_of_postgres(postgres: PostgresServer) -> None:
    conninfo = dict(w.split("=") for w in postgres.new_database().split())
    base = f"jdbc:postgresql:///?host={conninfo['host']}&port={conninfo['port']}"
    run = runner(
        f"jdbc:postgresql:///{conninfo['dbname']}?host={conninfo['host']}&port={conninfo['port']}&user={conninfo['user']}"
    )
    run(
        "CREATE TABLE things (b int, a varchar(5), n numeric(8, 2), at timestamp(3), tags text[], j jsonb, "
        "PRIMARY KEY (a, b))",
        "CREATE SCHEMA other",
        "CREATE TABLE other.short (c char(3) NOT NULL)",
        "INSERT INTO things VALUES (1, 'x', 1.25, '2024-01-02 03:04:05.678', '{p,q}', '{\"k\": 1}')",
        "INSERT INTO other.short VALUES ('abc')",
    )
    t_env = local()
    catalog = JdbcCatalog("shop", conninfo["dbname"], conninfo["user"], "", base)
    t_env.register_catalog("shop", catalog)
    t_env.use_catalog("shop")
    assert t_env.get_current_database() == conninfo["dbname"]
    assert {"other.short", "public.things"} <= set(t_env.list_tables())
    assert "postgres" in catalog.list_databases()
    described = rows(t_env, "DESCRIBE things")
    assert [(name, kind, key) for name, kind, _, key, *_ in described] == [
        ("b", "INT", "PRI(a, b)"),
        ("a", "VARCHAR(5)", "PRI(a, b)"),
        ("n", "DECIMAL(8, 2)", None),
        ("at", "TIMESTAMP(3)", None),
        ("tags", "ARRAY<STRING>", None),
        ("j", "STRING", None),
    ]
    results = rows(t_env, "SELECT b, a, n, `at`, tags, j FROM things")
    when = dt.datetime(2024, 1, 2, 3, 4, 5, 678_000)
    assert results == [(1, "x", Decimal("1.25"), when, ["p", "q"], '{"k": 1}')]
    t_env.execute_sql("INSERT INTO `other.short` VALUES ('xyz')").wait()
    assert sorted(rows(t_env, "SELECT * FROM `other.short`")) == [("abc",), ("xyz",)]
    with pytest.raises(CatalogException, match="create and drop tables in PostgreSQL"):
        t_env.execute_sql("CREATE TABLE mine (a INT) WITH ('connector' = 'print')")
    options = f"'type' = 'jdbc', 'default-database' = 'postgres', 'username' = '{conninfo['user']}', 'password' = ''"
    t_env.execute_sql(f"CREATE CATALOG again WITH ({options}, 'base-url' = '{base}')")
    assert conninfo["dbname"] in [name for (name,) in rows(t_env, "SHOW DATABASES IN again")]
    with pytest.raises(ValidationException, match="Missing required options are:\n\nbase-url"):
        t_env.execute_sql(f"CREATE CATALOG wrong WITH ({options})")
    with pytest.raises(ValidationException, match="the base URL must be one of PostgreSQL"):
        JdbcCatalog("c", "d", "u", "p", "jdbc:mysql://localhost/")


# --- lookup joins


def shop(database: Database, **options: str) -> StreamTableEnvironment:
    """Create a table of customers in the database, and a view of orders that reference them."""
    url, run = database
    run(
        "CREATE TABLE customers (id BIGINT, name VARCHAR(20), age INTEGER)",
        "INSERT INTO customers VALUES (1, 'Ann', 30), (2, 'Bob', 40), (2, 'Bo', 50), (4, 'Dan', 60)",
    )
    t_env = local()
    table(t_env, url, "customers", "id BIGINT, name STRING, age INT", **options)
    t_env.execute_sql(
        "CREATE TEMPORARY VIEW orders AS SELECT *, PROCTIME() AS now FROM "
        "(VALUES (10, CAST(1 AS BIGINT)), (11, 2), (12, 3), (13, CAST(NULL AS BIGINT)), (14, 1)) AS v(o, customer)"
    )
    return t_env


JOIN = "FROM orders AS o {} JOIN customers FOR SYSTEM_TIME AS OF o.now AS c ON o.customer = c.id"


def test_lookup_join_joins_rows(database: Database) -> None:
    t_env = shop(database)
    inner = [(10, "Ann"), (11, "Bo"), (11, "Bob"), (14, "Ann")]
    assert sorted(rows(t_env, f"SELECT o.o, c.name {JOIN.format('')}")) == inner
    results = rows(t_env, f"SELECT o.o, c.name, c.id {JOIN.format('LEFT')}")
    both = [*((o, n, 1 if n == "Ann" else 2) for o, n in inner), (12, None, None), (13, None, None)]
    assert sorted(results, key=str) == sorted(both, key=str)
    # In the order of the orders, regardless of matches.
    assert [o for o, _, _ in results] == [10, 11, 11, 12, 13, 14]


def test_lookup_join_applies_conditions_filters_and_constants(database: Database) -> None:
    t_env = shop(database)
    more = JOIN.format("LEFT") + " AND c.age > 35 AND o.o < 14 AND c.name = 'Bob'"
    results = rows(t_env, f"SELECT o.o, c.age + 1 {more}")
    assert results == [(10, None), (11, 41), (12, None), (13, None), (14, None)]
    assert rows(t_env, f"SELECT o.o, c.name {JOIN.format('LEFT')} WHERE c.age >= 50") == [(11, "Bo")]
    text = t_env.explain_sql(f"SELECT o.o, c.name {more}")
    assert "LookupJoin(table=[default_catalog.default_database.customers], joinType=[LeftOuterJoin]" in text
    assert "lookup=[id=customer]" in text


def test_lookup_join_requires_equality_and_lookup_table(sqlite: Database) -> None:
    t_env = shop(sqlite)
    no_key = "SELECT o.o FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.now AS c ON o.customer < c.id"
    with pytest.raises(
        (TableException, ValidationException), match="join key in Temporal Table Join can not be empty|req"
    ):
        rows(t_env, no_key)
    t_env.execute_sql("CREATE TABLE g (id BIGINT) WITH ('connector' = 'datagen')")
    with pytest.raises(TableException, match="Processing-time temporal join is not supported yet"):
        rows(t_env, "SELECT o.o FROM orders AS o JOIN g FOR SYSTEM_TIME AS OF o.now AS c ON o.customer = c.id")


def test_lookup_join_of_updates_writes_upserts_by_key(sqlite: Database) -> None:
    url, run = sqlite
    t_env = shop(sqlite)
    run("CREATE TABLE buyers (o INTEGER PRIMARY KEY, name TEXT, n BIGINT)")
    table(t_env, url, "buyers", "o BIGINT, name STRING, n BIGINT, PRIMARY KEY (o) NOT ENFORCED")
    values = "(VALUES (CAST(1 AS BIGINT)), (4), (1), (3)) AS v(k)"
    counted = f"SELECT k, COUNT(*) AS n, PROCTIME() AS now FROM {values} GROUP BY k"
    t_env.execute_sql(
        f"INSERT INTO buyers SELECT o.k, c.name, o.n FROM ({counted}) AS o "
        "JOIN customers FOR SYSTEM_TIME AS OF o.now AS c ON o.k = c.id"
    ).wait()
    assert sorted(run("SELECT * FROM buyers")) == [(1, "Ann", 2), (4, "Dan", 1)]
    # A row that no longer matches is deleted from the sink, also where its key is the key of the result.
    run("DELETE FROM buyers", "CREATE TABLE people AS SELECT * FROM customers WHERE id IN (1, 4)")
    table(t_env, url, "people", "id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED")
    values = "(VALUES (7, CAST(1 AS BIGINT)), (8, 4), (7, 3)) AS v(o, k)"
    last = f"SELECT CAST(o AS BIGINT) AS o, LAST_VALUE(k) AS k, PROCTIME() AS now FROM {values} GROUP BY o"
    t_env.execute_sql(
        f"INSERT INTO buyers SELECT o.o, c.name, 1 FROM ({last}) AS o "
        "JOIN people FOR SYSTEM_TIME AS OF o.now AS c ON o.k = c.id"
    ).wait()
    assert run("SELECT * FROM buyers") == [(8, "Dan", 1)]


def test_lookup_hint_sets_async_and_retry(sqlite: Database) -> None:
    t_env = shop(sqlite)
    hint = (
        "/*+ LOOKUP('table' = 'c', 'async' = 'true', 'output-mode' = 'allow_unordered', 'capacity' = '4', "
        "'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay', 'fixed-delay' = '50 ms', "
        "'max-attempts' = '2') */"
    )
    query = f"SELECT {hint} o.o, c.name {JOIN.format('')}"
    text = t_env.explain_sql(query)
    assert "async=[true]" in text and "retry=[lookup_miss, FIXED_DELAY, 50ms, 2]" in text
    assert len(rows(t_env, query)) == 4
    for wrong, error_text in (
        ("'table' = 'nobody'", "cannot match the name of input tables or views: \n`nobody` in `LOOKUP`"),
        ("'async' = 'true'", "incomplete required option"),
        ("'table' = 'c', 'fixed-delay' = '1 s'", "retry options can be both null or all not null"),
        ("'table' = 'c', 'nope' = '1'", "unsupported option 'nope'"),
    ):
        with pytest.raises(ValidationException, match=error_text):
            rows(t_env, f"SELECT /*+ LOOKUP({wrong}) */ o.o {JOIN.format('')}")


def test_lookup_join_batches_many_keys(database: Database) -> None:
    url, run = database
    run("CREATE TABLE numbers (id BIGINT, twice BIGINT)")
    run("INSERT INTO numbers VALUES " + ", ".join(f"({i}, {2 * i})" for i in range(0, 3000, 2)))
    t_env = local()
    table(t_env, url, "numbers", "id BIGINT, twice BIGINT")
    t_env.execute_sql(
        "CREATE TABLE seq (n BIGINT, now AS PROCTIME()) WITH ('connector' = 'datagen', 'rows-per-second' = '1000000', "
        "'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '2999')"
    )
    for hint in ("", "/*+ LOOKUP('table' = 'c', 'async' = 'true') */"):
        results = rows(
            t_env,
            f"SELECT {hint} s.n, c.twice FROM seq AS s JOIN numbers FOR SYSTEM_TIME AS OF s.now AS c ON s.n = c.id",
        )
        assert sorted(results) == [(i, 2 * i) for i in range(0, 3000, 2)]


def test_lookup_join_caches_rows_as_configured(sqlite: Database) -> None:
    _, run = sqlite
    caches: tuple[dict[str, str], ...] = (
        {},
        {"lookup__cache": "PARTIAL", "lookup__partial_cache__max_rows": "100"},
        {"lookup__cache__max_rows": "100", "lookup__cache__ttl": "1 h"},
        {"lookup__cache": "FULL", "lookup__full_cache__periodic_reload__interval": "1 h"},
    )
    for cache in caches:
        run("DROP TABLE IF EXISTS customers")
        t_env = shop(sqlite, **cache)
        # NULL equals no key, not even another NULL.
        run("INSERT INTO customers VALUES (NULL, 'Nobody', 1)")
        assert sorted(rows(t_env, f"SELECT o.o, c.name {JOIN.format('')}")) == [
            (10, "Ann"),
            (11, "Bo"),
            (11, "Bob"),
            (14, "Ann"),
        ]


# --- caches and retries, without a clock


class Counted(LookupSource):
    """Returns a fixed number of rows per key, and records the requests."""

    def __init__(self, counts: dict[int, int]) -> None:
        self.counts = counts
        self.requests: list[list[int]] = []

    def find(self, keys: Any) -> LookupResult:
        self.requests.append([k for (k,) in keys])
        counts = [self.counts.get(k, 0) for (k,) in keys]
        values = [k for (k,) in keys for _ in range(self.counts.get(k, 0))]
        return LookupResult(Batch([to_column(values, DataTypes.INT())], None, len(values)), np.array(counts, np.int64))

    def all_rows(self) -> Any:
        self.requests.append([])
        keys = [k for k, n in self.counts.items() for _ in range(n)]
        return [(k,) for k in keys], Batch([to_column(keys, DataTypes.INT())], None, len(keys))


def look_up(lookup: LookupSource, *keys: int) -> tuple[list[Any], list[int]]:
    results = lookup.find([(k,) for k in keys])
    return results.batch.columns[0].to_pylist(), results.counts.tolist()


def test_partial_cache_evicts_by_age_and_size() -> None:
    now = [0.0]
    inner = Counted({1: 1, 2: 2})
    cache = PartialCache(inner, 3, 10, None, True, lambda: now[0])
    assert look_up(cache, 1, 3) == ([1], [1, 0])
    assert look_up(cache, 3, 1) == ([1], [0, 1])
    assert inner.requests == [[1, 3]]
    # Two more rows exceed the limit: the least recently used entry, the miss of 3, is evicted.
    assert look_up(cache, 2, 1) == ([2, 2, 1], [2, 1])
    assert look_up(cache, 3) == ([], [0])
    assert inner.requests == [[1, 3], [2], [3]]
    aging = PartialCache(Counted({1: 1}), None, 10, None, True, lambda: now[0])
    look_up(aging, 1)
    now[0] = 9.9
    look_up(aging, 1)
    now[0] = 10.0
    look_up(aging, 1)
    assert aging._inner.requests == [[1], [1]]  # type: ignore[attr-defined]
    without = PartialCache(Counted({1: 1}), None, None, 5, False, lambda: now[0])
    assert look_up(without, 1, 2) == ([1], [1, 0])
    now[0] = 14.0
    assert look_up(without, 1, 2) == ([1], [1, 0])
    now[0] = 18.0
    # Accessed within 5 s each time, so it stays; misses are not cached.
    assert look_up(without, 1) == ([1], [1])
    now[0] = 23.0
    assert look_up(without, 1) == ([1], [1])
    assert without._inner.requests == [[1, 2], [2], [1]]  # type: ignore[attr-defined]


def test_full_cache_reloads_on_schedule() -> None:
    now = [0.0]
    inner = Counted({1: 2})
    cache = FullCache(inner, Periodic(60), lambda: now[0])
    assert look_up(cache, 1, 5) == ([1, 1], [2, 0])
    inner.counts = {5: 1}
    now[0] = 59.0
    assert look_up(cache, 1, 5) == ([1, 1], [2, 0])
    now[0] = 60.0
    assert look_up(cache, 1, 5) == ([5], [0, 1])
    assert inner.requests == [[], []]
    assert Periodic(60, fixed_rate=True).next(10, 25) == 70
    noon = dt.datetime(2024, 1, 1, 12)
    assert Timed(dt.time(13), 1, lambda zone: noon).next(0, 100) == 100 + 3600
    assert Timed(dt.time(11), 2, lambda zone: noon).next(0, 0) == 47 * 3600


def test_retrying_lookup_repeats_misses() -> None:
    inner, waited = Counted({1: 1}), []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        inner.counts[2] = len(waited) - 1

    assert look_up(Retrying(inner, 3, 0.5, sleep), 3, 2, 1) == ([2, 1], [0, 1, 1])
    assert waited == [0.5, 0.5, 0.5]
    assert inner.requests == [[3, 2, 1], [3, 2], [3, 2], [3]]


def test_lookup_join_retry_finds_late_rows(sqlite: Database) -> None:
    _, run = sqlite
    t_env = shop(sqlite)
    hint = (
        "/*+ LOOKUP('table' = 'customers', 'retry-predicate' = 'lookup_miss', 'retry-strategy' = 'fixed_delay', "
        "'fixed-delay' = '100 ms', 'max-attempts' = '600') */"
    )
    later = threading.Timer(0.5, lambda: run("INSERT INTO customers VALUES (3, 'Eve', 20)"))
    later.start()
    query = f"SELECT {hint} o.o, customers.name FROM orders AS o JOIN customers FOR SYSTEM_TIME AS OF o.now "
    results = rows(t_env, query + "ON o.customer = customers.id WHERE o.customer IS NOT NULL")
    later.join()
    assert Counter(results)[12, "Eve"] == 1


def test_lookup_join_runs_from_compiled_plan(sqlite: Database) -> None:
    t_env = shop(sqlite)
    sink = ValuesTable()
    t_env.execute_sql(f"CREATE TABLE kept (o INT, name STRING) WITH {sink.options}")
    t_env.execute_sql("DROP TEMPORARY VIEW orders")
    t_env.execute_sql(
        "CREATE TABLE orders (o INT, customer BIGINT, now AS PROCTIME()) WITH ('connector' = 'datagen', "
        "'number-of-rows' = '1', 'fields.o.min' = '7', 'fields.o.max' = '7', 'fields.customer.min' = '4', "
        "'fields.customer.max' = '4')"
    )
    plan = t_env.compile_plan_sql(f"INSERT INTO kept SELECT o.o, c.name {JOIN.format('LEFT')} AND c.age > 1")
    text = plan.as_json_string()
    t_env.load_plan(PlanReference.from_json_string(text)).execute().wait()
    assert sink.final() == [(7, "Dan")]
