"""Reads chunks of PostgreSQL's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.cdc.incremental_snapshot import Chunk, Key
from millstream.connectors.cdc.postgres.catalog import TableInfo, find_columns, find_types, literal, quoted
from millstream.connectors.cdc.postgres.connection import Database, PostgresFailure, error_text, library
from millstream.connectors.cdc.postgres.pgoutput import Relation
from millstream.connectors.cdc.postgres.replication import lsn
from millstream.connectors.cdc.postgres.splits import ChunkRange, TableDescription, Visibility
from millstream.connectors.cdc.postgres.values import copied_row
from millstream.connectors.cdc.readers import CHUNK_BYTES, ChunkReaders, SnapshotContext, SnapshotInfo

if TYPE_CHECKING:
    from millstream.connectors.cdc.postgres.connection import Connection

__all__ = ["PostgresChunks", "compare", "described", "key_below"]


def described(connection: Connection, relation: Relation, keys: tuple[str, ...]) -> TableDescription:
    """Return the description with which a subtask decodes a table's rows."""
    types = find_types(connection, [column.type for column in relation.columns])
    names = [column.name for column in relation.columns]
    return TableDescription(relation, tuple(types.items()), tuple(names.index(k) for k in keys))


def key_below(table: TableInfo, low: Key | None, high: Key | None) -> str:
    """Return the condition for keys above `low`, up to and including `high`."""
    columns = ", ".join(quoted(k.name) for k in table.keys)
    parts = [f"({columns}) > ({_literals(low)})"] if low is not None else []
    parts += [f"({columns}) <= ({_literals(high)})"] if high is not None else []
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _literals(key: Key) -> str:
    return ", ".join(literal(part) for part in key)


def compare(connection: Connection, table: TableInfo, keys: list[Key], bounds: list[Key]) -> list[int]:
    """Return for each key how many bounds it exceeds, in the database's order."""
    columns = [f"k{i}" for i in range(len(table.keys))]
    typed = [
        f"{c}::{k.type}" + (f" COLLATE {k.collation}" if k.collation else "")
        for c, k in zip(columns, table.keys, strict=True)
    ]
    row = ", ".join(typed)
    placeholders = ", ".join(["%s"] * len(columns))
    above = " + ".join([f"(({row}) > ({placeholders}))::int"] * len(bounds))
    arrays = ", ".join(["%s::text[]"] * len(columns))
    query = f"SELECT {above} FROM unnest({arrays}) WITH ORDINALITY AS e({', '.join(columns)}, n) ORDER BY n"
    values = [part for bound in bounds for part in bound]
    values += [[key[i] for key in keys] for i in range(len(columns))]
    return [n for (n,) in connection.execute(query, values).fetchall()]


class PostgresChunks(ChunkReaders[TableInfo]):
    """Threads that read chunks with COPY."""

    def __init__(self, database: Database, context: SnapshotContext[TableInfo], rows: int, threads: int) -> None:
        self._database = database
        super().__init__(context, rows, threads)

    def _connect(self) -> Connection:
        return self._database.connect(autocommit=False)

    def _is_dropped(self, error: Exception) -> bool:
        return isinstance(error, library().errors.UndefinedTable)

    def _has_changed(self, error: Exception) -> bool:
        return isinstance(error, library().errors.UndefinedColumn)

    def _failed(self, error: Exception) -> PostgresFailure:
        return PostgresFailure(f"Tables of PostgreSQL at {self._database.address} cannot be read: {error_text(error)}.")

    def _find_end(self, connection: Connection, table: TableInfo, low: Key | None) -> Key | None:
        keys = ", ".join(quoted(k.name) for k in table.keys)
        # Aliases: with the columns' names, ORDER BY would sort by the texts.
        texts = ", ".join(f"{quoted(k.name)}::text AS key_{i}" for i, k in enumerate(table.keys))
        row = connection.execute(
            f"SELECT {texts} FROM {table.rows}{key_below(table, low, None)} "
            f"ORDER BY {keys} OFFSET {self._rows - 1} LIMIT 1"
        ).fetchone()
        return None if row is None else tuple(row)

    def _take_snapshot(self, connection: Connection, table: TableInfo) -> SnapshotInfo:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        # Locks before the snapshot: a table that an ALTER rewrites looks empty to an older snapshot.
        connection.execute(f"LOCK TABLE {table.rows} IN ACCESS SHARE MODE")
        row = connection.execute(
            "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, "
            "(extract(epoch FROM now()) * 1000)::bigint"
        ).fetchone()
        assert row is not None
        return SnapshotInfo(Visibility.parse(row[0]), lsn(row[1]), row[2])

    def _read_rows(
        self, connection: Connection, table: TableInfo, chunk: Chunk, snapshot: SnapshotInfo
    ) -> tuple[ChunkRange, Key | None] | None:
        relation = find_columns(connection, table)
        if relation is None:
            return None
        names = tuple(k.name for k in table.keys)
        if not {c.name for c in relation.columns}.issuperset(names):
            raise PostgresFailure(
                f"Table {chunk.table} cannot be read: a column of its key was renamed; restart the job."
            )
        description = described(connection, relation, names)
        data, last = self._copy(connection, table, description, chunk)
        high = chunk.high
        if last is not None:
            fields = copied_row(last.rstrip(b"\n"))
            high = tuple((fields[k] or b"").decode() for k in description.keys)
        return ChunkRange(description, data, snapshot.until, snapshot.ms), high

    def _copy(
        self, connection: Connection, table: TableInfo, description: TableDescription, chunk: Chunk
    ) -> tuple[bytes, bytes | None]:
        """Return the rows of a chunk, and the last row if the chunk ends early, after it."""
        columns = ", ".join(quoted(name) for name in description.names)
        keys = ", ".join(quoted(k.name) for k in table.keys)
        where = key_below(table, chunk.low, chunk.high)
        lines: list[bytes] = []
        size = 0
        last: bytes | None = None
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY (SELECT {columns} FROM {table.rows}{where} ORDER BY {keys}) TO STDOUT") as copy,
        ):
            for block in copy:
                if size >= CHUNK_BYTES:
                    last = lines[-1]
                    break
                lines.append(bytes(block))
                size += len(block)
        return b"".join(lines), last
