"""Pushes filters down towards the sources."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.expressions import Call, Column, Expression, UserCall, columns_of, conjunction, conjuncts, walk
from millstream.sql.optimizer.rewrite import inlined, moved, shifted
from millstream.sql.optimizer.rules.calcs import differs
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Changes

_COMPARISONS = frozenset(["=", "<>", "<", "<=", ">", ">=", "LIKE", "IN"])


def push_filter(node: n.Node) -> n.Node:
    """Push each condition of a Filter down as far as possible."""
    if not isinstance(node, n.Filter):
        return node
    push = _PUSH.get(type(node.input))
    return node if push is None else push(node, node.input)


def _filtered(node: n.Node, tests: list[Expression]) -> n.Node:
    """Return a node below conditions, which are pushed further at once."""
    return push_filter(n.Filter(node.fields, node, conjunction(tests))) if tests else node


def is_stable(e: Expression) -> bool:
    """Return whether an expression is deterministic and cheap."""
    return not any(isinstance(p, UserCall) or differs(p) for p in walk(e))


def _through_filter(node: n.Filter, below: n.Node) -> n.Node:
    assert isinstance(below, n.Filter)
    return _filtered(below.input, [*conjuncts(below.condition), *conjuncts(node.condition)])


def _through_project(node: n.Filter, below: n.Node) -> n.Node:
    assert isinstance(below, n.Project)
    down: list[Expression] = []
    up: list[Expression] = []
    for test in conjuncts(node.condition):
        stable = all(is_stable(below.expressions[c]) for c in columns_of(test))
        (down if stable else up).append(test)
    inner = _filtered(below.input, [inlined(t, below.expressions) for t in down])
    result = replace(below, input=inner)
    return n.Filter(node.fields, result, conjunction(up)) if up else result


def _through_join(node: n.Filter, below: n.Node) -> n.Node:
    assert isinstance(below, n.Join)
    if isinstance(below, n.TemporalJoin):
        return node
    join = _stricter(below, conjuncts(node.condition))
    width = len(join.left.fields)
    semi = join.kind in (n.JoinKind.SEMI, n.JoinKind.ANTI)
    left, right, inside, up = [], [], [], []
    for test in conjuncts(node.condition):
        used = columns_of(test)
        if not is_stable(test) or not used:
            up.append(test)
        elif max(used) < width and (semi or join.kind in (n.JoinKind.INNER, n.JoinKind.LEFT)):
            left.append(test)
        elif min(used) >= width and join.kind in (n.JoinKind.INNER, n.JoinKind.RIGHT):
            right.append(shifted(test, -width))
        elif join.kind is n.JoinKind.INNER:
            inside.append(test)
        else:
            up.append(test)
    condition = [*conjuncts(join.condition), *inside]
    result: n.Node = replace(
        join,
        left=_filtered(join.left, left),
        right=_filtered(join.right, right),
        condition=conjunction(condition) if condition else None,
    )
    result = push_join_condition(result)
    return n.Filter(node.fields, result, conjunction(up)) if up else result


def _stricter(join: n.Join, tests: list[Expression]) -> n.Join:
    """Convert an outer join to an inner one where a condition above rejects nulls of the outer side."""
    width = len(join.left.fields)
    needs_left = needs_right = False
    for test in tests:
        if isinstance(test, Call) and (test.function in _COMPARISONS or test.function == "IS NOT NULL"):
            plain = [a.index for a in test.arguments if isinstance(a, Column)]
            needs_left |= any(i < width for i in plain)
            needs_right |= any(i >= width for i in plain)
    kind = join.kind
    if kind is n.JoinKind.FULL and needs_left:
        kind = n.JoinKind.LEFT
    elif kind is n.JoinKind.FULL and needs_right:
        kind = n.JoinKind.RIGHT
    if (kind is n.JoinKind.LEFT and needs_right) or (kind is n.JoinKind.RIGHT and needs_left):
        kind = n.JoinKind.INNER
    # Columns keep their nullable types, which nodes above rely on.
    return join if kind is join.kind else replace(join, kind=kind)


def push_join_condition(node: n.Node) -> n.Node:
    """Push join conditions on one side down to it, where the join does not preserve that side's other rows."""
    if not isinstance(node, n.Join) or node.condition is None or isinstance(node, n.TemporalJoin):
        return node
    width = len(node.left.fields)
    kind = node.kind
    left, right, remaining = [], [], []
    for test in conjuncts(node.condition):
        used = columns_of(test)
        if not used or not is_stable(test):
            remaining.append(test)
        elif max(used) < width and kind in (n.JoinKind.INNER, n.JoinKind.RIGHT, n.JoinKind.SEMI):
            left.append(test)
        elif min(used) >= width and kind is not n.JoinKind.RIGHT and kind is not n.JoinKind.FULL:
            right.append(shifted(test, -width))
        else:
            remaining.append(test)
    if not left and not right:
        return node
    return replace(
        node,
        left=_filtered(node.left, left),
        right=_filtered(node.right, right),
        condition=conjunction(remaining) if remaining else None,
    )


def _through_union(node: n.Filter, below: n.Node) -> n.Node:
    assert isinstance(below, n.Union)
    if not is_stable(node.condition):
        return node
    return replace(below, parts=tuple(_filtered(p, conjuncts(node.condition)) for p in below.parts))


def _by_keys(node: n.Filter, below: n.Single, keys: dict[int, int]) -> n.Node:
    """Push conditions on some columns below a node; `keys` maps them to its input."""
    down: list[Expression] = []
    up: list[Expression] = []
    for test in conjuncts(node.condition):
        used = columns_of(test)
        (down if used and used <= set(keys) and is_stable(test) else up).append(test)
    if not down:
        return node
    inner = _filtered(below.input, [moved(t, keys) for t in down])
    result = replace(below, input=inner)
    return n.Filter(node.fields, result, conjunction(up)) if up else result


def _through_aggregate(node: n.Filter, below: n.Node) -> n.Node:
    assert isinstance(below, n.Aggregate)
    return _by_keys(node, below, dict(enumerate(below.keys)))


def _through_window_table(node: n.Filter, below: n.Node) -> n.Node:
    assert isinstance(below, n.WindowTable)
    if below.is_session:
        return _by_keys(node, below, {p: p for p in below.window.partition})
    return _by_keys(node, below, {i: i for i in range(len(below.input.fields))})


def _through_over(node: n.Filter, below: n.Node) -> n.Node:
    assert isinstance(below, n.Over)
    return _by_keys(node, below, {p: p for p in below.over.partition})


def _through_correlate(node: n.Filter, below: n.Node) -> n.Node:
    assert isinstance(below, n.Correlate)
    return _by_keys(node, below, {i: i for i in range(len(below.input.fields))})


_PUSH = {
    n.Filter: _through_filter,
    n.Project: _through_project,
    n.Join: _through_join,
    n.Union: _through_union,
    n.Aggregate: _through_aggregate,
    n.WindowTable: _through_window_table,
    n.Over: _through_over,
    n.Correlate: _through_correlate,
}


def filters_into_scan(node: n.Node) -> n.Node:
    """Pass conditions to a source, which may skip rows; the filter stays."""
    if not isinstance(node, n.Filter) or not isinstance(node.input, n.Scan):
        return node
    tests = tuple(t for t in conjuncts(node.condition) if is_stable(t) and columns_of(t))
    changes = node.input.source.changes
    # An upsert that fails a condition replaces a row that passed it.
    is_upserts = Changes.UPDATE_AFTER in changes and Changes.UPDATE_BEFORE not in changes
    if not tests or node.input.filters or is_upserts:
        return node
    return replace(node, input=replace(node.input, filters=tests))
