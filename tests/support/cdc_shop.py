"""Databases whose changes are read by jobs in this process."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from millstream.common import Configuration, WatermarkStrategy
from millstream.common.errors import MillstreamError
from millstream.datastream.connectors.cdc import (
    MySqlSource,
    MySqlSourceBuilder,
    PostgresSource,
    PostgresSourceBuilder,
)
from millstream.testing import LocalEnvironment
from millstream.testing.servers.databases import MariaDbServer, PostgresServer
from tests.support.helpers import wait_until

NONE = WatermarkStrategy.no_watermarks()
Builder = PostgresSourceBuilder | MySqlSourceBuilder
_slots = itertools.count()


class PostgresShop:
    """A PostgreSQL database, and sources that read it."""

    def __init__(self, server: PostgresServer) -> None:
        import psycopg

        self.server = server
        self.connection = psycopg.connect(server.new_database(), autocommit=True)
        self.slot = f"slot{next(_slots)}"

    def run(self, *statements: str) -> list[Any]:
        for statement in statements:
            cursor = self.connection.execute(statement)
        return cursor.fetchall() if cursor.description else []

    def source(self, *tables: str) -> PostgresSourceBuilder:
        builder = PostgresSource.builder().hostname(self.server.directory).port(self.server.port)
        builder.database(self.connection.info.dbname).username("postgres").slot_name(self.slot)
        return builder.table_list(*(tables or ("public.orders",))).split_size(7)

    def is_read(self) -> bool:
        """Whether the log has a reader."""
        readers = "SELECT 1 FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid"
        return bool(self.run(f"{readers} WHERE slot_name = '{self.slot}'"))

    def confirmed(self) -> Any:
        query = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        return self.run(query)[0][0]

    def close(self) -> None:
        """Drop the replication slot, after the end of its reader."""
        name = f"slot_name = '{self.slot}'"
        self.run(f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE {name} AND active")
        wait_until(lambda: not self.is_read())
        self.run(f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE {name}")
        self.connection.close()


class MariaDbShop:
    """A MariaDB database, and sources that read it."""

    def __init__(self, server: MariaDbServer) -> None:
        self.server = server
        self.database = server.new_database()
        self.connection = server.connect(self.database)

    def run(self, *statements: str) -> list[Any]:
        with self.connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def source(self, *tables: str) -> MySqlSourceBuilder:
        names = [f"{self.database}.{t}" for t in tables or ("orders",)]
        return MySqlSource.builder().hostname(self.server.socket).username("root").table_list(*names).split_size(7)

    def is_read(self) -> bool:
        """Whether the log has a reader."""
        return any(row[4] == "Binlog Dump" for row in self.run("SHOW PROCESSLIST"))


@contextmanager
def reading(builder: Builder, **settings: str) -> Iterator[Iterator[Any]]:
    """Yield the records of a source as they arrive."""
    env = LocalEnvironment(Configuration.from_dict(settings) if settings else None)
    with closing(env.from_source(builder.build(), NONE, "changes").execute_and_collect()) as records:
        yield records


def take(records: Iterator[Any], count: int) -> list[Any]:
    return list(itertools.islice(records, count))


def polled_changes(enumerator: Any, count: int) -> list[Any]:
    """Return at least `count` further changes that an enumerator assigns."""
    changes: list[Any] = []
    end = time.monotonic() + 60
    while len(changes) < count:
        assert time.monotonic() < end
        for split_range in enumerator.poll(1000, time.monotonic()).split_ranges.get(0, []):
            changes += split_range.changes()
        time.sleep(0.01)
    return changes


def refused(builder: Builder, words: str) -> None:
    began = time.monotonic()
    with pytest.raises(MillstreamError, match=words) as e, reading(builder) as records:
        take(records, 1)
    assert "\n" not in str(e.value).strip()
    assert time.monotonic() - began < 60
