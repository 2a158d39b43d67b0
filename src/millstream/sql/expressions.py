"""Expressions whose names are resolved and whose types are known: what SQL and the Table API are both bound to.

An expression is about the row of one input; for a join, of the left input's columns and behind them the right one's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from millstream.common.fast_dataclass import record
from millstream.sql.types import BooleanType, DataType


@record
class Expression:
    """What has a value in every row."""

    type: DataType

    @property
    def parts(self) -> tuple[Expression, ...]:
        """The expressions it is made of."""
        return ()


@record
class Column(Expression):
    """A column of the input, by its place."""

    index: int


@record
class Constant(Expression):
    """A value that is the same in every row.

    Attributes:
        value: as a column of that type holds it: int, float, Decimal, str, bytes, bool; days since 1970 for a DATE,
            milliseconds since midnight for a TIME, for both kinds of TIMESTAMP an int in the unit of its Arrow type,
            months or milliseconds for an INTERVAL; None for NULL.
    """

    value: Any


@record
class Call(Expression):
    """A function of the table of functions (`functions/`), applied to arguments.

    Attributes:
        function: its name in that table: operators (`+`, `=`, `AND`, `IS NULL`, ...), CASE (conditions and values in
            turn, then the rest), CAST and TRY_CAST (to the call's own type), and all functions by their SQL names.
        arguments: what it is applied to; already cast to what the function takes.
        options: what is not a value: units of time, clauses of JSON functions.
    """

    function: str
    arguments: tuple[Expression, ...] = ()
    options: tuple[Any, ...] = ()

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.arguments


@record
class UserCall(Expression):
    """A function of the user's, applied to arguments.

    Attributes:
        name: what it is called in the query.
        function: what `udf(...)` has made of the user's function, see `functions/user.py`.
    """

    name: str
    function: Any
    arguments: tuple[Expression, ...] = ()

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.arguments


@record
class AggregateCall:
    """An aggregate over the rows of a group; its arguments are columns of the input, by place.

    Attributes:
        function: COUNT, SUM, AVG, MIN, MAX, ... by its SQL name; COUNT without arguments is COUNT(*).
        arguments: the columns.
        type: of its result.
        distinct: whether equal arguments count once.
        condition: the BOOLEAN column that says whether a row counts (FILTER); None for all.
        order: for those that depend on it, (column, descending, nulls first).
        options: what is not a column, such as LISTAGG's separator or PERCENTILE's share.
        user: the user's aggregate function, None for those of the language.
        argument_types: of the arguments of a user's function.
    """

    function: str
    arguments: tuple[int, ...]
    type: DataType
    distinct: bool = False
    condition: int | None = None
    order: tuple[tuple[int, bool, bool], ...] = ()
    options: tuple[Any, ...] = ()
    user: Any = None
    argument_types: tuple[DataType, ...] = ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all that it is made of."""
    yield expression
    for part in expression.parts:
        yield from walk(part)


def columns_of(expression: Expression) -> set[int]:
    """Return the columns that an expression looks at."""
    return {e.index for e in walk(expression) if isinstance(e, Column)}


def replaced(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Return the expression with parts of it changed, outside first; None leaves a part and looks into it."""
    changed = change(expression)
    if changed is not None:
        return changed
    if isinstance(expression, Call):
        arguments = tuple(replaced(a, change) for a in expression.arguments)
        return Call(expression.type, expression.function, arguments, expression.options)
    if isinstance(expression, UserCall):
        arguments = tuple(replaced(a, change) for a in expression.arguments)
        return UserCall(expression.type, expression.name, expression.function, arguments)
    return expression


def conjunction(tests: Sequence[Expression]) -> Expression:
    """Return the AND of conditions; TRUE of none."""
    return _joined("AND", tests, True)


def disjunction(tests: Sequence[Expression]) -> Expression:
    """Return the OR of conditions; FALSE of none."""
    return _joined("OR", tests, False)


def _joined(operator: str, tests: Sequence[Expression], empty: bool) -> Expression:
    if not tests:
        return Constant(BooleanType(False), empty)
    found = tests[0]
    for test in tests[1:]:
        nullable = found.type.is_nullable or test.type.is_nullable
        found = Call(BooleanType(nullable), operator, (found, test))
    return found


def conjuncts(condition: Expression | None) -> list[Expression]:
    """Return the conditions that an AND is of."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.function == "AND":
        return [c for a in condition.arguments for c in conjuncts(a)]
    return [condition]
