"""Split ranges of PostgreSQL's log and tables, and their decoding in subtasks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from millstream.common.aliases import Value
from millstream.common.tags import tagged
from millstream.connectors.cdc import changes as ops
from millstream.connectors.cdc.changes import Change, LogSource
from millstream.connectors.cdc.postgres import pgoutput
from millstream.connectors.cdc.postgres.pgoutput import UNCHANGED, Begin, Converter, Relation, RowReader
from millstream.connectors.cdc.postgres.values import PostgresType, converter, copied_row

__all__ = ["ChunkRange", "LogRange", "TableDescription", "changes_of", "rows_of"]

_XIDS = 1 << 32
_HALF = 1 << 31


@tagged("postgres-visibility")
@dataclass(frozen=True)
class Visibility:
    """The result of `pg_current_snapshot()`: transactions before `xmax` have ended, except running ones.

    Example:
        >>> seen = Visibility.parse("10:14:10,12")
        >>> [xid for xid in range(8, 16) if seen.sees(xid)]
        [8, 9, 11, 13]
    """

    xmin: int
    xmax: int
    running: frozenset[int] = frozenset()

    @staticmethod
    def parse(text: str) -> Visibility:
        xmin, xmax, running = text.split(":")
        return Visibility(int(xmin), int(xmax), frozenset(int(x) % _XIDS for x in running.split(",") if x))

    def sees(self, xid: int) -> bool:
        """Return whether the snapshot sees a committed transaction; the log has the low 32 bits of its id."""
        ahead = (xid - self.xmax) % _XIDS
        return ahead >= _HALF and xid % _XIDS not in self.running

    def is_past(self, xid: int) -> bool:
        """Return whether all transactions before a 64-bit id have ended."""
        return self.xmin >= xid


@tagged("postgres-schema")
@dataclass(frozen=True)
class TableDescription:
    """A table's schema, sufficient to decode its rows.

    Attributes:
        types: types that this database defines, by oid.
        keys: the indexes of the primary key's columns.
    """

    relation: Relation
    types: tuple[tuple[int, PostgresType], ...]
    keys: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.relation.columns)

    def converters(self) -> list[Converter]:
        types = dict(self.types)
        return [converter(column.type, types) for column in self.relation.columns]


@tagged("postgres-log-range")
@dataclass(frozen=True)
class LogRange:
    """A range of the log: transactions or parts of them, with the messages of their changes."""

    tables: dict[int, TableDescription] = field(default_factory=dict)
    transactions: list[tuple[Begin, list[bytes]]] = field(default_factory=list)
    of_table = False

    @property
    def is_empty(self) -> bool:
        return not self.transactions

    def changes(self) -> Iterator[Change]:
        return changes_of(self)


@tagged("postgres-chunk-range")
@dataclass(frozen=True)
class ChunkRange:
    """A chunk of a table, as COPY writes it.

    Attributes:
        lsn: the log position of the snapshot.
        ms: the time of the snapshot.
    """

    table: TableDescription
    data: bytes
    lsn: int
    ms: int
    of_table = True
    is_empty = False

    def changes(self) -> Iterator[Change]:
        return rows_of(self)


def rows_of(split_range: ChunkRange) -> Iterator[Change]:
    """Yield the rows of a chunk."""
    table = split_range.table
    name, columns, keys = table.relation.table, table.names, table.keys
    converters = table.converters()
    source: LogSource = {"lsn": split_range.lsn, "txId": None}
    schema = table.relation.schema
    ms = split_range.ms
    for line in split_range.data.split(b"\n")[:-1]:
        fields = copied_row(line)
        row = [None if f is None else c(f) for c, f in zip(converters, fields, strict=True)]
        yield Change(ops.READ, name, columns, keys, None, row, False, ms, source, schema)


@lru_cache(maxsize=256)
def _reader(table: TableDescription) -> tuple[RowReader, str, tuple[str, ...]]:
    return pgoutput.row_reader(table.converters()), table.relation.table, table.names


def changes_of(split_range: LogRange) -> Iterator[Change]:
    """Yield the changes of a log range in order."""
    tables = split_range.tables
    readers = {oid: (*_reader(table), table.keys, table.relation.schema) for oid, table in tables.items()}
    insert, truncate = pgoutput.INSERT, pgoutput.TRUNCATE
    from_bytes = int.from_bytes
    for begin, messages in split_range.transactions:
        source: LogSource = {"lsn": begin.lsn, "txId": begin.xid}
        ms = begin.ms
        for message in messages:
            kind = message[0]
            if kind == truncate:
                for oid in pgoutput.truncated(message):
                    if oid in tables:
                        name, names, keys, schema = readers[oid][1:]
                        yield Change(ops.TRUNCATE, name, names, keys, None, None, False, ms, source, schema)
                continue
            read, name, names, keys, schema = readers[from_bytes(message[1:5], "big")]
            if kind == insert:
                after, _ = read(message, 6)
                if UNCHANGED in after:
                    # The second part of a split UPDATE.
                    _fill(after, None, False, keys)
                yield Change(ops.CREATE, name, names, keys, None, after, False, ms, source, schema)
            else:
                yield from _update_or_delete(message, read, name, names, keys, ms, source, schema)


def _update_or_delete(
    message: bytes,
    read: RowReader,
    name: str,
    names: tuple[str, ...],
    keys: tuple[int, ...],
    ms: int,
    source: LogSource,
    schema: str,
) -> Iterator[Change]:
    before: list[Value] | None = None
    whole, end = False, 5
    if message[5] != ord("N"):
        whole = message[5] == ord("O")
        before, end = read(message, 6)
    if message[0] == pgoutput.DELETE:
        yield Change(ops.DELETE, name, names, keys, before, None, whole, ms, source, schema)
        return
    after, _ = read(message, end + 1)
    moved = before is not None and any(after[k] is not UNCHANGED and before[k] != after[k] for k in keys)
    _fill(after, before, whole, keys)
    if moved:
        # A changed key is a delete and an insert.
        yield Change(ops.DELETE, name, names, keys, before, None, whole, ms, source, schema)
        yield Change(ops.CREATE, name, names, keys, None, after, False, ms, source, schema)
    else:
        yield Change(ops.UPDATE, name, names, keys, before if whole else None, after, whole, ms, source, schema)


def _fill(after: list[Value], before: list[Value] | None, whole: bool, keys: tuple[int, ...]) -> None:
    """Fill in unchanged TOAST values from the old row, where the log has it."""
    for i, value in enumerate(after):
        if value is UNCHANGED:
            known = before is not None and (whole or i in keys)
            after[i] = before[i] if known and before is not None else ops.UNAVAILABLE
