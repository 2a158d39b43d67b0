"""How many rows joins make, by the statistics of their tables: which order of joins is cheaper by far."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from millstream.common.fast_dataclass import record
from millstream.sql.expressions import Call, Column, Expression
from millstream.sql.optimizer.costs import share_of
from millstream.sql.plan import nodes as n

# Estimates are rough: the written order stays unless another one makes so many times fewer rows.
_GAIN = 4.0


@record(frozen=True)
class _Table:
    """A table below joins.

    Attributes:
        rows: the number of its rows that are left by its own conditions.
        distinct: the number of distinct values of its columns, by their places among the columns of all tables.
    """

    rows: float
    distinct: dict[int, float]


def cheaper_order(
    tables: Sequence[n.Node], spans: Sequence[range], equalities: Sequence[Expression], written: list[int]
) -> list[int]:
    """Return the order of some joined tables: the written one, or one that makes far fewer rows.

    Args:
        tables: the tables.
        spans: the places of each one's columns.
        equalities: those of the joins' conditions, by these places.
        written: the order in which they would be joined.
    """
    pairs = [pair for test in equalities if (pair := _columns(test)) is not None]
    if len(tables) < 3 or not pairs:
        return written
    known = [_known(table, span, pairs) for table, span in zip(tables, spans, strict=True)]
    found = [table for table in known if table is not None]
    if len(found) < len(tables):
        return written
    estimates = _Estimates(found, spans, pairs)
    greedy = estimates.greedy(written[0])
    return greedy if _GAIN * estimates.cost(greedy) < estimates.cost(written) else written


def _columns(test: Expression) -> tuple[int, int] | None:
    """Return the columns that an equality compares."""
    assert isinstance(test, Call)
    a, b = test.arguments
    return (a.index, b.index) if isinstance(a, Column) and isinstance(b, Column) else None


def _known(table: n.Node, span: range, pairs: Sequence[tuple[int, int]]) -> _Table | None:
    """Return what is known of a table; None where it is more than a table in files and conditions."""
    share, below = 1.0, table
    while isinstance(below, n.Filter):
        share, below = share * share_of(below.condition), below.input
    if not isinstance(below, n.Scan):
        return None
    used = sorted({c for pair in pairs for c in pair if c in span})
    names = {c: below.columns[c - span.start] for c in used}
    statistics = below.source.statistics(list(names.values()))
    if statistics is None:
        return None
    # Of values whose range is not known, it is a guess between all equal and all different.
    guess = max(1.0, statistics.rows**0.5)
    distinct = {c: float(min(statistics.distinct.get(name, guess), statistics.rows)) for c, name in names.items()}
    return _Table(max(1.0, statistics.rows * share), distinct)


class _Estimates:
    """Estimates of the joins of some tables."""

    def __init__(self, tables: Sequence[_Table], spans: Sequence[range], pairs: Sequence[tuple[int, int]]) -> None:
        self._tables = tables
        owners = {column: i for i, span in enumerate(spans) for column in span}
        # The two tables of an equality, and by how much it divides their pairs of rows.
        self._equalities: list[tuple[int, int, float]] = []
        for a, b in pairs:
            i, j = owners[a], owners[b]
            if i != j:
                self._equalities.append((i, j, max(1.0, tables[i].distinct[a], tables[j].distinct[b])))

    def _divisors(self, done: set[int], table: int) -> list[float]:
        """Return by how much the equalities of a table with those before it divide the pairs of rows."""
        return [
            distinct for i, j, distinct in self._equalities if (i == table and j in done) or (j == table and i in done)
        ]

    def _joined(self, rows: float, done: set[int], table: int) -> float:
        """Return how many rows a table makes of rows of those before it."""
        return max(1.0, rows * self._tables[table].rows / prod(self._divisors(done, table)))

    def cost(self, order: Sequence[int]) -> float:
        """Return how many rows all joins make in an order."""
        rows, total = self._tables[order[0]].rows, 0.0
        for place in range(1, len(order)):
            rows = self._joined(rows, set(order[:place]), order[place])
            total += rows
        return total

    def greedy(self, first: int) -> list[int]:
        """Return the order in which each table makes as few rows as can be had; of equals the smallest comes first."""
        order, waiting = [first], [i for i in range(len(self._tables)) if i != first]
        rows = self._tables[first].rows
        while waiting:
            done = set(order)
            # A table without an equality pairs with every row: it comes last, however small it is.
            connected = [i for i in waiting if self._divisors(done, i)] or waiting
            sizes = {i: self._joined(rows, done, i) for i in connected}
            table = min(connected, key=lambda i: (sizes[i], self._tables[i].rows))
            rows = sizes[table]
            order.append(table)
            waiting.remove(table)
        return order
