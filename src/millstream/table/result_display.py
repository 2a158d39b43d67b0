"""Formats rows for printing, in columns between bars as Flink's `print()` does."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.common.errors import JobCancelledError
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
        self._types = fields.types
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
        columns = [texts_of(c, k, self._zone) for c, k in zip(batch.columns, self._types, strict=True)]
        for kind, row in zip(batch.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
            yield self.row(_KINDS[kind], row)

    def row(self, kind: str, values: Sequence[str]) -> str:
        """Return the line of one row."""
        shown = [_padded(v, w) for v, w in zip(values, self._widths, strict=True)]
        return "| " + " | ".join([kind, *shown] if self._shows_kinds else shown) + " |"


def footer(rows: int) -> str:
    """Return the line below the rows."""
    return f"{rows} row in set" if rows == 1 else f"{rows} rows in set"


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
_UNBOUNDED = "This table is unbounded, so its query is not run. Read rows as they arrive with <code>{}</code>."
_SLOW = "Its rows have not arrived within {:g} s. Read all of them with <code>table.execute().print()</code>."
_TAKE = "with table.execute().collect() as rows: print(next(rows))"


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
        return _columns(fields) + f"<p>{_UNBOUNDED.format(_TAKE)}</p>"
    rows = _first_rows(table, fields, zone, seconds)
    if rows is None:
        return _columns(fields) + f"<p>{_SLOW.format(seconds)}</p>"
    note = f"<p>The first {ROWS} rows.</p>" if len(rows) > ROWS else f"<p>{len(rows)} row{'s' * (len(rows) != 1)}.</p>"
    head = "".join(f'<th title="{escape(str(f.type))}">{escape(f.name)}</th>' for f in fields.fields)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{_body(rows[:ROWS])}</tbody></table>{note}"


def _columns(fields: Fields) -> str:
    rows = [(f.name, str(f.type)) for f in fields.fields]
    return f"<table><thead><tr><th>column</th><th>type</th></tr></thead><tbody>{_body(rows)}</tbody></table>"


def _body(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"<tr>{''.join(f'<td>{escape(v)}</td>' for v in row)}</tr>" for row in rows)


def _first_rows(table: Table, fields: Fields, zone: str, seconds: float) -> list[tuple[str, ...]] | None:
    """Return up to one more than the displayed rows, after all changes; None on timeout."""
    result = table.fetch(ROWS + 1).execute()
    counts: dict[tuple[str, ...], int] = {}
    try:
        with _cancelled_after(result, seconds):
            for batch in result.arrow_batches():
                columns = [texts_of(c, k, zone) for c, k in zip(batch.columns, fields.types, strict=True)]
                for kind, row in zip(batch.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
                    counts[row] = counts.get(row, 0) + (-1 if kind in (UPDATE_BEFORE, DELETE) else 1)
    except JobCancelledError:
        return None
    return [row for row, count in counts.items() for _ in range(count)]


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
