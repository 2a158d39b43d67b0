"""Typed calls from functions and typed arguments, with the casts that SQL adds by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.sql import type_rules
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Constant, Expression
from millstream.sql.functions.function import Arguments
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


def call(name: str, arguments: Sequence[Expression], options: tuple[Any, ...] = ()) -> Call:
    """Return the call of a function, its arguments cast to what the function takes.

    Args:
        name: as in the table of functions, in any case.
        arguments: typed expressions.
        options: what is not a value: EXTRACT, FLOOR, CEIL, TIMESTAMPADD, TIMESTAMPDIFF (unit,); TRIM (side,) with the
            arguments (what, value); JSON functions the clauses, see `functions/json_functions.py`.

    Raises:
        ValidationException: there is no such function, or it does not take such arguments.
    """
    found = resolve(name, [a.type for a in arguments], Arguments.of(arguments).constants, options)
    function = find(name)
    assert function is not None
    cast = tuple(implicit_cast(a, kind) for a, kind in zip(arguments, found.arguments, strict=True))
    return Call(found.type, function.name, cast, options)


def implicit_cast(value: Expression, target: DataType) -> Expression:
    """Return a value as another type where that makes a difference to a function."""
    source = value.type
    if source.is_same_but_null(target) or _same_text(source, target):
        return value
    if isinstance(value, Constant) and value.value is None:
        return Constant(target.nullable(), None)
    return Call(target.with_nullability(source.is_nullable), "CAST", (value,))


def _same_text(source: DataType, target: DataType) -> bool:
    """Tell whether both are text, or bytes: functions do not look at lengths; but CHAR pads, and that is lost."""
    texts = ((CharType, VarCharType), (BinaryType, VarBinaryType))
    if isinstance(target, (CharType, BinaryType)):
        return False
    if not any(isinstance(source, kind) and isinstance(target, kind) for kind in texts):
        return False
    return source.length <= target.length  # type: ignore[attr-defined, no-any-return]


def cast(value: Expression, target: DataType, lenient: bool = False) -> Expression:
    """Return CAST(value AS target), or TRY_CAST.

    Raises:
        ValidationException: values of the one type are never cast to the other.
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
    """Return a number that is written out in milliseconds or months: CAST(5 AS INTERVAL DAY) is five days.

    A number that is computed counts as milliseconds or months, in Flink, too.
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
