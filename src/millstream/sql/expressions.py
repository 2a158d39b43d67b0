"""Bound expressions, with names resolved and types known: the common form of SQL and the Table API.

An expression refers to the row of one input; in a join, to the left columns followed by the right columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from millstream.common.aliases import UserCode, Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.types import BooleanType, DataType

# An argument of a call that is not a value: a keyword, a type, a number, a default. The function's rule checks it.
Option: TypeAlias = Any
# What `udf(..)` and the like return, or its opened form in a subtask: `functions/function.py` has its protocols.
UserFunction: TypeAlias = UserCode


@fast_dataclass
class Expression:
    """An expression with a value per row."""

    type: DataType

    @property
    def parts(self) -> tuple[Expression, ...]:
        """The direct subexpressions."""
        return ()


@fast_dataclass
class Column(Expression):
    """A column of the input, by index."""

    index: int


@fast_dataclass
class Constant(Expression):
    """A constant.

    Attributes:
        value: as a column of its type stores it: int, float, Decimal, str, bytes, bool; days since 1970 for a DATE,
            milliseconds since midnight for a TIME, for both kinds of TIMESTAMP an int in the unit of its Arrow type,
            months or milliseconds for an INTERVAL; None for NULL.
    """

    value: Value


@fast_dataclass
class Call(Expression):
    """A call of a built-in function (`functions/`).

    Attributes:
        function: its registered name: operators (`+`, `=`, `AND`, `IS NULL`, ...), CASE (conditions and values in
            turn, then the default), CAST and TRY_CAST (to the call's own type), and all functions by their SQL names.
        arguments: already cast to the function's parameter types.
        options: arguments that are not values: time units, clauses of JSON functions.
    """

    function: str
    arguments: tuple[Expression, ...] = ()
    options: tuple[Option, ...] = ()

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.arguments


@fast_dataclass
class UserCall(Expression):
    """A call of a user function.

    Attributes:
        name: its name in the query.
        function: the result of `udf(...)`, see `functions/function.py`.
    """

    name: str
    function: UserFunction
    arguments: tuple[Expression, ...] = ()

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.arguments


@fast_dataclass
class AggregateCall:
    """An aggregate over the rows of a group; its arguments are column indexes of the input.

    Attributes:
        function: COUNT, SUM, AVG, MIN, MAX, ... by its SQL name; COUNT without arguments is COUNT(*).
        arguments: the columns.
        type: the result type.
        distinct: whether only distinct arguments count.
        condition: the BOOLEAN column of the FILTER clause; None for all rows.
        order: for order-sensitive aggregates, (column, descending, nulls first).
        options: arguments that are not columns, such as LISTAGG's separator or PERCENTILE's fraction.
        user: the user's aggregate function; None for built-in ones.
        argument_types: the argument types of a user function.
    """

    function: str
    arguments: tuple[int, ...]
    type: DataType
    distinct: bool = False
    condition: int | None = None
    order: tuple[tuple[int, bool, bool], ...] = ()
    options: tuple[Option, ...] = ()
    user: UserFunction = None
    argument_types: tuple[DataType, ...] = ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all its subexpressions."""
    yield expression
    for part in expression.parts:
        yield from walk(part)


def columns_of(expression: Expression) -> set[int]:
    """Return the columns that an expression uses."""
    return {e.index for e in walk(expression) if isinstance(e, Column)}


def replaced(expression: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """Return the expression with parts replaced, outermost first; for None `change` descends into the part."""
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
    """Return the AND of conditions; TRUE for none."""
    return _joined("AND", tests, True)


def disjunction(tests: Sequence[Expression]) -> Expression:
    """Return the OR of conditions; FALSE for none."""
    return _joined("OR", tests, False)


def _joined(operator: str, tests: Sequence[Expression], empty: bool) -> Expression:
    if not tests:
        return Constant(BooleanType(False), empty)
    result = tests[0]
    for test in tests[1:]:
        nullable = result.type.is_nullable or test.type.is_nullable
        result = Call(BooleanType(nullable), operator, (result, test))
    return result


def conjuncts(condition: Expression | None) -> list[Expression]:
    """Return the operands of nested ANDs."""
    if condition is None:
        return []
    if isinstance(condition, Call) and condition.function == "AND":
        return [c for a in condition.arguments for c in conjuncts(a)]
    return [condition]
