"""The registry of built-in functions, shared by SQL and the Table API, and the resolution of calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from millstream.common.display_text import did_you_mean
from millstream.sql import type_rules
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Constant, Expression, Option, UserCall, walk
from millstream.sql.functions.function import Arguments, Function, Resolved
from millstream.sql.types import (
    BigIntType,
    BinaryType,
    CharType,
    DataType,
    DayTimeIntervalType,
    IntType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
    quoted,
)

_FAMILIES = (
    *(
        "arithmetic",
        "comparison",
        "lazy_functions",
        "casts",
        "values",
        "math",
        "strings",
        "texts",
        "regex",
        "encodings",
        "clock",
    ),
    *("dates", "formatting", "collections", "json_functions", "aggregates"),
)


@cache
def functions() -> dict[str, Function]:
    """Return all functions by name; loaded on first use, because many queries need none."""
    families = [import_module(f"{__package__}.{name}") for name in _FAMILIES]
    return {f.name: f for family in families for f in family.FUNCTIONS}


def find(name: str) -> Function | None:
    """Return the function of a case-insensitive name, or None."""
    return functions().get(name.upper())


def resolve(
    name: str,
    types: Sequence[DataType],
    constants: Sequence[Constant | None] = (),
    options: tuple[object, ...] = (),
) -> Resolved:
    """Return the result type of a call and the types its arguments are cast to.

    Args:
        name: the function's name.
        types: the argument types.
        constants: constant arguments, None for others; some result types depend on them.
        options: arguments that are not values, as in `expressions.Call`.

    Raises:
        ValidationException: the function does not exist or does not accept the arguments.
    """
    function = find(name)
    if function is None:
        raise unknown(name, types)
    result = function.rule(Arguments(tuple(types), tuple(constants), options))
    if result is None:
        raise refused(function, types)
    return result


def signature(name: str, types: Sequence[DataType]) -> str:
    """Return a call as error messages show it."""
    if len(types) == 2 and not name[0].isalpha():
        return f" {name} ".join(f"<{_family(k)}>" for k in types)
    return f"{name}({', '.join(f'<{_family(k)}>' for k in types)})"


def unknown(name: str, types: Sequence[DataType]) -> ValidationException:
    """Return the error for an unknown function, with the type families of the arguments."""
    families = ", ".join(f"<{next((word for k, word in _ROOTS if isinstance(t, k)), _family(t))}>" for t in types)
    hint = did_you_mean(name, filter(str.isidentifier, functions()))
    return ValidationException(f"No match found for function signature {name}({families}){hint}")


_ROOTS: list[tuple[type[DataType] | tuple[type[DataType], ...], str]] = [
    (NumericType, "NUMERIC"),
    ((CharType, VarCharType), "CHARACTER"),
    ((BinaryType, VarBinaryType), "BINARY"),
    ((TimestampType, LocalZonedTimestampType), "TIMESTAMP"),
    (TimeType, "TIME"),
]


def _family(kind: DataType) -> str:
    if isinstance(kind, VarCharType):
        return f"VARCHAR({kind.length})"
    return "INTEGER" if isinstance(kind, IntType) else str(kind.nullable())


def refused(function: Function, types: Sequence[DataType]) -> ValidationException:
    """Return the message for arguments that a function does not accept."""
    forms = f" Supported form(s): {', '.join(map(quoted, function.forms))}" if function.forms else ""
    return ValidationException(
        f"Cannot apply '{function.name}' to arguments of type '{signature(function.name, types)}'.{forms}"
    )


# UNIX_TIMESTAMP of a text is deterministic, but Flink treats it like the one without arguments.
_CLOCKS = frozenset(["UNIX_TIMESTAMP"])


def non_deterministic(expression: Expression) -> str | None:
    """Return the name of the first non-deterministic function in an expression, or None."""
    for part in walk(expression):
        if isinstance(part, UserCall) and not part.function.deterministic:
            return part.name
        function = find(part.function) if isinstance(part, Call) else None
        if function is not None and (not function.deterministic or function.name in _CLOCKS):
            return function.name
    return None


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
