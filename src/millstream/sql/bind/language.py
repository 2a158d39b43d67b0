"""The functions of the language, as the binder asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.sql.bind.expressions import cast
from millstream.sql.bind.functions import AggregateResolved
from millstream.sql.expressions import Call, Column, Constant, Expression, walk
from millstream.sql.functions import table
from millstream.sql.functions.evaluate import folded
from millstream.sql.functions.resolve import call
from millstream.sql.types import BigIntType, DecimalType, LocalZonedTimestampType

_AGGREGATES = frozenset(
    [
        "COUNT",
        "SUM",
        "AVG",
        "MIN",
        "MAX",
        "ROW_NUMBER",
        "RANK",
        "DENSE_RANK",
        "FIRST_VALUE",
        "LAST_VALUE",
        "LAG",
        "LEAD",
    ]
)


class LanguageFunctions:
    """Looks functions up in their table."""

    def kind(self, name: str) -> str | None:
        """Return what a function makes of rows, None for a name that is unknown."""
        if name.upper() in _AGGREGATES:
            return "aggregate"
        found = table.find(name)
        if found is None:
            return None
        return "aggregate" if found.kind.value == "over" else found.kind.value

    def canonical(self, name: str) -> str:
        """Return what the table calls a function."""
        found = table.find(name)
        return name.upper() if found is None else found.name

    def names(self) -> list[str]:
        """Return the names of all functions."""
        return sorted(f for f in table.FUNCTIONS if f.replace("_", "").isalnum())

    def is_deterministic(self, name: str) -> bool:
        """Tell whether equal arguments give equal results."""
        found = table.find(name)
        return found is None or found.deterministic

    def folded(self, expression: Expression) -> Expression:
        """Return the constant that an expression is, or the expression."""
        if isinstance(expression, Constant) or any(isinstance(e, Column) for e in walk(expression)):
            return expression
        return folded(expression)

    def call(self, name: str, arguments: Sequence[Expression], options: tuple[Any, ...] = ()) -> Expression:
        """Return a scalar function applied to arguments."""
        if name.upper() == "PROCTIME" and not arguments:
            return Call(LocalZonedTimestampType(3, False), "PROCTIME")
        found = call(name, arguments, options)
        return Call(found.type, found.function, tuple(map(_as_written, found.arguments)), found.options)

    def aggregate(self, name: str, arguments: Sequence[Expression], has_rows: bool) -> AggregateResolved:
        """Return what an aggregate is for some arguments."""
        types = tuple(a.type for a in arguments)
        name = name.upper()
        if name in ("COUNT", "ROW_NUMBER", "RANK", "DENSE_RANK"):
            return AggregateResolved(BigIntType(False), types)
        kind = types[0]
        if name in ("SUM", "AVG") and isinstance(kind, DecimalType):
            kind = DecimalType(38, kind.scale if name == "SUM" else max(6, kind.scale))
        return AggregateResolved(kind.with_nullability(types[0].is_nullable or not has_rows), types)


def _as_written(argument: Expression) -> Expression:
    """Return a constant that is cast only to be of a wider type as one of that type."""
    if isinstance(argument, Call) and argument.function == "CAST" and isinstance(argument.arguments[0], Constant):
        return cast(argument.arguments[0], argument.type)
    return argument
