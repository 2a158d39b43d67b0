"""Plain values in JSON and CSV, read as Flink's formats read them: what these refuse is refused, not guessed at."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable
from typing import Any

from millstream.formats.texts import ISO, parser
from millstream.sql import types as t

_FRACTION = r"(?:\.\d{0,9})?"
_CLOCK = rf"\d\d:\d\d:\d\d{_FRACTION}"
_SHORT_CLOCK = rf"\d\d:\d\d(?::\d\d{_FRACTION})?"
_DAY = r"\d{4}-\d\d-\d\d"
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
# Java's BigDecimal takes digits of all scripts, parseDouble does not.
_DECIMAL = re.compile(_NUMBER.pattern)
# As Java has them: a letter behind may say what it is.
_FLOAT = re.compile(rf"{_NUMBER.pattern}[fFdD]?|[+-]?(?:NaN|Infinity)", re.ASCII)


def strict_parser(kind: t.DataType, standard: str, zone: str, in_csv: bool) -> Callable[[str], Any]:
    """Return what reads a value without parts from text; it raises ValueError for what is none.

    Args:
        kind: the type of the value.
        standard: how timestamps are written, `SQL` or `ISO-8601`.
        zone: the session's time zone.
        in_csv: whether the text is a field of CSV, where blanks around it do not count and dates may be short.
    """
    if isinstance(kind, t.BooleanType):
        return lambda text: text.strip().lower() == "true"
    if isinstance(kind, t.DateType):
        return _dates(in_csv)
    if isinstance(kind, t.TimeType):
        return _times(_SHORT_CLOCK if in_csv else _CLOCK, in_csv)
    if isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        return _timestamps(isinstance(kind, t.LocalZonedTimestampType), standard == ISO, in_csv)
    if isinstance(kind, (t.FloatType, t.DoubleType)):
        return _float
    if isinstance(kind, t.DecimalType):
        # The one type whose blanks count in CSV, and not in JSON.
        return _decimal if in_csv else lambda text: _decimal(text.strip())
    if isinstance(kind, t.IntegralType):
        return _whole(parser(kind, standard, zone))
    return parser(kind, standard, zone)


def _whole(parse: Callable[[str], int]) -> Callable[[str], int]:
    def strict(text: str) -> int:
        if "_" in text:
            raise ValueError(f"{text!r} is not a whole number")
        return parse(text)

    return strict


def _float(text: str) -> float:
    # What is a number for Python as for Java, nearly always.
    if _NUMBER.fullmatch(text) is not None:
        return float(text)
    found = text.strip()
    if _FLOAT.fullmatch(found) is None:
        raise ValueError(f"{text!r} is not a number")
    return float(found.rstrip("fFdD"))


def _decimal(text: str) -> decimal.Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a number")
    return decimal.Decimal(text)


def _dates(in_csv: bool) -> Callable[[str], dt.date]:
    pattern = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)" if in_csv else r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)

    def parse(text: str) -> dt.date:
        found = pattern.fullmatch(text.strip() if in_csv else text)
        if found is None:
            raise ValueError(f"{text!r} is no date as in 2024-01-31")
        return dt.date(*map(int, found.groups()))

    return parse


def _times(clock: str, in_csv: bool) -> Callable[[str], dt.time]:
    pattern = re.compile(clock, re.ASCII)

    def parse(text: str) -> dt.time:
        found = pattern.fullmatch(text.strip() if in_csv else text)
        if found is None:
            raise ValueError(f"{text!r} is no time as in 23:59:59")
        return dt.time.fromisoformat(found[0].rstrip("."))

    return parse


def _timestamps(zoned: bool, iso: bool, in_csv: bool) -> Callable[[str], dt.datetime]:
    clock, end = (_SHORT_CLOCK if iso else _CLOCK), ("Z" if zoned else "")
    pattern = re.compile(f"{_DAY}{'T' if iso else ' '}{clock}(?={end}$)", re.ASCII)
    shown = f"2024-01-31{'T' if iso else ' '}23:59:59{end}"

    def parse(text: str) -> dt.datetime:
        stripped = text.strip() if in_csv else text
        found = pattern.match(stripped)
        if found is None:
            raise ValueError(f"{text!r} is no timestamp as in {shown}")
        read = dt.datetime.fromisoformat(found[0].rstrip("."))
        return read.replace(tzinfo=dt.UTC) if zoned else read

    return parse
