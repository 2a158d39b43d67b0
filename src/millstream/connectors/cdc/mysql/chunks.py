"""Reads chunks of MariaDB's tables."""

from __future__ import annotations

import time

from millstream.common.aliases import Value
from millstream.connectors.cdc import changes as ops
from millstream.connectors.cdc.changes import Change, LogSource
from millstream.connectors.cdc.incremental_snapshot import Chunk, Key
from millstream.connectors.cdc.mysql.catalog import TableInfo, find_table, quoted
from millstream.connectors.cdc.mysql.connection import Connection, Database, MySqlFailure, error_text, run
from millstream.connectors.cdc.mysql.log import BinlogRange
from millstream.connectors.cdc.mysql.offsets import BinlogVisibility, snapshot_offset
from millstream.connectors.cdc.mysql.values import ColumnInfo, from_table
from millstream.connectors.cdc.readers import CHUNK_BYTES, ChunkReaders, SnapshotContext, SnapshotInfo

__all__ = ["MySqlChunks"]

_FETCH = 500
# Error codes: no such table, no such column, table changed since the snapshot.
_NO_TABLE, _NO_COLUMN, _OTHER_TABLE = 1146, 1054, 1412


def _between(table: TableInfo, low: Key | None, high: Key | None) -> tuple[str, list[Value]]:
    """Return the condition for keys above `low`, up to and including `high`."""
    columns = ", ".join(quoted(k) for k in table.keys)
    placeholders = ", ".join(["%s"] * len(table.keys))
    first = quoted(table.keys[0])
    parts: list[str] = []
    values: list[Value] = []
    for sign, key in ((">", low), ("<=", high)):
        if key is not None:
            # The first column is repeated: the server uses no index for row comparisons.
            parts += [f"{first} {sign[0]}= %s", f"({columns}) {sign} ({placeholders})"]
            values += [key[0], *key]
    return f" WHERE {' AND '.join(parts)}" if parts else "", values


def _selected(column: ColumnInfo) -> str:
    # The server shows a bare FLOAT with six digits only.
    return f"CAST({quoted(column.name)} AS DOUBLE)" if column.type == "float" else quoted(column.name)


class MySqlChunks(ChunkReaders[TableInfo]):
    """Threads that read chunks with SELECT."""

    def __init__(self, database: Database, context: SnapshotContext[TableInfo], rows: int, threads: int) -> None:
        self._database = database
        super().__init__(context, rows, threads)

    def _connect(self) -> Connection:
        return self._database.connect()

    def _is_dropped(self, error: Exception) -> bool:
        return error.args[:1] == (_NO_TABLE,)

    def _has_changed(self, error: Exception) -> bool:
        return bool(error.args) and error.args[0] in (_NO_COLUMN, _OTHER_TABLE)

    def _failed(self, error: Exception) -> MySqlFailure:
        return MySqlFailure(f"Tables of MySQL at {self._database.address} cannot be read: {error_text(error)}.")

    def _find_end(self, connection: Connection, table: TableInfo, low: Key | None) -> Key | None:
        keys = ", ".join(quoted(k) for k in table.keys)
        where, values = _between(table, low, None)
        query = f"SELECT {keys} FROM {table.quoted}{where} ORDER BY {keys} LIMIT 1 OFFSET {self._rows - 1}"
        rows = run(connection, query, values)
        return tuple(rows[0]) if rows else None

    def _take_snapshot(self, connection: Connection, table: TableInfo) -> SnapshotInfo:
        run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        offset = snapshot_offset(connection)
        assert offset is not None
        return SnapshotInfo(BinlogVisibility(offset), offset, int(time.time() * 1000))

    def _read_rows(
        self, connection: Connection, table: TableInfo, chunk: Chunk, snapshot: SnapshotInfo
    ) -> tuple[BinlogRange, Key | None] | None:
        current = find_table(connection, table.schema, table.name)
        if current is None:
            return None
        rows, high = self._select(connection, current, chunk, snapshot)
        return BinlogRange(True, rows), high

    def _select(
        self, connection: Connection, table: TableInfo, chunk: Chunk, snapshot: SnapshotInfo
    ) -> tuple[list[Change], Key | None]:
        """Return the rows of a chunk and their last key."""
        # An optional package.
        from pymysql.cursors import SSCursor

        names = tuple(c.name for c in table.columns)
        converters = [(i, c) for i, column in enumerate(table.columns) if (c := from_table(column)) is not None]
        order_by = ", ".join(quoted(k) for k in table.keys)
        where, values = _between(table, chunk.low, chunk.high)
        source: LogSource = {"file": snapshot.until.file, "pos": snapshot.until.position, "gtid": None}
        ms, key_indexes = snapshot.ms, table.key_indexes
        name = table.table
        changes: list[Change] = []
        size = 0
        with connection.cursor(SSCursor) as cursor:
            columns = ", ".join(_selected(c) for c in table.columns)
            cursor.execute(f"SELECT {columns} FROM {table.quoted}{where} ORDER BY {order_by}", tuple(values))
            while rows := cursor.fetchmany(_FETCH if size < CHUNK_BYTES else 0):
                for values_ in rows:
                    row = list(values_)
                    for i, convert in converters:
                        if row[i] is not None:
                            row[i] = convert(row[i])
                    size += sum(len(v) for v in row if isinstance(v, (str, bytes)))
                    changes.append(
                        Change(ops.READ, name, names, key_indexes, None, row, True, ms, source, table.schema)
                    )
                if size >= CHUNK_BYTES:
                    break
            else:
                return changes, chunk.high
        last = changes[-1].after
        assert last is not None
        return changes, tuple(last[p] for p in key_indexes)
