"""The PostgreSQL CDC source and its split enumerator."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.base import SplitEnumerator
from millstream.connectors.cdc.enumerator import CaptureEnumerator, CaptureSnapshot, check_keys
from millstream.connectors.cdc.incremental_snapshot import Key
from millstream.connectors.cdc.postgres import pgoutput
from millstream.connectors.cdc.postgres.catalog import TableInfo, check_identity, check_server, find_keys, find_tables
from millstream.connectors.cdc.postgres.chunks import PostgresChunks, compare, described
from millstream.connectors.cdc.postgres.connection import (
    Database,
    PostgresFailure,
    PostgresLogLost,
    error_text,
    library,
)
from millstream.connectors.cdc.postgres.log import LogReader, Piece, PostgresOffset
from millstream.connectors.cdc.postgres.pgoutput import Begin, Relation
from millstream.connectors.cdc.postgres.replication import (
    Slot,
    check_published,
    create_slot,
    drop_slot,
    ensure_publication,
    find_publication,
    find_slot,
    lsn,
    lsn_text,
    restored_slot,
)
from millstream.connectors.cdc.postgres.splits import LogRange, TableDescription
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
    from millstream.connectors.cdc.postgres.connection import Connection

__all__ = ["PostgresEnumerator", "PostgresSettings", "PostgresSource", "PostgresSourceBuilder", "prepare"]

_log = logging.getLogger("millstream")


@dataclass(frozen=True, kw_only=True)
class PostgresSettings(CaptureSettings):
    """The settings of a PostgreSQL source."""

    database: Database
    slot: str = ""
    publication: str = "dbz_publication"
    creates_publication: bool = True


def prepare(connection: Connection, settings: PostgresSettings) -> list[TableInfo]:
    """Return the tables to capture, or fail if they cannot be captured."""
    check_server(connection, settings.database.address)
    tables = find_tables(connection, settings.tables)
    check_keys(tables)
    for table in tables:
        check_identity(table.table, table.identity)
        settings.schema.check(table.table, table.identity == "f")
    return tables


class PostgresEnumerator(CaptureEnumerator[PostgresSettings, TableInfo, Piece, bytes, LogRange]):
    """Assigns chunks read with COPY and changes of a replication slot."""

    _log: LogReader | None

    def _open(self, restored: CaptureSnapshot | None) -> None:
        # Relations by oid, as the log described them; None: not captured.
        self._described: dict[int, TableDescription | None] = {}
        self._is_done = False
        # For each captured table: its oid, and its number in the publication.
        self._oids: dict[str, int] = {} if restored is None else dict(restored.get("oids", {}))
        self._members: dict[str, int] = {} if restored is None else dict(restored.get("members", {}))
        super()._open(restored)

    def _failure(self, error: Exception) -> MillstreamError | None:
        if not isinstance(error, library().Error):
            return None
        return PostgresFailure(f"PostgreSQL at {self._settings.database.address} does not answer: {error_text(error)}.")

    def _find_tables(self) -> list[TableInfo]:
        return prepare(self._connection, self._settings)

    def _make_ready(self, tables: list[TableInfo]) -> None:
        settings = self._settings
        ensure_publication(
            self._connection,
            settings.publication,
            tables,
            settings.creates_publication,
            settings.startup.reads_tables,
        )
        publication = find_publication(self._connection, settings.publication)
        self._members |= {} if publication is None else {t.table: publication.members[t.table] for t in tables}
        self._oids |= {t.table: t.oid for t in tables}

    def _check_known(self, tables: list[TableInfo]) -> None:
        for table in tables:
            if table.oid != self._oids.get(table.table, table.oid):
                raise PostgresLogLost(
                    f"Table {table.table} was dropped or renamed, and created again: start the job without its state, "
                    "so that it reads the new table."
                )
        check_published(self._connection, self._settings.publication, tables, self._members)

    def _start(self) -> PostgresOffset:
        """Return the start offset of the existing slot, or of a new one."""
        settings, connection = self._settings, self._connection
        mode = settings.startup.mode
        slot = find_slot(connection, settings.slot, settings.database.name)
        if slot is None and mode in (OFFSET, COMMITTED):
            raise PostgresLogLost(
                f"There is no replication slot {settings.slot!r} to read from an offset: start with "
                "StartupOptions.initial()."
            )
        if slot is not None and slot.is_lost:
            _log.warning("CDC: replication slot %s has lost its log, creating it again", settings.slot)
            drop_slot(connection, settings.slot)
            slot = None
        return PostgresOffset(
            self._start_lsn(slot) if slot is not None else create_slot(connection, settings.slot).confirmed
        )

    def _start_lsn(self, slot: Slot) -> int:
        mode, offset = self._settings.startup.mode, self._settings.startup.offset
        if mode == OFFSET:
            if not isinstance(offset, str):
                raise InvalidProgramError(f"PostgresSource: specific_offset takes one LSN, not {offset!r}.")
            start = lsn(offset)
            if start < slot.confirmed:
                raise PostgresLogLost(
                    f"Replication slot {self._settings.slot!r} has the log from {lsn_text(slot.confirmed)} on, not "
                    f"from {offset}."
                )
            if start > self._end():
                raise InvalidProgramError(
                    f"PostgresSource: the log has not reached {offset}; it ends at {lsn_text(self._end())}."
                )
            return start
        if mode != COMMITTED:
            # The tables already contain older changes, and the publication may not have existed then.
            return max(self._end(), slot.confirmed)
        return slot.confirmed

    def _end(self) -> int:
        row = self._connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        return lsn(row[0])

    def _restored_offset(self, restored: CaptureSnapshot) -> PostgresOffset:
        offset = PostgresOffset(*restored["offset"])
        restored_slot(self._connection, self._settings.slot, self._settings.database.name, offset.lsn)
        return offset

    def _horizon(self) -> int:
        # The log is complete for transactions that begin after this one. It may lack parts of earlier ones, so a
        # snapshot must see those.
        row = self._connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        assert row is not None
        return int(row[0]) + 1

    def _open_log(self) -> LogReader:
        settings = self._settings
        return LogReader(settings.database, settings.slot, settings.publication, self._offset, self._on_wake)

    def _open_chunks(self, context: SnapshotContext[TableInfo]) -> PostgresChunks:
        settings = self._settings
        return PostgresChunks(settings.database, context, settings.chunk_rows, settings.threads)

    def _point(self) -> int:
        lsn: int = self._offset.lsn
        return lsn

    def _end_of_log(self) -> int:
        message = "SELECT pg_logical_emit_message(true, 'millstream', 'the snapshot ends')::text"
        row = self._connection.execute(message).fetchone()
        assert row is not None
        return lsn(row[0])

    def _has_reached(self, target: int) -> bool:
        return bool(self._offset.lsn >= target)

    def _unassigned_bytes(self) -> int:
        return max(0, self._end() - self._point())

    def _request_progress(self) -> None:
        assert self._log is not None
        self._log.request_status()

    # --- the log

    def _empty_range(self) -> LogRange:
        return LogRange()

    def _add_piece(self, ranges: list[LogRange], piece: Piece) -> None:
        begin = piece.begin
        assert begin is not None
        messages: list[bytes] = []
        if not ranges:
            ranges.append(LogRange())
        for message in piece.messages:
            if isinstance(message, Relation):
                self._add_messages(ranges[-1], begin, messages)
                messages = []
                self._describe(message)
                if message.oid in ranges[-1].tables:
                    # The table was replaced from here on.
                    ranges.append(LogRange())
            else:
                messages.append(message)
        self._add_messages(ranges[-1], begin, messages)

    def _describe(self, relation: Relation) -> None:
        """Handle the log's description of a table that is new or has changed."""
        name = relation.table
        if name not in self._tables and is_captured(name, self._settings.tables):
            self._find_new_tables()
        table = self._tables.get(name)
        if table is None or table.oid != relation.oid:
            self._described[relation.oid] = None
            return
        check_identity(name, relation.identity)
        self._described[relation.oid] = described(self._connection, relation, self._key_names(table, relation))

    def _key_names(self, table: TableInfo, relation: Relation) -> tuple[str, ...]:
        """Return the key's columns as the log names them; the catalog may have newer names."""
        logged = {c.name for c in relation.columns}
        # With REPLICA IDENTITY FULL every column counts as part of the key.
        flagged = logged if relation.identity == "f" else {c.name for c in relation.columns if c.is_key}
        for keys in (table.keys, find_keys(self._connection, table.oid)):
            names = tuple(k.name for k in keys)
            if flagged.issuperset(names) and (relation.identity == "f" or flagged.issubset(names)):
                return names
        if relation.identity == "f":
            raise PostgresLogLost(
                f"The key columns of table {table.table} were renamed more than once while the job did not run: start "
                "the job without its state."
            )
        return tuple(c.name for c in relation.columns if c.is_key)

    def _add_messages(self, split_range: LogRange, begin: Begin, messages: list[bytes]) -> None:
        captured: list[bytes] = []
        tables, truncate, from_bytes = split_range.tables, pgoutput.TRUNCATE, int.from_bytes
        for message in messages:
            if message[0] != truncate and from_bytes(message[1:5], "big") in tables:
                captured.append(message)
                continue
            oids = pgoutput.truncated(message) if message[0] == truncate else (pgoutput.oid_of(message),)
            known = {oid: table for oid in oids if (table := self._described.get(oid)) is not None}
            if known:
                tables.update(known)
                captured.append(message)
        if captured and not self._machine.is_complete:
            captured = self._passing(begin.xid, captured)
        if captured:
            split_range.transactions.append((begin, captured))

    # --- while tables are read

    def _truncates(self, change: bytes) -> Sequence[str] | None:
        if change[0] != pgoutput.TRUNCATE:
            return None
        tables = [self._described.get(oid) for oid in pgoutput.truncated(change)]
        return [table.relation.table for table in tables if table is not None]

    def _keys_of(self, change: bytes) -> tuple[str, list[Key]]:
        table = self._described[pgoutput.oid_of(change)]
        assert table is not None
        return table.relation.table, [key for key in _keys(change, table) if key is not None]

    def _remaining_changes(self, change: bytes, passes: dict[Key, bool]) -> list[bytes]:
        table = self._described[pgoutput.oid_of(change)]
        assert table is not None
        before, after = _keys(change, table)
        old_passes = before is not None and passes[before]
        new_passes = after is not None and passes[after]
        if before == after or before is None or after is None:
            return [change] if old_passes or new_passes else []
        if old_passes and new_passes:
            return [change]
        delete, insert = pgoutput.split_update(change)
        return [delete] if old_passes else [insert] if new_passes else []

    def _compare(self, table: TableInfo, keys: list[Key], bounds: list[Key]) -> list[int]:
        return compare(self._connection, table, keys, bounds)

    # --- the slot

    def snapshot(self) -> CaptureSnapshot:
        return {**super().snapshot(), "oids": dict(self._oids), "members": dict(self._members)}

    def committed(self, snapshot: CaptureSnapshot) -> None:
        assert self._log is not None
        self._log.confirm(PostgresOffset(*snapshot["offset"]).lsn)
        self._is_done = snapshot["finished"]

    def _closing(self) -> None:
        if self._log is not None and self._is_done:
            # An unused slot retains WAL forever.
            drop_slot(self._connection, self._settings.slot)


def _keys(message: bytes, table: TableDescription) -> tuple[Key | None, Key | None]:
    """Return the key of a row before a change and after it."""
    before, after = pgoutput.key_of(pgoutput.images(message), table.keys)
    is_insert = message[0] == pgoutput.INSERT
    return (
        None if before is None or is_insert else _decoded(before),
        None if after is None else _decoded(after),
    )


def _decoded(key: tuple[pgoutput.Text, ...]) -> Key:
    return tuple(part.decode() for part in key if isinstance(part, bytes))


class PostgresSource(CaptureSource):
    """Reads tables of PostgreSQL, then their changes with logical replication.

    Example:
        >>> from millstream.connectors.cdc.changes import RowDeserializationSchema
        >>> from millstream.connectors.cdc.source import StartupOptions
        >>> source = (
        ...     PostgresSource.builder()
        ...     .hostname("localhost").port(5432).database("shop").username("me").password("secret")
        ...     .connection_options(sslmode="require").connect_timeout(5)
        ...     .table_list("public.orders", "public.customers")
        ...     .slot_name("orders").publication("orders", create=True)
        ...     .deserializer(RowDeserializationSchema(with_table=True))
        ...     .startup_options(StartupOptions.initial())
        ...     .split_size(10_000).snapshot_parallelism(4)
        ...     .heartbeat_interval(10).discovery_interval(60)
        ...     .build()
        ... )
        >>> source.name, source.is_bounded
        ('PostgresSource-public.orders, public.customers', False)
    """

    _settings: PostgresSettings

    @staticmethod
    def builder() -> PostgresSourceBuilder:
        """Return a builder."""
        return PostgresSourceBuilder()

    def _prepare(self, connection: Connection) -> None:
        prepare(connection, self._settings)

    def create_enumerator(self, parallelism: int, restored: CaptureSnapshot | None = None) -> SplitEnumerator:
        return PostgresEnumerator(self._settings, parallelism, restored)


class PostgresSourceBuilder(CaptureBuilder[PostgresSettings]):
    """Builds a PostgresSource; see PostgresSource for an example."""

    _source, _example = "PostgresSource", "public.orders"

    def __init__(self) -> None:
        super().__init__(PostgresSettings(database=Database("localhost", 5432, "", "")))

    def database(self, database: str) -> PostgresSourceBuilder:
        """Set the database. Required."""
        return self._with_server(replace(self._settings.database, name=database))

    def connection_options(self, **options: str) -> PostgresSourceBuilder:
        """Set further parameters of libpq's connection, such as sslmode. Default: none."""
        return self._with_server(replace(self._settings.database, options=options))

    def slot_name(self, slot_name: str) -> PostgresSourceBuilder:
        """Set the replication slot, unique per source; it is created if it does not exist. Required."""
        return self._with(replace(self._settings, slot=slot_name))

    def publication(self, name: str, create: bool = True) -> PostgresSourceBuilder:
        """Set the publication; `create` creates it or adds tables as needed. Default: `dbz_publication`."""
        return self._with(replace(self._settings, publication=name, creates_publication=create))

    def build(self) -> PostgresSource:
        """Return the source; an incomplete configuration is an error."""
        settings = self._checked(database=self._settings.database.name, slot_name=self._settings.slot)
        if not all(c.islower() or c.isdigit() or c == "_" for c in settings.slot):
            raise InvalidProgramError(
                f"PostgresSource: slot_name takes lower case letters, digits and underscores, not {settings.slot!r}."
            )
        return PostgresSource(settings)
