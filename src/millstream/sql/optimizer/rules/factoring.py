"""What all sides of an OR demand is demanded once: a join may go by it, or a table be filtered by it."""

from __future__ import annotations

from dataclasses import replace

from millstream.sql.expressions import Call, Expression, conjunction, conjuncts, disjunction
from millstream.sql.optimizer.rules.filter_pushdown import is_stable
from millstream.sql.plan import nodes as n


def factor_conditions(node: n.Node) -> n.Node:
    """Take what is common to all sides of an OR out of it, in a filter's condition or a join's."""
    if isinstance(node, (n.Filter, n.Join)) and node.condition is not None:
        tests = conjuncts(node.condition)
        found = [part for test in tests for part in conjuncts(factored(test))]
        if found != list(tests):
            return replace(node, condition=conjunction(list(dict.fromkeys(found))))
    return node


def factored(test: Expression) -> Expression:
    """Return `(a AND b) OR (a AND c)` as `a AND (b OR c)`, which is the same with unknown values, too."""
    if not (isinstance(test, Call) and test.function == "OR"):
        return test
    sides = [conjuncts(side) for side in _sides(test)]
    common = [t for t in dict.fromkeys(sides[0]) if is_stable(t) and all(t in side for side in sides[1:])]
    if not common:
        return test
    rests = [[t for t in side if t not in common] for side in sides]
    if not all(rests):
        # One side demands no more than all of them do.
        return conjunction(common)
    return conjunction([*common, disjunction([conjunction(rest) for rest in rests])])


def _sides(test: Expression) -> list[Expression]:
    if isinstance(test, Call) and test.function == "OR":
        return [side for argument in test.arguments for side in _sides(argument)]
    return [test]
