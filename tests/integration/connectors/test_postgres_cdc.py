"""PostgresSource on a real PostgreSQL, with jobs in this process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Configuration, Row, RowKind
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.datastream.connectors.cdc import (
    JsonDebeziumDeserializationSchema,
    PostgresSource,
    RowDeserializationSchema,
    StartupOptions,
)
from millstream.testing import LocalEnvironment
from millstream.testing.servers.databases import PostgresServer
from tests.support import cdc_replica
from tests.support.cdc_shop import PostgresShop, reading, refused, take
from tests.support.helpers import wait_until


@pytest.fixture
def shop(postgres: PostgresServer) -> Iterator[PostgresShop]:
    source = PostgresShop(postgres)
    source.run(
        "CREATE TABLE orders (id int PRIMARY KEY, item text, price numeric(8, 2))",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "INSERT INTO orders SELECT n, 'item ' || n, n * 1.5 FROM generate_series(1, 20) n",
    )
    yield source
    source.close()


def test_postgres_source_emits_snapshot_then_changes(shop: PostgresShop) -> None:
    with reading(shop.source()) as records:
        first = take(records, 20)
        assert sorted(row.id for row in first) == list(range(1, 21))
        assert first[2].price == Decimal("4.50") and first[0].get_row_kind() is RowKind.INSERT
        shop.run(
            "UPDATE orders SET item = 'new' WHERE id = 3",
            "DELETE FROM orders WHERE id = 4",
            "UPDATE orders SET id = 100 WHERE id = 5",
            "INSERT INTO orders VALUES (200, NULL, NULL)",
        )
        results = [(str(row.get_row_kind()), row.id, row.item) for row in take(records, 6)]
    assert results == [
        ("-U", 3, "item 3"),
        ("+U", 3, "new"),
        ("-D", 4, "item 4"),
        ("-D", 5, "item 5"),
        ("+I", 100, "item 5"),
        ("+I", 200, None),
    ]


def test_postgres_source_emits_debezium_json_with_truncate(shop: PostgresShop) -> None:
    with reading(shop.source().deserializer(JsonDebeziumDeserializationSchema())) as records:
        first = json.loads(take(records, 20)[0])
        assert (first["op"], first["before"], first["after"]["price"]) == ("r", None, "1.50")
        shop.run("UPDATE orders SET price = 2 WHERE id = 1", "TRUNCATE orders")
        update, truncate = map(json.loads, take(records, 2))
    assert update["before"]["price"] == "1.50" and update["after"]["price"] == "2.00"
    assert update["source"]["table"] == "orders" and update["source"]["schema"] == "public"
    assert (truncate["op"], truncate["before"], truncate["after"]) == ("t", None, None)


def test_postgres_source_rejects_truncate_unless_skipped(shop: PostgresShop) -> None:
    with (
        pytest.raises(MillstreamError, match=r"public\.orders was truncated.*skip_truncate=True"),
        reading(shop.source().startup_options(StartupOptions.latest())) as records,
    ):
        wait_until(shop.is_read)
        shop.run("INSERT INTO orders VALUES (50)")
        take(records, 1)
        shop.run("TRUNCATE orders")
        take(records, 1)


TYPES = """
CREATE TYPE mood AS ENUM ('happy', 'sad'); CREATE DOMAIN age AS int CHECK (VALUE >= 0);
CREATE TABLE types (id uuid PRIMARY KEY, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric, t text,
v varchar(9), c char(4), by bytea, d date, ti time, ts timestamp, tz timestamptz, iv interval, j json, jb jsonb, m mood,
a age, ia int[], ta text[], ma mood[], na numeric[], ip inet, r int4range);
ALTER TABLE types REPLICA IDENTITY FULL
"""
VALUES = """INSERT INTO types VALUES ('00000000-0000-0000-0000-00000000000%d', true, -5, 9007199254740993, 1.5, 'NaN',
'Infinity', E'tab\\t "quoted" \\\\ back\\nslash', 'v', 'c', '\\x00ff', '2024-02-29', '23:59:59.999999',
'2024-01-02 03:04:05.678', '2024-01-02 03:04:05.678+02', '1 mon 2 days', '{"a": [1]}', '{"b": null}', 'sad', 42,
'{1,NULL,-3}', ARRAY['a,b', 'c"d', NULL, ''], '{happy,sad}', '{1.50,2}', '10.0.0.1/8', '[1,5)')"""


def test_postgres_source_snapshot_and_log_values_are_equal(shop: PostgresShop) -> None:
    shop.run(*TYPES.split(";"), VALUES % 1)
    with reading(shop.source("public.types")) as records:
        (read,) = take(records, 1)
        shop.run(VALUES % 2)
        (logged,) = take(records, 1)
    values = read.as_dict()
    assert {**values, "id": 0} | {"f8": 0} == {**logged.as_dict(), "id": 0} | {"f8": 0}
    assert values["f8"] != values["f8"] and values["n"] == Decimal("Infinity")
    assert values["i8"] == 9007199254740993 and values["t"] == 'tab\t "quoted" \\ back\nslash'
    assert values["by"] == b"\x00\xff" and values["d"] == date(2024, 2, 29)
    assert values["tz"] == datetime(2024, 1, 2, 1, 4, 5, 678_000, tzinfo=UTC)
    assert values["jb"] == '{"b": null}' and values["m"] == "sad" and values["a"] == 42 and values["c"] == "c   "
    assert values["ia"] == [1, None, -3] and values["ta"] == ["a,b", 'c"d', None, ""]
    assert values["ma"] == ["happy", "sad"] and values["na"] == [Decimal("1.50"), Decimal(2)]
    assert values["iv"] == "P1M2D" and values["r"] == "[1,5)" and values["ip"] == "10.0.0.1/8"


def test_postgres_source_marks_unchanged_toast_values(shop: PostgresShop) -> None:
    shop.run(
        "CREATE TABLE big (id int PRIMARY KEY, n int, body text)",
        "ALTER TABLE big ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO big VALUES (1, 1, repeat('x', 100000))",
    )
    upsert = RowDeserializationSchema(changelog_mode="upsert")
    with reading(shop.source("public.big").deserializer(upsert)) as records:
        assert len(take(records, 1)[0].body) == 100_000
        shop.run("UPDATE big SET n = 2", "ALTER TABLE big REPLICA IDENTITY FULL", "UPDATE big SET n = 3")
        short, whole = take(records, 2)
        shop.run("DELETE FROM big")
        (deleted,) = take(records, 1)
    assert (short.n, short.body) == (2, "__debezium_unavailable_value")
    assert (whole.n, len(whole.body)) == (3, 100_000)
    assert deleted.get_row_kind() is RowKind.DELETE and deleted.id == 1


def test_postgres_source_follows_added_and_dropped_columns(shop: PostgresShop) -> None:
    with reading(shop.source()) as records:
        take(records, 20)
        shop.run(
            "INSERT INTO orders VALUES (30, 'a', 1)",
            "ALTER TABLE orders ADD COLUMN note text DEFAULT 'n'",
            "INSERT INTO orders VALUES (31, 'b', 2, 'c')",
            "ALTER TABLE orders DROP COLUMN price",
            "ALTER TABLE orders ALTER item TYPE varchar(20)",
            "INSERT INTO orders VALUES (32, 'd', 'e')",
        )
        results = take(records, 3)
    assert [row.as_dict() for row in results] == [
        {"id": 30, "item": "a", "price": Decimal("1.00")},
        {"id": 31, "item": "b", "price": Decimal("2.00"), "note": "c"},
        {"id": 32, "item": "d", "note": "e"},
    ]


def test_postgres_source_reads_tables_created_later(shop: PostgresShop) -> None:
    schema = RowDeserializationSchema(changelog_mode="upsert", with_table=True)
    source = shop.source(r"public\.(orders|later.*)").deserializer(schema).discovery_interval(0.1)
    with reading(source) as records:
        take(records, 20)
        shop.run(
            "CREATE TABLE later1 (id int PRIMARY KEY)",
            "CREATE TABLE unrelated (id int)",
            "INSERT INTO later1 SELECT generate_series(1, 10)",
        )
        early = take(records, 10)
        shop.run(
            "INSERT INTO later1 VALUES (11)", "INSERT INTO unrelated VALUES (1)", "DELETE FROM later1 WHERE id = 1"
        )
        late = take(records, 2)
    assert {(table, row.id) for table, row in early} == {("public.later1", n) for n in range(1, 11)}
    assert [(table, str(row.get_row_kind()), row.id) for table, row in late] == [
        ("public.later1", "+I", 11),
        ("public.later1", "-D", 1),
    ]


def test_postgres_source_starts_at_startup_offset(shop: PostgresShop) -> None:
    with reading(shop.source().startup_options(StartupOptions.snapshot())) as records:
        assert len(list(records)) == 20
    # The slot is dropped, because no job returns to it.
    wait_until(lambda: not shop.run(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{shop.slot}'"))
    with reading(shop.source().startup_options(StartupOptions.latest())) as records:
        wait_until(shop.is_read)
        shop.run("INSERT INTO orders VALUES (21)")
        assert take(records, 1)[0].id == 21
    lsn = shop.run("SELECT pg_current_wal_insert_lsn()")[0][0]
    shop.run("INSERT INTO orders VALUES (22)")
    with reading(shop.source().startup_options(StartupOptions.specific_offset(lsn))) as records:
        assert take(records, 1)[0].id == 22
    ahead = StartupOptions.specific_offset("FFFFFF/0")
    refused(shop.source().startup_options(ahead), "log has not reached FFFFFF/0; it ends at")
    with (
        pytest.raises(MillstreamError, match="has the log from .* on, not from 0/1"),
        reading(shop.source().startup_options(StartupOptions.specific_offset("0/1"))) as records,
    ):
        take(records, 1)


def test_postgres_source_confirms_slot_on_checkpoint_only(shop: PostgresShop) -> None:
    with closing(shop.source().build().create_enumerator(1)) as enumerator:
        before, now = shop.confirmed(), 0.0
        n_assigned = 0
        while n_assigned < 4:
            n_assigned += len(enumerator.poll(1000, now).split_ranges)
            if n_assigned == 3:
                shop.run("INSERT INTO orders VALUES (21) ON CONFLICT DO NOTHING")
            time.sleep(0.01)
        time.sleep(0.3)
        assert shop.confirmed() == before
        enumerator.committed(enumerator.snapshot())
        wait_until(lambda: shop.confirmed() > before)


def test_postgres_source_reports_pending_records_and_bytes(shop: PostgresShop) -> None:
    latest = shop.source().startup_options(StartupOptions.latest()).build()
    with closing(latest.create_enumerator(1)) as enumerator:
        shop.run("INSERT INTO orders SELECT n, repeat('x', 100) FROM generate_series(100, 1099) n")
        wait_until(lambda: enumerator.poll(0, 0.0).unassigned == {0: 1000})
        # The server is queried once a second.
        assignments = [enumerator.poll(budget, now) for budget, now in ((0, 2.0), (5000, 2.5), (0, 4.0))]
    assert [f.lag["pendingRecords"] for f in assignments] == [{0: 1000}, {0: 0}, {0: 0}]
    behind = [f.lag["pendingBytes"][0] for f in assignments]
    assert behind[0] == behind[1] > 100_000 and behind[2] < 20_000


def test_postgres_source_heartbeat_releases_wal_of_idle_table(shop: PostgresShop) -> None:
    often = {"execution.checkpointing.interval": "50 ms"}
    with reading(shop.source().heartbeat_interval(0.1), **often) as records:
        take(records, 20)
        quiet = shop.confirmed()
        shop.run("CREATE TABLE busy (n int)", "INSERT INTO busy SELECT generate_series(1, 1000)")
        end = shop.run("SELECT pg_current_wal_flush_lsn()")[0][0]
        wait_until(lambda: shop.run(f"SELECT '{shop.confirmed()}'::pg_lsn >= '{end}'::pg_lsn")[0][0])
        assert shop.confirmed() != quiet


def test_postgres_source_reports_configuration_errors_in_one_sentence(shop: PostgresShop) -> None:
    refused(shop.source().hostname("127.0.0.1").port(1), "does not answer: .*refused.* Check hostname, port")
    tcp = shop.source().hostname("127.0.0.1")
    refused(tcp.password("wrong"), "refuses user 'postgres': password authentication failed.* Check username")
    refused(shop.source().database("nothing"), "has no such database")
    refused(shop.source("public.nothing"), r"has no table 'public\.nothing': write names with their schema")
    refused(shop.source().publication("nothing", create=False), "has no publication 'nothing': run  CREATE PUBLICATION")
    shop.run("CREATE TABLE keyless (id int)", "CREATE TABLE short (id int PRIMARY KEY)", "CREATE PUBLICATION p")
    refused(shop.source("public.keyless"), r"Table public\.keyless has no primary key")
    refused(shop.source("public.short"), "replica identity is not FULL.*ALTER TABLE public.short REPLICA IDENTITY FULL")
    refused(shop.source().publication("p", create=False), "Publication 'p' does not have table public.orders: run")
    other = shop.source().startup_options(StartupOptions.committed_offset())
    refused(other, "There is no replication slot")
    with pytest.raises(InvalidProgramError, match=r"call slot_name\(\.\.\.\)"):
        PostgresSource.builder().database("d").username("u").table_list("t").build()


def test_postgres_source_reports_dropped_or_advanced_slot(shop: PostgresShop, tmp_path: Any) -> None:
    settings = {
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": str(tmp_path),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "pipeline.name": "shop",
    }
    with reading(shop.source(), **settings) as records:
        take(records, 20)
        before = shop.confirmed()
        shop.run("INSERT INTO orders VALUES (21)")
        take(records, 1)
        wait_until(lambda: shop.confirmed() > before)
    wait_until(lambda: not shop.is_read())
    again = {**settings, "execution.state-recovery.path": "latest"}
    # Another reader advanced the slot: those changes are lost.
    shop.run("INSERT INTO orders VALUES (22)", "SELECT pg_switch_wal()")
    shop.run(f"SELECT pg_replication_slot_advance('{shop.slot}', pg_current_wal_lsn())")
    with pytest.raises(MillstreamError, match="no longer has the log from"), reading(shop.source(), **again) as records:
        list(records)
    shop.run(f"SELECT pg_drop_replication_slot('{shop.slot}')")
    with pytest.raises(MillstreamError, match="slot .* was dropped"), reading(shop.source(), **again) as records:
        list(records)


def test_row_deserialization_schema_sets_row_kind() -> None:
    with pytest.raises(InvalidProgramError, match="all or upsert"):
        RowDeserializationSchema(changelog_mode="some")
    assert Row(a=1).get_row_kind() is RowKind.INSERT


def test_postgres_source_replica_equals_original_after_kills(shop: PostgresShop, tmp_path: Path) -> None:
    import psycopg

    source, facts = cdc_replica.Connect(shop.connection.info.dsn), cdc_replica.Connect(shop.server.new_database())
    shop.run(*cdc_replica.POSTGRES_TABLES)
    with psycopg.connect(source.conninfo) as database, psycopg.connect(facts.conninfo) as replica:
        replica.execute(cdc_replica.FACTS)
        replica.commit()
        workload = cdc_replica.Workload(database, 7)
        workload.run(400)
        command = [sys.executable, cdc_replica.__file__, "postgres", source.conninfo, shop.slot, facts.conninfo]
        command.append(str(tmp_path))
        confirmed = []
        # The first kills happen during the snapshot, the others at later points.
        for seconds in (0.15, 0.25, 0.4, 0.8, 1.2):
            job = subprocess.Popen(command)
            wait_until(shop.is_read)
            workload.run(60, seconds)
            confirmed.append(shop.confirmed())
            job.kill()
            job.wait()
        job = subprocess.Popen(command)
        try:
            cdc_replica.await_equal(database, replica, 60)
            # The slot advances with the job.
            wait_until(lambda: shop.confirmed() != confirmed[-1])
        finally:
            job.kill()
            job.wait()
    assert len({str(c) for c in confirmed}) > 1


def test_postgres_source_reports_lost_connection_in_one_sentence(shop: PostgresShop) -> None:
    with closing(shop.source().build().create_enumerator(1)) as enumerator:
        # Only the connection for queries.
        shop.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND "
            "pid <> pg_backend_pid() AND query LIKE '%pg_current_xact_id%'"
        )
        with pytest.raises(MillstreamError, match="PostgreSQL at .* does not answer: terminating connection"):
            enumerator.poll(100, 0.0)


def test_postgres_source_recovers_after_server_kill(postgres: PostgresServer, tmp_path: Path) -> None:
    import psycopg

    facts = postgres.new_database()
    with PostgresServer() as own, psycopg.connect(facts) as replica:
        conninfo = own.new_database()
        replica.execute(cdc_replica.FACTS)
        replica.commit()
        with psycopg.connect(conninfo) as database:
            for statement in cdc_replica.POSTGRES_TABLES:
                database.execute(statement)
            cdc_replica.Workload(database, 3).run(200)
        settings = {**cdc_replica.settings(str(tmp_path)), "restart-strategy.fixed-delay.delay": "500 ms"}
        env = LocalEnvironment(Configuration.from_dict(settings))
        cdc_replica.build(env, cdc_replica.postgres_source(conninfo, "killed"), cdc_replica.Connect(facts))
        job = env.execute_async()
        try:
            wait_until(lambda: len(cdc_replica.replica(replica)) > 20)
            own.kill()
            own.start()
            with psycopg.connect(conninfo) as database:
                cdc_replica.Workload(database, 4).run(50)
                cdc_replica.await_equal(database, replica)
        finally:
            job.cancel().result()
