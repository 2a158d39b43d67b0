"""Reads tables of databases as batches: whole, or in parts by a column."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from typing import Any

from millstream.common.errors import MillstreamError
from millstream.common.fast_dataclass import record
from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator, SplitRange
from millstream.connectors.jdbc.connection import Connection, is_mistake
from millstream.connectors.jdbc.dialect import Dialect, read_values
from millstream.formats.predicates import Comparison
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.schema import Field

_ROWS = 4096
_TRIES = 4
_PAUSE_SECONDS = 0.5

# A part of a table: the first and the last value of its column; None for all rows.
Part = tuple[int, int] | None


@record
class TableQuery:
    """What is read of a table.

    Attributes:
        connect: returns a connection.
        dialect: of its database.
        table: its name.
        fields: the columns that are read.
        tests: rows that fail one need not be read.
        limit: so many rows are enough; None for all.
        column: by which it is read in parts; None for at once.
        order: columns that tell rows apart, so that they come in the same order when they are read again.
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

    def text(self, part: Part) -> tuple[str, list[Any]]:
        """Return the statement that reads a part, and its parameters."""
        dialect = self.dialect
        conditions = [f"{dialect.quoted(t.name)} {t.operator} {dialect.place}" for t in self.tests]
        values = [t.value for t in self.tests]
        if part is not None:
            assert self.column is not None
            conditions.append(f"{dialect.quoted(self.column)} BETWEEN {dialect.place} AND {dialect.place}")
            values += part
        text = dialect.selected(self.table, [f.name for f in self.fields])
        if conditions:
            text += f" WHERE {' AND '.join(conditions)}"
        if self.order:
            text += f" ORDER BY {', '.join(map(dialect.quoted, self.order))}"
        if self.limit is not None:
            text += f" LIMIT {self.limit}"
        return text, values

    def batch(self, rows: Sequence[Sequence[Any]]) -> Batch:
        """Return rows of the driver as columns."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.fields)
        arrays = [
            to_column(read_values(c, f.name, f.type, self.zone), f.type, self.zone)
            for c, f in zip(columns, self.fields, strict=False)
        ]
        return Batch(arrays, None, len(rows))


def parts_of(low: int, high: int, count: int) -> list[Part]:
    """Return where to cut an interval, both ends included, into so many parts, as Flink does.

    Example:
        >>> parts_of(0, 9, 3)
        [(0, 3), (4, 6), (7, 9)]
    """
    total = high - low + 1
    count = min(count, total)
    size = -(-total // count)
    large = total - (size - 1) * count
    found: list[Part] = []
    start = low
    for i in range(count):
        end = start + size - 1 - (0 if i < large else 1)
        found.append((start, end))
        start = end + 1
    return found


class _Enumerator(SplitEnumerator):
    """Deals the parts out, each once."""

    def __init__(self, parts: Sequence[Part], parallelism: int, at: int) -> None:
        self._parts = parts
        self._parallelism = parallelism
        self._at = at

    def poll(self, budget: int, now: float) -> SplitAssignment:
        taken = self._parts[self._at : self._at + self._parallelism]
        self._at += len(taken)
        return SplitAssignment({i: [(part,)] for i, part in enumerate(taken)}, limited=self._at < len(self._parts))

    def is_finished(self) -> bool:
        return self._at >= len(self._parts)

    def snapshot(self) -> int:
        return self._at


class _Reader(SourceReader):
    def __init__(self, query: TableQuery, fetch: int) -> None:
        self._query = query
        self._fetch = fetch or _ROWS

    def read(self, share: SplitRange) -> Iterator[Collection[Any]]:
        return self.rest(share, 0)

    def rest(self, share: SplitRange, read: int) -> Iterator[Collection[Any]]:
        """Yield batches behind the first; when the connection is lost, go on over a new one."""
        (part,) = share
        for attempt in range(_TRIES):
            try:
                for number, batch in enumerate(self._batches(part)):
                    if number >= read:
                        read += 1
                        yield [batch]
                return
            except MillstreamError:
                raise
            except Exception as e:
                if is_mistake(e) or attempt == _TRIES - 1:
                    said = str(e).strip().partition("\n")[0].rstrip(".")
                    raise MillstreamError(f"JDBC: table {self._query.table!r} cannot be read: {said}.") from e
                time.sleep(_PAUSE_SECONDS * attempt)

    def _batches(self, part: Part) -> Iterator[Batch]:
        query = self._query
        text, values = query.text(part)
        with closing(query.connect()) as connection, closing(_streaming(connection, query.dialect)) as cursor:
            cursor.execute(text, values)
            while rows := cursor.fetchmany(self._fetch):
                yield query.batch(rows)


def _streaming(connection: Connection, dialect: Dialect) -> Any:
    """Return a cursor that does not fetch all rows at once."""
    if dialect.name == "postgresql":
        return connection.cursor(name="millstream")
    if dialect.name == "mysql":
        from pymysql.cursors import SSCursor

        return connection.cursor(SSCursor)
    return connection.cursor()


class JdbcTableSource(Source[Batch]):
    """Reads a table once."""

    def __init__(self, query: TableQuery, parts: Sequence[Part], fetch: int) -> None:
        self._query = query
        self._parts = list(parts)
        self._fetch = fetch
        self.name = f"jdbc-{query.table}"

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: Any = None) -> SplitEnumerator:
        return _Enumerator(self._parts, parallelism, restored or 0)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._query, self._fetch)
