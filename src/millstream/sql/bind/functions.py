"""The binder's view of built-in and user functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql import type_rules
from millstream.sql.bind.scope import BindError
from millstream.sql.bind.unbound_calls import cast
from millstream.sql.expressions import Call, Column, Constant, Expression, Option, walk
from millstream.sql.functions import aggregates, table
from millstream.sql.functions.evaluate import folded
from millstream.sql.functions.function import Arguments, Kind
from millstream.sql.functions.table import call
from millstream.sql.functions.table import cast as written_cast
from millstream.sql.schema import Field
from millstream.sql.types import DataType


@fast_dataclass
class AggregateResolved:
    """An aggregate resolved for some arguments: its result type and the types of its cast arguments."""

    type: DataType
    arguments: tuple[DataType, ...]


class Functions(Protocol):
    """The built-in functions."""

    def kind(self, name: str) -> str | None:
        """Return "scalar", "aggregate" or "table"; None for an unknown name."""

    def needs_over(self, name: str) -> bool:
        """Return whether a function requires OVER."""

    def canonical(self, name: str) -> str:
        """Return the registered name of a function."""

    def call(self, name: str, arguments: Sequence[Expression], options: tuple[Option, ...] = ()) -> Expression:
        """Return a call with cast arguments; raise with Flink's message if none matches."""

    def cast(self, value: Expression, target: DataType, lenient: bool) -> Expression:
        """Return CAST or TRY_CAST; raise if the types are never convertible."""

    def aggregate(self, name: str, arguments: Sequence[Expression], has_rows: bool) -> AggregateResolved:
        """Return an aggregate resolved for some arguments; `has_rows`: groups are never empty."""

    def folded(self, expression: Expression) -> Expression:
        """Return an expression folded to a constant, if possible."""

    def names(self) -> list[str]:
        """Return the names of all functions."""


class UserFunction(Protocol):
    """A user function, as `udf(..)` and the like create it.

    Attributes:
        kind: scalar, table, aggregate or table_aggregate.
        input_types: the parameter types; None to accept any.
        deterministic: whether equal arguments have equal results.
        result_type: the type of the result; not of a table function.
        result_types, result_names: the types and optional names of a table function's columns.
        alias_names: the names that `alias` gave to those columns.
    """

    kind: str
    input_types: list[DataType] | None
    deterministic: bool
    result_type: DataType
    result_types: list[DataType]
    result_names: list[str] | None
    alias_names: tuple[str, ...]


@fast_dataclass
class UserResolved:
    """A resolved user function: its result type or columns, and its argument types."""

    type: DataType | None
    fields: tuple[Field, ...]
    arguments: tuple[DataType, ...]


def resolved_user_call(name: str, user: UserFunction, types: Sequence[DataType], position: int | None) -> UserResolved:
    """Return a user function resolved for argument types."""
    required = list(types) if user.input_types is None else list(user.input_types)
    fits = len(required) == len(types) and all(type_rules.can_cast(a, b) for a, b in zip(types, required, strict=True))
    if not fits:
        argument_types = ", ".join(str(t) for t in types)
        parameter_types = ", ".join(str(t) for t in required)
        raise BindError(
            f"Invalid input arguments. {name}({argument_types}) is called, but it takes {name}({parameter_types})",
            position,
        )
    if user.kind != "table":
        return UserResolved(user.result_type, (), tuple(required))
    names = list(user.alias_names) or user.result_names or [f"f{i}" for i in range(len(user.result_types))]
    fields = tuple(Field(n, t) for n, t in zip(names, user.result_types, strict=True))
    return UserResolved(None, fields, tuple(required))


_KINDS = {Kind.SCALAR: "scalar", Kind.AGGREGATE: "aggregate", Kind.OVER: "aggregate", Kind.TABLE: "table"}


class LanguageFunctions:
    """Resolves built-in functions from their registry."""

    def kind(self, name: str) -> str | None:
        """Return the kind of a function; None for an unknown name."""
        result = table.find(name)
        return None if result is None else _KINDS[result.kind]

    def needs_over(self, name: str) -> bool:
        """Return whether a function requires OVER."""
        result = table.find(name)
        return result is not None and result.kind is Kind.OVER

    def canonical(self, name: str) -> str:
        """Return the registered name of a function."""
        result = table.find(name)
        return name.upper() if result is None else result.name

    def names(self) -> list[str]:
        """Return the names of all functions."""
        return sorted(f for f in table.functions() if f.replace("_", "").isalnum())

    def folded(self, expression: Expression) -> Expression:
        """Return an expression folded to a constant, if possible."""
        if isinstance(expression, Constant) or any(isinstance(e, Column) for e in walk(expression)):
            return expression
        return folded(expression)

    def call(self, name: str, arguments: Sequence[Expression], options: tuple[Option, ...] = ()) -> Expression:
        """Return a call of a scalar function."""
        result = call(name, arguments, options)
        return Call(result.type, result.function, tuple(map(_as_written, result.arguments)), result.options)

    def cast(self, value: Expression, target: DataType, lenient: bool) -> Expression:
        """Return CAST or TRY_CAST."""
        return written_cast(value, target, lenient)

    def aggregate(self, name: str, arguments: Sequence[Expression], has_rows: bool) -> AggregateResolved:
        """Return an aggregate resolved for some arguments."""
        function = table.find(name)
        types = [a.type for a in arguments]
        if function is None:
            raise table.unknown(name, types)
        result = aggregates.resolved(function, Arguments.of(arguments), has_rows)
        if result is None:
            raise table.refused(function, types)
        return AggregateResolved(result.type, result.arguments)


def _as_written(argument: Expression) -> Expression:
    """Return a constant below a widening cast as a constant of the wider type."""
    if isinstance(argument, Call) and argument.function == "CAST" and isinstance(argument.arguments[0], Constant):
        return cast(argument.arguments[0], argument.type)
    return argument
