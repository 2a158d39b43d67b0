"""How the binder asks for functions: those of the language, and those of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from millstream.common.fast_dataclass import record
from millstream.sql import type_rules
from millstream.sql.bind.scope import Refused
from millstream.sql.bind.unbound_calls import cast
from millstream.sql.expressions import Call, Column, Constant, Expression, walk
from millstream.sql.functions import aggregates, table
from millstream.sql.functions.evaluate import folded
from millstream.sql.functions.function import Arguments, Kind
from millstream.sql.functions.resolve import call
from millstream.sql.functions.resolve import cast as written_cast
from millstream.sql.schema import Field
from millstream.sql.types import DataType


@record
class AggregateResolved:
    """What an aggregate is for some arguments: the type of its result, and the types that its arguments are cast to."""

    type: DataType
    arguments: tuple[DataType, ...]


class Functions(Protocol):
    """The functions of the language, as `bind/language.py` finds them in their table."""

    def kind(self, name: str) -> str | None:
        """Return "scalar", "aggregate", "table"; None for a name that is unknown."""

    def needs_over(self, name: str) -> bool:
        """Tell whether a function stands with OVER only."""

    def canonical(self, name: str) -> str:
        """Return what the table calls a function."""

    def call(self, name: str, arguments: Sequence[Expression], options: tuple[Any, ...] = ()) -> Expression:
        """Return a scalar function applied to arguments, which are cast; refuses with the words of Flink."""

    def cast(self, value: Expression, target: DataType, lenient: bool) -> Expression:
        """Return CAST or TRY_CAST; refuses values that are never of the other type."""

    def aggregate(self, name: str, arguments: Sequence[Expression], has_rows: bool) -> AggregateResolved:
        """Return what an aggregate function is for some arguments; `has_rows`: it is never over no rows at all."""

    def folded(self, expression: Expression) -> Expression:
        """Return the constant that an expression is, or the expression."""

    def names(self) -> list[str]:
        """Return the names of all functions."""


class UserFunction(Protocol):
    """A function of the user's, as `udf(..)` and its kin make them.

    Attributes:
        kind: scalar, table, aggregate or table_aggregate.
        input_types: what its arguments are cast to; None for as they are.
        deterministic: whether equal arguments give equal results.
    """

    kind: str
    input_types: list[DataType] | None
    deterministic: bool


@record
class UserResolved:
    """What a user's function is: its result, or the columns of its rows, and the types of its arguments."""

    type: DataType | None
    fields: tuple[Field, ...]
    arguments: tuple[DataType, ...]


def resolved_user_call(name: str, user: Any, types: Sequence[DataType], at: int | None) -> UserResolved:
    """Return what a user's function is for arguments of some types."""
    wanted = list(types) if user.input_types is None else list(user.input_types)
    fits = len(wanted) == len(types) and all(type_rules.can_cast(a, b) for a, b in zip(types, wanted, strict=True))
    if not fits:
        given = ", ".join(str(t) for t in types)
        takes = ", ".join(str(t) for t in wanted)
        raise Refused(f"Invalid input arguments. {name}({given}) is called, but it takes {name}({takes})", at)
    if user.kind != "table":
        return UserResolved(user.result_type, (), tuple(wanted))
    names = list(user.alias_names) or user.result_names or [f"f{i}" for i in range(len(user.result_types))]
    fields = tuple(Field(n, t) for n, t in zip(names, user.result_types, strict=True))
    return UserResolved(None, fields, tuple(wanted))


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
