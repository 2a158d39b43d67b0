"""Application of rules to trees of nodes."""

from __future__ import annotations

from collections.abc import Callable

from millstream.sql.expressions import Column, Expression, replaced
from millstream.sql.plan.nodes import Node

Rule = Callable[[Node], Node]


def bottom_up(node: Node, rule: Rule) -> Node:
    """Apply a rule to every node, inputs first; shared nodes stay shared."""
    done: dict[int, Node] = {}

    def visit(n: Node) -> Node:
        result = done.get(id(n))
        if result is None:
            inputs = tuple(visit(i) for i in n.inputs)
            same = all(a is b for a, b in zip(inputs, n.inputs, strict=True))
            result = rule(n if same else n.with_inputs(inputs))
            done[id(n)] = result
        return result

    return visit(node)


def top_down(node: Node, rule: Rule) -> Node:
    """Apply a rule to every node, inputs last; shared nodes stay shared."""
    # Holding the nodes keeps their id() unique.
    done: dict[int, tuple[Node, Node]] = {}

    def visit(n: Node) -> Node:
        if id(n) not in done:
            result = rule(n)
            inputs = tuple(visit(i) for i in result.inputs)
            same = all(a is b for a, b in zip(inputs, result.inputs, strict=True))
            done[id(n)] = n, result if same else result.with_inputs(inputs)
        return done[id(n)][1]

    return visit(node)


def inlined(expression: Expression, below: tuple[Expression, ...]) -> Expression:
    """Return an expression over a projection's columns as one over the projection's input."""
    return replaced(expression, lambda e: below[e.index] if isinstance(e, Column) else None)


def shifted(expression: Expression, by: int) -> Expression:
    """Return an expression with its column indexes shifted."""
    return replaced(expression, lambda e: Column(e.type, e.index + by) if isinstance(e, Column) else None)


def moved(expression: Expression, mapping: dict[int, int]) -> Expression:
    """Return an expression with its columns renumbered."""
    return replaced(expression, lambda e: Column(e.type, mapping[e.index]) if isinstance(e, Column) else None)
