"""Tables in MariaDB's and MySQL's catalogs: checks that they can be captured, and reads of their chunks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.connectors.cdc import changes as ops
from millstream.connectors.cdc.changes import Change, LogSource
from millstream.connectors.cdc.incremental_snapshot import Chunk, Key
from millstream.connectors.cdc.mysql.connection import Database, MySqlFailure, error_text, run
from millstream.connectors.cdc.mysql.log import BinlogRange
from millstream.connectors.cdc.mysql.offsets import BinlogVisibility, log_status, snapshot_offset
from millstream.connectors.cdc.mysql.values import ColumnInfo, from_table, is_ordered, unsupported_reason
from millstream.connectors.cdc.readers import CHUNK_BYTES, ChunkReaders, SnapshotContext, SnapshotInfo
from millstream.connectors.cdc.source import check_named, is_captured

if TYPE_CHECKING:
    from millstream.connectors.cdc.mysql.connection import Connection

__all__ = ["MySqlChunks", "TableInfo"]

# Maximum keys per statement.
_MAX_KEYS = 200
_SYSTEM = ("mysql", "information_schema", "performance_schema", "sys")


@dataclass(frozen=True)
class TableInfo:
    """A table."""

    schema: str
    name: str
    columns: tuple[ColumnInfo, ...]
    keys: tuple[str, ...]
    engine: str = ""

    @property
    def table(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def key_indexes(self) -> tuple[int, ...]:
        names = [c.name for c in self.columns]
        return tuple(names.index(k) for k in self.keys)


def quoted(name: str) -> str:
    """Quote an identifier for a statement that `run` takes."""
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def find_table(connection: Connection, schema: str, name: str) -> TableInfo | None:
    """Return a table's current description, or None if it was dropped."""
    columns = run(
        connection,
        "SELECT column_name, data_type, column_type, character_set_name, collation_name FROM "
        "information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (schema, name),
    )
    keys = run(
        connection,
        "SELECT column_name FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s "
        "AND index_name = 'PRIMARY' ORDER BY seq_in_index",
        (schema, name),
    )
    if not columns:
        return None
    ((engine,),) = run(
        connection,
        "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        (schema, name),
    ) or (("",),)
    return TableInfo(schema, name, tuple(ColumnInfo(*c) for c in columns), tuple(k for (k,) in keys), engine or "")


def find_tables(connection: Connection, patterns: tuple[str, ...]) -> list[TableInfo]:
    """Return the tables that a list matches; fail if it names one that does not exist."""
    tables = []
    names = run(
        connection,
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' "
        f"AND table_schema NOT IN ({', '.join(['%s'] * len(_SYSTEM))}) ORDER BY 1, 2",
        _SYSTEM,
    )
    for schema, name in names:
        if is_captured(f"{schema}.{name}", patterns) and (table := find_table(connection, schema, name)) is not None:
            tables.append(table)
    check_named(patterns, [t.table for t in tables], "MySQL", "database, as in 'shop.orders'")
    return tables


# Server variables and the values that the binlog reader needs.
_REQUIRED_SETTINGS = {
    "log_bin": ("1", "ON"),
    "binlog_format": ("ROW",),
    "binlog_row_image": ("FULL",),
    "binlog_row_metadata": ("FULL",),
    "log_bin_compress": ("OFF",),
    "binlog_transaction_compression": ("OFF",),
    "binlog_row_value_options": ("",),
}


def check_server(connection: Connection, address: str, reads_tables: bool) -> None:
    """Refuse a server whose binlog settings do not suffice."""
    names = ", ".join(f"'{name}'" for name in _REQUIRED_SETTINGS)
    for name, value in run(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})"):
        if str(value).upper() not in (values := _REQUIRED_SETTINGS[name.lower()]):
            raise InvalidProgramError(
                f"MySQL at {address} does not log enough for CDC ({name} is {value}): set {name.replace('_', '-')} to "
                f"{values[-1] or 'nothing'} in its configuration."
            )
    if reads_tables and snapshot_offset(connection) is None:
        raise InvalidProgramError(
            f"MySQL at {address} does not report the binlog offset of a snapshot, as MariaDB does, so its tables "
            "cannot be read: use StartupOptions.latest() or specific_offset(...)."
        )


def check_tables(connection: Connection, tables: Sequence[TableInfo], reads_tables: bool) -> None:
    """Refuse tables that are not logged, or whose values cannot be read from the binlog."""
    _, _, logged, ignored = log_status(connection)[:4]
    for table in tables:
        if (logged and table.schema not in logged.split(",")) or table.schema in ignored.split(","):
            raise InvalidProgramError(
                f"The server does not log database {table.schema}: check binlog-do-db and binlog-ignore-db in its "
                "configuration."
            )
        for column in table.columns:
            if (reason := unsupported_reason(column)) is not None:
                raise InvalidProgramError(
                    f"Column {column.name} of table {table.table} {reason}, which cannot be read from the binlog: "
                    "change it (utf8mb4 is supported), or remove the table from table_list."
                )
        if reads_tables:
            _check_chunks(table)


def _check_chunks(table: TableInfo) -> None:
    if table.engine and table.engine.upper() not in ("INNODB", "ROCKSDB"):
        raise InvalidProgramError(
            f"Table {table.table} has the engine {table.engine}, which has no snapshots: run  ALTER TABLE "
            f"{table.table} ENGINE = InnoDB  or start with StartupOptions.latest()."
        )
    for column in table.columns:
        if column.name in table.keys and not is_ordered(column):
            raise InvalidProgramError(
                f"The key of table {table.table} has column {column.name} of type {column.type}, which cannot divide a "
                "table into chunks: start with StartupOptions.latest(), or change the key."
            )


def typed_placeholder(column: ColumnInfo) -> str:
    """Return a placeholder that compares as the column's values do."""
    if column.collation is not None:
        return f"CONVERT(%s USING {column.charset}) COLLATE {column.collation}"
    casts = {"datetime": "DATETIME(6)", "timestamp": "DATETIME(6)", "date": "DATE", "time": "TIME(6)"}
    casts |= {"uuid": "UUID", "inet4": "INET4", "inet6": "INET6"}
    return f"CAST(%s AS {casts[column.type]})" if column.type in casts else "%s"


def compare(connection: Connection, table: TableInfo, keys: list[Key], bounds: list[Key]) -> list[int]:
    """Return for each key how many bounds it exceeds, in the database's order."""
    by_name = {c.name: c for c in table.columns}
    placeholders = [typed_placeholder(by_name[k]) for k in table.keys]
    names = [f"k{i}" for i in range(len(placeholders))]
    row = ", ".join(names)
    above = " + ".join([f"(({row}) > ({', '.join(['%s'] * len(names))}))"] * len(bounds))
    counts: list[int] = []
    for start in range(0, len(keys), _MAX_KEYS):
        part = keys[start : start + _MAX_KEYS]
        selects = [
            f"SELECT {', '.join(f'{p} AS {n}' for p, n in zip(placeholders, names, strict=True))}, {i} AS n"
            for i in range(len(part))
        ]
        query = f"SELECT {above} FROM ({' UNION ALL '.join(selects)}) AS e ORDER BY n"
        values = [value for bound in bounds for value in bound] + [value for key in part for value in key]
        counts += [int(n) for (n,) in run(connection, query, values)]
    return counts


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
