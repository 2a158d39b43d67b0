"""The connector `jdbc`: tables of PostgreSQL, MySQL, MariaDB and SQLite, read, written and looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.connectors.base import Source
from millstream.connectors.jdbc.connection import JdbcConnectionOptions, connector
from millstream.connectors.jdbc.dialect import Dialect
from millstream.connectors.jdbc.lookup import JdbcLookup
from millstream.connectors.jdbc.table_sink import JdbcTableSink, TableWrite
from millstream.connectors.jdbc.table_source import JdbcTableSource, Part, TableQuery, parts_of
from millstream.connectors.lookup_cache import LOOKUP_OPTIONS, cached_lookup
from millstream.formats.options import Options
from millstream.formats.predicates import Comparison, comparisons_of
from millstream.operators.sink import Sink
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.connectors import Connector, LookupSource, TableContext, TableSink, TableSource
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression
from millstream.sql.schema import INSERTS, UPSERTS, Field

_PARTITION = tuple(f"scan.partition.{o}" for o in ("column", "num", "lower-bound", "upper-bound"))


class _Table:
    """What reading and writing share."""

    def __init__(self, context: TableContext) -> None:
        self.options = options = Options(context.table.options)
        self.name = options.text("table-name", "")
        url = options.text("url", "")
        self.dialect = Dialect.of(url)
        user, password = options.text("username", ""), options.text("password", "")
        if password and not user:
            raise ValidationException(
                "Either all or none of the following options should be provided:\nusername\npassword"
            )
        made = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url)
        if user:
            made = made.with_user_name(user).with_password(password)
        self.connect = connector(made.build())
        self.fields = {c.name: Field(c.name, c.type) for c in context.table.physical}
        self.keys = context.table.primary_key
        zone = context.settings.get("table.local-time-zone", "default")
        self.zone = "UTC" if zone == "default" else zone
        self.dialect.check([(f.name, f.type) for f in self.fields.values()])


class _Source(TableSource):
    def __init__(self, context: TableContext) -> None:
        self._table = _Table(context)
        options = self._table.options
        given = [o for o in _PARTITION if o in options]
        if given and len(given) < len(_PARTITION):
            raise ValidationException(
                "Either all or none of the following options should be provided:\n" + "\n".join(_PARTITION)
            )
        self._parts: list[Part] = [None]
        self._column: str | None = None
        if given:
            low, high = options.whole(_PARTITION[2], 0), options.whole(_PARTITION[3], 0)
            if low > high:
                raise ValidationException(
                    f"'{_PARTITION[2]}'='{low}' must not be larger than '{_PARTITION[3]}'='{high}'."
                )
            self._column = options.text(_PARTITION[0], "")
            self._parts = parts_of(low, high, max(options.whole(_PARTITION[1], 1), 1))
        self._lookup = cached_lookup(options)

    def parallelism(self) -> int | None:
        return self._table.options.whole_or_none("scan.parallelism")

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Any]:
        found = self._query(columns, [c for c in comparisons_of(filters, columns) if self._can_ask(c)], limit)
        return JdbcTableSource(found, self._parts, self._table.options.whole("scan.fetch-size", 0))

    def _can_ask(self, test: Comparison) -> bool:
        """Tell whether the database leaves out no row that Flink's comparison lets pass: texts sort in its own way."""
        kind = self._table.fields[test.name].type
        return not isinstance(kind, (t.CharType, t.VarCharType)) or (
            isinstance(kind, t.VarCharType) and test.operator == "="
        )

    def _query(self, columns: Sequence[str], tests: Sequence[Comparison], limit: int | None) -> TableQuery:
        table = self._table
        order = (self._column,) if self._column is not None else table.keys
        return TableQuery(
            table.connect,
            table.dialect,
            table.name,
            tuple(table.fields[c] for c in columns),
            tuple(tests),
            limit,
            self._column,
            tuple(order),
            table.zone,
        )

    def lookup(self, keys: Sequence[str], columns: Sequence[str], at_once: int = 1) -> LookupSource:
        table = self._table
        plain = JdbcLookup(
            table.connect,
            table.dialect,
            table.name,
            tuple(table.fields[k] for k in keys),
            tuple(table.fields[c] for c in columns),
            table.options.whole("lookup.max-retries", 3),
            table.zone,
            at_once,
        )
        return self._lookup(plain)


class _Sink(TableSink):
    def __init__(self, context: TableContext) -> None:
        self._table = _Table(context)
        self.changes = UPSERTS if self._table.keys else INSERTS

    def parallelism(self) -> int | None:
        return self._table.options.whole_or_none("sink.parallelism")

    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        table, options = self._table, self._table.options
        return JdbcTableSink(
            TableWrite(
                table.connect,
                table.dialect,
                table.name,
                tuple(table.fields[c] for c in columns),
                table.keys,
                options.whole("sink.buffer-flush.max-rows", 100),
                options.duration("sink.buffer-flush.interval", 1000) / 1000,
                options.whole("sink.max-retries", 3),
                table.zone,
            )
        )


class JdbcConnector(Connector):
    """Reads, writes and looks up tables of databases."""

    identifier = "jdbc"
    required = frozenset(["url", "table-name"])
    optional = frozenset(
        [
            "driver",
            "compatible-mode",
            "username",
            "password",
            "connection.max-retry-timeout",
            *_PARTITION,
            "scan.fetch-size",
            "scan.auto-commit",
            "scan.parallelism",
            "filter.handling.policy",
            "sink.buffer-flush.max-rows",
            "sink.buffer-flush.interval",
            "sink.max-retries",
            "sink.parallelism",
            "lookup.max-retries",
            *LOOKUP_OPTIONS,
        ]
    )

    def table_source(self, context: TableContext) -> TableSource:
        return _Source(context)

    def table_sink(self, context: TableContext) -> TableSink:
        return _Sink(context)
