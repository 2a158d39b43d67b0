"""Formats rows for printing, in columns between bars as Flink's `print()` does."""

from __future__ import annotations

import threading
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.common.errors import JobCancelledError
from millstream.datastream.live_view import ShownRows
from millstream.sql import types as t
from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.columns.value_text import to_text
from millstream.sql.optimizer.state_report import is_bounded
from millstream.sql.plan.nodes import Node
from millstream.sql.schema import Fields

if TYPE_CHECKING:
    from millstream.table.table import Table
    from millstream.table.table_result import TableResult

NULL = "<NULL>"
_KINDS = ("+I", "-U", "+U", "-D")
_ELLIPSIS = "..."
_KIND_COLUMN = "op"

# The width of the values of a type; other types have the maximum width of a column.
_WIDTHS: dict[type[t.DataType], Callable[[t.DataType], int]] = {
    t.TinyIntType: lambda kind: 4,
    t.SmallIntType: lambda kind: 6,
    t.IntType: lambda kind: 11,
    t.BigIntType: lambda kind: 20,
    t.BooleanType: lambda kind: 6,
    t.DecimalType: lambda kind: kind.precision + 2,  # type: ignore[attr-defined]
    t.DateType: lambda kind: 10,
    t.TimeType: lambda kind: _with_fraction(8, kind),
    t.TimestampType: lambda kind: _with_fraction(19, kind),
    t.LocalZonedTimestampType: lambda kind: _with_fraction(19, kind),
}


def _with_fraction(width: int, kind: t.DataType) -> int:
    precision: int = kind.precision  # type: ignore[attr-defined]
    return width + precision + 1 if precision else width


def display_width(text: str) -> int:
    """Return the display width of a text; wide characters count twice.

    Example:
        >>> display_width("ab"), display_width("漢字")
        (2, 4)
    """
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int) -> str:
    """Return a text truncated to a width and right-aligned."""
    short = truncate(text, width)
    return " " * (width - display_width(short)) + short


def truncate(text: str, width: int) -> str:
    """Return a text truncated to a width.

    Example:
        >>> truncate("abcdefgh", 6)
        'abc...'
    """
    if display_width(text) <= width:
        return text
    remaining, prefix = width - len(_ELLIPSIS), ""
    for character in text:
        remaining -= display_width(character)
        if remaining < 0:
            break
        prefix += character
    return prefix + _ELLIPSIS


def shown_texts(column: pa.Array, kind: t.DataType, zone: str) -> list[str | None]:
    """Return the values of a column as they are shown, None for null."""
    if isinstance(kind, (t.BinaryType, t.VarBinaryType)):
        return [None if v is None else f"x'{v.hex()}'" for v in column.to_pylist()]
    texts: list[str | None] = to_text(column, kind, zone).to_pylist()
    return texts


def texts_of(column: pa.Array, kind: t.DataType, zone: str) -> list[str]:
    """Return the values of a column as they are printed."""
    return [NULL if v is None else v for v in shown_texts(column, kind, zone)]


class Tableau:
    """Formats rows with column widths from their types, so that rows can be printed while the job runs.

    Args:
        fields: the columns.
        shows_kinds: whether the first column is the row kind.
        longest: the width of columns of other types.
        zone: in which points in time are shown.
    """

    def __init__(self, fields: Fields, shows_kinds: bool, longest: int, zone: str) -> None:
        self._fields = fields
        self._names = fields.names
        self._shows_kinds = shows_kinds
        self._zone = zone
        self._widths = [self._width(f.name, f.type, longest) for f in fields.fields]

    def _width(self, name: str, kind: t.DataType, longest: int) -> int:
        by_type = _WIDTHS.get(type(kind))
        width = longest if by_type is None else by_type(kind)
        return max(width, display_width(name), len(NULL))

    def head(self) -> Iterator[str]:
        """Yield the header lines."""
        yield self.line()
        yield self.row(_KIND_COLUMN, self._names)
        yield self.line()

    def line(self) -> str:
        """Return the line between names and rows, and at the end."""
        widths = [2, *self._widths] if self._shows_kinds else self._widths
        return "+" + "+".join("-" * (w + 2) for w in widths) + "+"

    def rows(self, batch: Batch) -> Iterator[str]:
        """Yield a line per row."""
        for kind, row in zip(batch.all_kinds().tolist(), row_texts(batch, self._fields, self._zone), strict=True):
            yield self.row(_KINDS[kind], row)

    def row(self, kind: str, values: Sequence[str]) -> str:
        """Return the line of one row."""
        shown = [_padded(v, w) for v, w in zip(values, self._widths, strict=True)]
        return "| " + " | ".join([kind, *shown] if self._shows_kinds else shown) + " |"


def footer(rows: int) -> str:
    """Return the line below the rows."""
    return f"{rows} row in set" if rows == 1 else f"{rows} rows in set"


def row_texts(batch: Batch, fields: Fields, zone: str) -> list[tuple[str, ...]]:
    """Return the rows of a batch as they are printed."""
    columns = [texts_of(c, k, zone) for c, k in zip(batch.columns, fields.types, strict=True)]
    return list(zip(*columns, strict=True)) if columns else [()] * len(batch)


class LastRows:
    """The last rows of an append-only result."""

    def __init__(self, fields: Fields, zone: str, max_rows: int) -> None:
        self._fields = fields
        self._zone = zone
        self._rows: deque[tuple[str, ...]] = deque(maxlen=max_rows)
        self._count = 0

    def add(self, batch: Batch) -> int:
        size, kept = len(batch), self._rows.maxlen or 0
        last = batch if size <= kept else batch.slice(size - kept, size)
        self._rows.extend(row_texts(last, self._fields, self._zone))
        self._count += size
        return size

    def shown(self) -> ShownRows:
        note = f"the last {len(self._rows)} rows" if self._count > len(self._rows) else ""
        return ShownRows(self._fields.names, list(self._rows), note, [str(k) for k in self._fields.types])


# Rows of a changelog that are kept; of larger results, those that changed last.
MAX_MATERIALIZED = 10_000


class MaterializedRows:
    """The rows of a changelog after all changes; an updated row stays in its place."""

    def __init__(self, fields: Fields, zone: str, max_rows: int, max_kept: int = MAX_MATERIALIZED) -> None:
        self._fields = fields
        self._zone = zone
        self._max_rows = max_rows
        self._max_kept = max_kept
        # Rows by number, the least recently changed first; and the numbers of equal rows.
        self._rows: dict[int, tuple[str, ...]] = {}
        self._numbers: dict[tuple[str, ...], list[int]] = {}
        self._next_number = 0
        self._replaced: int | None = None
        self._is_complete = True

    def add(self, batch: Batch) -> int:
        rows = row_texts(batch, self._fields, self._zone)
        for kind, row in zip(batch.all_kinds().tolist(), rows, strict=True):
            if kind in (UPDATE_BEFORE, DELETE):
                number = self._remove(row)
                self._replaced = number if kind == UPDATE_BEFORE else None
            else:
                self._insert(row)
        return len(rows)

    def _remove(self, row: tuple[str, ...]) -> int | None:
        """Remove a row; return its number, None if it was no longer kept."""
        numbers = self._numbers.get(row)
        if not numbers:
            return None
        number = numbers.pop()
        if not numbers:
            del self._numbers[row]
        del self._rows[number]
        return number

    def _insert(self, row: tuple[str, ...]) -> None:
        number, self._replaced = self._replaced, None
        if number is None:
            number, self._next_number = self._next_number, self._next_number + 1
        self._rows[number] = row
        self._numbers.setdefault(row, []).append(number)
        if len(self._rows) > self._max_kept:
            self._is_complete = False
            oldest = next(iter(self._rows))
            text = self._rows.pop(oldest)
            self._numbers[text].remove(oldest)
            if not self._numbers[text]:
                del self._numbers[text]

    def shown(self) -> ShownRows:
        numbers = sorted(islice(reversed(self._rows), self._max_rows))
        size = f"{len(self._rows):,}" if self._is_complete else f"more than {self._max_kept:,}"
        note = f"the {len(numbers)} of {size} rows that changed last" if len(self._rows) > len(numbers) else ""
        types = [str(k) for k in self._fields.types]
        return ShownRows(self._fields.names, [self._rows[n] for n in numbers], note, types)


def by_content(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Yield the lines of a complete result: columns are as wide as their content."""
    widths = [max(map(display_width, column)) for column in zip(names, *rows, strict=True)]
    line = "+" + "+".join("-" * (w + 2) for w in widths) + "+"
    yield line
    yield "| " + " | ".join(_padded(n, w) for n, w in zip(names, widths, strict=True)) + " |"
    yield line
    for row in rows:
        yield "| " + " | ".join(_padded(v, w) for v, w in zip(row, widths, strict=True)) + " |"
    yield line
    yield footer(len(rows))


# Maximum rows shown, and the timeout for them.
ROWS = 20
SECONDS = 30.0
_UNBOUNDED = "This table is unbounded, so its query is not run. See rows as they arrive with <code>{}</code>."
_SLOW = "Its rows have not arrived within {:g} s. See them as they arrive with <code>table.show_live()</code>."
_LIVE = "table.show_live()"


def as_html(table: Table, node: Node, zone: str, seconds: float = SECONDS) -> str:
    """Return a table as HTML; an unbounded query is not run.

    Args:
        table: the table.
        node: its relation.
        zone: the time zone in which points in time are shown.
        seconds: the timeout for rows.
    """
    fields = node.fields
    if not is_bounded(node):
        return _columns(fields) + f"<p>{_UNBOUNDED.format(_LIVE)}</p>"
    rows = _first_rows(table, fields, zone, seconds)
    if rows is None:
        return _columns(fields) + f"<p>{_SLOW.format(seconds)}</p>"
    note = f"<p>The first {ROWS} rows.</p>" if len(rows) > ROWS else f"<p>{len(rows)} row{'s' * (len(rows) != 1)}.</p>"
    return rows_as_html(fields, rows[:ROWS]) + note


def rows_as_html(fields: Fields, rows: Sequence[Sequence[str]]) -> str:
    """Return texts of rows as a table."""
    return ShownRows(fields.names, rows, types=[str(f.type) for f in fields.fields]).html()


def _columns(fields: Fields) -> str:
    return ShownRows(("column", "type"), [(f.name, str(f.type)) for f in fields.fields]).html()


def _first_rows(table: Table, fields: Fields, zone: str, seconds: float) -> list[tuple[str, ...]] | None:
    """Return up to one more than the displayed rows, after all changes; None on timeout."""
    result = table.fetch(ROWS + 1).execute()
    rows = MaterializedRows(fields, zone, ROWS + 1)
    try:
        with _cancelled_after(result, seconds):
            for batch in result.arrow_batches():
                rows.add(batch)
    except JobCancelledError:
        return None
    return [tuple(row) for row in rows.shown().rows]


@contextmanager
def _cancelled_after(result: TableResult, seconds: float) -> Iterator[None]:
    client = result.get_job_client()
    assert client is not None
    clock = threading.Timer(seconds, client.cancel)
    clock.daemon = True
    clock.start()
    try:
        yield
    finally:
        clock.cancel()
