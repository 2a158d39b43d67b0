"""Views of a query's rows on a terminal: the current table, or the changelog. Pure: batches in, lines out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.schema import Fields
from millstream.table.result_display import Tableau, by_content, texts_of, truncate

Row = tuple[str, ...]

# Lines of the screen besides rows: title, three of the head, one at the end, keys.
_FRAME_LINES = 6
KEYS = "Q Quit   N Next page   P Previous page   F First page   L Last page"


class TableView:
    """The current rows, without retracted ones.

    Args:
        fields: the columns.
        max_width: the maximum width of a column.
        zone: the time zone of timestamps.
        max_rows: the maximum number of retained rows; the oldest are discarded first.
    """

    def __init__(self, fields: Fields, max_width: int, zone: str, max_rows: int) -> None:
        self._fields = fields
        self._tableau = Tableau(fields, False, max_width, zone)
        self._zone = zone
        self._max_rows = max_rows
        self._rows: dict[Row, int] = {}
        self._count = 0

    def add(self, batch: Batch) -> None:
        """Apply changes."""
        columns = [texts_of(c, k, self._zone) for c, k in zip(batch.columns, self._fields.types, strict=True)]
        for kind, row in zip(batch.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
            if kind in (UPDATE_BEFORE, DELETE):
                self._retract(row)
            else:
                self._rows[row] = self._rows.get(row, 0) + 1
                self._count += 1
        while self._count > self._max_rows:
            self._retract(next(iter(self._rows)))

    def _retract(self, row: Row) -> None:
        count = self._rows.get(row, 0)
        if not count:
            # It was discarded before.
            return
        self._count -= 1
        if count == 1:
            del self._rows[row]
        else:
            self._rows[row] = count - 1

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    def rows(self) -> list[Row]:
        """Return the rows, oldest first."""
        return [row for row, count in self._rows.items() for _ in range(count)]

    def page(self, number: int | None, width: int, height: int, state: str) -> tuple[list[str], int]:
        """Return the lines of a screen, and the page number; None requests the last page."""
        rows = self.rows()
        return _page(
            self._tableau, [("", r) for r in rows], number, width, height, f"SQL Query Result (Table)  {state}"
        )


class ChangelogView:
    """The changes, one per line."""

    def __init__(self, fields: Fields, max_width: int, zone: str, max_rows: int) -> None:
        self._fields = fields
        self._tableau = Tableau(fields, True, max_width, zone)
        self._zone = zone
        self._rows: deque[tuple[str, Row]] = deque(maxlen=max_rows)

    def add(self, batch: Batch) -> None:
        """Apply changes."""
        columns = [texts_of(c, k, self._zone) for c, k in zip(batch.columns, self._fields.types, strict=True)]
        for kind, row in zip(batch.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
            self._rows.append((("+I", "-U", "+U", "-D")[kind], row))

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self._rows)

    def page(self, number: int | None, width: int, height: int, state: str) -> tuple[list[str], int]:
        """Return the lines of a screen, and the page number; None requests the last page."""
        title = f"SQL Query Result (Changelog)  {state}"
        return _page(self._tableau, list(self._rows), number, width, height, title)


def _page(
    tableau: Tableau, rows: Sequence[tuple[str, Row]], number: int | None, width: int, height: int, title: str
) -> tuple[list[str], int]:
    size = max(height - _FRAME_LINES, 1)
    last = max((len(rows) + size - 1) // size, 1)
    shown = last if number is None else min(max(number, 1), last)
    part = rows[(shown - 1) * size : shown * size]
    lines = [f"{title}  Page {shown} of {last}  Rows {len(rows)}", *tableau.head()]
    lines += [tableau.row(kind, values) for kind, values in part]
    lines += [tableau.line(), KEYS]
    return [line[:width] for line in lines], shown


def known_rows(fields: Fields, batches: Sequence[Batch], max_width: int | None, zone: str, null: str) -> list[str]:
    """Return the lines of a complete result, with columns as wide as their content."""
    rows: list[list[str]] = []
    for batch in batches:
        columns = [texts_of(c, k, zone) for c, k in zip(batch.columns, fields.types, strict=True)]
        rows += [[null if v == "<NULL>" else v for v in row] for row in zip(*columns, strict=True)]
    if max_width is not None:
        rows = [[truncate(v, max_width) for v in row] for row in rows]
    return list(by_content(fields.names, rows))
