"""Converts literals to constants."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal

from millstream.sql import type_rules
from millstream.sql.bind.scope import BindError
from millstream.sql.expressions import Constant
from millstream.sql.language import syntax
from millstream.sql.types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    NullType,
    TimestampType,
    TimeType,
)

_MAX_INT = 2**31 - 1
_MAX_BIGINT = 2**63 - 1
_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_MILLISECONDS = {"WEEK": 604_800_000, "DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1000}
_PARTS = ["DAY", "HOUR", "MINUTE", "SECOND"]
_EPOCH = datetime.datetime(1970, 1, 1)


def _empty() -> DataType:
    # CHAR(0) cannot be declared, but an empty text literal is valid.
    result = CharType(1, False)
    result.length = 0
    return result


_EMPTY = _empty()


def constant(literal: syntax.Literal) -> Constant:
    """Return the constant of a literal."""
    try:
        return _READERS[literal.kind](literal.text)
    except (ValueError, ArithmeticError) as e:
        raise BindError(f"Illegal {literal.kind} literal '{literal.text}': {e}", literal.position) from e


def _integer(text: str) -> Constant:
    value = int(text)
    if value <= _MAX_INT:
        return Constant(IntType(False), value)
    if value <= _MAX_BIGINT:
        return Constant(BigIntType(False), value)
    raise ValueError("it is out of range; write it with a decimal point, or as a CAST of a string")


def signed_integer(literal: syntax.Literal, is_negative: bool) -> Constant:
    """Return an integer below signs; each type has one more negative value."""
    if not is_negative:
        return constant(literal)
    value = -int(literal.text)
    for kind, max_value in ((IntType(False), _MAX_INT), (BigIntType(False), _MAX_BIGINT)):
        if value >= -max_value - 1:
            return Constant(kind, value)
    raise BindError(f"Numeric literal '-{literal.text}' out of range", literal.position)


def negated(number: Constant) -> Constant:
    """Return a negated number or interval."""
    return Constant(number.type, -number.value)


def _double(text: str) -> Constant:
    value = float(text)
    if value == float("inf"):
        raise ValueError("it is out of range")
    return Constant(DoubleType(False), value)


def _decimal(text: str) -> Constant:
    if text.endswith("."):
        return _integer(text[:-1])
    value = Decimal(text)
    # A zero before the point counts as a digit.
    digits = text.replace(".", "")
    scale = len(text.split(".")[1]) if "." in text else 0
    precision = max(len(digits), scale, 1)
    if int(digits) > _MAX_BIGINT:
        raise ValueError("it has too many digits; write it as a CAST of a string")
    return Constant(DecimalType(precision, scale, False), value)


def _date(text: str) -> Constant:
    return Constant(DateType(False), (datetime.date.fromisoformat(text) - _EPOCH.date()).days)


def _time(text: str) -> Constant:
    return Constant(TimeType(len(_fraction(text)) or 0, False), _nanoseconds(text) // 1_000_000)


def _timestamp(text: str) -> Constant:
    day, _, rest = text.strip().replace("T", " ").partition(" ")
    days: int = (datetime.date.fromisoformat(day) - _EPOCH.date()).days
    nanoseconds = days * 86_400_000_000_000 + (_nanoseconds(rest) if rest else 0)
    precision = len(_fraction(rest))
    kind = TimestampType(precision, False)
    return Constant(kind, nanoseconds // unit_in_nanoseconds(precision))


def unit_in_nanoseconds(precision: int) -> int:
    """Return the length of the unit of a timestamp's precision."""
    return 1_000_000 if precision <= 3 else 1000 if precision <= 6 else 1


def _fraction(text: str) -> str:
    fraction = text.partition(".")[2]
    if len(fraction) > 9:
        raise ValueError("seconds have at most 9 fractional digits")
    return fraction


def _nanoseconds(text: str) -> int:
    result = re.fullmatch(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?", text)
    if result is None:
        raise ValueError("expected hh:mm:ss")
    hour, minute, second = (int(result.group(i)) for i in (1, 2, 3))
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError("the time of day is out of range")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000_000 + int((result.group(4) or "").ljust(9, "0"))


_READERS = {
    "INTEGER": _integer,
    "DECIMAL": _decimal,
    "DOUBLE": _double,
    "STRING": lambda text: Constant(CharType(len(text), False) if text else _EMPTY, text),
    "BINARY": lambda text: Constant(BinaryType(max(len(text) // 2, 1), False), bytes.fromhex(text)),
    "BOOLEAN": lambda text: Constant(BooleanType(False), text == "TRUE"),
    "NULL": lambda text: Constant(NullType(), None),
    "DATE": _date,
    "TIME": _time,
    "TIMESTAMP": _timestamp,
}


def interval(written: syntax.Interval) -> Constant:
    """Return the constant of an INTERVAL literal in months or milliseconds."""
    kind = interval_type(written.first, written.last)
    try:
        value = _interval_value(written)
    except ValueError as e:
        units = written.first if written.first == written.last else f"{written.first} TO {written.last}"
        raise BindError(
            f"Illegal interval literal format '{written.text}' for INTERVAL {units}", written.position
        ) from e
    return Constant(kind, -value if written.negative else value)


def interval_type(first: str, last: str) -> DataType:
    """Return the type of an interval between two units."""
    return (type_rules.MONTHS if first in _MONTHS else type_rules.MILLISECONDS).not_null()


def unit_value(unit: str) -> int:
    """Return a unit in months or milliseconds."""
    return _MONTHS.get(unit) or _MILLISECONDS[unit]


def _interval_value(written: syntax.Interval) -> int:
    text = written.text.strip()
    sign = -1 if text.startswith("-") else 1
    text = text.lstrip("+-").strip()
    if written.first in _MONTHS:
        if written.first == written.last:
            return sign * _whole(text) * _MONTHS[written.first]
        years, months = text.split("-")
        return sign * (_whole(years) * 12 + _whole(months))
    if written.first == written.last:
        return sign * _milliseconds(text, written.first)
    units = _PARTS[_PARTS.index(written.first) : _PARTS.index(written.last) + 1]
    values = re.split(r"[ :]+", text)
    if len(values) != len(units):
        raise ValueError(text)
    return sign * sum(_milliseconds(v, u) for v, u in zip(values, units, strict=True))


def _milliseconds(text: str, unit: str) -> int:
    if unit == "SECOND":
        if re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text) is None:
            raise ValueError(text)
        return int(Decimal(text) * 1000)
    return _whole(text) * _MILLISECONDS[unit]


def _whole(text: str) -> int:
    if re.fullmatch(r"[0-9]+", text) is None:
        raise ValueError(text)
    return int(text)
