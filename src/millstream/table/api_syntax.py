"""Syntax trees of Table API expressions: SQL's, and a few nodes of the Table API alone."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.time import Instant
from millstream.sql.language import syntax
from millstream.sql.types import DataTypes

if TYPE_CHECKING:
    from millstream.table.udf import UserDefinedFunctionWrapper

MILLIS_A_SECOND = 1000


@fast_dataclass
class InlineCall(syntax.Expression):
    """A call of a function that is not registered in a catalog."""

    function: UserDefinedFunctionWrapper
    arguments: tuple[syntax.Expression, ...] = ()


@fast_dataclass
class Range(syntax.Expression):
    """Columns from one to another, by name or by position from 1."""

    start: str | int
    end: str | int


@fast_dataclass
class Chosen(syntax.Expression):
    """Some columns, or with `excluded` all the others."""

    members: tuple[syntax.Expression, ...]
    excluded: bool = False


@fast_dataclass
class RowInterval(syntax.Expression):
    """A number of rows."""

    rows: int


@fast_dataclass
class TimeMark(syntax.Expression):
    """A time attribute, ROWTIME or PROCTIME, of a column or window."""

    value: syntax.Expression
    kind: str


@fast_dataclass
class WindowBound(syntax.Expression):
    """The start or end of a window that has a name: START or END."""

    window: syntax.Expression
    kind: str


@fast_dataclass
class OverNamed(syntax.Expression):
    """An aggregate over a window that has a name."""

    value: syntax.Expression
    window: str


@fast_dataclass
class FieldAt(syntax.Expression):
    """A field of a row by its index, from 0."""

    value: syntax.Expression
    index: int


# An operand of a Table API expression: an expression, or a Python value that becomes a literal.
Operand: TypeAlias = object


class Subquery:
    """Base of Table, as an operand of `in_`: `str()` returns its name in SQL."""


def literal(value: Operand) -> syntax.Expression:
    """Return a Python value as a SQL literal."""
    if value is None:
        return syntax.Literal("NULL", "NULL")
    if isinstance(value, bool):
        return syntax.Literal("BOOLEAN", str(value).upper())
    for kind, write in _LITERALS:
        if isinstance(value, kind):
            return write(value)
    raise InvalidProgramError(f"lit({value!r}): a {type(value).__name__} is no value of SQL.")


def _integer(value: int) -> syntax.Expression:
    written = syntax.Literal("INTEGER", str(abs(value)))
    return written if value >= 0 else syntax.Call("UNARY -", (written,))


def _double(value: float) -> syntax.Expression:
    if value != value or value in (float("inf"), float("-inf")):
        text = {True: "NaN"}.get(value != value, "Infinity" if value > 0 else "-Infinity")
        return syntax.Cast(syntax.Literal("STRING", text), DataTypes.DOUBLE(False))
    written = syntax.Literal("DOUBLE", f"{abs(value)!r}" if "e" in repr(value) else f"{abs(value)!r}e0")
    return written if str(value)[0] != "-" else syntax.Call("UNARY -", (written,))


def _decimal(value: decimal.Decimal) -> syntax.Expression:
    written = syntax.Literal("DECIMAL", f"{abs(value):f}")
    return written if value >= 0 else syntax.Call("UNARY -", (written,))


def _instant(value: Instant) -> syntax.Expression:
    millis = value.to_epoch_milli()
    return syntax.Call("TO_TIMESTAMP_LTZ", (_integer(millis), _integer(3)))


def _point(value: datetime.datetime) -> syntax.Expression:
    if value.tzinfo is not None:
        micros = (value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)
        return syntax.Call("TO_TIMESTAMP_LTZ", (_integer(micros // 1000), _integer(3)))
    digits = f".{value.microsecond:06}".rstrip("0").rstrip(".")
    return syntax.Literal("TIMESTAMP", f"{value:%Y-%m-%d %H:%M:%S}{digits}")


def _time(value: datetime.time) -> syntax.Expression:
    digits = f".{value.microsecond:06}".rstrip("0").rstrip(".")
    return syntax.Literal("TIME", f"{value:%H:%M:%S}{digits}")


_LITERALS: list[tuple[type | tuple[type, ...], Callable[[Value], syntax.Expression]]] = [
    (int, _integer),
    (float, _double),
    (str, lambda v: syntax.Literal("STRING", v)),
    (decimal.Decimal, _decimal),
    ((bytes), lambda v: syntax.Literal("BINARY", v.hex())),
    (bytearray, lambda v: syntax.Literal("BINARY", v.hex())),
    (datetime.datetime, _point),
    (datetime.date, lambda v: syntax.Literal("DATE", v.isoformat())),
    (datetime.time, _time),
    (datetime.timedelta, lambda v: millis_interval(v // datetime.timedelta(milliseconds=1))),
    (Instant, _instant),
    ((list, tuple), lambda v: syntax.Call("ARRAY", tuple(map(literal, v)))),
    (dict, lambda v: syntax.Call("MAP", tuple(literal(x) for pair in v.items() for x in pair))),
]

# The SQL unit and factor of each Table API unit.
_UNITS = {
    "YEAR": (1, "YEAR"),
    "QUARTER": (3, "MONTH"),
    "MONTH": (1, "MONTH"),
    "WEEK": (7, "DAY"),
    "DAY": (1, "DAY"),
    "HOUR": (1, "HOUR"),
    "MINUTE": (1, "MINUTE"),
    "SECOND": (1, "SECOND"),
}


def sort_key(tree: syntax.Expression, descending: bool) -> syntax.SortKey:
    """Return a key of `order_by`; in the Table API, unlike in SQL, NULL is larger than every value."""
    return syntax.SortKey(tree, descending, nulls_first=descending)


def interval(value: syntax.Expression, unit: str) -> syntax.Expression:
    """Return a number of units as an interval: `lit(10).minutes`."""
    negative = isinstance(value, syntax.Call) and value.name == "UNARY -"
    plain = value.arguments[0] if isinstance(value, syntax.Call) and negative else value
    if not isinstance(plain, syntax.Literal) or plain.kind != "INTEGER":
        if unit == "MILLI":
            raise InvalidProgramError("millis needs a literal number: lit(500).millis.")
        return syntax.Call("INTERVAL", (value, syntax.Symbol(unit)))
    count = int(plain.text)
    if unit == "MILLI":
        return millis_interval(-count if negative else count)
    each, name = _UNITS[unit]
    text = str(count * each)
    return syntax.Interval(text, negative, name, name, precision=len(text))


def millis_interval(millis: int) -> syntax.Interval:
    """Return milliseconds as an interval."""
    seconds, rest = divmod(abs(millis), MILLIS_A_SECOND)
    text = f"{seconds}.{rest:03}" if rest else str(seconds)
    return syntax.Interval(text, millis < 0, "SECOND", "SECOND", len(str(seconds)), 3)
