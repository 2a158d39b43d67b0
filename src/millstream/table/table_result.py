"""TableResult: the result of a statement, to print, iterate over, or wait for."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import TimeoutError as TookTooLong
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.errors import MillstreamError
from millstream.common.job_client import JobClient
from millstream.common.types import Row, RowKind
from millstream.datastream.live_view import (
    IN_BACKGROUND,
    MAX_ROWS,
    WHILE_CELL_RUNS,
    LiveView,
    check_notebook,
    in_notebook,
)
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.value_conversion import to_column, to_python
from millstream.sql.errors import TableException
from millstream.sql.schema import Field, Fields
from millstream.sql.types import ArrayType, DataType, DataTypes, FloatType, MapType, MultisetType, RowType
from millstream.table.resolved_schema import ResolvedSchema
from millstream.table.result_display import (
    NULL,
    LastRows,
    MaterializedRows,
    Tableau,
    by_content,
    footer,
    row_texts,
    rows_as_html,
)
from millstream.table.result_kind import ResultKind
from millstream.table.table_schema import TableSchema

if TYPE_CHECKING:
    from millstream.datastream.collect import CloseableIterator as Batches
    from millstream.datastream.collect import LocalJobClient

__all__ = ["CloseableIterator", "TableResult"]

_KINDS = tuple(RowKind(i) for i in range(4))


def rows_of(batch: Batch, fields: Fields, zone: str) -> list[Row]:
    """Return the rows of a batch as Python values, with their kinds."""
    columns = [_collected(to_python(c, t, zone), t) for c, t in zip(batch.columns, fields.types, strict=True)]
    rows = [Row(*values) for values in zip(*columns, strict=True)] if columns else [Row() for _ in range(len(batch))]
    if batch.kinds is not None:
        for row, kind in zip(rows, batch.kinds.tolist(), strict=True):
            row.set_row_kind(_KINDS[kind])
    return rows


def _collected(values: list[Value], kind: DataType) -> list[Value]:
    """Return values as PyFlink collects them.

    Nested rows do not know their field names, and a FLOAT is the value of its shortest decimal text.
    """
    convert = _conversion(kind)
    return values if convert is None else [None if v is None else convert(v) for v in values]


def _conversion(kind: DataType) -> Callable[[Value], Value] | None:
    """Return a conversion for non-null values, or None for identity."""
    if isinstance(kind, FloatType):
        return _shortest
    if isinstance(kind, RowType):
        fields = [_conversion(f.data_type) or _same for f in kind]
        return lambda row: Row(*(None if v is None else f(v) for f, v in zip(fields, row, strict=True)))
    if isinstance(kind, ArrayType):
        element = _conversion(kind.element_type)
        return element and (lambda values: [None if v is None else element(v) for v in values])
    if isinstance(kind, (MapType, MultisetType)):
        keys = _conversion(kind.key_type if isinstance(kind, MapType) else kind.element_type)
        items = _conversion(kind.value_type) if isinstance(kind, MapType) else None
        if keys is None and items is None:
            return None
        key, item = keys or _same, items or _same
        return lambda entries: {k if k is None else key(k): v if v is None else item(v) for k, v in entries.items()}
    return None


def _same(value: Value) -> Value:
    return value


def _shortest(value: float) -> float:
    return float(str(np.float32(value)))


class CloseableIterator:
    """Iterates over rows; closing it, or leaving its `with` block, cancels the query's job."""

    def __init__(
        self, batches: Iterator[Batch], convert: Callable[[Batch], list[Row]], close: Callable[[], None]
    ) -> None:
        self._batches = batches
        self._convert = convert
        self._close = close
        self._current: Iterator[Row] = iter(())

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Row:
        while True:
            for row in self._current:
                return row
            self._current = iter(self._convert(next(self._batches)))

    def next(self) -> Row:
        """Return the next row, as `next(iterator)` does."""
        return self.__next__()

    def close(self) -> None:
        """Cancel the job if it still runs."""
        self._close()

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()


class TableResult(ABC):
    """Gives access to the result of a statement: its rows, its columns, and its job.

    Example:
        >>> t_env.execute_sql("SELECT 1 AS a").print()
        +----+-------------+
        | op |           a |
        +----+-------------+
        | +I |           1 |
        +----+-------------+
        1 row in set
    """

    kind = ResultKind.SUCCESS_WITH_CONTENT

    def __init__(self, fields: Fields, zone: str) -> None:
        self._fields = fields
        self._zone = zone

    def get_job_client(self) -> JobClient | None:
        """Return a handle on the job; None for a statement without a job.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n INT) WITH ('connector' = 'blackhole')")
            >>> result = t_env.execute_sql("INSERT INTO sink VALUES 1")
            >>> result.wait()
            >>> result.get_job_client().get_job_status().result().name
            'FINISHED'
        """
        return None

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for the end of the job of an INSERT; for a query, for its first row.

        Args:
            timeout_ms: for an INSERT, the time after which an error is raised; by default none.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE sink (n INT) WITH ('connector' = 'print')")
            >>> t_env.execute_sql("INSERT INTO sink VALUES 1").wait()
            +I[1]
        """

    def get_table_schema(self) -> TableSchema:
        """Return the columns as a TableSchema.

        Deprecated, as in Flink: use `get_resolved_schema`.
        """
        return TableSchema(self._fields.names, self._fields.types)

    def get_resolved_schema(self) -> ResolvedSchema:
        """Return the columns.

        Example:
            >>> t_env.execute_sql("SELECT 1 AS a, 'x' AS b").get_resolved_schema().get_column_names()
            ['a', 'b']
        """
        return ResolvedSchema.of_fields(self._fields)

    def get_result_kind(self) -> int:
        """Return SUCCESS, or SUCCESS_WITH_CONTENT if the result has rows.

        Example:
            >>> t_env.execute_sql("CREATE DATABASE shop").get_result_kind() == ResultKind.SUCCESS
            True
        """
        return self.kind

    @abstractmethod
    def _batches(self) -> Iterator[Batch]:
        """Yield the rows."""

    def _cancel(self) -> None:
        """Cancel the job that produces the rows."""

    def collect(self) -> CloseableIterator:
        """Return an iterator of the rows, which can be read once; closing it cancels the job.

        Each row has its row kind; the rows of an unbounded query never end.

        Example:
            >>> orders = t_env.from_elements([("ann", 3), ("ann", 4)], ["name", "price"])
            >>> totals = orders.group_by(col("name")).select(col("name"), col("price").sum)
            >>> with totals.execute().collect() as rows:
            ...     for row in rows:
            ...         print(row.get_row_kind(), row)
            +I <Row('ann', 3)>
            -U <Row('ann', 3)>
            +U <Row('ann', 7)>
        """
        return CloseableIterator(self._batches(), lambda b: rows_of(b, self._fields, self._zone), self._cancel)

    def arrow_batches(self) -> Iterator[Batch]:
        """Yield the rows as Arrow batches; PyFlink has no such method.

        Example:
            >>> [len(batch) for batch in t_env.from_elements([(1,), (2,)]).execute().arrow_batches()]
            [2]
        """
        return self._batches()

    @abstractmethod
    def print(self) -> None:
        """Print the rows as a table, in streaming mode with the row kind in the column `op`, and wait for the last one.

        PyFlink prints the same; `table.display.max-column-width` limits the width of columns.

        Example:
            >>> t_env.from_elements([("ann", 3)], ["name", "price"]).execute().print()
            +----+--------------------------------+----------------------+
            | op |                           name |                price |
            +----+--------------------------------+----------------------+
            | +I |                            ann |                    3 |
            +----+--------------------------------+----------------------+
            1 row in set
        """


class QueryResult(TableResult):
    """The rows of a running query."""

    def __init__(
        self,
        fields: Fields,
        zone: str,
        batches: Batches[Batch],
        client: LocalJobClient,
        shows_kinds: bool,
        max_width: int,
        is_append_only: bool,
    ) -> None:
        super().__init__(fields, zone)
        self._source = batches
        self._client = client
        self._layout = (shows_kinds, max_width)
        self._is_append_only = is_append_only
        self._ready: list[Batch] = []
        self._is_consumed = False

    def get_job_client(self) -> JobClient | None:
        return self._client

    def wait(self, timeout_ms: int | None = None) -> None:
        # As in Flink, until the first row; the job continues while rows are read.
        if not self._ready and not self._is_consumed:
            for batch in self._source:
                self._ready.append(batch)
                break

    def _batches(self) -> Iterator[Batch]:
        if self._is_consumed:
            raise TableException("The rows of a result can be read only once: execute the query again.")
        self._is_consumed = True
        return self._all()

    def _all(self) -> Iterator[Batch]:
        yield from self._ready
        yield from self._source

    def _cancel(self) -> None:
        self._source.close()

    def show_live(self, max_rows: int = MAX_ROWS) -> LiveView[Batch]:
        """Show the rows in a notebook while the job runs: the last ones, or those after all changes. Not in PyFlink.

        Args:
            max_rows: the number of rows to show.
        """
        check_notebook("show_live")
        return self._live_view(max_rows, IN_BACKGROUND)

    def _live_view(self, max_rows: int, hint: str) -> LiveView[Batch]:
        rows = (LastRows if self._is_append_only else MaterializedRows)(self._fields, self._zone, max_rows)
        return LiveView(self._batches(), rows, self._client.job, hint)

    def _ipython_display_(self) -> None:
        """Show the rows in the cell until the job has ended or the kernel is interrupted; print them in a terminal."""
        if in_notebook():
            self._live_view(MAX_ROWS, WHILE_CELL_RUNS).wait()
        else:
            self.print()

    def print(self) -> None:
        tableau = Tableau(self._fields, *self._layout, self._zone)
        write, rows = sys.stdout.write, 0
        for batch in self._batches():
            lines = [*(tableau.head() if not rows else ()), *tableau.rows(batch)]
            rows += len(batch)
            write("\n".join(lines) + "\n")
            sys.stdout.flush()
        write(f"{tableau.line()}\n{footer(rows)}\n" if rows else "Empty set\n")
        sys.stdout.flush()


class RowsResult(TableResult):
    """Precomputed rows, such as those of SHOW and DESCRIBE."""

    def __init__(self, fields: Fields, rows: Sequence[Sequence[Value]], zone: str = "UTC") -> None:
        super().__init__(fields, zone)
        columns = zip(*rows, strict=True) if rows else [()] * len(fields)
        arrays = [to_column(list(c), t) for c, t in zip(columns, fields.types, strict=True)]
        self._batch = Batch(arrays, None, len(rows))

    def _batches(self) -> Iterator[Batch]:
        return iter([self._batch] if len(self._batch) else [])

    def _rows(self) -> list[list[str]]:
        # A missing value is an empty cell here.
        return [["" if v == NULL else v for v in row] for row in row_texts(self._batch, self._fields, self._zone)]

    def _repr_html_(self) -> str:
        return rows_as_html(self._fields, self._rows())

    def print(self) -> None:
        rows = self._rows()
        print("\n".join(by_content(self._fields.names, rows)) if rows else "Empty set")


class OkResult(RowsResult):
    """The result of a statement without rows."""

    kind = ResultKind.SUCCESS

    def __init__(self) -> None:
        super().__init__(_named("result", DataTypes.STRING()), [("OK",)])

    def print(self) -> None:
        print("OK")


class TextResult(RowsResult):
    """A single text, such as that of EXPLAIN."""

    def __init__(self, text: str) -> None:
        super().__init__(_named("result", DataTypes.STRING()), [(text,)])
        self._text = text

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self._text)}</pre>"

    def print(self) -> None:
        print(self._text)


class JobResult(TableResult):
    """A job that writes to tables."""

    def __init__(self, names: Sequence[str], client: JobClient) -> None:
        super().__init__(_fields([(n, DataTypes.BIGINT()) for n in names]), "UTC")
        self._client = client

    def get_job_client(self) -> JobClient | None:
        return self._client

    def wait(self, timeout_ms: int | None = None) -> None:
        result = self._client.get_job_execution_result()
        try:
            result.result() if timeout_ms is None else result.result(timeout_ms / 1000)
        except TookTooLong:
            raise TableException(f"The job has not ended within {timeout_ms} ms.") from None

    def _batches(self) -> Iterator[Batch]:
        self.wait()
        minus_one = pa.array([-1], pa.int64())
        return iter([Batch([minus_one] * len(self._fields))])

    def print(self) -> None:
        # The number of written rows is unknown, as in Flink.
        self.wait()
        print(", ".join(["-1"] * len(self._fields)))


def _named(name: str, kind: DataType) -> Fields:
    return _fields([(name, kind)])


def _fields(columns: Sequence[tuple[str, DataType]]) -> Fields:
    return Fields(tuple(Field(n, t) for n, t in columns))


__all__ += ["JobResult", "MillstreamError", "OkResult", "QueryResult", "RowsResult", "TextResult", "rows_of"]
