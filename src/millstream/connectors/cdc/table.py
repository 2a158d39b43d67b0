"""The connectors `postgres-cdc` and `mysql-cdc`."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError, MillstreamError
from millstream.connectors.base import Source
from millstream.connectors.cdc.changes import (
    CREATE,
    DELETE,
    READ,
    TRUNCATE,
    UPDATE,
    BatchDeserializationSchema,
    Change,
)
from millstream.connectors.cdc.mysql.source import MySqlSource
from millstream.connectors.cdc.postgres.source import PostgresSource
from millstream.connectors.cdc.source import CaptureBuilder, StartupOptions
from millstream.connectors.database_values import read_values
from millstream.formats.options import Options
from millstream.sql.columns import batch as kinds
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.connector_contract import Connector, TableContext, TableSource
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression
from millstream.sql.schema import ALL_CHANGES, INSERTS, UPSERTS, Field
from millstream.sql.types import DataType, DataTypes

_TEXT = DataTypes.STRING().not_null()
METADATA: Mapping[str, DataType] = {
    "table_name": _TEXT,
    "schema_name": _TEXT,
    "database_name": _TEXT,
    "op_ts": DataTypes.TIMESTAMP_LTZ(3).not_null(),
    "row_kind": _TEXT,
}
_EPOCH = dt.datetime.fromtimestamp(0, dt.UTC)
_KINDS = ("+I", "-U", "+U", "-D")
# Options of both connectors; those in the last line are accepted without effect.
_COMMON = frozenset(
    [
        "port",
        "scan.startup.mode",
        "scan.incremental.snapshot.chunk.size",
        "scan.read-changelog-as-append-only.enabled",
        "connect.timeout",
        "heartbeat.interval.ms",
        "heartbeat.interval",
        "debezium.*",
        "scan.incremental.snapshot.enabled",
        "scan.incremental.snapshot.chunk.key-column",
        "scan.incremental.snapshot.backfill.skip",
        "scan.incremental.close-idle-reader.enabled",
        "scan.newly-added-table.enabled",
        "scan.snapshot.fetch.size",
        "chunk-meta.group.size",
        "chunk-key.even-distribution.factor.lower-bound",
        "chunk-key.even-distribution.factor.upper-bound",
        "connect.max-retries",
        "connection.pool.size",
        "jdbc.properties.*",
    ]
)
# A builder for any settings.
B = TypeVar("B", bound=CaptureBuilder[Any])


class TableChanges(BatchDeserializationSchema):
    """Converts changes into rows of a table.

    Args:
        fields: the physical columns.
        columns: the projected columns: physical ones, or metadata keys.
        database: its name, if table names do not contain it.
        zone: the session's time zone.
        upserts: whether updates have no -U, and deletes only the key.
        appends: whether every change is an inserted row.
        skips_truncate: whether TRUNCATE is ignored.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        columns: Sequence[str],
        database: str | None,
        zone: str,
        upserts: bool,
        appends: bool,
        skips_truncate: bool,
    ) -> None:
        self._fields = dict(fields)
        self._columns = list(columns)
        self._database = database
        self._zone = zone
        self._upserts = upserts
        self._appends = appends
        self._skips_truncate = skips_truncate

    def check(self, table: str, is_full: bool) -> None:
        if not self._upserts and not is_full:
            raise InvalidProgramError(
                f"Table {table} does not log rows as they were before a change (its replica identity is not FULL), "
                f"which SQL changelogs contain: run  ALTER TABLE {table} REPLICA IDENTITY FULL  or declare the table "
                "with 'changelog-mode' = 'upsert' and a PRIMARY KEY."
            )

    def deserialize_all(self, changes: Sequence[Change]) -> Batch:
        rows = [one for change in changes for one in self._rows_of(change)]
        columns = [self._column(name, rows) for name in self._columns]
        kinds = None if self._appends else np.array([kind for kind, _, _ in rows], np.int8)
        return Batch(columns, kinds, len(rows))

    def _rows_of(self, change: Change) -> list[tuple[int, Change, list[Value]]]:
        """Return the row kinds and values of a change."""
        if change.op in (READ, CREATE):
            assert change.after is not None
            return [(kinds.INSERT, change, change.after)]
        if change.op == UPDATE:
            assert change.after is not None
            new = (kinds.UPDATE_AFTER, change, change.after)
            return [new] if self._upserts else [(kinds.UPDATE_BEFORE, change, self._before(change)), new]
        if change.op == DELETE:
            return [(kinds.DELETE, change, self._before(change))]
        assert change.op == TRUNCATE
        if self._skips_truncate:
            return []
        raise MillstreamError(
            f"Table {change.table} was truncated, which no row can express: set 'debezium.skipped.operations' = 't' to "
            "ignore it, or delete its rows with DELETE."
        )

    def _before(self, change: Change) -> list[Value]:
        if not self._upserts and not change.is_before_complete:
            self.check(change.table, False)
        assert change.before is not None
        return change.before

    def _column(self, name: str, rows: Sequence[tuple[int, Change, list[Value]]]) -> pa.Array:
        field = self._fields.get(name)
        if field is None:
            return to_column([self._metadata(name, kind, change) for kind, change, _ in rows], METADATA[name])
        indexes: dict[tuple[str, ...], int] = {}
        values = []
        for _, change, row in rows:
            index = indexes.get(change.columns)
            if index is None:
                index = indexes[change.columns] = _column_index(change, name)
            values.append(row[index])
        return to_column(read_values(values, name, field.type), field.type, self._zone)

    def _metadata(self, key: str, kind: int, change: Change) -> str | dt.datetime:
        schema, table = change.names
        if key == "op_ts":
            # As in Flink CDC, snapshot rows have no timestamp.
            return _EPOCH if change.op == READ else _EPOCH + dt.timedelta(milliseconds=change.ms)
        if key == "database_name":
            return self._database or schema
        return {"table_name": table, "schema_name": schema, "row_kind": _KINDS[kind]}[key]


def _column_index(change: Change, name: str) -> int:
    if name not in change.columns:
        raise MillstreamError(
            f"Table {change.table} has no column '{name}', it has {', '.join(change.columns)}: declare the table with "
            "the names of its columns."
        )
    return change.columns.index(name)


class _Source(TableSource):
    """Reads tables, then their changes."""

    def __init__(self, context: TableContext) -> None:
        self.options = Options(context.table.options)
        zone = context.settings.get("table.local-time-zone", "default")
        self._zone = "UTC" if zone == "default" else zone
        self._fields = {c.name: Field(c.name, c.type) for c in context.table.physical}
        self._appends = self.options.flag("scan.read-changelog-as-append-only.enabled", False)
        mode = self.options.one_of("changelog-mode", "all", {"all": "all", "upsert": "upsert"})
        self._upserts = mode == "upsert"
        if self._upserts and not context.table.primary_key:
            raise ValidationException("Primary key must be present when upsert mode is selected.")
        self.changes = INSERTS if self._appends else UPSERTS if self._upserts else ALL_CHANGES
        self.startup = self._startup()
        # Reports invalid options when the statement is planned.
        self._build(list(self._fields))

    @abstractmethod
    def _startup(self) -> StartupOptions:
        """Return the startup mode."""

    @abstractmethod
    def _build(self, columns: Sequence[str]) -> Source[Batch]:
        """Return the source of the database."""

    def metadata(self) -> Mapping[str, DataType]:
        return METADATA

    @property
    def is_bounded(self) -> bool:
        return self.startup == StartupOptions.snapshot()

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        return self._build(columns)

    def common(self, builder: B, columns: Sequence[str], database: str | None) -> B:
        """Set the options that both connectors have."""
        options = self.options
        builder.hostname(options.text("hostname", "")).username(options.text("username", ""))
        builder.password(options.text("password", "")).startup_options(self.startup)
        builder.split_size(options.integer("scan.incremental.snapshot.chunk.size", 8096))
        builder.connect_timeout(max(options.duration("connect.timeout", 30_000) // 1000, 1))
        interval_ms = options.duration("heartbeat.interval.ms", options.duration("heartbeat.interval", 30_000))
        builder.heartbeat_interval(interval_ms / 1000)
        skips = options.text("debezium.skipped.operations", "") == "t"
        schema = TableChanges(self._fields, columns, database, self._zone, self._upserts, self._appends, skips)
        return builder.deserializer(schema)


def _unsupported_mode(mode: str, modes: str) -> ValidationException:
    return ValidationException(f"'scan.startup.mode' = '{mode}' is not supported; use one of {modes}.")


class _PostgresTable(_Source):
    def _startup(self) -> StartupOptions:
        known = {
            "initial": StartupOptions.initial(),
            "latest-offset": StartupOptions.latest(),
            "committed-offset": StartupOptions.committed_offset(),
            "snapshot": StartupOptions.snapshot(),
        }
        mode = self.options.text("scan.startup.mode", "initial")
        if mode not in known:
            raise _unsupported_mode(mode, ", ".join(known))
        return known[mode]

    def _build(self, columns: Sequence[str]) -> Source[Batch]:
        options, database = self.options, self.options.text("database-name", "")
        builder = self.common(PostgresSource.builder(), columns, database)
        builder.port(options.integer("port", 5432)).database(database)
        builder.slot_name(options.text("slot.name", ""))
        builder.table_list(f"{options.text('schema-name', '')}.{options.text('table-name', '')}")
        if "debezium.publication.name" in options:
            create = options.text("debezium.publication.autocreate.mode", "filtered") != "disabled"
            builder.publication(options.text("debezium.publication.name", ""), create)
        return builder.build()


class _MySqlTable(_Source):
    def _startup(self) -> StartupOptions:
        mode = self.options.text("scan.startup.mode", "initial")
        if mode == "specific-offset":
            gtids = self.options.text("scan.startup.specific-offset.gtid-set", "")
            if gtids:
                return StartupOptions.specific_offset(gtids)
            file = self.options.text("scan.startup.specific-offset.file", "")
            if not file:
                raise ValidationException(
                    "Mode 'specific-offset' requires 'scan.startup.specific-offset.gtid-set', or .file and .pos."
                )
            return StartupOptions.specific_offset(file, self.options.integer("scan.startup.specific-offset.pos", 4))
        known = {
            "initial": StartupOptions.initial(),
            "latest-offset": StartupOptions.latest(),
            "snapshot": StartupOptions.snapshot(),
        }
        if mode not in known:
            raise _unsupported_mode(mode, ", ".join([*known, "specific-offset"]))
        return known[mode]

    def _build(self, columns: Sequence[str]) -> Source[Batch]:
        options = self.options
        builder = self.common(MySqlSource.builder(), columns, None)
        builder.port(options.integer("port", 3306))
        builder.table_list(f"{options.text('database-name', '')}.{options.text('table-name', '')}")
        if "server-id" in options:
            # One reader needs only the first id of a range.
            text = options.text("server-id", "").partition("-")[0]
            if not text.isdigit():
                raise ValidationException(f"Invalid value for option 'server-id': {text!r} is not a number or range.")
            builder.server_id(int(text))
        return builder.build()


class PostgresCdcConnector(Connector):
    """Reads tables of PostgreSQL, then their changes."""

    identifier = "postgres-cdc"
    required = frozenset(
        ["hostname", "username", "password", "database-name", "schema-name", "table-name", "slot.name"]
    )
    optional = _COMMON | {
        "changelog-mode",
        "decoding.plugin.name",
        "scan.lsn-commit.checkpoints-num-delay",
        "scan.include-partitioned-tables.enabled",
    }

    def table_source(self, context: TableContext) -> TableSource:
        return _PostgresTable(context)


class MySqlCdcConnector(Connector):
    """Reads tables of MariaDB and MySQL, then their changes."""

    identifier = "mysql-cdc"
    required = frozenset(["hostname", "username", "password", "database-name", "table-name"])
    optional = _COMMON | {
        "server-id",
        "server-time-zone",
        "scan.startup.specific-offset.file",
        "scan.startup.specific-offset.pos",
        "scan.startup.specific-offset.gtid-set",
        "scan.parse.online.schema.changes.enabled",
        "use.legacy.json.format",
    }

    def table_source(self, context: TableContext) -> TableSource:
        return _MySqlTable(context)
