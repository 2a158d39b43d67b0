"""How the binder asks for functions: those of the language, and those of users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from millstream.common.fast_dataclass import record
from millstream.sql import type_rules
from millstream.sql.bind.errors import Refused
from millstream.sql.expressions import Expression
from millstream.sql.schema import Field
from millstream.sql.types import DataType


@record(frozen=True)
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


@record(frozen=True)
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
