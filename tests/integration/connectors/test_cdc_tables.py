"""Tables of SQL with the connectors `postgres-cdc` and `mysql-cdc`, on real databases."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration
from millstream.common.errors import MillstreamError
from millstream.sql.errors import ValidationException
from millstream.table import StreamTableEnvironment
from millstream.testing import LocalEnvironment
from millstream.testing.servers.databases import MariaDbServer, PostgresServer
from tests.support.cdc_shop import MariaDbShop, PostgresShop
from tests.support.helpers import wait_until

COLUMNS = "id INT, item STRING, price DECIMAL(8, 2), PRIMARY KEY (id) NOT ENFORCED"


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[PostgresShop]:
    source = PostgresShop(postgres)
    source.run(
        "CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(8, 2))",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders SELECT n, 'item ' || n, n * 1.5 FROM generate_series(1, 3) n",
    )
    yield source
    source.close()


@pytest.fixture
def maria(mariadb: MariaDbServer) -> MariaDbShop:
    source = MariaDbShop(mariadb)
    source.run("CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(8, 2))")
    source.run("INSERT INTO orders VALUES (1, 'item 1', 1.5), (2, 'item 2', 3), (3, 'item 3', 4.5)")
    source.connection.commit()
    return source


def local(settings: dict[str, str] | None = None) -> StreamTableEnvironment:
    env = LocalEnvironment(Configuration.from_dict(settings) if settings else None).set_parallelism(1)
    t_env = StreamTableEnvironment.create(env)
    t_env.get_config().set("table.local-time-zone", "UTC")
    return t_env


def declare(
    t_env: StreamTableEnvironment, shop: PostgresShop | MariaDbShop, columns: str = COLUMNS, **options: str
) -> None:
    settings = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    if isinstance(shop, PostgresShop):
        about = {
            "connector": "postgres-cdc",
            "hostname": shop.server.directory,
            "port": str(shop.server.port),
            "username": "postgres",
            "password": "",
            "database-name": shop.connection.info.dbname,
            "schema-name": "public",
            "slot.name": shop.slot,
        }
    else:
        about = {
            "connector": "mysql-cdc",
            "hostname": shop.server.socket,
            "username": "root",
            "password": "",
            "database-name": shop.database,
        }
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in {**about, "table-name": "orders", **settings}.items())
    t_env.execute_sql(f"CREATE TABLE orders ({columns}) WITH ({listed})")


def take(rows: Any, count: int) -> list[tuple[str, Any]]:
    return [(str(r.get_row_kind()), tuple(r)) for r in itertools.islice(rows, count)]


def changed(shop: PostgresShop | MariaDbShop) -> None:
    for statement in (
        "UPDATE orders SET item = 'new' WHERE id = 2",
        "DELETE FROM orders WHERE id = 3",
        "INSERT INTO orders VALUES (4, NULL, NULL)",
    ):
        shop.run(statement)
        if isinstance(shop, MariaDbShop):
            shop.connection.commit()


CHANGES = [
    ("-U", (2, "item 2", Decimal("3.00"))),
    ("+U", (2, "new", Decimal("3.00"))),
    ("-D", (3, "item 3", Decimal("4.50"))),
    ("+I", (4, None, None)),
]


@pytest.mark.parametrize("kind", ["shop", "maria"])
def test_cdc_table_emits_snapshot_then_changes(kind: str, request: pytest.FixtureRequest) -> None:
    shop = request.getfixturevalue(kind)
    t_env = local()
    declare(t_env, shop)
    with t_env.execute_sql("SELECT * FROM orders").collect() as rows:
        first = sorted(take(rows, 3))
        assert first == [("+I", (n, f"item {n}", Decimal(n) * 3 / 2)) for n in (1, 2, 3)]
        changed(shop)
        assert take(rows, 4) == CHANGES


@pytest.mark.parametrize("kind", ["shop", "maria"])
def test_cdc_table_provides_metadata_columns(kind: str, request: pytest.FixtureRequest) -> None:
    shop = request.getfixturevalue(kind)
    t_env = local()
    columns = """
        id INT, t STRING METADATA FROM 'table_name' VIRTUAL, s STRING METADATA FROM 'schema_name' VIRTUAL,
        d STRING METADATA FROM 'database_name' VIRTUAL, op_ts TIMESTAMP_LTZ(3) METADATA VIRTUAL,
        k STRING METADATA FROM 'row_kind' VIRTUAL"""
    declare(t_env, shop, columns, scan__read_changelog_as_append_only__enabled="true")
    database = shop.connection.info.dbname if kind == "shop" else shop.database
    schema = "public" if kind == "shop" else database
    query = "SELECT id, t, s, d, k, op_ts FROM orders"
    with t_env.execute_sql(query).collect() as rows:
        first = [row for _, row in take(rows, 3)]
        # Rows of the snapshot have no timestamp.
        assert {(*row[1:5], row[5].timestamp()) for row in first} == {("orders", schema, database, "+I", 0.0)}
        changed(shop)
        results = take(rows, 4)
    assert [(kind, row[0], row[4]) for kind, row in results] == [
        ("+I", 2, "-U"),
        ("+I", 2, "+U"),
        ("+I", 3, "-D"),
        ("+I", 4, "+I"),
    ]
    now = dt.datetime.now(dt.UTC)
    assert all(abs((now - row[5]).total_seconds()) < 600 for _, row in results)


def test_cdc_table_upserts_by_key_without_replica_identity_full(shop: PostgresShop) -> None:
    shop.run("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    t_env = local()
    declare(t_env, shop)
    with pytest.raises(MillstreamError, match="'changelog-mode' = 'upsert' and a PRIMARY KEY"):
        take(t_env.execute_sql("SELECT * FROM orders").collect(), 1)
    t_env.execute_sql("DROP TABLE orders")
    declare(t_env, shop, changelog_mode="upsert")
    with t_env.execute_sql("SELECT * FROM orders").collect() as rows:
        take(rows, 3)
        changed(shop)
        # Old rows that the log omits are known by their keys.
        assert take(rows, 4) == CHANGES


def test_cdc_table_restores_from_checkpoint(shop: PostgresShop, tmp_path: Path) -> None:
    settings = {
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": str(tmp_path),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "pipeline.name": "sums",
    }

    def summed(**more: str) -> Any:
        t_env = local({**settings, **more})
        declare(t_env, shop)
        return t_env.execute_sql("SELECT COUNT(*), SUM(price) FROM orders").collect()

    with summed() as rows:
        assert (3, Decimal("9.00")) in map(tuple, rows)
        before = shop.confirmed()
        shop.run("UPDATE orders SET price = 100 WHERE id = 1")
        assert (3, Decimal("107.50")) in map(tuple, rows)
        # A checkpoint confirms the position to the server.
        wait_until(lambda: shop.confirmed() > before)
    wait_until(lambda: not shop.is_read())
    # These changes happen while no job reads.
    changed(shop)
    with summed(**{"execution.state-recovery.path": "latest"}) as rows:
        (first,) = take(rows, 1)
        # The restored job retracts its last result instead of counting from 0.
        assert first[0] == "-U" and first[1][0] == 3
        # One row changed, one was deleted, one without a price was inserted.
        assert (3, Decimal("103.00")) in map(tuple, rows)


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"scan__startup__mode": "timestamp"}, "'scan.startup.mode' = 'timestamp' is not supported; use one of"),
        ({"slot__name": "Wrong Name"}, "slot_name takes lower case letters"),
        ({"nope": "1"}, "Unsupported options found for 'postgres-cdc'"),
        ({"changelog_mode": "upsert"}, "Primary key must be present when upsert mode is selected"),
    ],
)
def test_cdc_table_rejects_invalid_options(options: dict[str, str], error_text: str) -> None:
    t_env = local()
    settings = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    about = dict.fromkeys(("hostname", "username", "password", "database-name", "schema-name", "table-name"), "x")
    about |= {"connector": "postgres-cdc", "slot.name": "x", **settings}
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in about.items())
    t_env.execute_sql(f"CREATE TABLE t (id INT) WITH ({listed})")
    with pytest.raises(ValidationException, match=error_text):
        t_env.execute_sql("SELECT * FROM t")


def test_cdc_table_reports_missing_column(shop: PostgresShop) -> None:
    t_env = local()
    declare(t_env, shop, "id INT, thing STRING")
    with pytest.raises(MillstreamError, match="Table public.orders has no column 'thing', it has id, item, price"):
        take(t_env.execute_sql("SELECT * FROM orders").collect(), 1)
