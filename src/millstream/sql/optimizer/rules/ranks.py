"""Recognises Top-N and deduplication: ROW_NUMBER() OVER (..) under a condition on the number."""

from __future__ import annotations

from millstream.sql.errors import TableException
from millstream.sql.expressions import Call, Column, Constant, Expression, columns_of, conjunction, conjuncts, replaced
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Fields, TimeAttribute

_RANKS = frozenset(["ROW_NUMBER", "RANK", "DENSE_RANK"])
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def find_rank(node: n.Node, batch: bool = False) -> n.Node:
    """Convert a Calc over an Over with a condition on the row number to a Rank."""
    if not isinstance(node, n.Calc) or not isinstance(node.input, n.Over) or node.condition is None:
        return node
    over = node.input.over
    if len(over.calls) != 1 or over.calls[0].function not in _RANKS or not over.order:
        return node
    rank_column = len(node.input.input.fields)
    first, last, rest = _bounds(conjuncts(node.condition), rank_column)
    if last is None:
        return node
    function = over.calls[0].function
    if function != "ROW_NUMBER":
        if batch:
            # In batch all rows are available and OVER computes ties.
            return node
        raise TableException(f"{function}() on streaming table is not supported currently: use ROW_NUMBER().")
    shows = first != last
    below = node.input.input
    fields = node.input.fields if shows else Fields(below.fields.fields)
    result: n.Node = n.Rank(fields, below, over.partition, over.order, function, first, last, shows)
    expressions, condition = list(node.expressions), rest
    if not shows:
        number = Constant(node.input.fields[rank_column].type.not_null(), first)
        expressions = [_with_constant(e, rank_column, number) for e in expressions]
        condition = [_with_constant(e, rank_column, number) for e in condition]
    return n.Calc(node.fields, result, tuple(expressions), conjunction(condition) if condition else None)


def _with_constant(e: Expression, rank_column: int, constant: Constant) -> Expression:
    return replaced(e, lambda c: constant if isinstance(c, Column) and c.index == rank_column else None)


def _bounds(tests: list[Expression], rank_column: int) -> tuple[int, int | None, list[Expression]]:
    first, last = 1, None
    rest: list[Expression] = []
    for test in tests:
        result = _compared(test, rank_column)
        if result is None:
            rest.append(test)
            continue
        operator, number = result
        if operator in (">", ">=", "="):
            first = max(first, number + 1 if operator == ">" else number)
        if operator in ("<", "<=", "="):
            upper = number - 1 if operator == "<" else number
            last = upper if last is None else min(last, upper)
    return first, last, rest


def _compared(test: Expression, rank_column: int) -> tuple[str, int] | None:
    if not isinstance(test, Call) or test.function not in _MIRRORED or columns_of(test) != {rank_column}:
        return None
    a, b = test.arguments
    if isinstance(a, Column) and isinstance(b, Constant) and isinstance(b.value, int):
        return test.function, b.value
    if isinstance(b, Column) and isinstance(a, Constant) and isinstance(a.value, int):
        return _MIRRORED[test.function], a.value
    return None


def find_deduplicate(node: n.Node) -> n.Node:
    """Convert a Rank that keeps one row per key by time to a Deduplicate."""
    if not isinstance(node, n.Rank) or node.shows_rank or not (node.first == node.last == 1):
        return node
    if len(node.order) != 1 or node.function != "ROW_NUMBER":
        return node
    time, descending, _ = node.order[0]
    attribute = node.input.fields[time].time
    if attribute is None:
        return node
    is_event_time = attribute is TimeAttribute.ROWTIME
    return n.Deduplicate(node.fields, node.input, node.partition, time, is_event_time, descending)
