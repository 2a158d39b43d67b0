"""Values of columns as JSON and CSV write them."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
from collections.abc import Callable
from enum import Enum
from typing import Any

import pyarrow as pa

from millstream.common.java_text import java_number
from millstream.sql import types as t

# The fraction of a second is written with as many digits as it has, up to nine.
_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
ISO = "ISO-8601"
_EXACT = decimal.Context(prec=100)


def time_texts(column: pa.Array, kind: t.DataType, standard: str) -> list[str | None]:
    """Return times as text, in SQL's way or that of ISO 8601."""
    iso = standard == ISO
    if isinstance(kind, t.TimeType):
        return [
            None if v is None else _clock(v.hour, v.minute, v.second, v.microsecond * 1000) for v in column.to_pylist()
        ]
    zoned = "Z" if isinstance(kind, t.LocalZonedTimestampType) else ""
    digits = _UNITS[column.type.unit]
    middle = "T" if iso else " "

    def write(value: int) -> str:
        seconds, fraction = divmod(value, 10**digits)
        days, rest = divmod(seconds, 86400)
        day = dt.date(1970, 1, 1) + dt.timedelta(days=days)
        nanos = fraction * 10 ** (9 - digits)
        clock = _clock(rest // 3600, rest // 60 % 60, rest % 60, nanos)
        return f"{day.isoformat()}{middle}{clock}{zoned}"

    return [None if v is None else write(v) for v in column.cast(pa.int64()).to_pylist()]


def _clock(hour: int, minute: int, second: int, nanos: int) -> str:
    fraction = f".{nanos:09}".rstrip("0") if nanos else ""
    return f"{hour:02}:{minute:02}:{second:02}{fraction}"


class Decimals(Enum):
    """How decimals are written: as short as can be, with an exponent or without, or with all digits of their type."""

    SHORTEST = 0
    SHORT = 1
    ALL_DIGITS = 2


def plain_texts(
    column: pa.Array, kind: t.DataType, standard: str, decimals: Decimals = Decimals.ALL_DIGITS
) -> list[str | None] | None:
    """Return the values of a column without parts as text; None where the type has parts."""
    if isinstance(kind, t.DecimalType) and decimals is not Decimals.ALL_DIGITS:
        form = "" if decimals is Decimals.SHORTEST else "f"
        return [None if v is None else format(v.normalize(_EXACT), form) for v in column.to_pylist()]
    if isinstance(kind, (t.TimeType, t.TimestampType, t.LocalZonedTimestampType)):
        return time_texts(column, kind, standard)
    write = _WRITERS.get(type(kind))
    if write is None:
        return None
    return [None if v is None else write(v) for v in column.to_pylist()]


_WRITERS: dict[type[t.DataType], Callable[[Any], str]] = {
    t.CharType: str,
    t.VarCharType: str,
    t.BooleanType: lambda v: "true" if v else "false",
    t.TinyIntType: str,
    t.SmallIntType: str,
    t.IntType: str,
    t.BigIntType: str,
    t.FloatType: lambda v: java_number(v, True),
    t.DoubleType: lambda v: java_number(v, False),
    t.DecimalType: lambda v: format(v, "f"),
    t.DateType: lambda v: v.isoformat(),
    t.BinaryType: lambda v: base64.b64encode(v).decode(),
    t.VarBinaryType: lambda v: base64.b64encode(v).decode(),
    t.YearMonthIntervalType: str,
    t.DayTimeIntervalType: str,
}

# --- reading


def parser(kind: t.DataType, standard: str, zone: str) -> Callable[[str], Any]:
    """Return what reads a value without parts from text; it raises ValueError for what is none."""
    if isinstance(kind, t.IntegralType):
        return _whole(kind)
    if isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        return _timestamps(kind, standard)
    found = _PARSERS.get(type(kind))
    if found is None:
        raise ValueError(f"{kind} is no type of plain values")
    return found


def _whole(kind: t.IntegralType) -> Callable[[str], int]:
    half = 1 << (kind.bits - 1)

    def parse(text: str) -> int:
        number = int(text.strip())
        if not -half <= number < half:
            raise ValueError(f"{text} does not fit {kind}")
        return number

    return parse


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false", "1", "0"):
        raise ValueError(f"{text!r} is not true or false")
    return word in ("true", "1")


def _decimal(text: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(text.strip())
    except decimal.DecimalException:
        raise ValueError(f"{text!r} is no number") from None


def _timestamps(kind: t.DataType, standard: str) -> Callable[[str], dt.datetime]:
    zoned = isinstance(kind, t.LocalZonedTimestampType)
    iso = standard == ISO

    def parse(text: str) -> dt.datetime:
        if iso != ("T" in text):
            shown = "2024-01-31T23:59:59" if iso else "2024-01-31 23:59:59"
            raise ValueError(f"{text!r} is no timestamp as in {shown}{'Z' if zoned else ''}")
        plain = text.rstrip("Z")
        whole, dot, fraction = plain.partition(".")
        found = dt.datetime.fromisoformat(whole + (f".{fraction[:6]:0<6}" if dot else ""))
        return found.replace(tzinfo=dt.UTC) if zoned else found

    return parse


_PARSERS: dict[type[t.DataType], Callable[[str], Any]] = {
    t.CharType: str,
    t.VarCharType: str,
    t.BooleanType: _boolean,
    t.FloatType: float,
    t.DoubleType: float,
    t.DecimalType: _decimal,
    t.DateType: lambda text: dt.date.fromisoformat(text.strip()),
    t.TimeType: lambda text: dt.time.fromisoformat(text.strip()),
    t.BinaryType: lambda text: base64.b64decode(text, validate=True),
    t.VarBinaryType: lambda text: base64.b64decode(text, validate=True),
    t.YearMonthIntervalType: int,
    t.DayTimeIntervalType: int,
}
