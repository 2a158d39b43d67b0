"""PostgresSource with unusual tables, and after changes by other users of the database."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from millstream.common.errors import MillstreamError
from millstream.connectors.cdc.postgres import chunks as postgres_chunks
from millstream.connectors.cdc.postgres.catalog import find_columns, find_tables
from millstream.datastream.connectors.cdc import (
    JsonDebeziumDeserializationSchema,
    RowDeserializationSchema,
    StartupOptions,
)
from millstream.testing.servers.databases import PostgresServer
from tests.support.cdc_shop import PostgresShop, polled_changes, reading, refused, take
from tests.support.helpers import wait_until

UPSERT = RowDeserializationSchema(changelog_mode="upsert")
SNAPSHOT = StartupOptions.snapshot()


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[PostgresShop]:
    source = PostgresShop(postgres)
    source.run(
        "CREATE TABLE orders (id int PRIMARY KEY, item text)",
        "INSERT INTO orders SELECT n, 'item ' || n FROM generate_series(1, 20) n",
    )
    yield source
    source.close()


def settings(directory: Path) -> dict[str, str]:
    return {
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": str(directory),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "pipeline.name": "shop",
    }


# --- unusual tables

KEYS = {
    "text": ["a", "B", "é", "Z", "_", "x y", "'q\\", "a b", "A", "ß", ""],
    'text COLLATE "C"': ["a", "B", "é", "Z", "_"],
    'text COLLATE "und-x-icu"': ["a", "B", "é", "Z", "_", "A"],
    "char(4)": ["a", "ab", "b ", " c"],
    "uuid": ["00000000-0000-0000-0000-000000000001", "ffffffff-0000-0000-0000-000000000001"],
    "float8": ["NaN", "Infinity", "-Infinity", "0.1", "-0.30000000000000004", "1e300"],
    "numeric": ["NaN", "1.10", "1.2", "-5", "1e30"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "0", "4000000000000"],
    "timestamptz": ["infinity", "2024-01-02 03:04:05+02", "2024-01-02 03:04:05+00", "0044-03-15 BC"],
    "interval": ["1 mon", "31 days", "-1 day"],
    "bytea": ["\\x00ff", "\\x", "\\x00"],
    "inet": ["10.0.0.1", "10.0.0.0/8", "::1"],
    "mood": ["sad", "happy"],
    "word": ["b", "A"],
}


def test_postgres_source_reads_chunks_in_order_of_any_key_type(shop: PostgresShop) -> None:
    shop.run("CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE DOMAIN word AS text CHECK (VALUE <> '')")
    for i, (kind, keys) in enumerate(KEYS.items()):
        shop.run(f"CREATE TABLE k{i} (n int, k {kind}, PRIMARY KEY (k, n))")
        with shop.connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO k{i} SELECT n, %s FROM generate_series(1, 2) n", [(k,) for k in keys])
    schema = RowDeserializationSchema(changelog_mode="upsert", with_table=True)
    source = shop.source(r"public\.k\d+").split_size(1).deserializer(schema).startup_options(SNAPSHOT)
    with reading(source) as records:
        results = list(records)
    for i, (kind, keys) in enumerate(KEYS.items()):
        rows = [(repr(row.k), row.n) for table, row in results if table == f"public.k{i}"]
        assert len(rows) == len(set(rows)) == 2 * len(keys), kind
        # Keys in the log are compared in the same order.
        sorted_ = shop.run(f"SELECT k::text, n::text FROM k{i} ORDER BY k{i}.k, k{i}.n")
        (table,) = find_tables(shop.connection, (f"public.k{i}",))
        above = postgres_chunks.compare(shop.connection, table, [tuple(k) for k in sorted_], [sorted_[0], sorted_[2]])
        assert above == [0, 1, 1, *[2] * (len(sorted_) - 3)], kind


def test_postgres_source_accepts_any_identifier(shop: PostgresShop) -> None:
    shop.run(
        'CREATE SCHEMA "a.b"',
        """CREATE TABLE "a.b"."Tä ""b"" 'le'.x" ("select" int, "from" text, "Ünï ""q""%s" int,
        PRIMARY KEY ("from", "select"))""",
        """INSERT INTO "a.b"."Tä ""b"" 'le'.x" SELECT n, 'x', n FROM generate_series(1, 9) n""",
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "CREATE TABLE one (id int PRIMARY KEY)",
        "INSERT INTO one VALUES (1)",
        "CREATE TABLE gaps (id bigint PRIMARY KEY, g bigint GENERATED ALWAYS AS (id + 1) STORED)",
        "INSERT INTO gaps SELECT n::bigint * n * n * n * 1000000000 FROM generate_series(1, 20) n",
        # Inherited tables are separate tables.
        "CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (one)",
        "INSERT INTO heir VALUES (2)",
    )
    name = "a.b.Tä \"b\" 'le'.x"
    tables = (name, "public.empty", "public.one", "public.gaps")
    with reading(shop.source(*tables).deserializer(JsonDebeziumDeserializationSchema())) as records:
        results = [json.loads(r) for r in take(records, 30)]
        shop.run(
            """UPDATE "a.b"."Tä ""b"" 'le'.x" SET "Ünï ""q""%s" = 0 WHERE "select" = 3""",
            "INSERT INTO empty VALUES (5)",
            "INSERT INTO heir VALUES (3)",
            "INSERT INTO gaps VALUES (7)",
        )
        update, *later = [json.loads(r) for r in take(records, 3)]
    assert {tuple(f["after"]) for f in results if f["source"]["table"] == "gaps"} == {("id",)}
    assert sum(f["source"]["table"] == "one" for f in results) == 1
    assert (update["source"]["schema"], update["source"]["table"]) == ("a.b", "Tä \"b\" 'le'.x")
    assert update["after"] == {"select": 3, "from": "x", 'Ünï "q"%s': 0}
    assert [f["after"] for f in later] == [{"id": 5}, {"id": 7}]


def test_postgres_source_accepts_empty_and_missing_tables(shop: PostgresShop) -> None:
    shop.run("CREATE TABLE empty (id int PRIMARY KEY)")
    for tables in (["public.empty"], [r"public\.nothing_like_it.*"]):
        with reading(shop.source(*tables).deserializer(UPSERT).startup_options(SNAPSHOT)) as records:
            assert list(records) == []
    # An invalid pattern is a name.
    refused(shop.source("public.(orders"), r"has no table 'public\.\(orders'")
    refused(shop.source("public.order's"), "has no table .public.order's")


def test_postgres_source_reads_partitioned_table_as_one(shop: PostgresShop) -> None:
    shop.run(
        "CREATE TABLE parts (id int, k int, PRIMARY KEY (id, k)) PARTITION BY RANGE (k)",
        "CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (10) TO (20)",
        "INSERT INTO parts SELECT n, n FROM generate_series(1, 19) n",
        "CREATE PUBLICATION by_parts FOR TABLE parts",
    )
    source = shop.source("public.parts").deserializer(UPSERT)
    refused(shop.source("public.parts"), r"replica identity is not FULL.*public\.parts")
    shop.run("ALTER TABLE parts1 REPLICA IDENTITY FULL")
    refused(source, "replica identity of table public.parts differs from that of a partition")
    shop.run("ALTER TABLE parts2 REPLICA IDENTITY FULL", "ALTER TABLE parts REPLICA IDENTITY FULL")
    refused(source.publication("by_parts"), "under the names of its partitions: run .*publish_via_partition_root =")
    shop.run("ALTER PUBLICATION by_parts SET (publish_via_partition_root = true)")
    with reading(shop.source("public.parts").publication("by_parts")) as records:
        assert sorted(row.id for row in take(records, 19)) == list(range(1, 20))
        shop.run("UPDATE parts SET k = 15 WHERE id = 3", "CREATE TABLE parts3 PARTITION OF parts DEFAULT")
        shop.run("ALTER TABLE parts3 REPLICA IDENTITY FULL", "INSERT INTO parts VALUES (99, 99)")
        results = [(str(row.get_row_kind()), row.id, row.k) for row in take(records, 3)]
    assert results == [("-D", 3, 3), ("+I", 3, 15), ("+I", 99, 99)]


def test_postgres_source_reads_rare_types(shop: PostgresShop) -> None:
    shop.run(
        "CREATE EXTENSION IF NOT EXISTS hstore",
        "CREATE TYPE pair AS (a int, b text)",
        """CREATE TABLE rare (id int PRIMARY KEY, h hstore, p pair, ps pair[], m money, ips inet[], rs int4range[],
        bs bit(3)[], x xml, pt point, bx box[], ts tsvector, iv interval[], big timestamp, day date, t time)""",
    )
    values = """INSERT INTO rare VALUES (%d, 'a=>1', '(1,"x,y")', ARRAY['(1,z)'::pair, NULL], 12.5, '{10.0.0.1,::1}',
    '{"[1,5)"}', '{101,010}', '<a/>', '(1,2)', '{(1,1),(0,0);(2,2),(0,0)}', 'fat cat', '{"1 day"}', 'infinity',
    '0044-03-15 BC', '24:00')"""
    shop.run(values % 1)
    with reading(shop.source("public.rare").deserializer(UPSERT)) as records:
        (read,) = take(records, 1)
        shop.run(values % 2)
        (logged,) = take(records, 1)
    row = read.as_dict()
    assert {**logged.as_dict(), "id": 1} == row
    assert row["ips"] == ["10.0.0.1", "::1"] and row["rs"] == ["[1,5)"] and row["bs"] == ["101", "010"]
    assert row["ps"] == ["(1,z)", None] and row["p"] == '(1,"x,y")' and row["h"] == '"a"=>"1"'
    assert row["bx"] == ["(1,1),(0,0)", "(2,2),(0,0)"] and row["iv"] == ["P1D"] and row["m"].endswith("12.50")
    assert (row["big"], row["day"], row["t"], row["pt"]) == ("infinity", "0044-03-15 BC", "24:00:00", "(1,2)")


# --- tables that change


def test_postgres_source_follows_renamed_or_changed_key(shop: PostgresShop) -> None:
    shop.run("CREATE TABLE full_ (id int PRIMARY KEY)", "ALTER TABLE full_ REPLICA IDENTITY FULL")
    source = shop.source("public.orders", "public.full_").deserializer(JsonDebeziumDeserializationSchema())
    with reading(source) as records:
        take(records, 20)
        shop.run(
            "ALTER TABLE orders RENAME id TO key",
            "DELETE FROM orders WHERE key = 1",
            "ALTER TABLE orders RENAME key TO key2",
            "UPDATE orders SET key2 = 100 WHERE key2 = 2",
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (item, key2)",
            "DELETE FROM orders WHERE key2 = 3",
            "ALTER TABLE full_ RENAME id TO key",
            "INSERT INTO full_ VALUES (1)",
            "UPDATE full_ SET key = 2",
        )
        results = [json.loads(r) for r in take(records, 7)]
    assert [(f["op"], f["before"]) for f in results] == [
        ("d", {"key": 1}),
        ("d", {"key2": 2}),
        ("c", None),
        ("d", {"item": "item 3", "key2": 3}),
        ("c", None),
        ("d", {"key": 1}),
        ("c", None),
    ]


def test_postgres_source_blocks_alter_table_during_snapshot(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    outcomes: list[str] = []

    def alter_once(connection: Any, table: Any) -> Any:
        # Between the snapshot and the read of the chunk.
        if not outcomes:
            with psycopg.connect(shop.connection.info.dsn, autocommit=True) as other:
                other.execute("SET lock_timeout = '200ms'")
                try:
                    other.execute("ALTER TABLE orders ALTER id TYPE bigint")
                    outcomes.append("altered")
                except psycopg.errors.LockNotAvailable:
                    outcomes.append("had to wait")
        return find_columns(connection, table)

    monkeypatch.setattr(postgres_chunks, "find_columns", alter_once)
    source = shop.source().deserializer(UPSERT).snapshot_parallelism(1).startup_options(SNAPSHOT)
    with reading(source) as records:
        assert sorted(row.id for row in records) == list(range(1, 21))
    assert outcomes == ["had to wait"]


def test_postgres_source_reads_columns_changed_between_chunks(shop: PostgresShop) -> None:
    source = shop.source().deserializer(UPSERT).split_size(5).snapshot_parallelism(1).build()
    with closing(source.create_enumerator(1)) as enumerator:
        assigned = polled_changes(enumerator, 5)
        shop.run("ALTER TABLE orders ADD note text DEFAULT 'n', ALTER item TYPE varchar(20), ALTER id TYPE bigint")
        shop.run("ALTER TABLE orders RENAME item TO thing", "UPDATE orders SET thing = 'new'")
        while len({c.after[0] for c in assigned}) < 20 or sum(c.op == "u" for c in assigned) < 5:
            assigned += polled_changes(enumerator, 1)
    rows = {c.after[0]: dict(zip(c.columns, c.after, strict=True)) for c in assigned}
    assert len(rows) == 20 and all(r.get("thing") == "new" and r["note"] == "n" for r in rows.values())


# --- changes by others


def test_postgres_source_reports_slot_dropped_while_reading(shop: PostgresShop, tmp_path: Path) -> None:
    with (
        pytest.raises(MillstreamError, match="slot .* was dropped.*start the job without its state") as error,
        reading(shop.source().deserializer(UPSERT), **settings(tmp_path)) as records,
    ):
        take(records, 20)
        shop.run("INSERT INTO orders VALUES (21)")
        take(records, 1)
        wait_until(lambda: any(tmp_path.glob("*/chk-*")))
        before = shop.confirmed()
        shop.run("INSERT INTO orders VALUES (22)")
        wait_until(lambda: shop.confirmed() > before)
        active = f"FROM pg_replication_slots WHERE slot_name = '{shop.slot}'"
        # The job reconnects at once, so the drop must be fast.
        drop = f"DO $$ BEGIN PERFORM pg_terminate_backend(active_pid, 1000) {active}; "
        shop.run(f"{drop} PERFORM pg_drop_replication_slot('{shop.slot}'); END $$")
        list(records)
    assert "\n" not in str(error.value).strip()


def test_postgres_source_reports_table_removed_from_publication(shop: PostgresShop) -> None:
    shop.run("CREATE TABLE other (id int PRIMARY KEY)")
    source = shop.source("public.orders", "public.other").deserializer(UPSERT).discovery_interval(0.2)
    words = "Table public.orders was removed from publication 'dbz_publication'.*without its state"
    drop, add = (f"ALTER PUBLICATION dbz_publication {word} TABLE orders" for word in ("DROP", "ADD"))
    with pytest.raises(MillstreamError, match=words), reading(source) as records:
        take(records, 20)
        # Although the table returns before the next check.
        shop.run(drop, "INSERT INTO orders VALUES (21)", add)
        list(records)
    wait_until(lambda: not shop.is_read())
    # Also if it was removed while the job was down.
    with closing(source.build().create_enumerator(1)) as enumerator:
        state = enumerator.snapshot()
    shop.run(drop)
    with pytest.raises(MillstreamError, match=words):
        source.build().create_enumerator(1, state)
    shop.run("DROP PUBLICATION dbz_publication")
    with pytest.raises(MillstreamError, match=words):
        source.build().create_enumerator(1, state)


def test_postgres_source_reports_recreated_table(shop: PostgresShop) -> None:
    source = shop.source().deserializer(UPSERT).discovery_interval(0.2)
    words = "Table public.orders was dropped or renamed.*without its state"
    with closing(source.build().create_enumerator(1)) as enumerator:
        state = enumerator.snapshot()
    wait_until(lambda: not shop.is_read())
    with pytest.raises(MillstreamError, match=words), reading(source) as records:
        take(records, 20)
        shop.run("BEGIN", "DROP TABLE orders", "CREATE TABLE orders (id int PRIMARY KEY, item text)", "COMMIT")
        list(records)
    with pytest.raises(MillstreamError, match=words):
        source.build().create_enumerator(1, state)


def test_postgres_source_uses_slot_older_than_publication(shop: PostgresShop) -> None:
    shop.run(f"SELECT pg_create_logical_replication_slot('{shop.slot}', 'pgoutput')", "UPDATE orders SET item = 'a'")
    with reading(shop.source().deserializer(UPSERT)) as records:
        assert {row.item for row in take(records, 20)} == {"a"}
        shop.run("INSERT INTO orders VALUES (21)")
        assert take(records, 1)[0].id == 21


# --- rejected


def test_postgres_source_rejects_setups_that_would_lose_changes(shop: PostgresShop) -> None:
    source = shop.source().deserializer(UPSERT)
    shop.run("CREATE PUBLICATION inserts FOR TABLE orders WITH (publish = 'insert')")
    refused(source.publication("inserts"), "'inserts' does not publish all kinds of changes: run .* SET .publish =")
    shop.run("CREATE PUBLICATION rows FOR TABLE orders WHERE (id > 5)", "CREATE PUBLICATION few FOR TABLE orders (id)")
    refused(source.publication("rows"), "'rows' does not have all rows and columns of public.orders")
    refused(source.publication("few"), "'few' does not have all rows and columns of public.orders")
    source = shop.source().deserializer(UPSERT)
    shop.run("ALTER TABLE orders REPLICA IDENTITY NOTHING")
    refused(source, "replica identity of table public.orders is NOTHING.*REPLICA IDENTITY DEFAULT")
    shop.run("ALTER TABLE orders ALTER item SET NOT NULL", "CREATE UNIQUE INDEX by_item ON orders (item)")
    shop.run("ALTER TABLE orders REPLICA IDENTITY USING INDEX by_item")
    refused(source, "replica identity of table public.orders is an index.*REPLICA IDENTITY DEFAULT")
    # A nullable key is no primary key.
    shop.run("CREATE TABLE maybe (id int UNIQUE)")
    refused(shop.source("public.maybe").deserializer(UPSERT), "maybe has no primary key")


def test_postgres_source_names_missing_privileges(shop: PostgresShop) -> None:
    shop.run("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN", "CREATE PUBLICATION p FOR TABLE orders")
    source = shop.source().deserializer(UPSERT).username("reader").publication("p", create=False)
    try:
        refused(source, "User 'reader' may not read table public.orders: run  GRANT SELECT")
        shop.run("GRANT SELECT ON orders TO reader")
        refused(source, "cannot be created: .*Give the user the attribute REPLICATION")
        shop.run("ALTER ROLE reader REPLICATION")
        refused(source.publication("own"), "Publication 'own' cannot be created or extended: permission denied")
        shop.run("ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
        refused(source.publication("p", create=False), 'row-level security policy for table "orders"')
        shop.run("ALTER TABLE orders DISABLE ROW LEVEL SECURITY")
        with reading(source) as records:
            assert len(take(records, 20)) == 20
    finally:
        shop.run("DROP OWNED BY reader")


def test_postgres_source_reports_server_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    from millstream.connectors.cdc.postgres import log as postgres_log

    monkeypatch.setattr(postgres_log, "_BUSY_SECONDS", 0.3)
    with PostgresServer(max_replication_slots=1, max_wal_senders=1) as server:
        one, two = PostgresShop(server), PostgresShop(server)
        for shop in (one, two):
            shop.run("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
        with reading(one.source().deserializer(UPSERT)) as records:
            take(records, 1)
            refused(two.source().deserializer(UPSERT), "all replication slots are in use.*check max_replication_slots")
            other = one.source().deserializer(UPSERT)
            refused(other, "no connection left: .*max_wal_senders|Another reader has replication slot")
        one.close()
        two.connection.close()
        server.kill()
        server.change(max_wal_senders=3)
        server.start()
        one = PostgresShop(server)
        one.run("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
        with reading(one.source().deserializer(UPSERT)) as records:
            take(records, 1)
            refused(one.source().deserializer(UPSERT), "Another reader has replication slot .*unique slot_name")
        one.close()
        server.kill()
        server.change(wal_level="replica", max_replication_slots=0, max_wal_senders=0)
        server.start()
        one = PostgresShop(server)
        refused(one.source(), "wal_level is replica.*set wal_level = logical")
        one.connection.close()


def test_postgres_source_bounds_retained_wal(shop: PostgresShop) -> None:
    # An idle table next to a busy one: the slot retains the WAL since the last heartbeat.
    shop.run("CREATE TABLE busy (n int, t text)")
    retained = f"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint, confirmed_flush_lsn::text \
FROM pg_replication_slots WHERE slot_name = '{shop.slot}'"
    often = {"execution.checkpointing.interval": "50 ms"}
    with reading(shop.source().deserializer(UPSERT).heartbeat_interval(0.1), **often) as records:
        take(records, 20)
        written = max_retained = 0
        places: set[str] = set()
        end = time.monotonic() + 60
        # Repeated releases of WAL reach this on any machine.
        while len(places) <= 3 or max_retained >= written / 2:
            assert time.monotonic() < end, (written, max_retained, len(places))
            ((before, _),) = shop.run(retained)
            shop.run("INSERT INTO busy SELECT n, repeat('x', 100) FROM generate_series(1, 1000) n")
            ((after, position),) = shop.run(retained)
            written += max(0, after - before)
            max_retained, places = max(max_retained, after), places | {position}
            time.sleep(0.02)
