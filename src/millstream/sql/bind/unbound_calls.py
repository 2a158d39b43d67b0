"""Intermediate expressions of the binder: aggregates and OVERs that have no column yet. Also casts and PROCTIME."""

from __future__ import annotations

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql import type_rules
from millstream.sql.expressions import Call, Constant, Expression, Option, UserFunction
from millstream.sql.language import syntax
from millstream.sql.types import (
    BooleanType,
    CharType,
    DataType,
    DoubleType,
    IntegralType,
    LocalZonedTimestampType,
    NullType,
    VarCharType,
)

BOOLEAN = BooleanType()
PROCTIME = Call(LocalZonedTimestampType(3, False), "PROCTIME")
GROUP_FUNCTIONS = frozenset(["GROUPING", "GROUPING_ID", "GROUP_ID"])
GROUP_WINDOWS = {
    f"{kind}_{part}": (kind, part.lower())
    for kind in ("TUMBLE", "HOP", "SESSION")
    for part in ("START", "END", "ROWTIME", "PROCTIME")
}


@fast_dataclass
class Aggregated(Expression):
    """An aggregate inside an expression, without a column yet.

    Attributes:
        function: its name.
        arguments: expressions over the input row.
        distinct, condition, order, options, user: as in `AggregateCall`.
    """

    function: str
    arguments: tuple[Expression, ...]
    distinct: bool = False
    condition: Expression | None = None
    order: tuple[tuple[Expression, bool, bool], ...] = ()
    options: tuple[Option, ...] = ()
    user: UserFunction = None

    @property
    def parts(self) -> tuple[Expression, ...]:
        return self.arguments


@fast_dataclass
class Frame:
    """An OVER window over expressions; otherwise like `OverSpec`."""

    partition: tuple[Expression, ...]
    order: tuple[tuple[Expression, bool, bool], ...]
    rows: bool
    start: int | None
    end: int | None


@fast_dataclass
class Overed(Expression):
    """An aggregate or ranking function over a frame, without a column yet."""

    call: Aggregated
    frame: Frame

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (self.call,)


@fast_dataclass
class GroupProperty(Expression):
    """A function of groups: TUMBLE_START(..) and the like, GROUPING(..)."""

    function: str
    arguments: tuple[Expression, ...]

    @property
    def parts(self) -> tuple[Expression, ...]:
        return ()


def is_over_free(expression: Expression) -> bool:
    """Return whether an expression contains no OVER."""
    return not isinstance(expression, Overed) and all(is_over_free(p) for p in expression.parts)


def has_aggregate(expression: Expression) -> bool:
    """Return whether an expression contains an aggregate."""
    if isinstance(expression, (Aggregated, GroupProperty)):
        return True
    if isinstance(expression, Overed):
        inside = (*expression.call.arguments, *expression.frame.partition, *(o[0] for o in expression.frame.order))
        return any(has_aggregate(p) for p in inside)
    return any(has_aggregate(p) for p in expression.parts)


def cast(expression: Expression, target: DataType) -> Expression:
    """Return an expression cast to a type; unchanged if only nullability differs."""
    source = expression.type
    if source.is_same_but_null(target):
        return expression
    if isinstance(expression, Constant):
        written = _as_written(expression, target)
        if written is not None:
            return written
    return Call(target.with_nullability(source.is_nullable), "CAST", (expression,))


def _as_written(constant: Constant, target: DataType) -> Constant | None:
    """Return a constant as a constant of another type, if the value stays the same."""
    source, value = constant.type, constant.value
    if value is None:
        return Constant(target.nullable(), None)
    is_text = isinstance(source, (CharType, VarCharType))
    if is_text and isinstance(target, VarCharType) and len(value) <= target.length:
        return Constant(target.not_null(), value)
    if isinstance(source, IntegralType) and isinstance(target, IntegralType) and source.bits <= target.bits:
        return Constant(target.not_null(), value)
    if isinstance(source, IntegralType) and isinstance(target, DoubleType):
        return Constant(target.not_null(), float(value))
    return None


@fast_dataclass
class TypedExpression(syntax.Expression):
    """A bound expression in place of a syntactic one."""

    value: Expression


def comparison_type(left: DataType, right: DataType) -> DataType | None:
    """Return the common type for a comparison; None if incomparable."""
    if not type_rules.is_comparable(left, right):
        return None
    if type_rules.is_string(left) != type_rules.is_string(right):
        text, other = (left, right) if type_rules.is_string(left) else (right, left)
        result: DataType | None = text if isinstance(other, NullType) else other
    else:
        result = type_rules.common_type([left, right])
    return None if result is None else result.with_nullability(left.is_nullable or right.is_nullable)
