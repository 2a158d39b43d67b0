"""Queries inside expressions, as the binder leaves them; `plan/rules/subqueries.py` makes joins of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.sql.expressions import Expression
from millstream.sql.plan.nodes import Node


class SubqueryKind(Enum):
    """What is asked of a query inside an expression."""

    EXISTS = "EXISTS"
    IN = "IN"
    SCALAR = "SCALAR"


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Outer(Expression):
    """A column of the row of a query around.

    Attributes:
        index: its place there.
        level: how many queries outward; 1 is the next one.
    """

    index: int
    level: int = 1
