"""Random tables: appended rows with duplicates, changes with and without keys, event time, versions."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from millstream.common.types import Row, RowKind
from millstream.table import ChangelogMode

from .relations import TYPES

Values = tuple[Any, ...]
Change = tuple[RowKind, Values]

_START = dt.datetime(2024, 2, 28, 23, 59, 30)


@dataclass(frozen=True)
class TableDef:
    """The properties of a table, independent of its rows."""

    columns: dict[str, str]
    changes: str = "inserts"
    key: str | None = None
    rowtime: str | None = None


TABLES = {
    "t": TableDef({"a": "int", "b": "int", "s": "text", "d": "dec", "x": "dbl", "f": "bool", "m": "time", "y": "date"}),
    "u": TableDef({"a": "int", "s": "text", "d": "dec", "m": "time"}, "all"),
    "k": TableDef({"id": "int", "b": "int", "s": "text", "d": "dec", "f": "bool"}, "upsert", "id"),
    "c": TableDef({"id": "int", "a": "int", "s": "text", "x": "dbl", "y": "date"}, "all", "id"),
    "e": TableDef({"id": "int", "b": "int", "s": "text", "d": "dec", "ts": "time"}, rowtime="ts"),
    "g": TableDef({"id": "int", "a": "int", "s": "text", "x": "dbl", "ts": "time"}, rowtime="ts"),
    "v": TableDef({"id": "int", "s": "text", "d": "dec", "ts": "time"}, "upsert", "id", "ts"),
}
# The maximum out-of-orderness of event time, which is also the watermark delay.
DISORDER = 4


@dataclass(frozen=True)
class Table:
    """A table's rows: its changes in order, and its final rows."""

    name: str
    changes: tuple[Change, ...]

    @property
    def definition(self) -> TableDef:
        return TABLES[self.name]

    def final_rows(self) -> list[Values]:
        """Return the final rows."""
        rows: list[Values] = []
        names = list(self.definition.columns)
        index = None if self.definition.key is None else names.index(self.definition.key)
        for kind, row in self.changes:
            if kind is RowKind.INSERT or kind is RowKind.UPDATE_AFTER:
                if index is not None and self.definition.changes == "upsert":
                    rows = [r for r in rows if r[index] != row[index]]
                rows.append(row)
            elif index is not None:
                rows = [r for r in rows if r[index] != row[index]]
            else:
                rows.remove(row)
        return rows

    def rows(self) -> list[Row]:
        """Return the changes as rows with kinds."""
        rows = []
        for kind, values in self.changes:
            row = Row(*values)
            row.set_row_kind(kind)
            rows.append(row)
        return rows

    def mode(self) -> ChangelogMode:
        """Return the changelog mode."""
        makers = {"all": ChangelogMode.all, "upsert": ChangelogMode.upsert, "inserts": ChangelogMode.insert_only}
        return makers[self.definition.changes]()

    def declaration(self) -> str:
        """Return the columns for CREATE TABLE."""
        d = self.definition
        items = [
            f"{name} {TYPES[kind][0]}{' NOT NULL' if name in (d.key, d.rowtime) else ''}"
            for name, kind in d.columns.items()
        ]
        if d.key is not None:
            items.append(f"PRIMARY KEY ({d.key}) NOT ENFORCED")
        if d.rowtime is not None:
            items.append(f"WATERMARK FOR {d.rowtime} AS {d.rowtime} - INTERVAL '{DISORDER}' SECOND")
        return ", ".join(items)

    def smaller(self) -> list[Table]:
        """Return tables with fewer changes that are still changelogs."""
        tables = []
        positions = list(range(len(self.changes)))
        for removed in [positions[: len(positions) // 2], positions[len(positions) // 2 :], *([p] for p in positions)]:
            candidate = replace(self, changes=tuple(c for p, c in enumerate(self.changes) if p not in removed))
            if candidate.changes != self.changes and candidate.is_changelog():
                tables.append(candidate)
        return tables

    def is_changelog(self) -> bool:
        """Return whether every change is possible, and every UPDATE_BEFORE has its UPDATE_AFTER."""
        d = self.definition
        rows: Counter[Values] = Counter()
        before = False
        for kind, row in self.changes:
            is_pair = d.changes == "all" and kind is RowKind.UPDATE_AFTER
            if before is not is_pair:
                return False
            before = kind is RowKind.UPDATE_BEFORE
            entry = row[:1] if d.changes == "upsert" else row
            has_key = any(r[0] == row[0] for r in rows) if d.key is not None else False
            if kind in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                if not rows[entry]:
                    return False
                rows[entry] -= 1
                rows = +rows
            elif d.changes == "upsert":
                if has_key is (kind is RowKind.INSERT):
                    return False
                rows[entry] = 1
            elif has_key:
                return False
            else:
                rows[entry] += 1
        return not before


class TableMaker:
    """Generates random tables."""

    def __init__(self, r: random.Random, max_rows: int = 9) -> None:
        self._random = r
        self._max_rows = max_rows

    def tables(self) -> dict[str, Table]:
        """Return one table of each definition."""
        return {name: Table(name, tuple(self._changes(d))) for name, d in TABLES.items()}

    def value(self, kind: str) -> Any:
        """Return a value, often one of a few."""
        r = self._random
        makers: dict[str, Callable[[], Any]] = {
            "int": lambda: r.randint(-2, 4),
            "text": lambda: r.choice(["", "x", "y", "z", "xy", "Y"]),
            "dec": lambda: Decimal(r.choice([0, 50, 125, 333, 999, -50, -125, 10000])) / 100,
            "dbl": lambda: r.choice([0.0, 0.25, 0.5, 1.5, 2.0, -1.25, -3.0]),
            "time": lambda: _START + dt.timedelta(milliseconds=500 * r.randint(0, 120)),
            "date": lambda: dt.date(2024, 2, 27) + dt.timedelta(days=r.randint(0, 3)),
            "bool": lambda: r.random() < 0.5,
        }
        return makers[kind]()

    def _row(self, d: TableDef) -> Values:
        return tuple(
            self.value(kind) if name in (d.key, d.rowtime) or self._random.random() < 0.8 else None
            for name, kind in d.columns.items()
        )

    def _changes(self, d: TableDef) -> list[Change]:
        if d.rowtime is not None:
            return self._over_time(d)
        if d.key is not None:
            return self._by_key(d)
        rows = self._with_duplicates(d)
        if d.changes == "inserts":
            return [(RowKind.INSERT, row) for row in rows]
        return self._without_key(d, rows)

    def _with_duplicates(self, d: TableDef) -> list[Values]:
        rows: list[Values] = []
        for _ in range(self._random.randrange(self._max_rows + 1)):
            again = rows and self._random.random() < 0.2
            rows.append(self._random.choice(rows) if again else self._row(d))
        return rows

    def _without_key(self, d: TableDef, rows: list[Values]) -> list[Change]:
        changes: list[Change] = []
        live: list[Values] = []
        for row in rows:
            if live and self._random.random() < 0.35:
                removed = live.pop(self._random.randrange(len(live)))
                if self._random.random() < 0.5:
                    changes.append((RowKind.DELETE, removed))
                    continue
                changes += [(RowKind.UPDATE_BEFORE, removed), (RowKind.UPDATE_AFTER, row)]
            else:
                changes.append((RowKind.INSERT, row))
            live.append(row)
        return changes

    def _by_key(self, d: TableDef) -> list[Change]:
        """Return changes by key, which is the first column."""
        changes: list[Change] = []
        live: dict[Any, Values] = {}
        for _ in range(self._random.randrange(self._max_rows + 4)):
            row = self._row(d)
            before = live.get(row[0])
            if before is None:
                changes.append((RowKind.INSERT, row))
            elif self._random.random() < 0.25:
                changes.append((RowKind.DELETE, live.pop(row[0])))
                continue
            elif d.changes == "upsert":
                changes.append((RowKind.UPDATE_AFTER, row))
            else:
                changes += [(RowKind.UPDATE_BEFORE, before), (RowKind.UPDATE_AFTER, row)]
            live[row[0]] = row
        return changes

    def _over_time(self, d: TableDef) -> list[Change]:
        """Return rows whose last column is their time, out of order by less than the watermark delay."""
        count = self._random.randrange(self._max_rows + 4)
        seconds = sorted(self._random.sample(range(90), count))
        times = [_START + dt.timedelta(seconds=s) for s in seconds]
        changes: list[Change] = []
        live: dict[Any, Values] = {}
        for time in times:
            row = (*self._row(d)[:-1], time)
            if d.key is None:
                changes.append((RowKind.INSERT, row))
                continue
            kind = RowKind.UPDATE_AFTER if row[0] in live else RowKind.INSERT
            if row[0] in live and self._random.random() < 0.25:
                row, kind = (*live.pop(row[0])[:-1], time), RowKind.DELETE
            else:
                live[row[0]] = row
            changes.append((kind, row))
        if d.key is None:
            changes.sort(key=lambda c: c[1][-1] + dt.timedelta(seconds=self._random.randrange(DISORDER)))
        return changes
