"""ValuesTable: a table for SQL whose rows a test gives, and whose sink keeps what it got."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from threading import Lock
from typing import Any

import numpy as np

from millstream.common.types import Row, RowKind
from millstream.datastream.connectors.collecting import DriverSink
from millstream.operators.sink import Sink
from millstream.sql.changes import ALL_CHANGES, Changes
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.values import to_column
from millstream.sql.connectors import Connector, TableContext, TableSink, TableSource
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression
from millstream.sql.schema import Field, Fields
from millstream.table.changelog_mode import ChangelogMode
from millstream.table.connectors.registry import register_connector
from millstream.table.connectors.rows import BatchesSource, cut
from millstream.table.table_result import rows_of

__all__ = ["ValuesTable"]

_ID = "table-id"
_numbers = count(1)
_tables: dict[str, ValuesTable] = {}


class ValuesTable:
    """Rows for `CREATE TABLE .. WITH`, and what was written to it.

    Args:
        rows: tuples, or Rows with kinds, in the order of the columns.
        changelog_mode: what the rows can say, and what the sink takes; without one, what the rows do say, and the
            sink takes everything.
        batch_rows: how many rows come at a time.
        bounded: whether the source ends by itself.
        subtasks: in how many subtasks rows are read.

    Example:
        >>> from millstream.table import StreamTableEnvironment
        >>> from millstream.testing import LocalEnvironment
        >>> t_env = StreamTableEnvironment.create(LocalEnvironment())
        >>> source, sink = ValuesTable([(1, "a"), (2, "b")]), ValuesTable()
        >>> _ = t_env.execute_sql(f"CREATE TABLE src (id INT, name STRING) WITH {source.options}")
        >>> _ = t_env.execute_sql(f"CREATE TABLE snk (id INT, name STRING) WITH {sink.options}")
        >>> t_env.execute_sql("INSERT INTO snk SELECT id * 10, name FROM src").wait()
        >>> sink.results()
        [<Row(10, 'a')>, <Row(20, 'b')>]
    """

    def __init__(
        self,
        rows: Iterable[Any] = (),
        changelog_mode: ChangelogMode | None = None,
        batch_rows: int = 1,
        bounded: bool = True,
        subtasks: int = 1,
    ) -> None:
        self.rows = list(rows)
        self.changes = _said(self.rows) if changelog_mode is None else changelog_mode.changes
        self.taken = ALL_CHANGES if changelog_mode is None else changelog_mode.changes
        self.batch_rows = batch_rows
        self.bounded = bounded
        self.subtasks = subtasks
        self._id = str(next(_numbers))
        self._got: list[Row] = []
        self._lock = Lock()
        _tables[self._id] = self

    @property
    def options(self) -> str:
        """What stands behind WITH."""
        return f"('connector' = 'values', '{_ID}' = '{self._id}')"

    def add(self, rows: Iterable[Row]) -> None:
        """Keep rows that were written."""
        with self._lock:
            self._got.extend(rows)

    def results(self) -> list[Row]:
        """Return the rows that were written, with their kinds, as they came."""
        with self._lock:
            return list(self._got)

    def final(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left when all changes are made, in order."""
        left: list[tuple[Any, ...]] = []
        for row in self.results():
            values = tuple(row)
            if row.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                left.remove(values)
            else:
                left.append(values)
        return sorted(left, key=repr)

    def clear(self) -> None:
        """Forget what was written."""
        with self._lock:
            self._got.clear()


def _said(rows: Sequence[Any]) -> frozenset[Changes]:
    kinds = {r.get_row_kind() for r in rows if isinstance(r, Row)}
    return frozenset({Changes.INSERT, *(Changes[k.name] for k in kinds)})


class _Unbounded(BatchesSource):
    @property
    def is_bounded(self) -> bool:
        return False


class _Source(TableSource):
    def __init__(self, values: ValuesTable, context: TableContext) -> None:
        self._values = values
        self._columns = context.table.physical
        self.changes = values.changes

    @property
    def is_bounded(self) -> bool:
        return self._values.bounded

    def parallelism(self) -> int | None:
        return self._values.subtasks

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> BatchesSource:
        rows = self._values.rows
        for row in rows:
            if len(row) != len(self._columns):
                raise ValidationException(f"The row {row!r} has not as many values as the table has columns.")
        kinds = [r.get_row_kind().value if isinstance(r, Row) else 0 for r in rows]
        places = {c.name: i for i, c in enumerate(self._columns)}
        arrays = [to_column([r[places[c]] for r in rows], self._columns[places[c]].type) for c in columns]
        batch = Batch(arrays, np.array(kinds, np.int8) if any(kinds) else None, len(rows))
        return (BatchesSource if self._values.bounded else _Unbounded)(cut(batch, self._values.batch_rows))


class _Sink(TableSink):
    def __init__(self, values: ValuesTable, context: TableContext) -> None:
        self._values = values
        self._fields = Fields(tuple(Field(c.name, c.type) for c in context.table.columns if c.is_persisted))
        self.changes = values.taken

    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        values, fields = self._values, self._fields

        def take(batches: list[Batch]) -> None:
            for batch in batches:
                values.add(rows_of(batch, fields, "UTC"))

        return DriverSink(take)


@register_connector
class ValuesConnector(Connector):
    """Reads the rows of a ValuesTable, or writes to it."""

    identifier = "values"
    required = frozenset([_ID])

    def _values(self, context: TableContext) -> ValuesTable:
        found = _tables.get(context.table.options[_ID])
        if found is None:
            raise ValidationException(f"There is no ValuesTable {context.table.options[_ID]} in this program.")
        return found

    def table_source(self, context: TableContext) -> TableSource:
        return _Source(self._values(context), context)

    def table_sink(self, context: TableContext) -> TableSink:
        return _Sink(self._values(context), context)
