"""ValuesTable: a SQL table with the rows of a test, whose sink collects the rows written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, count
from threading import Lock

import numpy as np

from millstream.common.aliases import Value
from millstream.common.types import Row, RowKind
from millstream.connectors.base import SplitAssignment, SplitEnumerator
from millstream.connectors.collection import DriverSink
from millstream.connectors.registry import register_connector
from millstream.connectors.values import BatchesSource, split_batch
from millstream.operators.sink import Sink
from millstream.sql.catalog.tables import ColumnKind, TableColumn
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.connector_contract import (
    Connector,
    LookupResult,
    LookupSource,
    TableContext,
    TableSink,
    TableSource,
)
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Expression
from millstream.sql.schema import ALL_CHANGES, Changes, Field, Fields
from millstream.sql.types import DataType
from millstream.table.changelog_mode import ChangelogMode
from millstream.table.table_result import rows_of

__all__ = ["ValuesTable"]

_Row = Row | Sequence[Value]

_ID = "table-id"
_numbers = count(1)
_tables: dict[str, ValuesTable] = {}


class ValuesTable:
    """A table for `CREATE TABLE .. WITH`, with its rows and the rows written to it.

    Args:
        rows: tuples, or Rows with kinds, in column order; metadata follows the physical columns.
        changelog_mode: the row kinds of the source, and those that the sink accepts; by default the kinds of the
            rows, and all for the sink.
        batch_rows: the number of rows per batch.
        bounded: whether the source ends by itself.
        subtasks: the parallelism of the source.
        epochs: the number of rows of each epoch, in one subtask; by default all rows are in the first.
        on_epoch: called with the number of an epoch, from 0, before its rows are read: to set a clock, or other rows
            in a table that is looked up.
        metadata: the metadata keys of the rows, in order.
        watermarks_on_event: whether a watermark follows every row, by the declared strategy; SOURCE_WATERMARK() is
            the rowtime itself. By default, those of Flink's WatermarkAssigner.

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
        rows: Iterable[_Row] = (),
        changelog_mode: ChangelogMode | None = None,
        batch_rows: int = 1,
        bounded: bool = True,
        subtasks: int = 1,
        epochs: Sequence[int] = (),
        on_epoch: Callable[[int], None] | None = None,
        metadata: Sequence[str] = (),
        watermarks_on_event: bool = False,
    ) -> None:
        self.rows: Sequence[_Row] = list(rows)
        self.epochs = tuple(epochs)
        self.on_epoch = on_epoch
        self.metadata = tuple(metadata)
        self.watermarks_on_event = watermarks_on_event
        self.changes = _row_kinds(self.rows) if changelog_mode is None else changelog_mode.changes
        self.taken = ALL_CHANGES if changelog_mode is None else changelog_mode.changes
        self.batch_rows = batch_rows
        self.bounded = bounded
        self.subtasks = subtasks
        self._id = str(next(_numbers))
        self._written: list[Row] = []
        self._lock = Lock()
        _tables[self._id] = self

    @property
    def options(self) -> str:
        """The options for WITH."""
        return f"('connector' = 'values', '{_ID}' = '{self._id}')"

    def add(self, rows: Iterable[Row]) -> None:
        """Add written rows."""
        with self._lock:
            self._written.extend(rows)

    def results(self) -> list[Row]:
        """Return the written rows with their kinds, in arrival order."""
        with self._lock:
            return list(self._written)

    def final(self) -> list[tuple[Value, ...]]:
        """Return the rows that remain after all changes, sorted."""
        left: list[tuple[Value, ...]] = []
        for row in self.results():
            values = tuple(row)
            if row.get_row_kind() in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                left.remove(values)
            else:
                left.append(values)
        return sorted(left, key=repr)

    def clear(self) -> None:
        """Discard the written rows."""
        with self._lock:
            self._written.clear()


def _row_kinds(rows: Sequence[_Row]) -> frozenset[Changes]:
    kinds = {r.get_row_kind() for r in rows if isinstance(r, Row)}
    return frozenset({Changes.INSERT, *(Changes[k.name] for k in kinds)})


def _columns_of(values: ValuesTable, context: TableContext) -> dict[str, TableColumn]:
    """Return the columns of the rows in order: physical columns, then metadata by key."""
    declared = {c.metadata_key or c.name: c for c in context.table.columns if c.kind is ColumnKind.METADATA}
    metadata = {key: declared[key] for key in values.metadata if key in declared}
    return {c.name: c for c in context.table.physical} | metadata


def _metadata_of(values: ValuesTable, context: TableContext) -> dict[str, DataType]:
    columns = _columns_of(values, context)
    return {key: columns[key].type for key in values.metadata if key in columns}


class _Unbounded(BatchesSource):
    @property
    def is_bounded(self) -> bool:
        return False


class _Enumerator(SplitEnumerator):
    """Assigns batches by number, one epoch's batches at a time."""

    def __init__(self, ends: Sequence[int], table_id: str, done: int) -> None:
        self._ends, self._id, self._done = ends, table_id, done

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if self.is_finished():
            return SplitAssignment({})
        start, end = self._ends[self._done - 1] if self._done else 0, self._ends[self._done]
        on_epoch = _tables[self._id].on_epoch
        if on_epoch is not None:
            on_epoch(self._done)
        self._done += 1
        return SplitAssignment({0: [(0, start, end, self.is_finished())]}, limited=not self.is_finished())

    def snapshot(self) -> int:
        return self._done

    def is_finished(self) -> bool:
        return self._done == len(self._ends)


class _InEpochs(BatchesSource):
    def __init__(self, epochs: Sequence[Sequence[Batch]], table_id: str) -> None:
        super().__init__([batch for batches in epochs for batch in batches])
        self._ends = list(accumulate(map(len, epochs)))
        self._id = table_id

    def create_enumerator(self, parallelism: int, restored: Value = None) -> SplitEnumerator:
        return _Enumerator(self._ends, self._id, restored or 0)


class _Lookup(LookupSource):
    """Looks up the rows that a ValuesTable has at that time."""

    def __init__(self, table_id: str, keys: Sequence[int], columns: Sequence[int], types: Sequence[DataType]) -> None:
        self._id, self._keys, self._columns, self._types = table_id, keys, columns, types

    def find(self, keys: Sequence[tuple[Value, ...]]) -> LookupResult:
        by_key: dict[tuple[Value, ...], list[_Row]] = {}
        for row in _tables[self._id].rows:
            by_key.setdefault(self._key(row), []).append(row)
        matches = [by_key.get(key, []) for key in keys]
        return LookupResult(
            self._batch([row for rows in matches for row in rows]), np.array([len(rows) for rows in matches])
        )

    def all_rows(self) -> tuple[list[tuple[Value, ...]], Batch]:
        rows = _tables[self._id].rows
        return [self._key(row) for row in rows], self._batch(rows)

    def _key(self, row: _Row) -> tuple[Value, ...]:
        return tuple(row[i] for i in self._keys)

    def _batch(self, rows: Sequence[_Row]) -> Batch:
        columns = [to_column([r[i] for r in rows], kind) for i, kind in zip(self._columns, self._types, strict=True)]
        return Batch(columns, None, len(rows))


class _Source(TableSource):
    def __init__(self, values: ValuesTable, context: TableContext) -> None:
        self._values = values
        self._columns = _columns_of(values, context)
        self._indexes = {name: i for i, name in enumerate(self._columns)}
        self._metadata = _metadata_of(values, context)
        self._id = context.table.options[_ID]
        self.changes = values.changes
        self.watermarks_on_event = values.watermarks_on_event

    def metadata(self) -> Mapping[str, DataType]:
        return self._metadata

    def lookup(self, keys: Sequence[str], columns: Sequence[str], at_once: int = 1) -> LookupSource:
        types = [self._columns[c].type for c in columns]
        return _Lookup(self._id, [self._indexes[k] for k in keys], [self._indexes[c] for c in columns], types)

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
                raise ValidationException(
                    f"ValuesTable: the row {row!r} has {len(row)} values, and the table {len(self._columns)} columns."
                )
        kinds = [r.get_row_kind().value if isinstance(r, Row) else 0 for r in rows]
        arrays = [to_column([r[self._indexes[c]] for r in rows], self._columns[c].type) for c in columns]
        batch = Batch(arrays, np.array(kinds, np.int8) if any(kinds) else None, len(rows))
        if self._values.epochs:
            ends = list(accumulate(self._values.epochs))
            starts = [0, *ends[:-1]]
            epochs = [
                split_batch(batch.slice(a, b), self._values.batch_rows) for a, b in zip(starts, ends, strict=True)
            ]
            return _InEpochs(epochs, self._id)
        return (BatchesSource if self._values.bounded else _Unbounded)(split_batch(batch, self._values.batch_rows))


class _Sink(TableSink):
    def __init__(self, values: ValuesTable, context: TableContext) -> None:
        self._values = values
        columns = _columns_of(values, context)
        self._fields = Fields(tuple(Field(key, c.type) for key, c in columns.items() if c.is_persisted))
        self._metadata = _metadata_of(values, context)
        self._overwrites = False
        self.changes = values.taken

    def metadata(self) -> Mapping[str, DataType]:
        return self._metadata

    def overwriting(self) -> TableSink:
        self._overwrites = True
        return self

    def sink(self, columns: Sequence[str]) -> Sink[Batch]:
        values, fields = self._values, self._fields
        indexes = [columns.index(name) for name in fields.names]
        if self._overwrites:
            values.clear()

        def collect(batches: list[Batch]) -> None:
            for batch in batches:
                values.add(rows_of(batch.with_columns([batch.columns[i] for i in indexes]), fields, "UTC"))

        return DriverSink(collect)


@register_connector
class ValuesConnector(Connector):
    """Reads the rows of a ValuesTable, or writes to it."""

    identifier = "values"
    required = frozenset([_ID])

    def _values(self, context: TableContext) -> ValuesTable:
        values = _tables.get(context.table.options[_ID])
        if values is None:
            raise ValidationException(f"There is no ValuesTable {context.table.options[_ID]} in this program.")
        return values

    def table_source(self, context: TableContext) -> TableSource:
        return _Source(self._values(context), context)

    def table_sink(self, context: TableContext) -> TableSink:
        return _Sink(self._values(context), context)
