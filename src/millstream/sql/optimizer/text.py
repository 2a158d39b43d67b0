"""Expressions as text in EXPLAIN and operator names."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from enum import Enum

from millstream.sql.expressions import AggregateCall, Call, Column, Constant, Expression, UserCall
from millstream.sql.plan.subqueries import Outer, Subquery
from millstream.sql.types import (
    ArrayType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    MapType,
    MultisetType,
    RowType,
    TimestampType,
    TimeType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)


class Style(Enum):
    """The notation of operators: `+(a, 1)` or `(a + 1)`."""

    PREFIX = "prefix"
    INFIX = "infix"


_INFIX = frozenset(["+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "||"])
_POSTFIX_PREFIX = "IS "
_LOGICAL = ("AND", "OR")
Names = Callable[[int], str]


def by_name(names: Sequence[str]) -> Names:
    """Return a function from column index to name."""
    return lambda i: names[i]


def by_index(index: int) -> str:
    """Return the positional name of a column."""
    return f"${index}"


def text(e: Expression, names: Names, style: Style = Style.INFIX) -> str:
    """Return an expression as text."""
    if isinstance(e, Column):
        return names(e.index)
    if isinstance(e, Constant):
        return constant_text(e, style)
    if isinstance(e, Outer):
        return f"$cor{e.level - 1}.{e.index}"
    if isinstance(e, UserCall):
        return f"{e.name}({', '.join(text(a, names, style) for a in e.arguments)})"
    if isinstance(e, Subquery):
        inside = ", ".join(text(v, names, style) for v in e.values)
        return f"{_SUBQUERIES[e.kind.value]}({inside})"
    assert isinstance(e, Call)
    return _call(e, names, style)


_SUBQUERIES = {"IN": "IN", "EXISTS": "EXISTS", "SCALAR": "$SCALAR_QUERY"}


def _call(e: Call, names: Names, style: Style) -> str:
    if e.function in _LOGICAL:
        arguments = [text(a, names, style) for a in _flat(e, e.function)]
    else:
        arguments = [text(a, names, style) for a in e.arguments]
    if e.function in ("CAST", "TRY_CAST"):
        return f"{e.function}({arguments[0]} AS {type_text(e.type)})"
    if e.function == "FIELD":
        return f"{arguments[0]}.{e.options[0]}"
    if e.function == "IN" and all(isinstance(a, Constant) for a in e.arguments[1:]):
        operands = ", ".join(arguments[1:])
        return (
            f"SEARCH({arguments[0]}, Sarg[{operands}])" if style is Style.PREFIX else f"{arguments[0]} IN ({operands})"
        )
    if style is Style.INFIX:
        if e.function in _INFIX and len(arguments) > 1:
            return f"({f' {e.function} '.join(arguments)})"
        if e.function.startswith(_POSTFIX_PREFIX) and len(arguments) == 1:
            return f"{arguments[0]} {e.function}"
        if e.function == "UNARY -":
            return f"-{arguments[0]}"
        if e.function == "NOT":
            return f"NOT {arguments[0]}"
    words = [str(o) for o in e.options if isinstance(o, str)]
    if e.function in ("EXTRACT", "TIMESTAMPADD", "TIMESTAMPDIFF", "TRIM"):
        return f"{e.function}({', '.join([*words, *arguments])})"
    name = "-" if e.function == "UNARY -" else e.function.lstrip("$")
    return f"{name}({', '.join([*arguments, *words])})"


def _flat(e: Call, function: str) -> list[Expression]:
    result: list[Expression] = []
    for a in e.arguments:
        result += _flat(a, function) if isinstance(a, Call) and a.function == function else [a]
    return result


def constant_text(e: Constant, style: Style) -> str:
    """Return a constant as text."""
    kind, value = e.type, e.value
    if value is None:
        return f"null:{type_text(kind)}"
    if isinstance(kind, (CharType, VarCharType)):
        quoted = str(value).replace("'", "''")
        tail = f":{type_text(kind)}" if isinstance(kind, VarCharType) else ""
        return f"_UTF-16LE'{quoted}'{tail}" if style is Style.PREFIX else f"'{quoted}'"
    if isinstance(kind, BooleanType):
        return str(value).lower()
    if isinstance(kind, (DayTimeIntervalType, YearMonthIntervalType)):
        return f"{value}:{interval_text(kind)}"
    if isinstance(kind, DecimalType):
        return f"{value}:DECIMAL({kind.precision}, {kind.scale})"
    if isinstance(kind, (DoubleType, FloatType)):
        return f"{value!r}:{kind.root}"
    if isinstance(kind, (DateType, TimeType, TimestampType, LocalZonedTimestampType)):
        return _time_text(kind, value)
    return f"X'{value.hex()}'" if isinstance(value, bytes) else str(value)


def _time_text(kind: DataType, value: int) -> str:
    if isinstance(kind, DateType):
        return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=value))
    if isinstance(kind, TimeType):
        return str((datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=value)).time())
    assert isinstance(kind, (TimestampType, LocalZonedTimestampType))
    per_second = 1000 if kind.precision <= 3 else 1_000_000 if kind.precision <= 6 else 1_000_000_000
    seconds, rest = divmod(value, per_second)
    when = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)
    digits = str(rest).zfill(len(str(per_second)) - 1).rstrip("0")
    return f"{when:%Y-%m-%d %H:%M:%S}{'.' + digits if digits else ''}"


def interval_text(kind: DataType) -> str:
    """Return the type of an interval without its precisions."""
    return re.sub(r"\(\d+\)", "", kind.text)


def type_text(kind: DataType) -> str:
    """Return a type as plans show it."""
    if isinstance(kind, IntType):
        return "INTEGER"
    if isinstance(kind, (VarCharType, VarBinaryType)):
        return f"{kind.root}({kind.length})"
    if isinstance(kind, (DayTimeIntervalType, YearMonthIntervalType)):
        return interval_text(kind)
    if isinstance(kind, LocalZonedTimestampType):
        return f"TIMESTAMP_WITH_LOCAL_TIME_ZONE({kind.precision})"
    if isinstance(kind, ArrayType):
        return f"{type_text(kind.element_type)} ARRAY"
    if isinstance(kind, MultisetType):
        return f"{type_text(kind.element_type)} MULTISET"
    if isinstance(kind, MapType):
        return f"({type_text(kind.key_type)}, {type_text(kind.value_type)}) MAP"
    if isinstance(kind, RowType):
        return f"RecordType({', '.join(f'{type_text(f.data_type)} {f.name}' for f in kind)})"
    return kind.text


def aggregate_text(call: AggregateCall, names: Names, retracting: bool = False) -> str:
    """Return an aggregate as text."""
    inside = ", ".join(names(a) for a in call.arguments)
    if call.function == "COUNT" and not call.arguments:
        inside = "*"
    words = "".join(f", {o}" for o in call.options if isinstance(o, str))
    distinct = "DISTINCT " if call.distinct else ""
    filtered = "" if call.condition is None else f" FILTER {names(call.condition)}"
    return f"{function_text(call, retracting)}({distinct}{inside}{words}){filtered}"


def function_text(call: AggregateCall, retracting: bool = False) -> str:
    """Return the name of an aggregate's function; _RETRACT marks those that support retraction."""
    return f"{call.function}_RETRACT" if retracting and call.function in _RETRACTED else call.function


_RETRACTED = frozenset(["COUNT", "SUM", "$SUM0", "AVG", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LISTAGG"])
