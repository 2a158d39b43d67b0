"""The connector `jdbc`: tables of PostgreSQL, MySQL, MariaDB and SQLite, read, written and looked up."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing

from millstream.common.aliases import Key, Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator, SplitRange
from millstream.connectors.database_values import read_values
from millstream.connectors.jdbc.connection import Connection, Cursor, Driver, JdbcConnectionOptions, connector
from millstream.connectors.jdbc.dialect import Dialect
from millstream.connectors.jdbc.lookup import JdbcLookup
from millstream.connectors.jdbc.statements import BatchExecutor, execute, read_batches, streaming_cursor
from millstream.connectors.lookup_cache import LOOKUP_OPTIONS, cached_lookup
from millstream.formats.base import Comparison, comparisons_of
from millstream.formats.options import Options
from millstream.operators.diagnostics.failures import shorten
from millstream.operators.functions.context import RuntimeContext
from millstream.operators.sink import CommitContext, Committer, Sink, SinkWriter
from millstream.sql import types as t
from millstream.sql.columns.batch import INSERT, UPDATE_AFTER, Batch
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.connector_contract import Connector, LookupSource, TableContext, TableSink, TableSource
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression
from millstream.sql.schema import INSERTS, UPSERTS, Field

_FETCH_ROWS = 4096

# The first and last value of the partition column; None for the whole table.
Part = tuple[int, int] | None


@fast_dataclass
class TableQuery:
    """A scan of a table.

    Attributes:
        connect: opens a connection.
        dialect: the database's SQL dialect.
        table: the table's name.
        fields: the columns to read.
        tests: predicates that the database may apply.
        limit: the maximum number of rows; None for all.
        column: the partition column; None for a single partition.
        order: columns that make the order of rows repeatable.
        zone: the session's time zone.
    """

    connect: Callable[[], Connection]
    dialect: Dialect
    table: str
    fields: tuple[Field, ...]
    tests: tuple[Comparison, ...]
    limit: int | None
    column: str | None
    order: tuple[str, ...]
    zone: str

    def text(self, part: Part) -> tuple[str, list[Value]]:
        """Return the statement that reads a partition, and its parameters."""
        dialect = self.dialect
        conditions = [f"{dialect.quoted(t.name)} {t.operator} {dialect.placeholder}" for t in self.tests]
        values = [t.value for t in self.tests]
        if part is not None:
            assert self.column is not None
            conditions.append(f"{dialect.quoted(self.column)} BETWEEN {dialect.placeholder} AND {dialect.placeholder}")
            values += part
        text = dialect.selected(self.table, [f.name for f in self.fields])
        if conditions:
            text += f" WHERE {' AND '.join(conditions)}"
        if self.order:
            text += f" ORDER BY {', '.join(map(dialect.quoted, self.order))}"
        if self.limit is not None:
            text += f" LIMIT {self.limit}"
        return text, values

    def batch(self, rows: Sequence[Sequence[Value]]) -> Batch:
        """Convert the driver's rows to columns."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.fields)
        arrays = [
            to_column(read_values(c, f.name, f.type), f.type, self.zone)
            for c, f in zip(columns, self.fields, strict=False)
        ]
        return Batch(arrays, None, len(rows))


def parts_of(low: int, high: int, count: int) -> list[Part]:
    """Divide an interval, both ends included, into partitions as Flink does.

    Example:
        >>> parts_of(0, 9, 3)
        [(0, 3), (4, 6), (7, 9)]
    """
    total = high - low + 1
    count = min(count, total)
    size = -(-total // count)
    large = total - (size - 1) * count
    parts: list[Part] = []
    start = low
    for i in range(count):
        end = start + size - 1 - (0 if i < large else 1)
        parts.append((start, end))
        start = end + 1
    return parts


class _Enumerator(SplitEnumerator):
    """Assigns each partition once."""

    def __init__(self, parts: Sequence[Part], parallelism: int, position: int) -> None:
        self._parts = parts
        self._parallelism = parallelism
        self._position = position

    def poll(self, budget: int, now: float) -> SplitAssignment:
        parts = self._parts[self._position : self._position + self._parallelism]
        self._position += len(parts)
        return SplitAssignment(
            {i: [(part,)] for i, part in enumerate(parts)}, limited=self._position < len(self._parts)
        )

    def is_finished(self) -> bool:
        return self._position >= len(self._parts)

    def snapshot(self) -> int:
        return self._position


class _Reader(SourceReader):
    def __init__(self, query: TableQuery, fetch_size: int) -> None:
        self._query = query
        self._fetch_size = fetch_size or _FETCH_ROWS

    def read(self, split_range: SplitRange) -> Iterator[Collection[Batch]]:
        return self.rest(split_range, 0)

    def rest(self, split_range: SplitRange, read: int) -> Iterator[Collection[Batch]]:
        (part,) = split_range
        return read_batches(lambda skip: self._batches(part, skip), read, f"JDBC: table {self._query.table!r}")

    def _batches(self, part: Part, skip: int) -> Iterator[list[Batch]]:
        query = self._query
        text, values = query.text(part)
        with (
            closing(query.connect()) as connection,
            closing(streaming_cursor(connection, Driver.of(connection))) as cursor,
        ):
            execute(cursor, text, values)
            while rows := cursor.fetchmany(self._fetch_size):
                if skip:
                    skip -= 1
                else:
                    yield [query.batch(rows)]


class JdbcTableSource(Source[Batch]):
    """Reads a table once."""

    def __init__(self, query: TableQuery, parts: Sequence[Part], fetch_size: int) -> None:
        self._query = query
        self._parts = list(parts)
        self._fetch_size = fetch_size
        self.name = f"jdbc-{query.table}"

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: int | None = None) -> SplitEnumerator:
        return _Enumerator(self._parts, parallelism, restored or 0)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._query, self._fetch_size)


@fast_dataclass
class TableWrite:
    """The target of a sink, and how it buffers and retries.

    Attributes:
        connect: opens a connection.
        dialect: the database's SQL dialect.
        table: the table's name.
        fields: the columns of rows.
        keys: the primary key; without one the sink is append-only.
        rows: the maximum number of buffered rows.
        seconds: the maximum time that rows are buffered.
        max_retries: the retries of a failed batch.
        zone: the session's time zone.
    """

    connect: Callable[[], Connection]
    dialect: Dialect
    table: str
    fields: tuple[Field, ...]
    keys: tuple[str, ...]
    rows: int
    seconds: float
    max_retries: int
    zone: str


class _Writer(SinkWriter):
    """Writes at least once: flushes by the end of an epoch; a replayed epoch is written again."""

    keeps_values = False

    def __init__(self, write: TableWrite) -> None:
        self._write = write
        names = [f.name for f in write.fields]
        dialect = write.dialect
        self._keys = [names.index(k) for k in write.keys]
        self._insert = (
            dialect.upserted(write.table, names, write.keys) if write.keys else dialect.inserted(write.table, names)
        )
        self._delete = dialect.deleted(write.table, write.keys) if write.keys else ""
        self._convert = [dialect.writer(f.type) for f in write.fields]
        self._executor = BatchExecutor(write.connect, write.max_retries)
        # The last row of each primary key and whether it is upserted or deleted; without a key, rows by number.
        self._pending: dict[Key, tuple[bool, Sequence[Value]]] = {}
        # When the first pending row was buffered.
        self._since = 0.0

    def begin(self, transaction: str) -> None:
        # Discards the rows of a failed epoch.
        self._pending.clear()

    def write(self, value: Batch) -> None:
        columns = []
        for column, field, convert in zip(value.columns, self._write.fields, self._convert, strict=True):
            values = to_python(column, field.type, self._write.zone)
            columns.append(values if convert is None else [None if v is None else convert(v) for v in values])
        max_rows, max_seconds = self._write.rows or len(value) + 1, self._write.seconds
        for kind, row in zip(value.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
            if not self._pending:
                self._since = time.monotonic()
            key = tuple(row[k] for k in self._keys) if self._keys else len(self._pending)
            self._pending[key] = (kind in (INSERT, UPDATE_AFTER), row)
            if len(self._pending) >= max_rows:
                self._flush()
        if self._pending and max_seconds and time.monotonic() - self._since >= max_seconds:
            self._flush()

    def prepare_commit(self, flush: bool) -> None:
        self._flush()

    def close(self) -> None:
        self._executor.close()

    def _flush(self) -> None:
        if not self._pending:
            return
        upserted = [row for is_upsert, row in self._pending.values() if is_upsert]
        deleted = [[row[k] for k in self._keys] for is_upsert, row in self._pending.values() if not is_upsert]

        def write(_: Connection, cursor: Cursor) -> None:
            if deleted:
                cursor.executemany(self._delete, deleted)
            if upserted:
                cursor.executemany(self._insert, upserted)

        def failure(cause: str) -> str:
            return (
                f"JDBC: {len(upserted) + len(deleted)} rows for table {self._write.table!r}, the first of them "
                f"{shorten((upserted or deleted)[0])}, could not be written: {cause}."
            )

        self._executor.execute(write, failure)
        self._pending.clear()


class JdbcTableSink(Sink[Batch]):
    """Writes rows to a table."""

    name = "jdbc"

    def __init__(self, write: TableWrite) -> None:
        self._write = write

    def create_writer(self, context: RuntimeContext) -> SinkWriter:
        return _Writer(self._write)

    def create_committer(self, context: CommitContext) -> Committer | None:
        return None


_PARTITION = tuple(f"scan.partition.{o}" for o in ("column", "num", "lower-bound", "upper-bound"))


class _Table:
    """The options that sources and sinks have in common."""

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
        builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(url)
        if user:
            builder = builder.with_user_name(user).with_password(password)
        self.connect = connector(builder.build())
        self.fields = {c.name: Field(c.name, c.type) for c in context.table.physical}
        self.keys = context.table.primary_key
        zone = context.settings.get("table.local-time-zone", "default")
        self.zone = "UTC" if zone == "default" else zone
        self.dialect.check([(f.name, f.type) for f in self.fields.values()])


class _Source(TableSource):
    def __init__(self, context: TableContext) -> None:
        self._table = _Table(context)
        options = self._table.options
        present = [o for o in _PARTITION if o in options]
        if present and len(present) < len(_PARTITION):
            raise ValidationException(
                "Either all or none of the following options should be provided:\n" + "\n".join(_PARTITION)
            )
        self._parts: list[Part] = [None]
        self._column: str | None = None
        if present:
            low, high = options.integer(_PARTITION[2], 0), options.integer(_PARTITION[3], 0)
            if low > high:
                raise ValidationException(
                    f"'{_PARTITION[2]}'='{low}' must not be larger than '{_PARTITION[3]}'='{high}'."
                )
            self._column = options.text(_PARTITION[0], "")
            self._parts = parts_of(low, high, max(options.integer(_PARTITION[1], 1), 1))
        self._lookup = cached_lookup(options)

    def parallelism(self) -> int | None:
        return self._table.options.integer_or_none("scan.parallelism")

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        query = self._query(columns, [c for c in comparisons_of(filters, columns) if self._can_push(c)], limit)
        return JdbcTableSource(query, self._parts, self._table.options.integer("scan.fetch-size", 0))

    def _can_push(self, test: Comparison) -> bool:
        """Return whether the database compares as Flink does; the order of texts depends on its collation."""
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
            table.options.integer("lookup.max-retries", 3),
            table.zone,
            at_once,
        )
        return self._lookup(plain)


class _Sink(TableSink):
    def __init__(self, context: TableContext) -> None:
        self._table = _Table(context)
        self.changes = UPSERTS if self._table.keys else INSERTS

    def parallelism(self) -> int | None:
        return self._table.options.integer_or_none("sink.parallelism")

    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        table, options = self._table, self._table.options
        return JdbcTableSink(
            TableWrite(
                table.connect,
                table.dialect,
                table.name,
                tuple(table.fields[c] for c in columns),
                table.keys,
                options.integer("sink.buffer-flush.max-rows", 100),
                options.duration("sink.buffer-flush.interval", 1000) / 1000,
                options.integer("sink.max-retries", 3),
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
