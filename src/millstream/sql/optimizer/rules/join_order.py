"""The order of inner joins in BATCH: as written, but a table waits until something says which of its rows belong.

Where statistics of all tables are at hand, an order that makes far fewer rows on the way is taken instead.
"""

from __future__ import annotations

from itertools import pairwise

from millstream.sql.expressions import Call, Column, Expression, columns_of, conjunction, conjuncts
from millstream.sql.optimizer.rewrite import moved, top_down
from millstream.sql.optimizer.rules.join_estimates import cheaper_order
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Fields


def order_joins(node: n.Node) -> n.Node:
    """Order the inner joins of a plan, each tree of them once."""
    # With the nodes themselves, so that no other gets their ids.
    ordered: dict[int, n.Node] = {}

    def rule(one: n.Node) -> n.Node:
        if id(one) in ordered:
            return one
        found = _join_connected(one)
        below = found.input if found is not one and isinstance(found, n.Project) else found
        while isinstance(below, n.Join) and _is_plain(below):
            ordered[id(below)] = below
            below = below.left
        return found

    return top_down(node, rule)


def _join_connected(node: n.Node) -> n.Node:
    """Join a table that has no equality with those before it after one that has.

    `FROM part, supplier, partsupp` would pair all parts with all suppliers before their equalities with partsupp count.
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
    """Return the tables of a tree of joins from left to right, and what must hold of all their columns in a row.

    With them come the hints of the joins that they are at the right of.
    """
    if not _is_plain(node):
        return [node], [], [()]
    assert isinstance(node, n.Join)
    left, tests, hints = _flat(node.left)
    # Only the left side is a tree by itself; one on the right was put in parentheses.
    return [*left, node.right], [*tests, *conjuncts(node.condition)], [*hints, node.hints]


def _is_equality(test: Expression) -> bool:
    return isinstance(test, Call) and test.function in ("=", "IS NOT DISTINCT FROM")


def _tables_of(test: Expression, spans: list[range]) -> set[int]:
    used = columns_of(test)
    return {i for i, span in enumerate(spans) if any(c in span for c in used)}


def _order(spans: list[range], equalities: list[set[int]]) -> list[int]:
    order, waiting = [0], list(range(1, len(spans)))
    while waiting:
        done = set(order)
        connected = (i for i in waiting if any(i in e and len(e) > 1 and e <= done | {i} for e in equalities))
        found = next(connected, waiting[0])
        waiting.remove(found)
        order.append(found)
    return order


def _joined(
    node: n.Node,
    tables: list[n.Node],
    spans: list[range],
    order: list[int],
    tests: list[Expression],
    hints: list[tuple[str, ...]],
) -> n.Node:
    places = {column: place for place, column in enumerate(c for i in order for c in spans[i])}
    found, width, left = tables[order[0]], len(spans[order[0]]), list(tests)
    for i in order[1:]:
        width += len(spans[i])
        now = [t for t in left if all(places[c] < width for c in columns_of(t))]
        left = [t for t in left if t not in now]
        condition = conjunction([moved(t, places) for t in now]) if now else None
        fields = Fields((*found.fields.fields, *tables[i].fields.fields))
        found = n.Join(fields, found, tables[i], n.JoinKind.INNER, condition=condition, hints=hints[i])
    expressions = tuple(Column(f.type, places[c]) for c, f in enumerate(node.fields.fields))
    return n.Project(node.fields, found, expressions)
