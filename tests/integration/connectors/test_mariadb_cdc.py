"""MySqlSource on a real MariaDB, with jobs in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.cdc.mysql.offsets import offset_of
from millstream.datastream.connectors.cdc import (
    JsonDebeziumDeserializationSchema,
    MySqlSource,
    MySqlSourceBuilder,
    RowDeserializationSchema,
    StartupOptions,
)
from millstream.testing.servers.databases import MariaDbServer, PostgresServer
from tests.support import cdc_replica
from tests.support.cdc_shop import MariaDbShop, polled_changes, reading, refused, take
from tests.support.helpers import wait_until


@pytest.fixture
def shop(mariadb: MariaDbServer) -> Iterator[MariaDbShop]:
    source = MariaDbShop(mariadb)
    source.run(
        "CREATE TABLE orders (id int PRIMARY KEY, item varchar(40), price decimal(8, 2))",
        "INSERT INTO orders SELECT seq, concat('item ', seq), seq * 1.5 FROM seq_1_to_20",
    )
    yield source
    source.connection.close()


TYPES = """CREATE TABLE types (id int PRIMARY KEY, u bigint unsigned, f float, d double, n decimal(20, 6), t text,
c char(5), e enum('x', 'y'), s set('a', 'b', 'c'), b bit(5), ti time, da date, dt datetime(6), ts timestamp(3) NULL,
y year, j json, bl blob, l varchar(9) CHARACTER SET latin1, bi binary(4), t3 time(3), uu uuid, i4 inet4, i6 inet6,
es set('a'), fl float, zero date, vi int AS (y + 1) VIRTUAL, sto int AS (y + 2) STORED, g geometry)"""
VALUES = """INSERT INTO types VALUES (%d, 18446744073709551615, 1.2, 0.1, '12345678901234.500000', 'ä\n"q"', 'c',
'y', 'a,c', b'10110', '-12:30:00', '2024-02-29', '2024-01-02 03:04:05.123456', '2024-01-02 03:04:05.678', 2024,
'{"a": 1}', x'00ff', 'é', x'0100', '-838:59:58.250', '123e4567-e89b-12d3-a456-426655440000', '10.0.0.1',
'::ffff:1.2.3.4',
'', 1.2345678, '0000-00-00', DEFAULT, DEFAULT, ST_GeomFromText('POINT(1 2)'))"""


def test_mysql_source_emits_snapshot_then_changes_with_equal_values(shop: MariaDbShop) -> None:
    shop.run("SET SESSION sql_mode = ''", TYPES, VALUES % 1)
    schema = RowDeserializationSchema(with_table=True)
    with reading(shop.source("orders", "types").deserializer(schema)) as records:
        first = take(records, 21)
        assert sorted(row.id for table, row in first if table.endswith("orders")) == list(range(1, 21))
        shop.run(
            VALUES % 2,
            "UPDATE types SET y = 2025 WHERE id = 2",
            "DELETE FROM types WHERE id = 2",
            "UPDATE orders SET item = 'new' WHERE id = 3",
            "DELETE FROM orders WHERE id = 4",
            "UPDATE orders SET id = 100 WHERE id = 5",
        )
        later = take(records, 9)
    (read,) = [row.as_dict() for table, row in first if table.endswith("types")]
    assert {**later[0][1].as_dict(), "id": 1} == read
    assert read["u"] == 2**64 - 1 and read["s"] == {"a", "c"} and read["b"] == "10110" and read["l"] == "é"
    assert read["bi"] == b"\1\0\0\0" and read["t3"].total_seconds() == -(838 * 3600 + 59 * 60 + 58.25)
    assert read["uu"] == "123e4567-e89b-12d3-a456-426655440000" and read["i4"] == "10.0.0.1"
    assert read["es"] == set() and read["fl"] == 1.2345678 and read["zero"] is None
    assert (read["vi"], read["sto"]) == (2025, 2026)
    assert {**later[1][1].as_dict(), "id": 1} == read
    changed = {**read, "id": 2, "y": 2025, "vi": 2026, "sto": 2027}
    assert later[2][1].as_dict() == changed == later[3][1].as_dict()
    assert [(str(row.get_row_kind()), row.id, row.item) for _, row in later[4:]] == [
        ("-U", 3, "item 3"),
        ("+U", 3, "new"),
        ("-D", 4, "item 4"),
        ("-D", 5, "item 5"),
        ("+I", 100, "item 5"),
    ]


def test_mysql_source_follows_new_columns_and_tables(shop: MariaDbShop) -> None:
    schema = JsonDebeziumDeserializationSchema()
    source = shop.source("(orders|later.*)").deserializer(schema).discovery_interval(0.2)
    with reading(source) as records:
        take(records, 20)
        shop.run(
            "ALTER TABLE orders ADD COLUMN note text DEFAULT 'n', DROP COLUMN price",
            "INSERT INTO orders VALUES (31, 'b', 'c')",
            "CREATE TABLE later1 (id int PRIMARY KEY)",
            "INSERT INTO later1 SELECT seq FROM seq_1_to_10",
        )
        results = [json.loads(r) for r in take(records, 11)]
        shop.run("DELETE FROM later1 WHERE id = 1", "TRUNCATE later1")
        deleted, truncated = [json.loads(r) for r in take(records, 2)]
    assert results[0]["after"] == {"id": 31, "item": "b", "note": "c"}
    assert sorted(f["after"]["id"] for f in results[1:]) == list(range(1, 11))
    assert (deleted["op"], deleted["before"], truncated["op"]) == ("d", {"id": 1}, "t")
    assert truncated["source"]["table"] == "later1"


def test_mysql_source_starts_at_startup_offset(shop: MariaDbShop) -> None:
    with reading(shop.source().startup_options(StartupOptions.snapshot())) as records:
        assert len(list(records)) == 20
    ((file, position, *_),) = shop.run("SHOW MASTER STATUS")
    shop.run("INSERT INTO orders VALUES (21, NULL, NULL)")
    with reading(shop.source().startup_options(StartupOptions.specific_offset(file, position))) as records:
        assert take(records, 1)[0].id == 21
    with (
        pytest.raises(MillstreamError, match="no longer has binlog.999999"),
        reading(shop.source().startup_options(StartupOptions.specific_offset("binlog.999999", 4))) as records,
    ):
        take(records, 1)


def test_mysql_source_starts_after_gtid_set(shop: MariaDbShop) -> None:
    ((before,),) = shop.run("SELECT @@global.gtid_binlog_pos")
    shop.run("INSERT INTO orders VALUES (21, NULL, NULL)", "FLUSH BINARY LOGS")
    shop.run("SET SESSION gtid_domain_id = 7", "INSERT INTO orders VALUES (22, NULL, NULL)")
    ((between,),) = shop.run("SELECT @@global.gtid_binlog_pos")
    shop.run("SET SESSION gtid_domain_id = 0", "INSERT INTO orders VALUES (23, NULL, NULL)")
    ((last,),) = shop.run("SELECT @@global.gtid_binlog_pos")

    def begin(gtid: str) -> MySqlSourceBuilder:
        return shop.source().startup_options(StartupOptions.specific_offset(gtid))

    with reading(begin(before)) as records:
        assert [row.id for row in take(records, 3)] == [21, 22, 23]
    with reading(begin(between)) as records:
        assert take(records, 1)[0].id == 23
    domain, server, number = next(g for g in last.split(",") if g.startswith("0-")).split("-")
    # The position has passed all of one domain, and none of the other.
    with closing(begin(f"{domain}-{server}-{number}").build().create_enumerator(1)) as enumerator:
        assigned = polled_changes(enumerator, 1)
        state = enumerator.snapshot()
    shop.run("INSERT INTO orders VALUES (24, NULL, NULL)")
    # Transactions processed before the start stay processed after a restore.
    state |= {"offset": binlog_offset(shop, 4), "gtid": ""}
    with closing(shop.source().build().create_enumerator(1, state)) as enumerator:
        again = polled_changes(enumerator, 2)
    assert ([c.after[0] for c in assigned], [c.after[0] for c in again]) == ([22], [22, 24])
    refused(begin(f"0-1-{int(number) + 1000}"), "has not reached GTID")
    refused(begin("binlog.000001"), "is not a GTID")
    shop.run("FLUSH BINARY LOGS")
    ((file, *_),) = shop.run("SHOW MASTER STATUS")
    shop.run(f"PURGE BINARY LOGS TO '{file}'")
    refused(begin(before), "no longer has its binlog from GTID")


def binlog_offset(shop: MariaDbShop, position: int) -> tuple[Any, ...]:
    ((file, *_), *_) = shop.run("SHOW BINARY LOGS")
    return tuple(offset_of(file, position))


def test_mysql_source_reports_pending_records_and_bytes(shop: MariaDbShop) -> None:
    with closing(shop.source().startup_options(StartupOptions.latest()).build().create_enumerator(1)) as enumerator:
        shop.run("INSERT INTO orders SELECT seq, repeat('x', 30), NULL FROM seq_100_to_1099", "FLUSH BINARY LOGS")
        shop.run("INSERT INTO orders VALUES (2000, NULL, NULL)")
        wait_until(lambda: enumerator.poll(0, 0.0).unassigned == {0: 1001})
        assignments = [enumerator.poll(budget, now) for budget, now in ((0, 2.0), (5000, 4.0))]
    assert [f.lag["pendingRecords"] for f in assignments] == [{0: 1001}, {0: 0}]
    assert [f.lag["pendingBytes"][0] > 30_000 for f in assignments] == [True, False]


def test_mysql_source_follows_binlog_rotation(shop: MariaDbShop) -> None:
    with reading(shop.source()) as records:
        take(records, 20)
        for n in range(21, 25):
            shop.run(f"INSERT INTO orders VALUES ({n}, NULL, NULL)", "FLUSH BINARY LOGS")
        assert [row.id for row in take(records, 4)] == [21, 22, 23, 24]


# Python warns about the unclosed socket of a refused connection.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_mysql_source_reports_configuration_errors_in_one_sentence(shop: MariaDbShop) -> None:
    refused(shop.source().hostname("127.0.0.1").port(1), "does not answer: .* Check hostname, port")
    wrong = shop.source().hostname("127.0.0.1").port(shop.server.port).username("app").password("wrong")
    refused(wrong, "refuses user 'app': Access denied.* Check username")
    refused(shop.source("nothing"), r"has no table '.*\.nothing': write names with their database")
    shop.run("CREATE TABLE keyless (id int)")
    refused(shop.source("keyless"), r"keyless has no primary key")
    shop.run("SET GLOBAL binlog_row_metadata = MINIMAL")
    try:
        refused(shop.source(), "binlog_row_metadata is MINIMAL.*set binlog-row-metadata to FULL")
    finally:
        shop.run("SET GLOBAL binlog_row_metadata = FULL")
    with pytest.raises(InvalidProgramError, match=r"call username\(\.\.\.\)"):
        MySqlSource.builder().table_list("a.b").build()


def test_mysql_source_replica_equals_original_after_kills(
    shop: MariaDbShop, postgres: PostgresServer, tmp_path: Path
) -> None:
    import psycopg

    facts = postgres.new_database()
    shop.run(*cdc_replica.MARIADB_TABLES)
    database = shop.server.connect(shop.database)
    database.autocommit(False)
    with psycopg.connect(facts) as replica, closing(database):
        replica.execute(cdc_replica.FACTS)
        replica.commit()
        workload = cdc_replica.Workload(database, 5, is_mysql=True)
        workload.run(300)
        command = [
            sys.executable,
            cdc_replica.__file__,
            "mariadb",
            shop.server.socket,
            shop.database,
            facts,
            str(tmp_path),
        ]

        for seconds in (0.15, 0.3, 0.8, 1.2):
            job = subprocess.Popen(command)
            wait_until(shop.is_read)
            workload.run(60, seconds)
            job.kill()
            job.wait()
            wait_until(lambda: not shop.is_read())
        job = subprocess.Popen(command)
        try:
            cdc_replica.await_equal(database, replica, 60)
        finally:
            job.kill()
            job.wait()
