"""The MySQL CDC source and its split enumerator."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.base import SplitEnumerator
from millstream.connectors.cdc import changes as ops
from millstream.connectors.cdc.changes import Change
from millstream.connectors.cdc.enumerator import CaptureEnumerator, CaptureSnapshot, check_keys
from millstream.connectors.cdc.incremental_snapshot import Key
from millstream.connectors.cdc.mysql.catalog import (
    MySqlChunks,
    TableInfo,
    check_server,
    check_tables,
    compare,
    find_table,
    find_tables,
)
from millstream.connectors.cdc.mysql.connection import Database, MySqlFailure, error_text, library
from millstream.connectors.cdc.mysql.log import BinlogRange, BinlogReader, Piece
from millstream.connectors.cdc.mysql.offsets import (
    BinlogOffset,
    Gtids,
    bytes_after,
    check_file,
    check_transaction,
    current_offset,
    offset_before,
    offset_of,
)
from millstream.connectors.cdc.mysql.values import Convert, from_log
from millstream.connectors.cdc.readers import SnapshotContext
from millstream.connectors.cdc.source import (
    COMMITTED,
    OFFSET,
    CaptureBuilder,
    CaptureSettings,
    CaptureSource,
    is_captured,
)

if TYPE_CHECKING:
    from millstream.connectors.cdc.mysql.connection import Connection

__all__ = ["MySqlEnumerator", "MySqlSettings", "MySqlSource", "MySqlSourceBuilder", "prepare"]

# Indexes of the key in a row, and converters of values by index.
RowLayout: TypeAlias = tuple[tuple[int, ...], list[tuple[int, Convert]]]


@dataclass(frozen=True, kw_only=True)
class MySqlSettings(CaptureSettings):
    """The settings of a MySQL source."""

    database: Database
    server_id: int | None = None


def prepare(connection: Connection, settings: MySqlSettings) -> list[TableInfo]:
    """Return the tables to capture, or fail if they cannot be captured."""
    check_server(connection, settings.database.address, settings.startup.reads_tables)
    tables = find_tables(connection, settings.tables)
    check_keys(tables)
    check_tables(connection, tables, settings.startup.reads_tables)
    return tables


class MySqlEnumerator(CaptureEnumerator[MySqlSettings, TableInfo, Piece, Change, BinlogRange]):
    """Assigns chunks read with SELECT and changes of the binlog."""

    def _open(self, restored: CaptureSnapshot | None) -> None:
        # Transactions executed before a GTID start; they may also follow the start offset.
        self._done = Gtids({} if restored is None else restored.get("done", {}))
        # The last completely assigned transaction.
        self._gtid: str = "" if restored is None else restored.get("gtid", "")
        # By table, columns and key as the log has them.
        self._layouts: dict[tuple[str, tuple[str, ...], tuple[int, ...]], RowLayout] = {}
        super()._open(restored)

    def _failure(self, error: Exception) -> MillstreamError | None:
        if not isinstance(error, library().Error):
            return None
        return MySqlFailure(f"MySQL at {self._settings.database.address} does not answer: {error_text(error)}.")

    def _find_tables(self) -> list[TableInfo]:
        return prepare(self._connection, self._settings)

    def _start(self) -> BinlogOffset:
        mode, offset = self._settings.startup.mode, self._settings.startup.offset
        if mode == COMMITTED:
            raise InvalidProgramError(
                "MySqlSource: committed_offset() is for PostgreSQL, MySQL does not store it: use another startup mode."
            )
        if mode == OFFSET:
            assert offset is not None
            if not isinstance(offset, tuple):
                self._done = Gtids.parse(offset)
                return offset_before(self._connection, self._done, offset)
            start = offset_of(*offset)
            check_file(self._connection, start)
            return start
        return current_offset(self._connection)

    def _restored_offset(self, restored: CaptureSnapshot) -> BinlogOffset:
        offset = BinlogOffset(*restored["offset"])
        check_file(self._connection, offset)
        check_transaction(self._connection, offset, self._gtid)
        return offset

    def _horizon(self) -> BinlogOffset:
        return current_offset(self._connection)

    def _open_log(self) -> BinlogReader:
        server_id = self._settings.server_id or random.randrange(1 << 16, 1 << 31)
        patterns = self._settings.tables
        return BinlogReader(
            self._settings.database,
            self._offset,
            self._done,
            server_id,
            lambda table: is_captured(table, patterns),
            self._on_wake,
        )

    def _open_chunks(self, context: SnapshotContext[TableInfo]) -> MySqlChunks:
        settings = self._settings
        return MySqlChunks(settings.database, context, settings.chunk_rows, settings.threads)

    def _point(self) -> BinlogOffset:
        # Everything before the offset of a partly assigned transaction was assigned.
        offset: BinlogOffset = self._offset
        return offset

    def _end_of_log(self) -> BinlogOffset:
        return current_offset(self._connection)

    def _has_reached(self, target: BinlogOffset) -> bool:
        return bool(self._offset[:2] >= target[:2])

    def _unassigned_bytes(self) -> int:
        return bytes_after(self._connection, self._offset)

    # --- the log

    def _empty_range(self) -> BinlogRange:
        return BinlogRange(False, [])

    def _add_piece(self, ranges: list[BinlogRange], piece: Piece) -> None:
        if not ranges:
            ranges.append(BinlogRange(False, []))
        if not piece.after.changes:
            self._gtid = piece.gtid
        if any(change.table not in self._tables for change in piece.changes):
            self._find_new_tables()
        changes = [self._normalized(c) for c in piece.changes if c.table in self._tables]
        ranges[-1].rows.extend(changes if self._machine.is_complete else self._passing(piece.transaction, changes))

    def _normalized(self, change: Change) -> Change:
        """Return a change with its key in the key's own order, and its values as a SELECT returns them."""
        if change.op == ops.TRUNCATE:
            return change
        logged = change.table, change.columns, change.keys
        layout = self._layouts.get(logged)
        if layout is None:
            layout = self._layouts[logged] = self._layout_of(*logged)
        keys, converters = layout
        for row in (change.before, change.after):
            if row is not None:
                for i, convert in converters:
                    if row[i] is not None:
                        row[i] = convert(row[i])
        return change._replace(keys=keys)

    def _layout_of(self, name: str, columns: tuple[str, ...], keys: tuple[int, ...]) -> RowLayout:
        """Return the indexes of the key in rows with these columns, and the converters of values."""
        table, logged = self._tables[name], [columns[k] for k in keys]
        if set(logged) != set(table.keys):
            # The table was replaced since the job started.
            table = find_table(self._connection, table.schema, table.name) or table
            with self._lock:
                self._tables[name] = table
        names = table.keys if set(logged) == set(table.keys) else logged
        indexes = {column: i for i, column in enumerate(columns)}
        present = [c for c in table.columns if c.name in indexes]
        converters = [(indexes[c.name], f) for c in present if (f := from_log(c)) is not None]
        return tuple(indexes[k] for k in names), converters

    def snapshot(self) -> CaptureSnapshot:
        return {**super().snapshot(), "done": dict(self._done.spans), "gtid": self._gtid}

    # --- while tables are read

    def _truncates(self, change: Change) -> Sequence[str] | None:
        return [change.table] if change.op == ops.TRUNCATE else None

    def _keys_of(self, change: Change) -> tuple[str, list[Key]]:
        return change.table, [_key(change)]

    def _remaining_changes(self, change: Change, passes: dict[Key, bool]) -> list[Change]:
        return [change] if passes[_key(change)] else []

    def _compare(self, table: TableInfo, keys: list[Key], bounds: list[Key]) -> list[int]:
        return compare(self._connection, table, keys, bounds)


def _key(change: Change) -> Key:
    row = change.after if change.after is not None else change.before
    assert row is not None
    return tuple(row[p] for p in change.keys)


class MySqlSource(CaptureSource):
    """Reads MariaDB's tables, then their changes from the binlog; from MySQL only changes.

    Example:
        >>> from millstream.connectors.cdc.changes import JsonDebeziumDeserializationSchema
        >>> from millstream.connectors.cdc.source import StartupOptions
        >>> source = (
        ...     MySqlSource.builder()
        ...     .hostname("localhost").port(3306).username("me").password("secret").connect_timeout(5)
        ...     .table_list("shop.orders", "shop.customers")
        ...     .server_id(5401)
        ...     .deserializer(JsonDebeziumDeserializationSchema())
        ...     .startup_options(StartupOptions.latest())
        ...     .build()
        ... )
        >>> source.name, source.is_bounded
        ('MySqlSource-shop.orders, shop.customers', False)
    """

    _settings: MySqlSettings

    @staticmethod
    def builder() -> MySqlSourceBuilder:
        """Return a builder."""
        return MySqlSourceBuilder()

    def _prepare(self, connection: Connection) -> None:
        prepare(connection, self._settings)

    def create_enumerator(self, parallelism: int, restored: CaptureSnapshot | None = None) -> SplitEnumerator:
        return MySqlEnumerator(self._settings, parallelism, restored)


class MySqlSourceBuilder(CaptureBuilder[MySqlSettings]):
    """Builds a MySqlSource; see MySqlSource for an example."""

    _source, _example = "MySqlSource", "shop.orders"

    def __init__(self) -> None:
        super().__init__(MySqlSettings(database=Database("localhost", 3306, "")))

    def server_id(self, server_id: int) -> MySqlSourceBuilder:
        """Set the id under which the job reads the binlog; it must be unique. Default: a random number."""
        return self._with(replace(self._settings, server_id=server_id))

    def build(self) -> MySqlSource:
        """Return the source; an incomplete configuration is an error."""
        return MySqlSource(self._checked())
