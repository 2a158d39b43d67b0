"""The registry of built-in functions, shared by SQL and the Table API."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module

from millstream.common.display_text import did_you_mean
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Call, Constant, Expression, UserCall, walk
from millstream.sql.functions.function import Arguments, Function, Resolved
from millstream.sql.types import (
    BinaryType,
    CharType,
    DataType,
    IntType,
    LocalZonedTimestampType,
    NumericType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
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
    families = ", ".join(f"<{next((word for k, word in _AT_LARGE if isinstance(t, k)), _family(t))}>" for t in types)
    hint = did_you_mean(name, filter(str.isidentifier, functions()))
    return ValidationException(f"No match found for function signature {name}({families}){hint}")


_AT_LARGE: list[tuple[type[DataType] | tuple[type[DataType], ...], str]] = [
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
