"""The order of inner joins in BATCH: as written, but a table without an equality is joined after one that has one.

If statistics of all tables are available, an order with far fewer intermediate rows replaces the written one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.expressions import Call, Column, Expression, columns_of, conjunction, conjuncts
from millstream.sql.optimizer.costs import share_of
from millstream.sql.optimizer.rewrite import moved, top_down
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Fields

# Estimates are rough: another order must produce this many times fewer rows to replace the written one.
_GAIN = 4.0


@fast_dataclass
class _Table:
    """Statistics of a joined table.

    Attributes:
        rows: the number of rows after its own conditions.
        distinct: the number of distinct values by column index among the columns of all tables.
    """

    rows: float
    distinct: dict[int, float]


def cheaper_order(
    tables: Sequence[n.Node], spans: Sequence[range], equalities: Sequence[Expression], written: list[int]
) -> list[int]:
    """Return the order of joined tables: the written one, or one with far fewer intermediate rows.

    Args:
        tables: the tables.
        spans: the column range of each table.
        equalities: the equalities of the joins' conditions, over these columns.
        written: the default order.
    """
    pairs = [pair for test in equalities if (pair := _columns(test)) is not None]
    if len(tables) < 3 or not pairs:
        return written
    known = [_known(table, span, pairs) for table, span in zip(tables, spans, strict=True)]
    result = [table for table in known if table is not None]
    if len(result) < len(tables):
        return written
    estimates = _Estimates(result, spans, pairs)
    greedy = estimates.greedy(written[0])
    return greedy if _GAIN * estimates.cost(greedy) < estimates.cost(written) else written


def _columns(test: Expression) -> tuple[int, int] | None:
    """Return the columns that an equality compares."""
    assert isinstance(test, Call)
    a, b = test.arguments
    return (a.index, b.index) if isinstance(a, Column) and isinstance(b, Column) else None


def _known(table: n.Node, span: range, pairs: Sequence[tuple[int, int]]) -> _Table | None:
    """Return the statistics of a table; None if the node is more than a scan with conditions."""
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
    # Without a known range, a guess between all equal and all distinct.
    estimate = max(1.0, statistics.rows**0.5)
    distinct = {c: float(min(statistics.distinct.get(name, estimate), statistics.rows)) for c, name in names.items()}
    return _Table(max(1.0, statistics.rows * share), distinct)


class _Estimates:
    """Estimates of joins of some tables."""

    def __init__(self, tables: Sequence[_Table], spans: Sequence[range], pairs: Sequence[tuple[int, int]]) -> None:
        self._tables = tables
        owners = {column: i for i, span in enumerate(spans) for column in span}
        # The two tables of an equality, and its selectivity as a divisor of their pairs.
        self._equalities: list[tuple[int, int, float]] = []
        for a, b in pairs:
            i, j = owners[a], owners[b]
            if i != j:
                self._equalities.append((i, j, max(1.0, tables[i].distinct[a], tables[j].distinct[b])))

    def _divisors(self, done: set[int], table: int) -> list[float]:
        """Return the selectivity of a table's equalities with the preceding ones, as a divisor of pairs."""
        return [
            distinct for i, j, distinct in self._equalities if (i == table and j in done) or (j == table and i in done)
        ]

    def _joined(self, rows: float, done: set[int], table: int) -> float:
        """Return the number of rows after joining a table to preceding rows."""
        return max(1.0, rows * self._tables[table].rows / prod(self._divisors(done, table)))

    def cost(self, order: Sequence[int]) -> float:
        """Return the total number of intermediate rows of an order."""
        rows, total = self._tables[order[0]].rows, 0.0
        for position in range(1, len(order)):
            rows = self._joined(rows, set(order[:position]), order[position])
            total += rows
        return total

    def greedy(self, first: int) -> list[int]:
        """Return the order that minimizes rows greedily; ties take the smallest table first."""
        order, remaining = [first], [i for i in range(len(self._tables)) if i != first]
        rows = self._tables[first].rows
        while remaining:
            done = set(order)
            # A table without an equality pairs with every row and is last, however small.
            connected = [i for i in remaining if self._divisors(done, i)] or remaining
            sizes = {i: self._joined(rows, done, i) for i in connected}
            table = min(connected, key=lambda i: (sizes[i], self._tables[i].rows))
            rows = sizes[table]
            order.append(table)
            remaining.remove(table)
        return order


def order_joins(node: n.Node) -> n.Node:
    """Order the inner joins of a plan, each join tree once."""
    # Holding the nodes keeps their id() unique.
    ordered: dict[int, n.Node] = {}

    def rule(one: n.Node) -> n.Node:
        if id(one) in ordered:
            return one
        result = _join_connected(one)
        below = result.input if result is not one and isinstance(result, n.Project) else result
        while isinstance(below, n.Join) and _is_plain(below):
            ordered[id(below)] = below
            below = below.left
        return result

    return top_down(node, rule)


def _join_connected(node: n.Node) -> n.Node:
    """Move a table without an equality to the preceding tables behind one that has one.

    `FROM part, supplier, partsupp` would pair all parts with all suppliers before their equalities with partsupp apply.
    """
    if not _is_plain(node):
        return node
    tables, tests, hints = _flat(node)
    starts = [0]
    for table in tables:
        starts.append(starts[-1] + len(table.fields))
    spans = [range(a, b) for a, b in pairwise(starts)]
    order = _order(spans, [_tables_of(test, spans) for test in tests if _is_equality(test)])
    order = cheaper_order(tables, spans, [test for test in tests if _is_equality(test)], order)
    if order == list(range(len(tables))):
        return node
    return _joined(node, tables, spans, order, tests, hints)


def _is_plain(node: n.Node) -> bool:
    return type(node) is n.Join and node.kind is n.JoinKind.INNER and not node.left_keys


def _flat(node: n.Node) -> tuple[list[n.Node], list[Expression], list[tuple[str, ...]]]:
    """Return the tables of a join tree from left to right, and its conditions over all columns in sequence.

    Each table is returned with the hints of the join whose right side it is.
    """
    if not _is_plain(node):
        return [node], [], [()]
    assert isinstance(node, n.Join)
    left, tests, hints = _flat(node.left)
    # Only the left side continues the tree; parentheses on the right side are respected.
    return [*left, node.right], [*tests, *conjuncts(node.condition)], [*hints, node.hints]


def _is_equality(test: Expression) -> bool:
    return isinstance(test, Call) and test.function in ("=", "IS NOT DISTINCT FROM")


def _tables_of(test: Expression, spans: list[range]) -> set[int]:
    used = columns_of(test)
    return {i for i, span in enumerate(spans) if any(c in span for c in used)}


def _order(spans: list[range], equalities: list[set[int]]) -> list[int]:
    order, remaining = [0], list(range(1, len(spans)))
    while remaining:
        done = set(order)
        connected = (i for i in remaining if any(i in e and len(e) > 1 and e <= done | {i} for e in equalities))
        result = next(connected, remaining[0])
        remaining.remove(result)
        order.append(result)
    return order


def _joined(
    node: n.Node,
    tables: list[n.Node],
    spans: list[range],
    order: list[int],
    tests: list[Expression],
    hints: list[tuple[str, ...]],
) -> n.Node:
    mapping = {column: position for position, column in enumerate(c for i in order for c in spans[i])}
    result, width, left = tables[order[0]], len(spans[order[0]]), list(tests)
    for i in order[1:]:
        width += len(spans[i])
        now = [t for t in left if all(mapping[c] < width for c in columns_of(t))]
        left = [t for t in left if t not in now]
        condition = conjunction([moved(t, mapping) for t in now]) if now else None
        fields = Fields((*result.fields.fields, *tables[i].fields.fields))
        result = n.Join(fields, result, tables[i], n.JoinKind.INNER, condition=condition, hints=hints[i])
    expressions = tuple(Column(f.type, mapping[c]) for c, f in enumerate(node.fields.fields))
    return n.Project(node.fields, result, expressions)
