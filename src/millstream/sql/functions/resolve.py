"""Resolution of calls: implicit casts and result types."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.sql import type_rules
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Constant, Expression
from millstream.sql.functions.function import Arguments, Option
from millstream.sql.functions.table import find, refused, resolve, signature
from millstream.sql.types import (
    BigIntType,
    BinaryType,
    CharType,
    DataType,
    DayTimeIntervalType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)


def call(name: str, arguments: Sequence[Expression], options: tuple[Option, ...] = ()) -> Call:
    """Return a call with arguments cast to the function's parameter types.

    Args:
        name: the registered name, case-insensitive.
        arguments: typed expressions.
        options: arguments that are not values: EXTRACT, FLOOR, CEIL, TIMESTAMPADD, TIMESTAMPDIFF (unit,); TRIM (side,)
            with the arguments (characters, value); the clauses of JSON functions, see `functions/json_functions.py`.

    Raises:
        ValidationException: the function does not exist or does not accept the arguments.
    """
    result = resolve(name, [a.type for a in arguments], Arguments.of(arguments).constants, options)
    function = find(name)
    assert function is not None
    cast = tuple(implicit_cast(a, kind) for a, kind in zip(arguments, result.arguments, strict=True))
    return Call(result.type, function.name, cast, options)


def implicit_cast(value: Expression, target: DataType) -> Expression:
    """Return a value cast to a type, if the cast matters to a function."""
    source = value.type
    if source.is_same_but_null(target) or _same_text(source, target):
        return value
    if isinstance(value, Constant) and value.value is None:
        return Constant(target.nullable(), None)
    return Call(target.with_nullability(source.is_nullable), "CAST", (value,))


def _same_text(source: DataType, target: DataType) -> bool:
    """Return whether both are text or both bytes, whose lengths do not matter, unless CHAR's padding is lost."""
    texts = ((CharType, VarCharType), (BinaryType, VarBinaryType))
    if isinstance(target, (CharType, BinaryType)):
        return False
    if not any(isinstance(source, kind) and isinstance(target, kind) for kind in texts):
        return False
    return source.length <= target.length  # type: ignore[attr-defined, no-any-return]


def cast(value: Expression, target: DataType, lenient: bool = False) -> Expression:
    """Return CAST(value AS target), or TRY_CAST.

    Raises:
        ValidationException: the types are not castable.
    """
    source = value.type
    if not type_rules.can_cast(source, target):
        if isinstance(source, NumericType) and isinstance(target, (TimestampType, LocalZonedTimestampType)):
            raise ValidationException(
                "The cast from NUMERIC type to TIMESTAMP type is not allowed. It's recommended to use "
                "TO_TIMESTAMP(FROM_UNIXTIME(numeric_col)) instead, note the numeric is in seconds."
            )
        raise ValidationException(f"Cast function cannot convert value of type {source} to type {target}")
    if type_rules.is_interval(target):
        if isinstance(value, Constant) and isinstance(source, NumericType):
            value = _in_units(value, target)
        target = type_rules.MONTHS if type(target) is type(type_rules.MONTHS) else type_rules.MILLISECONDS
    kind = target.with_nullability(lenient or source.is_nullable)
    if isinstance(value, Constant) and value.value is None:
        return Constant(kind, None)
    return Call(kind, "TRY_CAST" if lenient else "CAST", (value,))


_DAY_TIME = DayTimeIntervalType.DayTimeResolution
_LENGTHS = {_DAY_TIME.DAY: 86_400_000, _DAY_TIME.HOUR: 3_600_000, _DAY_TIME.MINUTE: 60_000, _DAY_TIME.SECOND: 1000}


def _in_units(number: Constant, target: DataType) -> Constant:
    """Return a literal in milliseconds or months: CAST(5 AS INTERVAL DAY) is five days.

    A computed number counts as milliseconds or months, as in Flink.
    """
    if number.value is None:
        return number
    if isinstance(target, DayTimeIntervalType):
        factor = _LENGTHS[target.resolution]
    else:
        assert isinstance(target, YearMonthIntervalType)
        factor = 12 if target.resolution == YearMonthIntervalType.YearMonthResolution.YEAR else 1
    return Constant(BigIntType(False), int(number.value * factor))


__all__ = ["call", "cast", "implicit_cast", "refused", "signature"]
