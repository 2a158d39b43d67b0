"""Recognises interval joins: joins whose rows' times must be within bounds of each other."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.expressions import Call, Column, Constant, Expression, conjunction, conjuncts
from millstream.sql.plan import nodes as n
from millstream.sql.schema import TimeAttribute
from millstream.sql.types import DayTimeIntervalType

# The time columns of both sides, and what right time - left time is at least and at most.
_Bound = tuple[tuple[int, int], int | None, int | None]
_OPERATORS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def find_interval_join(node: n.Node) -> n.Node:
    """Make an IntervalJoin of a Join that bounds the time of both sides."""
    if type(node) is not n.Join or node.kind in (n.JoinKind.SEMI, n.JoinKind.ANTI):
        return node
    lower: int | None = None
    upper: int | None = None
    times: tuple[int, int] | None = None
    rest: list[Expression] = []
    whole, (node, equal) = node, _without_times(node)
    bounds: list[tuple[Expression | None, _Bound | None]] = [(None, b) for b in equal]
    bounds += [(test, _bound(test, node)) for test in conjuncts(node.condition)]
    for test, found in bounds:
        if found is None or (times is not None and found[0] != times):
            assert test is not None
            rest.append(test)
            continue
        times = found[0]
        least, most = found[1], found[2]
        if least is not None:
            lower = least if lower is None else max(lower, least)
        if most is not None:
            upper = most if upper is None else min(upper, most)
    if times is None or lower is None or upper is None:
        return whole
    return n.IntervalJoin(
        node.fields,
        node.left,
        node.right,
        node.kind,
        node.left_keys,
        node.right_keys,
        node.null_safe,
        conjunction(rest) if rest else None,
        times[0],
        times[1],
        node.left.fields[times[0]].time is TimeAttribute.ROWTIME,
        lower,
        upper,
    )


def _without_times(node: n.Join) -> tuple[n.Join, list[_Bound]]:
    """Return a join without time attributes among its keys, and what they bound: one pair at most is taken."""
    for i, (left, right) in enumerate(zip(node.left_keys, node.right_keys, strict=True)):
        time = node.left.fields[left].time
        if time is None or node.right.fields[right].time is not time:
            continue
        kept = [k for k in range(len(node.left_keys)) if k != i]
        found = replace(
            node,
            left_keys=tuple(node.left_keys[k] for k in kept),
            right_keys=tuple(node.right_keys[k] for k in kept),
            null_safe=tuple(node.null_safe[k] for k in kept),
        )
        return found, [((left, right), 0, 0)]
    return node, []


def _bound(test: Expression, node: n.Join) -> _Bound | None:
    """Return the time columns of both sides and what a condition says of right time - left time."""
    if not isinstance(test, Call) or test.function not in _OPERATORS:
        return None
    a, b = (_time(x) for x in test.arguments)
    if a is None or b is None:
        return None
    operator = test.function
    width = len(node.left.fields)
    if a[0] >= width:
        a, b, operator = b, a, _OPERATORS[operator]
    if not (a[0] < width <= b[0]):
        return None
    left, right = a[0], b[0] - width
    attributes = node.left.fields[left].time, node.right.fields[right].time
    if attributes[0] is None or attributes[0] is not attributes[1]:
        return None
    distance = a[1] - b[1]
    # left + a <operator> right + b is about right - left and a - b.
    if operator == "=":
        return (left, right), distance, distance
    if operator in (">", ">="):
        return (left, right), None, distance - (operator == ">")
    return (left, right), distance + (operator == "<"), None


def _time(e: Expression) -> tuple[int, int] | None:
    """Return the column and the milliseconds that are added to it."""
    if isinstance(e, Column):
        return e.index, 0
    if isinstance(e, Call) and e.function in ("+", "-") and len(e.arguments) == 2:
        first, second = e.arguments
        if isinstance(first, Constant) and e.function == "+":
            first, second = second, first
        inner = _time(first)
        if inner is not None and isinstance(second, Constant) and isinstance(second.type, DayTimeIntervalType):
            return inner[0], inner[1] + (second.value if e.function == "+" else -second.value)
    return None
