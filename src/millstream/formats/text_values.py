"""Values of the basic types as text: how the formats read and write them, which is how Java does."""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from math import inf, isfinite, nan
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.common.time import Instant
from millstream.common.typeinfo import RowTypeInfo, TypeInformation, as_type_information

Parse = Callable[[str], Any]
ParseColumn = Callable[[Sequence[str]], Sequence[Any]]

_BITS = {"Byte": 8, "Short": 16, "Integer": 32, "Long": 64}
# Java's BigDecimal takes digits of all scripts, parseDouble does not.
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NUMBER = re.compile(rf"{_DECIMAL.pattern}[fFdD]?", re.ASCII)
_NOT_FINITE = {"NaN": nan, "Infinity": inf, "+Infinity": inf, "-Infinity": -inf}
_single = struct.Struct("f")
# Rounded numbers have fewer digits.
_EXACT = Context(prec=100)


def _integer(name: str) -> Parse:
    high = 1 << (_BITS[name] - 1)

    def parse(text: str) -> int:
        number = int(text)
        # int() takes underscores, Java does not.
        if not -high <= number < high or "_" in text:
            raise ValueError(text)
        return number

    return parse


def _integers(name: str) -> ParseColumn:
    high = 1 << (_BITS[name] - 1)

    def parse(column: Sequence[str]) -> Sequence[int]:
        numbers = list(map(int, column))
        if min(numbers) < -high or max(numbers) >= high or "_" in "".join(column):
            raise ValueError
        return numbers

    return parse


def parse_double(text: str) -> float:
    """Read a number as Java's parseDouble does.

    Example:
        >>> parse_double(" 1.5f"), parse_double("Infinity")
        (1.5, inf)
    """
    text = text.strip()
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return float(text.rstrip("fFdD"))


def _doubles(column: Sequence[str]) -> Sequence[float]:
    numbers = list(map(float, column))
    # float() takes words, underscores and digits that Java does not: those are looked at one by one.
    if all(map(isfinite, numbers)) and "_" not in (joined := "".join(column)) and joined.isascii():
        return numbers
    return [parse_double(text) for text in column]


def narrow(number: float) -> float:
    """Return the nearest number that 32 bits can hold."""
    try:
        return float(_single.unpack(_single.pack(number))[0])
    except OverflowError:
        return inf if number > 0 else -inf


def _boolean(text: str) -> bool:
    return text.strip().lower() == "true"


def _char(text: str) -> str:
    if len(text) != 1:
        raise ValueError(text)
    return text


def _big_integer(text: str) -> int:
    if "_" in text:
        raise ValueError(text)
    return int(text)


def _decimal(text: str) -> Decimal:
    text = text.strip()
    # Decimal() takes underscores, NaN and Infinity, Java does not.
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    return Decimal(text)


@dataclass(frozen=True)
class DecimalSize:
    """How many digits a decimal number may have, and how many of them stand behind the point."""

    precision: int
    scale: int

    def fit(self, number: Decimal | None) -> Decimal | None:
        """Return a number rounded half up, None where it has too many digits: Flink's DecimalData.

        Example:
            >>> DecimalSize(2, 0).fit(Decimal("1.5")), DecimalSize(2, 0).fit(Decimal("99.5"))
            (Decimal('2'), None)
        """
        whole = self.precision - self.scale
        if number is None or (number and number.adjusted() >= whole):
            return None
        rounded = number.quantize(Decimal(1).scaleb(-self.scale), ROUND_HALF_UP, _EXACT)
        return rounded if rounded.adjusted() < whole or not rounded else None


def _timestamp(text: str) -> datetime.datetime:
    return datetime.datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f" if "." in text else "%Y-%m-%d %H:%M:%S")


def _instant(text: str) -> Instant:
    moment = datetime.datetime.fromisoformat(text)
    since = moment.replace(tzinfo=moment.tzinfo or datetime.UTC) - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return Instant(since.days * 86400 + since.seconds, since.microseconds * 1000)


_PARSERS: dict[str, Parse] = {
    "String": lambda text: text,
    "Char": _char,
    "Boolean": _boolean,
    **{name: _integer(name) for name in _BITS},
    "Float": lambda text: narrow(parse_double(text)),
    "Double": parse_double,
    "BigInteger": _big_integer,
    "BigDecimal": _decimal,
    "DateTypeInfo": lambda text: datetime.date.fromisoformat(text.strip()),
    "TimeTypeInfo": lambda text: datetime.datetime.strptime(text, "%H:%M:%S").time(),
    "TimestampTypeInfo": _timestamp,
    "Instant": _instant,
}
_COLUMN_PARSERS: dict[str, ParseColumn] = {
    "String": lambda column: column,
    "Boolean": lambda column: [text.strip().lower() == "true" for text in column],
    **{name: _integers(name) for name in _BITS},
    "Float": lambda column: list(map(narrow, _doubles(column))),
    "Double": _doubles,
}


def parser_of(type_info: TypeInformation, what: str) -> Parse:
    """Return the function that reads a value of a basic type; it raises ValueError for what is none.

    Args:
        what: who asks, for the error when the type is not a basic one.
    """
    found = _PARSERS.get(str(type_info))
    if found is None:
        raise InvalidProgramError(f"{what}: the type {type_info} cannot be written as plain text.")
    return found


def column_parser_of(type_info: TypeInformation) -> ParseColumn:
    """Return the function that reads many values at once; it raises ValueError when one does not fit."""
    name = str(type_info)
    if name in _COLUMN_PARSERS:
        return _COLUMN_PARSERS[name]
    parse = _PARSERS[name]
    return lambda column: [parse(text) for text in column]


def check_row_type(type_info: Any, what: str) -> RowTypeInfo:
    """Return a row type of Types, or that of DataTypes as such a one; refuse what is neither."""
    if hasattr(type_info, "type_information"):
        type_info = as_type_information(type_info)
    if not isinstance(type_info, RowTypeInfo):
        raise InvalidProgramError(
            f"{what} takes a row type such as Types.ROW_NAMED(['id'], [Types.INT()]) or "
            f"DataTypes.ROW([DataTypes.FIELD('id', DataTypes.INT())]), not {type_info!r}."
        )
    return type_info
