"""Which columns only go up, or only down, while rows are updated: then a Top-N need not keep those that fall out."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from enum import Enum

from millstream.sql.expressions import Call, Column, Constant, Expression, conjuncts
from millstream.sql.optimizer.changelog import Kinds
from millstream.sql.plan import nodes as n
from millstream.sql.row_kinds import INSERTS
from millstream.sql.schema import Fields


class Goes(Enum):
    """How a column goes."""

    NOWHERE = "constant"
    UP = "increasing"
    DOWN = "decreasing"


_CALLS = {"COUNT": Goes.UP, "MAX": Goes.UP, "MIN": Goes.DOWN}


def monotonic(node: n.Node, kinds_of: Callable[[n.Node], Kinds]) -> dict[int, Goes]:
    """Return how the columns of a node go, of those of which it is known.

    Args:
        node: the node.
        kinds_of: what the rows of a node can say.
    """
    if isinstance(node, n.Calc):
        below = monotonic(node.input, kinds_of)
        places = {i: e.index for i, e in enumerate(node.expressions) if isinstance(e, Column)}
        return {i: below[p] for i, p in places.items() if p in below}
    if isinstance(node, n.Aggregate) and kinds_of(node.input) == INSERTS:
        found = dict.fromkeys(range(len(node.keys)), Goes.NOWHERE)
        for i, call in enumerate(node.calls, len(node.keys)):
            goes = _CALLS.get(call.function)
            if call.function == "SUM" and _is_never_negative(node.input, call.arguments[0]):
                goes = Goes.UP
            if goes is not None and call.user is None:
                found[i] = goes
        return found
    return {}


def _is_never_negative(node: n.Node, column: int) -> bool:
    """Tell whether a filter leaves no row in which a column is less than nothing."""
    if not isinstance(node, n.Calc):
        return False
    value = node.expressions[column]
    if isinstance(value, Constant):
        return _is_at_least_zero(value)
    return any(
        isinstance(test, Call)
        and test.function in (">", ">=")
        and test.arguments[0] == value
        and _is_at_least_zero(test.arguments[1])
        for test in conjuncts(node.condition)
    )


def _is_at_least_zero(e: Expression) -> bool:
    return isinstance(e, Constant) and isinstance(e.value, (int, float, Decimal)) and e.value >= 0


def is_ordered_by(order: tuple[tuple[int, bool, bool], ...], goes: dict[int, Goes], fields: Fields) -> bool:
    """Tell whether a row that is updated never falls back in an order."""
    for column, descending, nulls_first in order:
        found = goes.get(column)
        if found is None or found is (Goes.DOWN if descending else Goes.UP):
            return False
        if found is not Goes.NOWHERE and nulls_first and fields[column].type.is_nullable:
            # The first value of MIN or MAX takes the place of a null.
            return False
    return True
