"""Queries inside expressions, as the binder leaves them; `plan/rules/subqueries.py` makes joins of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from millstream.common.fast_dataclass import record
from millstream.sql.expressions import Column, Expression, replaced
from millstream.sql.plan.nodes import Node


class SubqueryKind(Enum):
    """What is asked of a query inside an expression."""

    EXISTS = "EXISTS"
    IN = "IN"
    SCALAR = "SCALAR"


@record
class Subquery(Expression):
    """Whether a query has rows, whether values are among its rows, or its one value.

    Attributes:
        kind: what is asked.
        node: the query; expressions in it may look at the row of the query around (`Outer`).
        values: what is looked for among the rows, as many as the query has columns; already of their types.
    """

    kind: SubqueryKind
    node: Node
    values: tuple[Expression, ...] = ()

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.values


@record
class Outer(Expression):
    """A column of the row of a query around.

    Attributes:
        index: its place there.
        level: how many queries outward; 1 is the next one.
    """

    index: int
    level: int = 1


def with_outer(node: Node, change: Callable[[int], Expression], level: int = 1) -> Node:
    """Return a query that looks at other columns of the row around it.

    Args:
        node: the query.
        change: returns for a column of the row around what is looked at now, about the new row around.
        level: how many queries the row is around this one.
    """

    def outer(e: Expression) -> Expression | None:
        if isinstance(e, Outer) and e.level == level:
            return _out(change(e.index), level)
        if isinstance(e, Subquery):
            values = tuple(replaced(v, outer) for v in e.values)
            return replace(e, node=with_outer(e.node, change, level + 1), values=values)
        return None

    def changed(value: Any) -> Any:
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
    """Return an expression about the row around as one that looks out so many queries."""

    def change(part: Expression) -> Expression | None:
        return Outer(part.type, part.index, level) if isinstance(part, Column) else None

    return replaced(e, change)
