"""Reads the chunks of PostgreSQL's tables, in threads of the driver, each with a connection of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.datastream.connectors.cdc.pgoutput import Relation
from millstream.datastream.connectors.cdc.postgres_catalog import (
    TableNote,
    find_columns,
    find_types,
    literal,
    lsn,
    quoted,
)
from millstream.datastream.connectors.cdc.postgres_session import Database, PostgresFailure, library, said
from millstream.datastream.connectors.cdc.postgres_shares import ChunkShare, Described
from millstream.datastream.connectors.cdc.postgres_values import copied_row
from millstream.datastream.connectors.cdc.postgres_visibility import Visibility
from millstream.datastream.connectors.cdc.snapshotting import Chunk, Key, ReadChunk, Snapshotting

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

__all__ = ["ChunkReaders", "described", "key_below"]

log = logging.getLogger("millstream")

# A chunk has so many bytes at most; what is left is a chunk of its own.
CHUNK_BYTES = 8 << 20
_PAUSE = 0.02
# A table whose columns change while it is read is read again, so often.
_TRIES = 3


def described(connection: Connection, relation: Relation, keys: tuple[str, ...]) -> Described:
    """Return a table with all that is needed to read its rows."""
    notes = find_types(connection, [column.type for column in relation.columns])
    names = [column.name for column in relation.columns]
    return Described(relation, tuple(notes.items()), tuple(names.index(k) for k in keys if k in names))


def key_below(table: TableNote, low: Key | None, high: Key | None) -> str:
    """Write the condition for keys above one, up to another."""
    columns = ", ".join(quoted(k.name) for k in table.keys)
    found = [f"({columns}) > ({_written(low)})"] if low is not None else []
    found += [f"({columns}) <= ({_written(high)})"] if high is not None else []
    return f" WHERE {' AND '.join(found)}" if found else ""


def _written(key: Key) -> str:
    return ", ".join(literal(part) for part in key)


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
            with self._database.connect(autocommit=False) as connection:
                while not self._closed:
                    if not self._plan(connection) and not self._read_next(connection):
                        with self._lock:
                            if not self._closed:
                                self._lock.wait(_PAUSE)
        except PostgresFailure as e:
            self._failure = e
        except Exception as e:
            if not self._closed:
                self._failure = PostgresFailure(
                    f"Tables of PostgreSQL at {self._database.place} cannot be read: {said(e)}."
                )
                self._failure.__cause__ = e
        if self._failure is not None:
            self._wake()

    # --- plans

    def _plan(self, connection: Connection) -> bool:
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
            except library().errors.UndefinedTable:
                connection.rollback()
                self._gone(table)
                return True
            connection.rollback()
            with self._lock:
                self._machine.planned(table, low, high, round)
                self._lock.notify_all()
            return True
        finally:
            self._planning.release()

    def _find_end(self, connection: Connection, table: TableNote, low: Key | None) -> Key | None:
        keys = ", ".join(quoted(k.name) for k in table.keys)
        # Under names of their own: ORDER BY would take the text for the column.
        texts = ", ".join(f"{quoted(k.name)}::text AS key_{i}" for i, k in enumerate(table.keys))
        row = connection.execute(
            f"SELECT {texts} FROM {table.quoted}{key_below(table, low, None)} "
            f"ORDER BY {keys} OFFSET {self._rows - 1} LIMIT 1"
        ).fetchone()
        return None if row is None else tuple(row)

    def _gone(self, table: str) -> None:
        log.warning("table %s is gone: the rest of it cannot be read", table)
        with self._lock:
            self._machine.skip(table)

    # --- chunks

    def _read_next(self, connection: Connection) -> bool:
        with self._lock:
            chunk = self._machine.next_chunk(self._most)
        if chunk is None:
            return False
        table = self._tables[chunk.table]
        errors = library().errors
        for attempt in range(_TRIES):
            try:
                self._read(connection, table, chunk)
                break
            except errors.UndefinedTable:
                self._gone(chunk.table)
                break
            except errors.UndefinedColumn as e:
                if attempt == _TRIES - 1:
                    raise PostgresFailure(
                        f"The columns of table {chunk.table} change while it is read: {said(e)}."
                    ) from e
            finally:
                connection.rollback()
        return True

    def _read(self, connection: Connection, table: TableNote, chunk: Chunk) -> None:
        begun = self._begin(connection, chunk)
        if begun is None:
            return
        seen, until, ms = begun
        relation = find_columns(connection, table)
        if relation is None:
            self._gone(chunk.table)
            return
        about = described(connection, relation, tuple(k.name for k in table.keys))
        data, last = self._copy(connection, table, about, chunk)
        high = chunk.high
        if last is not None:
            fields = copied_row(last.rstrip(b"\n"))
            high = tuple((fields[k] or b"").decode() for k in about.keys)
        with self._lock:
            self._machine.was_read(ReadChunk(chunk, high, seen, until, ChunkShare(about, data, until, ms)))
            self._lock.notify_all()
        self._wake()

    def _begin(self, connection: Connection, chunk: Chunk) -> tuple[Visibility, int, int] | None:
        """Begin a snapshot that a chunk may be read in."""
        since = time.monotonic()
        warned = False
        while not self._closed:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            row = connection.execute(
                "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, (extract(epoch FROM now()) * "
                "1000)::bigint"
            ).fetchone()
            assert row is not None
            seen = Visibility.parse(row[0])
            with self._lock:
                if self._machine.begin(chunk, seen):
                    return seen, lsn(row[1]), row[2]
            connection.rollback()
            if not warned and time.monotonic() - since > 10:
                warned = True
                log.warning("table %s is not read yet: a transaction is open since before the job began", chunk.table)
            time.sleep(_PAUSE)
        return None

    def _copy(
        self, connection: Connection, table: TableNote, about: Described, chunk: Chunk
    ) -> tuple[bytes, bytes | None]:
        """Return the rows of a chunk; and the last of them, if it was cut short there."""
        columns = ", ".join(quoted(name) for name in about.names)
        keys = ", ".join(quoted(k.name) for k in table.keys)
        where = key_below(table, chunk.low, chunk.high)
        lines: list[bytes] = []
        size = 0
        last: bytes | None = None
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY (SELECT {columns} FROM {table.quoted}{where} ORDER BY {keys}) TO STDOUT") as copy,
        ):
            for block in copy:
                if size >= CHUNK_BYTES:
                    last = lines[-1]
                    break
                lines.append(bytes(block))
                size += len(block)
        return b"".join(lines), last
