"""Subqueries inside expressions, as the binder creates them; `optimizer/rules/subqueries.py` replaces them by joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.expressions import Column, Expression, replaced
from millstream.sql.plan.nodes import Node


class SubqueryKind(Enum):
    """The type of a subquery."""

    EXISTS = "EXISTS"
    IN = "IN"
    SCALAR = "SCALAR"


@fast_dataclass
class Subquery(Expression):
    """A subquery: EXISTS, IN or a scalar value.

    Attributes:
        kind: the type.
        node: the query; its expressions may refer to outer rows (`Outer`).
        values: the left side of IN, cast to the types of the query's columns.
    """

    kind: SubqueryKind
    node: Node
    values: tuple[Expression, ...] = ()

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.values


@fast_dataclass
class Outer(Expression):
    """A column of an enclosing query's row.

    Attributes:
        index: the column's index.
        level: the number of queries outward, from 1.
    """

    index: int
    level: int = 1


def with_outer(node: Node, change: Callable[[int], Expression], level: int = 1) -> Node:
    """Return a query with its references to an outer row replaced.

    Args:
        node: the query.
        change: returns the replacement for an outer column, over the new outer row.
        level: the number of queries between this one and the outer row.
    """

    def outer(e: Expression) -> Expression | None:
        if isinstance(e, Outer) and e.level == level:
            return _out(change(e.index), level)
        if isinstance(e, Subquery):
            values = tuple(replaced(v, outer) for v in e.values)
            return replace(e, node=with_outer(e.node, change, level + 1), values=values)
        return None

    def changed(value: Value) -> Value:
        if isinstance(value, Expression):
            return replaced(value, outer)
        if isinstance(value, Node):
            return with_outer(value, change, level)
        if isinstance(value, tuple) and any(isinstance(v, (Expression, Node, tuple)) for v in value):
            return tuple(map(changed, value))
        return value

    new = {name: changed(value) for name, value in vars(node).items() if name != "fields"}
    return replace(node, **{name: value for name, value in new.items() if value is not vars(node)[name]})


def _out(e: Expression, level: int) -> Expression:
    """Return an expression over the outer row as seen from a query `level` levels inside."""

    def change(part: Expression) -> Expression | None:
        return Outer(part.type, part.index, level) if isinstance(part, Column) else None

    return replaced(e, change)
