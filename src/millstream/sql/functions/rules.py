"""Common type rules of functions: parameters and result types."""

from __future__ import annotations

from collections.abc import Callable

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.functions.function import Arguments, Resolved, Rule

# Returns the type an argument is cast to; None if it is not accepted.
Parameter = Callable[[t.DataType], t.DataType | None]
Result = t.DataType | Callable[[Arguments], t.DataType | None]

STRING = t.DataTypes.STRING()
INT = t.DataTypes.INT()
BIGINT = t.DataTypes.BIGINT()
DOUBLE = t.DataTypes.DOUBLE()
BOOLEAN = t.DataTypes.BOOLEAN()
BYTES = t.DataTypes.BYTES()
DATE = t.DataTypes.DATE()


def _is_null(kind: t.DataType) -> bool:
    return isinstance(kind, t.NullType)


def any_type(kind: t.DataType) -> t.DataType | None:
    """Accept every type."""
    return kind


def text(kind: t.DataType) -> t.DataType | None:
    """Accept text."""
    return STRING if _is_null(kind) else kind if type_rules.is_string(kind) else None


def binary(kind: t.DataType) -> t.DataType | None:
    """Accept bytes."""
    return BYTES if _is_null(kind) else kind if type_rules.is_binary(kind) else None


def text_or_binary(kind: t.DataType) -> t.DataType | None:
    """Accept text or bytes."""
    return text(kind) or binary(kind)


def number(kind: t.DataType) -> t.DataType | None:
    """Accept numbers."""
    return INT if _is_null(kind) else kind if type_rules.is_numeric(kind) else None


def any_integer(kind: t.DataType) -> t.DataType | None:
    """Accept integers unchanged."""
    return INT if _is_null(kind) else kind if isinstance(kind, t.IntegralType) else None


def integer(kind: t.DataType) -> t.DataType | None:
    """Accept integers up to INT, as INT."""
    return INT if _is_null(kind) or (isinstance(kind, t.IntegralType) and kind.bits <= 32) else None


def bigint(kind: t.DataType) -> t.DataType | None:
    """Accept integers."""
    return BIGINT if _is_null(kind) or isinstance(kind, t.IntegralType) else None


def double(kind: t.DataType) -> t.DataType | None:
    """Accept numbers, as DOUBLE."""
    return DOUBLE if _is_null(kind) or type_rules.is_numeric(kind) else None


def boolean(kind: t.DataType) -> t.DataType | None:
    """Accept BOOLEAN."""
    return BOOLEAN if _is_null(kind) or isinstance(kind, t.BooleanType) else None


def array(kind: t.DataType) -> t.DataType | None:
    """Accept arrays."""
    return kind if isinstance(kind, t.ArrayType) else None


def mapping(kind: t.DataType) -> t.DataType | None:
    """Accept maps."""
    return kind if isinstance(kind, t.MapType) else None


def either(*parameters: Parameter) -> Parameter:
    """Accept by the first matching parameter rule."""

    def parameter(kind: t.DataType) -> t.DataType | None:
        return next((result for p in parameters if (result := p(kind)) is not None), None)

    return parameter


def of(*classes: type[t.DataType], null: t.DataType | None = None) -> Parameter:
    """Accept some type classes; NULL as `null`."""

    def parameter(kind: t.DataType) -> t.DataType | None:
        if _is_null(kind):
            return null
        return kind if isinstance(kind, classes) else None

    return parameter


def takes(
    *parameters: Parameter, to: Result, optional: int = 0, rest: Parameter | None = None, nulls: str = "any"
) -> Rule:
    """Return a rule of positional parameters.

    Args:
        parameters: the rule of each parameter.
        to: the result type.
        optional: the number of optional parameters at the end.
        rest: the rule of any number of further arguments.
        nulls: whether the result is nullable: if any argument is (`any`), if all are (`all`), `always`, `never`, or
            as the result type defines (`own`).
    """

    def rule(arguments: Arguments) -> Resolved | None:
        count = len(arguments)
        if count < len(parameters) - optional or (count > len(parameters) and rest is None):
            return None
        required = [*parameters[:count], *([rest] if rest is not None else []) * (count - len(parameters))]
        match = [p(kind) for p, kind in zip(required, arguments.types, strict=True)]
        cast = tuple(f.with_nullability(a.is_nullable) for f, a in zip(match, arguments.types, strict=True) if f)
        if len(cast) != count:
            return None
        cast_arguments = Arguments(cast, arguments.constants, arguments.options)
        result = to if isinstance(to, t.DataType) else to(cast_arguments)
        return None if result is None else Resolved(with_nulls(result, cast_arguments, nulls), cast)

    return rule


def with_nulls(kind: t.DataType, arguments: Arguments, nulls: str) -> t.DataType:
    """Return a type with the nullability derived from the arguments."""
    if nulls == "own":
        return kind
    if nulls == "all":
        return kind.with_nullability(all(a.is_nullable for a in arguments.types))
    nullable = {"any": arguments.any_nullable, "always": True, "never": False}[nulls]
    return kind.with_nullability(nullable)


def same_as(index: int) -> Callable[[Arguments], t.DataType]:
    """Return the type of an argument."""
    return lambda arguments: arguments.types[index]


def common(to: Result | None = None, min_count: int = 1, max_count: int | None = None, nulls: str = "any") -> Rule:
    """Return a rule that casts all arguments to their common type, the result type unless `to` is given."""

    def rule(arguments: Arguments) -> Resolved | None:
        if len(arguments) < min_count or (max_count is not None and len(arguments) > max_count):
            return None
        match = type_rules.common_type(arguments.types)
        if match is None:
            return None
        cast = tuple(match.with_nullability(a.is_nullable) for a in arguments.types)
        cast_arguments = Arguments(cast, arguments.constants, arguments.options)
        result = match if to is None else to if isinstance(to, t.DataType) else to(cast_arguments)
        return None if result is None else Resolved(with_nulls(result, cast_arguments, nulls), cast)

    return rule


def first_of(*rules: Rule) -> Rule:
    """Return a rule that tries several rules in order."""

    def rule(arguments: Arguments) -> Resolved | None:
        return next((result for r in rules if (result := r(arguments)) is not None), None)

    return rule
