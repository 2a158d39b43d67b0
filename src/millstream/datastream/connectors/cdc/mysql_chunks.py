"""Reads the chunks of MariaDB's tables, in threads of the driver, each with a connection of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from millstream.datastream.connectors.cdc import changes as ops
from millstream.datastream.connectors.cdc.changes import Change
from millstream.datastream.connectors.cdc.mysql_places import BinlogSeen, Place
from millstream.datastream.connectors.cdc.mysql_session import (
    Database,
    MySqlFailure,
    TableNote,
    converter,
    find_table,
    library,
    quoted,
    run,
    said,
    snapshot_place,
)
from millstream.datastream.connectors.cdc.snapshotting import Chunk, Key, ReadChunk, Snapshotting

__all__ = ["ChunkReaders"]

log = logging.getLogger("millstream")

CHUNK_BYTES = 8 << 20
_PAUSE = 0.02
_FETCH = 500
# No such table, no such column.
_NO_TABLE, _NO_COLUMN = 1146, 1054
_TRIES = 3


def _between(table: TableNote, low: Key | None, high: Key | None) -> tuple[str, list[Any]]:
    columns = ", ".join(quoted(k) for k in table.keys)
    places = ", ".join(["%s"] * len(table.keys))
    parts = [f"({columns}) > ({places})"] if low is not None else []
    parts += [f"({columns}) <= ({places})"] if high is not None else []
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    return where, [*(low or ()), *(high or ())]


class ChunkReaders:
    """Threads that plan chunks and read them, until there is none left.

    Args:
        machine: what decides; only used under `lock`.
        tables: by name.
        rows: how many rows a chunk has at most.
        wake: called when a chunk can be dealt out, or when something has gone wrong.
    """

    def __init__(
        self,
        database: Database,
        machine: Snapshotting,
        lock: threading.Condition,
        tables: dict[str, TableNote],
        rows: int,
        threads: int,
        wake: Callable[[], None],
    ) -> None:
        self._database = database
        self._machine, self._lock, self._tables = machine, lock, tables
        self._rows, self._wake = rows, wake
        self._most = 2 * threads
        self._planning = threading.Lock()
        self._closed = False
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"millstream-cdc-chunks-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def check(self) -> None:
        """Raise what has gone wrong in a thread."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join(timeout=10)

    def _run(self) -> None:
        try:
            with self._database.connect() as connection:
                while not self._closed:
                    if not self._plan(connection) and not self._read_next(connection):
                        with self._lock:
                            if not self._closed:
                                self._lock.wait(_PAUSE)
        except MySqlFailure as e:
            self._failure = e
        except Exception as e:
            self._failure = MySqlFailure(f"Tables of MySQL at {self._database.place} cannot be read: {said(e)}.")
            self._failure.__cause__ = e
        if self._failure is not None and not self._closed:
            self._wake()

    def _plan(self, connection: Any) -> bool:
        """Find where the next chunk of some table ends; tell whether there was one to plan."""
        if not self._planning.acquire(blocking=False):
            return False
        try:
            with self._lock:
                wanted = self._machine.to_plan(self._most)
            if wanted is None:
                return False
            table, low, round = wanted
            try:
                high = self._find_end(connection, self._tables[table], low)
            except library().Error as e:
                if e.args[0] != _NO_TABLE:
                    raise
                self._gone(table)
                return True
            with self._lock:
                self._machine.planned(table, low, high, round)
                self._lock.notify_all()
            return True
        finally:
            self._planning.release()

    def _find_end(self, connection: Any, table: TableNote, low: Key | None) -> Key | None:
        keys = ", ".join(quoted(k) for k in table.keys)
        where, values = _between(table, low, None)
        query = f"SELECT {keys} FROM {table.quoted}{where} ORDER BY {keys} LIMIT 1 OFFSET {self._rows - 1}"
        rows = run(connection, query, values)
        return tuple(rows[0]) if rows else None

    def _gone(self, table: str) -> None:
        log.warning("table %s is gone: the rest of it cannot be read", table)
        with self._lock:
            self._machine.skip(table)

    def _read_next(self, connection: Any) -> bool:
        with self._lock:
            chunk = self._machine.next_chunk(self._most)
        if chunk is None:
            return False
        for attempt in range(_TRIES):
            try:
                self._read(connection, self._tables[chunk.table], chunk)
                break
            except library().Error as e:
                if e.args[0] == _NO_TABLE:
                    self._gone(chunk.table)
                    break
                if e.args[0] != _NO_COLUMN or attempt == _TRIES - 1:
                    raise
            finally:
                connection.rollback()
        return True

    def _read(self, connection: Any, known: TableNote, chunk: Chunk) -> None:
        begun = self._begin(connection, chunk)
        if begun is None:
            return
        table = find_table(connection, known.schema, known.name)
        if table is None:
            self._gone(chunk.table)
            return
        rows, high = self._select(connection, table, chunk, begun)
        with self._lock:
            self._machine.was_read(ReadChunk(chunk, high, BinlogSeen(begun), begun, rows))
            self._lock.notify_all()
        self._wake()

    def _begin(self, connection: Any, chunk: Chunk) -> Place | None:
        """Begin a snapshot that a chunk may be read in; return where in the binlog it is."""
        while not self._closed:
            run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            place = snapshot_place(connection)
            assert place is not None
            with self._lock:
                if self._machine.begin(chunk, BinlogSeen(place)):
                    return place
            connection.rollback()
            time.sleep(_PAUSE)
        return None

    def _select(self, connection: Any, table: TableNote, chunk: Chunk, place: Place) -> tuple[list[Change], Key | None]:
        """Return the rows of a chunk, and up to which key they go."""
        from pymysql.cursors import SSCursor

        names = tuple(c.name for c in table.columns)
        converters = [(i, c) for i, column in enumerate(table.columns) if (c := converter(column)) is not None]
        keys = ", ".join(quoted(k) for k in table.keys)
        where, values = _between(table, chunk.low, chunk.high)
        source = {"file": place.file, "pos": place.position, "gtid": None}
        ms, places = int(time.time() * 1000), table.key_places
        found: list[Change] = []
        size = 0
        with connection.cursor(SSCursor) as cursor:
            columns = ", ".join(quoted(n) for n in names)
            cursor.execute(f"SELECT {columns} FROM {table.quoted}{where} ORDER BY {keys}", values or None)
            while rows := cursor.fetchmany(_FETCH if size < CHUNK_BYTES else 0):
                for values_ in rows:
                    row = list(values_)
                    for i, convert in converters:
                        row[i] = convert(row[i])
                    size += sum(len(v) for v in row if isinstance(v, (str, bytes)))
                    found.append(Change(ops.READ, table.table, names, places, None, row, True, ms, source))
                if size >= CHUNK_BYTES:
                    break
            else:
                return found, chunk.high
        last = found[-1].after
        assert last is not None
        return found, tuple(last[p] for p in places)
