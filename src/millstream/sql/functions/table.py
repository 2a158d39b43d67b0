"""All functions of the language, by name: the one table that SQL and the Table API are made from."""

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
    """Return all functions by name; read when one is asked for first, since many queries ask for none."""
    families = [import_module(f"{__package__}.{name}") for name in _FAMILIES]
    return {f.name: f for family in families for f in family.FUNCTIONS}


def find(name: str) -> Function | None:
    """Return the function of a name, in any case; None if there is none."""
    return functions().get(name.upper())


def resolve(
    name: str,
    types: Sequence[DataType],
    constants: Sequence[Constant | None] = (),
    options: tuple[object, ...] = (),
) -> Resolved:
    """Return the type of a call and the types that its arguments are cast to.

    Args:
        name: of the function.
        types: of the arguments.
        constants: the arguments that are constants, None for others; the types of some results depend on them.
        options: what is not a value, as in `expressions.Call`.

    Raises:
        ValidationException: there is no such function, or it does not take such arguments.
    """
    function = find(name)
    if function is None:
        raise unknown(name, types)
    found = function.rule(Arguments(tuple(types), tuple(constants), options))
    if found is None:
        raise refused(function, types)
    return found


def signature(name: str, types: Sequence[DataType]) -> str:
    """Return a call as errors show it."""
    if len(types) == 2 and not name[0].isalpha():
        return f" {name} ".join(f"<{_family(k)}>" for k in types)
    return f"{name}({', '.join(f'<{_family(k)}>' for k in types)})"


def unknown(name: str, types: Sequence[DataType]) -> ValidationException:
    """Return the error of a function that does not exist; it names the families of the arguments' types."""
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
    """Return what to say of arguments that a function does not take."""
    forms = f" Supported form(s): {', '.join(map(quoted, function.forms))}" if function.forms else ""
    return ValidationException(
        f"Cannot apply '{function.name}' to arguments of type '{signature(function.name, types)}'.{forms}"
    )


# UNIX_TIMESTAMP of a text is deterministic, but Flink does not tell it from that of now.
_CLOCKS = frozenset(["UNIX_TIMESTAMP"])


def non_deterministic(expression: Expression) -> str | None:
    """Return the name of the first function in an expression whose result may differ each time; None without one."""
    for part in walk(expression):
        if isinstance(part, UserCall) and not part.function.deterministic:
            return part.name
        function = find(part.function) if isinstance(part, Call) else None
        if function is not None and (not function.deterministic or function.name in _CLOCKS):
            return function.name
    return None
