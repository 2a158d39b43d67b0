"""Values of columns as text in JSON and CSV, and the parsers of such text."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import math
import re
from collections.abc import Callable
from enum import Enum

import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.java_text import java_number
from millstream.formats.text_values import parse_decimal, parse_double
from millstream.sql import types as t

# Fractional digits of Arrow's time units.
_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
ISO = "ISO-8601"
_EXACT = decimal.Context(prec=100)


def time_texts(column: pa.Array, kind: t.DataType, standard: str) -> list[str | None]:
    """Return times as text, in the format of SQL or ISO 8601."""
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
    """The format of decimals: without trailing zeros (SHORTEST has an exponent), or with all digits of the type."""

    SHORTEST = 0
    SHORT = 1
    ALL_DIGITS = 2


def plain_texts(
    column: pa.Array, kind: t.DataType, standard: str, decimals: Decimals = Decimals.ALL_DIGITS
) -> list[str | None] | None:
    """Return the values of a column as text; None for collections and rows."""
    if isinstance(kind, t.DecimalType) and decimals is not Decimals.ALL_DIGITS:
        form = "" if decimals is Decimals.SHORTEST else "f"
        return [None if v is None else format(v.normalize(_EXACT), form) for v in column.to_pylist()]
    if isinstance(kind, (t.TimeType, t.TimestampType, t.LocalZonedTimestampType)):
        return time_texts(column, kind, standard)
    write = _WRITERS.get(type(kind))
    if write is None:
        return None
    return [None if v is None else write(v) for v in column.to_pylist()]


_WRITERS: dict[type[t.DataType], Callable[[Value], str]] = {
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


def parser(kind: t.DataType, standard: str) -> Callable[[str], Value]:
    """Return the parser of a type other than collections and rows; it raises ValueError for malformed text."""
    if isinstance(kind, t.IntegralType):
        return _whole(kind)
    if isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        return _timestamps(kind, standard)
    parse = _PARSERS.get(type(kind))
    if parse is None:
        raise ValueError(f"{kind} has no text form")
    return parse


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
        raise ValueError(f"{text!r} is not a number") from None


def _timestamps(kind: t.DataType, standard: str) -> Callable[[str], dt.datetime]:
    zoned = isinstance(kind, t.LocalZonedTimestampType)
    iso = standard == ISO

    def parse(text: str) -> dt.datetime:
        if iso != ("T" in text):
            shown = "2024-01-31T23:59:59" if iso else "2024-01-31 23:59:59"
            raise ValueError(f"{text!r} is not a timestamp such as {shown}{'Z' if zoned else ''}")
        plain = text.rstrip("Z")
        whole, dot, fraction = plain.partition(".")
        moment = dt.datetime.fromisoformat(whole + (f".{fraction[:6]:0<6}" if dot else ""))
        return moment.replace(tzinfo=dt.UTC) if zoned else moment

    return parse


_PARSERS: dict[type[t.DataType], Callable[[str], Value]] = {
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


# --- reading as Flink's formats do

_FRACTION = r"(?:\.\d{0,9})?"
_CLOCK = rf"\d\d:\d\d:\d\d{_FRACTION}"
_SHORT_CLOCK = rf"\d\d:\d\d(?::\d\d{_FRACTION})?"
_DAY = r"\d{4}-\d\d-\d\d"


def strict_parser(kind: t.DataType, standard: str, in_csv: bool) -> Callable[[str], Value]:
    """Return the parser of a type that accepts the same text as Flink's JSON and CSV formats, and no other.

    Args:
        kind: a type other than collections and rows.
        standard: the format of timestamps, `SQL` or `ISO-8601`.
        in_csv: whether the text is a CSV field, which ignores surrounding blanks and accepts dates such as 2024-1-5.
    """
    if isinstance(kind, t.BooleanType):
        return lambda text: text.strip().lower() == "true"
    if isinstance(kind, t.DateType):
        return _dates(in_csv)
    if isinstance(kind, t.TimeType):
        return _times(_SHORT_CLOCK if in_csv else _CLOCK, in_csv)
    if isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        return _strict_timestamps(isinstance(kind, t.LocalZonedTimestampType), standard == ISO, in_csv)
    if isinstance(kind, (t.FloatType, t.DoubleType)):
        return parse_double
    if isinstance(kind, t.DecimalType):
        # Unlike other types, decimals reject surrounding blanks in CSV and accept them in JSON.
        return parse_decimal if in_csv else lambda text: parse_decimal(text.strip())
    if isinstance(kind, t.IntegralType):
        return _strict_whole(parser(kind, standard))
    return parser(kind, standard)


def _strict_whole(parse: Callable[[str], int]) -> Callable[[str], int]:
    def strict(text: str) -> int:
        if "_" in text:
            raise ValueError(f"{text!r} is not a whole number")
        return parse(text)

    return strict


def _dates(in_csv: bool) -> Callable[[str], dt.date]:
    pattern = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)" if in_csv else r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)

    def parse(text: str) -> dt.date:
        match = pattern.fullmatch(text.strip() if in_csv else text)
        if match is None:
            raise ValueError(f"{text!r} is not a date such as 2024-01-31")
        return dt.date(*map(int, match.groups()))

    return parse


def _times(clock: str, in_csv: bool) -> Callable[[str], dt.time]:
    pattern = re.compile(clock, re.ASCII)

    def parse(text: str) -> dt.time:
        match = pattern.fullmatch(text.strip() if in_csv else text)
        if match is None:
            raise ValueError(f"{text!r} is not a time such as 23:59:59")
        return dt.time.fromisoformat(match[0].rstrip("."))

    return parse


def _strict_timestamps(zoned: bool, iso: bool, in_csv: bool) -> Callable[[str], dt.datetime]:
    clock, end = (_SHORT_CLOCK if iso else _CLOCK), ("Z" if zoned else "")
    pattern = re.compile(f"{_DAY}{'T' if iso else ' '}{clock}(?={end}$)", re.ASCII)
    shown = f"2024-01-31{'T' if iso else ' '}23:59:59{end}"

    def parse(text: str) -> dt.datetime:
        stripped = text.strip() if in_csv else text
        match = pattern.match(stripped)
        if match is None:
            raise ValueError(f"{text!r} is not a timestamp such as {shown}")
        moment = dt.datetime.fromisoformat(match[0].rstrip("."))
        return moment.replace(tzinfo=dt.UTC) if zoned else moment

    return parse


# --- reading values of inferred types

_INTEGER = re.compile(r"0|-?[1-9]\d*", re.ASCII)
_PLAIN_NUMBER = re.compile(r"-?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_NO_NUMBERS = frozenset(["NaN", "nan", "Infinity", "-Infinity", "inf", "-inf"])
# Doubles represent all integers below this one.
_MAX_EXACT = 1 << 53


def exact_parser(kind: t.DataType) -> Callable[[str], Value]:
    """Return the parser of an inferred type, which rejects text that the type cannot represent.

    So leading zeros and plus signs, which may be part of an identifier, are not those of a number.

    Example:
        >>> exact_parser(t.DataTypes.BIGINT())("7"), exact_parser(t.DataTypes.TIMESTAMP(3))("2024-01-31T23:59:59")
        (7, datetime.datetime(2024, 1, 31, 23, 59, 59))
    """
    if isinstance(kind, t.BooleanType):
        return _exact_boolean
    if isinstance(kind, t.BigIntType):
        return _exact_integer
    if isinstance(kind, t.DoubleType):
        return _exact_double
    if isinstance(kind, t.DateType):
        return _exact_date
    if isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        return _exact_timestamps(kind.precision, isinstance(kind, t.LocalZonedTimestampType))
    return parser(kind, "SQL")


def _exact_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("it is neither true nor false")
    return word == "true"


def _exact_integer(text: str) -> int:
    stripped = text.strip()
    if _INTEGER.fullmatch(stripped) is None:
        raise ValueError("it is not a whole number without leading zeros")
    number = int(stripped)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("it is too large")
    return number


def _exact_double(text: str) -> float:
    stripped = text.strip()
    if stripped in _NO_NUMBERS:
        return float(stripped)
    if _PLAIN_NUMBER.fullmatch(stripped) is None:
        raise ValueError("it is not a number without leading zeros")
    return exact_double(stripped)


def exact_double(text: str) -> float:
    """Return a number as a double; raise ValueError for one that is infinite, or an integer with too many digits."""
    number = float(text)
    if math.isinf(number) or (abs(number) >= _MAX_EXACT and text.lstrip("-").isdigit()):
        raise ValueError("a DOUBLE cannot represent it")
    return number


_ISO_DATE = re.compile(_DAY, re.ASCII)
_ANY_TIMESTAMP = re.compile(rf"{_DAY}[ T]\d\d:\d\d(?::\d\d(?:\.(\d{{1,6}}))?)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def _exact_date(text: str) -> dt.date:
    stripped = text.strip()
    if _ISO_DATE.fullmatch(stripped) is None:
        raise ValueError("it is not a date such as 2024-01-31")
    return dt.date.fromisoformat(stripped)


def _exact_timestamps(precision: int, zoned: bool) -> Callable[[str], dt.datetime]:
    shown = f"2024-01-31 23:59:59{'Z' if zoned else ''}"

    def parse(text: str) -> dt.datetime:
        match = _ANY_TIMESTAMP.fullmatch(text.strip())
        if match is None or (match[2] is not None) != zoned or len(match[1] or "") > precision:
            raise ValueError(f"it is not a timestamp such as {shown} with at most {precision} digits after the point")
        return dt.datetime.fromisoformat(match[0])

    return parse
