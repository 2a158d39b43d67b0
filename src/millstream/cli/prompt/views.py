"""What a query's rows look like on a terminal: a table that changes, or its changes. Pure: batches in, lines out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.schema import Fields
from millstream.table.result_display import Tableau, by_content, cut, texts_of

Row = tuple[str, ...]

# Lines of the screen that are not rows: title, three of the head, one at the end, keys.
_AROUND = 6
KEYS = "Q Quit   N Next page   P Previous page   F First page   L Last page"


class TableView:
    """The rows as they are now: what was taken back is gone.

    Args:
        fields: the columns.
        longest: how wide a column may be.
        zone: in which points in time are shown.
        most: how many rows are kept; the oldest go first.
    """

    def __init__(self, fields: Fields, longest: int, zone: str, most: int) -> None:
        self._fields = fields
        self._tableau = Tableau(fields, False, longest, zone)
        self._zone = zone
        self._most = most
        self._rows: dict[Row, int] = {}
        self._count = 0

    def add(self, batch: Batch) -> None:
        """Take changes."""
        columns = [texts_of(c, k, self._zone) for c, k in zip(batch.columns, self._fields.types, strict=True)]
        for kind, row in zip(batch.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
            if kind in (UPDATE_BEFORE, DELETE):
                self._take_back(row)
            else:
                self._rows[row] = self._rows.get(row, 0) + 1
                self._count += 1
        while self._count > self._most:
            self._take_back(next(iter(self._rows)))

    def _take_back(self, row: Row) -> None:
        there = self._rows.get(row, 0)
        if not there:
            # It was let go, because there were too many.
            return
        self._count -= 1
        if there == 1:
            del self._rows[row]
        else:
            self._rows[row] = there - 1

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self._count

    def rows(self) -> list[Row]:
        """Return the rows, oldest first."""
        return [row for row, count in self._rows.items() for _ in range(count)]

    def page(self, number: int | None, width: int, height: int, state: str) -> tuple[list[str], int]:
        """Return the lines of a screen, and which page it is: the last one when none is asked for."""
        rows = self.rows()
        return _page(
            self._tableau, [("", r) for r in rows], number, width, height, f"SQL Query Result (Table)  {state}"
        )


class ChangelogView:
    """The changes, one below the other."""

    def __init__(self, fields: Fields, longest: int, zone: str, most: int) -> None:
        self._fields = fields
        self._tableau = Tableau(fields, True, longest, zone)
        self._zone = zone
        self._rows: deque[tuple[str, Row]] = deque(maxlen=most)

    def add(self, batch: Batch) -> None:
        """Take changes."""
        columns = [texts_of(c, k, self._zone) for c, k in zip(batch.columns, self._fields.types, strict=True)]
        for kind, row in zip(batch.all_kinds().tolist(), zip(*columns, strict=True), strict=True):
            self._rows.append((("+I", "-U", "+U", "-D")[kind], row))

    def __len__(self) -> int:
        """Return how many changes there are."""
        return len(self._rows)

    def page(self, number: int | None, width: int, height: int, state: str) -> tuple[list[str], int]:
        """Return the lines of a screen, and which page it is: the last one when none is asked for."""
        title = f"SQL Query Result (Changelog)  {state}"
        return _page(self._tableau, list(self._rows), number, width, height, title)


def _page(
    tableau: Tableau, rows: Sequence[tuple[str, Row]], number: int | None, width: int, height: int, title: str
) -> tuple[list[str], int]:
    size = max(height - _AROUND, 1)
    last = max((len(rows) + size - 1) // size, 1)
    shown = last if number is None else min(max(number, 1), last)
    part = rows[(shown - 1) * size : shown * size]
    lines = [f"{title}  Page {shown} of {last}  Rows {len(rows)}", *tableau.head()]
    lines += [tableau.row(kind, values) for kind, values in part]
    lines += [tableau.line(), KEYS]
    return [line[:width] for line in lines], shown


def known_rows(fields: Fields, batches: Sequence[Batch], longest: int | None, zone: str, null: str) -> list[str]:
    """Return the lines of rows that are all known, with columns as wide as what is in them."""
    rows: list[list[str]] = []
    for batch in batches:
        columns = [texts_of(c, k, zone) for c, k in zip(batch.columns, fields.types, strict=True)]
        rows += [[null if v == "<NULL>" else v for v in row] for row in zip(*columns, strict=True)]
    if longest is not None:
        rows = [[cut(v, longest) for v in row] for row in rows]
    return list(by_content(fields.names, rows))
