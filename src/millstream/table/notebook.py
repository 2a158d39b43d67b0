"""How a notebook shows a Table: its first rows if it comes to an end, else its columns and how to see rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING

from millstream.common.errors import JobCancelledError
from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE
from millstream.sql.optimizer.state_report import ends
from millstream.sql.schema import Fields
from millstream.table.result_printer import texts_of

if TYPE_CHECKING:
    from millstream.table.table import Table
    from millstream.table.table_result import TableResult

# So many rows are shown, and so long is waited for them.
ROWS = 20
SECONDS = 30.0
_ENDLESS = "This table does not end, so it is not run to be shown. See rows as they come with <code>{}</code>."
_SLOW = "Its rows have not come within {:g} s. See all of them with <code>table.execute().print()</code>."
_TAKE = "with table.execute().collect() as rows: print(next(rows))"


def as_html(table: Table, fields: Fields, seconds: float = SECONDS) -> str:
    """Return a table as HTML; a query that would run for ever is not run.

    Args:
        table: the table.
        fields: its columns.
        seconds: how long to wait for rows.
    """
    if not ends(table._node):
        return _columns(fields) + f"<p>{_ENDLESS.format(_TAKE)}</p>"
    rows = _first_rows(table, fields, seconds)
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


def _first_rows(table: Table, fields: Fields, seconds: float) -> list[tuple[str, ...]] | None:
    """Return some more rows than are shown, as they are in the end; None when they do not come in time."""
    zone = table._t_env.get_config().get_local_timezone()
    result = table.fetch(ROWS + 1).execute()
    found: dict[tuple[str, ...], int] = {}
    try:
        with _cancelled_after(result, seconds):
            for batch in result.arrow_batches():
                columns = [texts_of(c, k, zone) for c, k in zip(batch.columns, fields.types, strict=True)]
                for kind, row in zip(batch.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
                    found[row] = found.get(row, 0) + (-1 if kind in (UPDATE_BEFORE, DELETE) else 1)
    except JobCancelledError:
        return None
    return [row for row, count in found.items() for _ in range(count)]


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
