"""Tables of real databases on Spark: parallel scans, lookups, upserts by key, and change data capture."""

from __future__ import annotations

import itertools
from typing import Any

import psycopg
import pytest

from millstream.table import StreamTableEnvironment
from millstream.testing.servers.databases import MariaDbServer, PostgresServer
from tests.conftest import Env
from tests.support.cdc_shop import MariaDbShop

pytestmark = pytest.mark.spark


def _declare(t_env: StreamTableEnvironment, name: str, columns: str, options: dict[str, str]) -> None:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    t_env.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({listed})")


def test_jdbc_tables_scan_look_up_and_upsert_on_spark(postgres: PostgresServer, env: Env) -> None:
    """The connector `jdbc`: two subtasks read, each looks up customers, and sums are written by key."""
    words = postgres.new_database()
    with psycopg.connect(words, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE orders AS SELECT n AS id, n % 4 AS customer, n AS price FROM generate_series(1, 100) n"
        )
        connection.execute(
            "CREATE TABLE customers AS SELECT n AS id, 'name ' || n AS name FROM generate_series(0, 2) n"
        )
        connection.execute("CREATE TABLE sums (name text PRIMARY KEY, orders bigint, total bigint)")
        about = dict(word.split("=") for word in words.split())
        url = f"jdbc:postgresql:///{about['dbname']}?host={about['host']}&port={about['port']}&user={about['user']}"
        t_env = StreamTableEnvironment.create(env.set_parallelism(2))
        options: dict[str, str] = {"connector": "jdbc", "url": url}
        parts = {"partition.column": "id", "partition.num": "5"}
        bounds = {"partition.lower-bound": "1", "partition.upper-bound": "100"}
        scan = {**options, "table-name": "orders", **{f"scan.{key}": value for key, value in (parts | bounds).items()}}
        _declare(t_env, "orders", "id INT, customer INT, price INT, now AS PROCTIME()", scan)
        cache = {"lookup.cache": "PARTIAL", "lookup.partial-cache.max-rows": "10"}
        _declare(t_env, "customers", "id INT, name STRING", {**options, "table-name": "customers", **cache})
        columns = "name STRING, orders BIGINT, total BIGINT, PRIMARY KEY (name) NOT ENFORCED"
        _declare(t_env, "sums", columns, {**options, "table-name": "sums"})
        t_env.execute_sql(
            "INSERT INTO sums SELECT COALESCE(c.name, 'nobody'), COUNT(*), SUM(o.price) FROM orders AS o "
            "LEFT JOIN customers FOR SYSTEM_TIME AS OF o.now AS c ON o.customer = c.id GROUP BY c.name"
        ).wait()
        results = connection.execute("SELECT name, orders, total FROM sums ORDER BY name").fetchall()
    names = {0: "name 0", 1: "name 1", 2: "name 2", 3: "nobody"}
    prices = {name: [p for p in range(1, 101) if p % 4 == key] for key, name in names.items()}
    assert results == sorted((name, len(some), sum(some)) for name, some in prices.items())


def test_mysql_cdc_table_follows_changes_on_spark(mariadb: MariaDbServer, env: Env) -> None:
    """The connector `mysql-cdc`: the snapshot in two subtasks, then the binlog."""
    shop = MariaDbShop(mariadb)
    shop.run("CREATE TABLE orders (id int PRIMARY KEY, item text)")
    shop.run("INSERT INTO orders SELECT seq, CONCAT('item ', seq) FROM seq_1_to_50")
    shop.connection.commit()
    t_env = StreamTableEnvironment.create(env.set_parallelism(2))
    about = {"hostname": shop.server.socket, "username": "root", "password": "", "database-name": shop.database}
    options = {"connector": "mysql-cdc", **about, "table-name": "orders", "scan.incremental.snapshot.chunk.size": "10"}
    _declare(t_env, "orders", "id INT, item STRING, PRIMARY KEY (id) NOT ENFORCED", options)
    with t_env.execute_sql("SELECT id, item FROM orders").collect() as rows:

        def take(count: int) -> list[tuple[Any, ...]]:
            return [(str(row.get_row_kind()), *row) for row in itertools.islice(rows, count)]

        assert sorted(take(50)) == sorted(("+I", n, f"item {n}") for n in range(1, 51))
        shop.run("UPDATE orders SET item = 'new' WHERE id = 7")
        shop.run("DELETE FROM orders WHERE id = 8")
        shop.connection.commit()
        assert take(3) == [("-U", 7, "item 7"), ("+U", 7, "new"), ("-D", 8, "item 8")]
