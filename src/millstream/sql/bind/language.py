"""The functions of the language, as the binder asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.sql.bind.functions import AggregateResolved
from millstream.sql.bind.unbound_calls import cast
from millstream.sql.expressions import Call, Column, Constant, Expression, walk
from millstream.sql.functions import aggregates, table
from millstream.sql.functions.evaluate import folded
from millstream.sql.functions.function import Arguments, Kind
from millstream.sql.functions.resolve import call
from millstream.sql.functions.resolve import cast as written_cast
from millstream.sql.types import DataType

_KINDS = {Kind.SCALAR: "scalar", Kind.AGGREGATE: "aggregate", Kind.OVER: "aggregate", Kind.TABLE: "table"}


class LanguageFunctions:
    """Looks functions up in their table."""

    def kind(self, name: str) -> str | None:
        """Return what a function makes of rows, None for a name that is unknown."""
        found = table.find(name)
        return None if found is None else _KINDS[found.kind]

    def needs_over(self, name: str) -> bool:
        """Tell whether a function stands with OVER only."""
        found = table.find(name)
        return found is not None and found.kind is Kind.OVER

    def canonical(self, name: str) -> str:
        """Return what the table calls a function."""
        found = table.find(name)
        return name.upper() if found is None else found.name

    def names(self) -> list[str]:
        """Return the names of all functions."""
        return sorted(f for f in table.functions() if f.replace("_", "").isalnum())

    def folded(self, expression: Expression) -> Expression:
        """Return the constant that an expression is, or the expression."""
        if isinstance(expression, Constant) or any(isinstance(e, Column) for e in walk(expression)):
            return expression
        return folded(expression)

    def call(self, name: str, arguments: Sequence[Expression], options: tuple[Any, ...] = ()) -> Expression:
        """Return a scalar function applied to arguments."""
        found = call(name, arguments, options)
        return Call(found.type, found.function, tuple(map(_as_written, found.arguments)), found.options)

    def cast(self, value: Expression, target: DataType, lenient: bool) -> Expression:
        """Return CAST or TRY_CAST."""
        return written_cast(value, target, lenient)

    def aggregate(self, name: str, arguments: Sequence[Expression], has_rows: bool) -> AggregateResolved:
        """Return what an aggregate is for some arguments."""
        function = table.find(name)
        types = [a.type for a in arguments]
        if function is None:
            raise table.unknown(name, types)
        found = aggregates.resolved(function, Arguments.of(arguments), has_rows)
        if found is None:
            raise table.refused(function, types)
        return AggregateResolved(found.type, found.arguments)


def _as_written(argument: Expression) -> Expression:
    """Return a constant that is cast only to be of a wider type as one of that type."""
    if isinstance(argument, Call) and argument.function == "CAST" and isinstance(argument.arguments[0], Constant):
        return cast(argument.arguments[0], argument.type)
    return argument
