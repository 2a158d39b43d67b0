"""MySqlSource with unusual tables and unsupported binlog contents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from millstream.common.errors import MillstreamError
from millstream.connectors.cdc.mysql import catalog as mysql_catalog
from millstream.connectors.cdc.mysql.catalog import compare, find_table
from millstream.datastream.connectors.cdc import (
    JsonDebeziumDeserializationSchema,
    RowDeserializationSchema,
    StartupOptions,
)
from millstream.testing.servers.databases import MariaDbServer
from tests.support.cdc_shop import MariaDbShop, polled_changes, reading, refused, take
from tests.support.helpers import wait_until

JSON = JsonDebeziumDeserializationSchema()
SNAPSHOT = StartupOptions.snapshot()


@pytest.fixture
def shop(mariadb: MariaDbServer) -> Iterator[MariaDbShop]:
    source = MariaDbShop(mariadb)
    source.run("CREATE TABLE orders (id int PRIMARY KEY, item varchar(40))")
    source.run("INSERT INTO orders SELECT seq, concat('item ', seq) FROM seq_1_to_20")
    yield source
    source.connection.close()


KEYS: dict[str, list[Any]] = {
    "varchar(20)": ["a", "B", "é", "Z", "_", "x y", "'q\\", "ß", ""],
    "varchar(20) COLLATE utf8mb4_bin": ["a", "B", "é", "Z", "_", "A"],
    "varchar(20) CHARACTER SET latin1 COLLATE latin1_german2_ci": ["ä", "b", "Z", "ae f"],
    "char(4)": ["a", "ab", " c"],
    "uuid": ["00000000-0000-1000-8000-000000000002", "ffffffff-0000-1000-8000-000000000001"],
    "double": [0.1, -0.30000000000000004, 1e300, 5],
    "decimal(20, 3)": ["1.100", "1.2", "-5"],
    "bigint unsigned": [2**64 - 1, 0, 4 * 10**12],
    "datetime(6)": ["2024-01-02 03:04:05.000001", "1999-01-02 03:04:05"],
    "timestamp(3)": ["2024-01-02 03:04:05.001", "1999-01-02 03:04:05"],
    "date": ["2024-01-02", "1999-01-02"],
    "time(3)": ["-12:00:00.250", "100:00:00", "-12:00:00.500"],
    "year": [1999, 2024],
    "varbinary(8)": [b"\0\xff", b"", b"\0", b"a"],
    "binary(4)": [b"\1", b"\1\1", b"a"],
    "inet6": ["::1", "2::1", "10::1"],
}


def test_mysql_source_reads_chunks_in_order_of_any_key_type(shop: MariaDbShop) -> None:
    for i, (kind, keys) in enumerate(KEYS.items()):
        shop.run(f"CREATE TABLE k{i} (n int, k {kind}, PRIMARY KEY (k, n))")
        with shop.connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO k{i} VALUES (%s, %s)", [(n, k) for k in keys for n in (1, 2)])
    schema = RowDeserializationSchema(with_table=True)
    source = shop.source(r"k\d+").split_size(1).deserializer(schema)
    with reading(source.startup_options(SNAPSHOT)) as records:
        results = list(records)
    before = shop.run("SHOW MASTER STATUS")[0][:2]
    for i in range(len(KEYS)):
        shop.run(f"INSERT INTO k{i} SELECT n + 2, k FROM k{i} ORDER BY k, n")
    with reading(source.startup_options(StartupOptions.specific_offset(*before))) as records:
        logged = take(records, sum(2 * len(keys) for keys in KEYS.values()))
    for i, (kind, keys) in enumerate(KEYS.items()):
        rows = [(row.k, row.n) for table, row in results if table.endswith(f".k{i}")]
        assert len(rows) == len(set(rows)) == 2 * len(keys), kind
        # Keys in the log are equal, and compared in the same order.
        in_order = [(row.k, row.n) for table, row in logged if table.endswith(f".k{i}")]
        assert {(k, n - 2) for k, n in in_order} == set(rows), kind
        note = find_table(shop.connection, shop.database, f"k{i}")
        assert note is not None
        above = compare(shop.connection, note, in_order, [in_order[0], in_order[2]])
        assert above == [0, 1, 1, *[2] * (len(in_order) - 3)], kind


def test_mysql_source_accepts_any_identifier(shop: MariaDbShop) -> None:
    name = "Tä `b` 'le'.x"
    quoted = "`Tä ``b`` 'le'.x`"
    shop.run(
        f"CREATE TABLE {quoted} (`select` int, `from` varchar(9), `Ünï ``q``%s` int, PRIMARY KEY (`from`, `select`))",
        f"INSERT INTO {quoted} SELECT seq, 'x', seq FROM seq_1_to_9",
        "CREATE TABLE empty (id int PRIMARY KEY)",
        "CREATE TABLE one (id int PRIMARY KEY)",
        "INSERT INTO one VALUES (1)",
        "CREATE TABLE gaps (id bigint PRIMARY KEY)",
        "INSERT INTO gaps SELECT seq * seq * seq * seq * 1000000000 FROM seq_1_to_20",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3",
        "INSERT INTO parts SELECT seq FROM seq_1_to_20",
    )
    with reading(shop.source(name, "empty", "one", "gaps", "parts").deserializer(JSON)) as records:
        results = [json.loads(r) for r in take(records, 50)]
        shop.run(
            f"UPDATE {quoted} SET `Ünï ``q``%s` = 0 WHERE `select` = 3",
            "INSERT INTO empty VALUES (5)",
            "INSERT INTO parts VALUES (50)",
            f"TRUNCATE {quoted}",
        )
        update, empty, part, truncate = [json.loads(r) for r in take(records, 4)]
    assert sorted(f["after"]["id"] for f in results if f["source"]["table"] == "parts") == list(range(1, 21))
    assert (update["source"]["schema"], update["source"]["table"]) == (shop.database, name)
    assert update["after"] == {"select": 3, "from": "x", "Ünï `q`%s": 0}
    assert (empty["after"], part["after"]) == ({"id": 5}, {"id": 50})
    assert (truncate["op"], truncate["source"]["table"]) == ("t", name)


def test_mysql_source_handles_other_statements_of_transactions(shop: MariaDbShop) -> None:
    with reading(shop.source().deserializer(JSON)) as records:
        take(records, 20)
        shop.run("BEGIN", "INSERT INTO orders VALUES (21, '')", "SAVEPOINT a", "INSERT INTO orders VALUES (22, '')")
        shop.run("ROLLBACK TO a", "INSERT INTO orders VALUES (23, '')", "COMMIT")
        shop.run("/* all */ DROP TABLE orders", "CREATE TABLE orders (id int PRIMARY KEY)")
        shop.run("INSERT INTO orders VALUES (1)")
        results = [json.loads(r) for r in take(records, 4)]
    assert [(f["op"], f["after"] and f["after"]["id"]) for f in results] == [
        ("c", 21),
        ("c", 23),
        ("t", None),
        ("c", 1),
    ]


@pytest.mark.parametrize(
    ("statements", "error_text"),
    [
        (
            ["XA START 'x'", "INSERT INTO orders VALUES (21, '')", "XA END 'x'", "XA PREPARE 'x'"],
            "prepared changes of .* .XA PREPARE",
        ),
        (["SET SESSION binlog_format = STATEMENT", "DELETE FROM orders"], "a statement instead of rows"),
        (["SET SESSION binlog_row_image = MINIMAL", "DELETE FROM orders WHERE id = 1"], "a change without all columns"),
    ],
)
def test_mysql_source_fails_on_changes_missing_in_binlog(
    shop: MariaDbShop, statements: list[str], error_text: str
) -> None:
    other = shop.server.connect(shop.database)
    with pytest.raises(MillstreamError, match=error_text) as error, reading(shop.source()) as records, closing(other):
        take(records, 20)
        with other.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            if "XA END 'x'" in statements:
                cursor.execute("XA ROLLBACK 'x'")
        take(records, 1)
    assert "\n" not in str(error.value).partition("in operator")[0].strip()


def test_mysql_source_follows_renamed_or_changed_key(shop: MariaDbShop) -> None:
    with reading(shop.source().deserializer(JSON)) as records:
        take(records, 20)
        shop.run(
            "ALTER TABLE orders CHANGE id `key` bigint",
            "UPDATE orders SET `key` = 100 WHERE `key` = 2",
            "ALTER TABLE orders CHANGE `key` key2 bigint, MODIFY item varchar(80)",
            "UPDATE orders SET key2 = 101 WHERE key2 = 3",
            "ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (item, key2)",
            "UPDATE orders SET item = 'a' WHERE key2 = 4",
        )
        results = [json.loads(r) for r in take(records, 6)]
    assert [f["op"] for f in results] == ["d", "c"] * 3
    assert [f["after"] for f in results[1::2]] == [
        {"key": 100, "item": "item 2"},
        {"key2": 101, "item": "item 3"},
        {"key2": 4, "item": "a"},
    ]


def test_mysql_source_reads_table_altered_during_snapshot(shop: MariaDbShop, monkeypatch: pytest.MonkeyPatch) -> None:
    altered: list[Any] = []

    def alter_once(connection: Any, schema: str, name: str) -> Any:
        # Between the snapshot and the read of the chunk.
        if not altered:
            altered.append(shop.run("ALTER TABLE orders MODIFY id bigint, ADD note varchar(9) DEFAULT 'n'"))
        return find_table(connection, schema, name)

    monkeypatch.setattr(mysql_catalog, "find_table", alter_once)
    source = shop.source().snapshot_parallelism(1).startup_options(SNAPSHOT)
    with reading(source) as records:
        assert sorted((row.id, row.note) for row in records) == [(n, "n") for n in range(1, 21)]
    assert altered


def test_mysql_source_reads_columns_changed_between_chunks(shop: MariaDbShop) -> None:
    source = shop.source().split_size(5).snapshot_parallelism(1).build()
    with closing(source.create_enumerator(1)) as enumerator:
        assigned = polled_changes(enumerator, 5)
        shop.run("ALTER TABLE orders ADD note varchar(9) DEFAULT 'n', CHANGE item thing varchar(80)")
        shop.run("UPDATE orders SET thing = 'new'")
        while len({c.after[0] for c in assigned}) < 20 or sum(c.op == "u" for c in assigned) < 5:
            assigned += polled_changes(enumerator, 1)
    rows = {c.after[0]: dict(zip(c.columns, c.after, strict=True)) for c in assigned}
    assert len(rows) == 20 and all(r.get("thing") == "new" and r["note"] == "n" for r in rows.values())


def test_mysql_source_restore_rejects_different_binlog(shop: MariaDbShop) -> None:
    source = shop.source().startup_options(StartupOptions.latest()).server_id(77).build()
    with closing(source.create_enumerator(1)) as enumerator:
        shop.run("INSERT INTO orders VALUES (21, '')")
        polled_changes(enumerator, 1)
        state = enumerator.snapshot()
        with closing(source.create_enumerator(1)):
            # The server allows one connection per server id.
            error_text = "Another reader has the same server_id: .*Set a unique server_id"
            with pytest.raises(MillstreamError, match=error_text):
                polled_changes(enumerator, 1)
    domain, server, number = state["gtid"].split("-")
    number_, position, *rest = state["offset"]
    # As if the server had a shorter or another log.
    for other in (
        {"gtid": f"{domain}-{server}-{int(number) + 1}"},
        {"offset": (number_, position - 1, *rest)},
    ):
        with pytest.raises(MillstreamError, match="The binlog is not the one that the job read"):
            source.create_enumerator(1, state | other)
    source.create_enumerator(1, state).close()


def test_mysql_source_rejects_tables_that_would_lose_changes(shop: MariaDbShop) -> None:
    shop.run(
        "CREATE TABLE moods (m enum('b', 'a') PRIMARY KEY)", "CREATE TABLE isam (id int PRIMARY KEY) ENGINE MyISAM"
    )
    shop.run("CREATE TABLE wide (id int PRIMARY KEY, t varchar(9) CHARACTER SET utf16)")
    shop.run("CREATE TABLE maybe (id int UNIQUE)")
    refused(shop.source("moods"), "key of table .*moods has column m of type enum, which cannot divide a table")
    refused(shop.source("isam"), "isam has the engine MyISAM, which has no snapshots: run  ALTER TABLE")
    refused(shop.source("wide"), "Column t of table .*wide has the character set utf16, which cannot be read")
    refused(shop.source("maybe"), "maybe has no primary key")
    refused(shop.source().startup_options(StartupOptions.committed_offset()), "is for PostgreSQL")
    # Tables that cannot be read in chunks can still be read from the log only.
    with reading(shop.source("moods").startup_options(StartupOptions.latest())) as records:
        wait_until(shop.is_read)
        shop.run("INSERT INTO moods VALUES ('a')")
        assert take(records, 1)[0].m == "a"


def test_mysql_source_names_missing_privileges(shop: MariaDbShop) -> None:
    shop.run("CREATE OR REPLACE USER reader@'127.0.0.1' IDENTIFIED BY 'x'")
    source = shop.source().hostname("127.0.0.1").port(shop.server.port).username("reader").password("x")
    refused(source, r"has no table '.*orders': .* check the user's permissions")
    shop.run(f"GRANT SELECT ON {shop.database}.* TO reader@'127.0.0.1'")
    refused(source, "may not read the binlog position: .*REPLICATION CLIENT .BINLOG MONITOR")
    shop.run("GRANT BINLOG MONITOR ON *.* TO reader@'127.0.0.1'")
    error_text = "may not read the binlog: .*Grant it REPLICATION SLAVE"
    with pytest.raises(MillstreamError, match=error_text), reading(source) as records:
        list(records)
    shop.run("GRANT REPLICATION SLAVE ON *.* TO reader@'127.0.0.1'")
    with reading(source) as records:
        assert len(take(records, 20)) == 20


def test_mysql_source_rejects_databases_that_are_not_logged(shop: MariaDbShop) -> None:
    shop.run("CREATE DATABASE unlogged", "CREATE TABLE unlogged.orders (id int PRIMARY KEY)")
    refused(
        shop.source().table_list("unlogged.orders"), "does not log database unlogged: check binlog-do-db and binlog-"
    )
    shop.run("DROP DATABASE unlogged", "SET GLOBAL log_bin_compress = 1")
    try:
        refused(shop.source(), "log_bin_compress is ON.*set log-bin-compress to OFF")
    finally:
        shop.run("SET GLOBAL log_bin_compress = 0")
