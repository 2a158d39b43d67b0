"""Parsers of the basic types' text that accept what Java accepts."""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from math import inf, isfinite

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.time import Instant
from millstream.common.typeinfo import RowTypeInfo, TypeInformation, as_type_information

Parse = Callable[[str], Value]
ParseColumn = Callable[[Sequence[str]], Sequence[Value]]

_BITS = {"Byte": 8, "Short": 16, "Integer": 32, "Long": 64}
# Java's BigDecimal accepts digits of all scripts, parseDouble does not.
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_NUMBER = re.compile(_DECIMAL.pattern, re.ASCII)
# Java accepts a type suffix.
_DOUBLE = re.compile(rf"{_DECIMAL.pattern}[fFdD]?|[+-]?(?:NaN|Infinity)", re.ASCII)
_single = struct.Struct("f")
# Rounded numbers have fewer digits.
_EXACT = Context(prec=100)


def _integer(name: str) -> Parse:
    high = 1 << (_BITS[name] - 1)

    def parse(text: str) -> int:
        number = int(text)
        # int() accepts underscores, Java does not.
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
    """Parse a number as Java's parseDouble does.

    Example:
        >>> parse_double(" 1.5f"), parse_double("Infinity")
        (1.5, inf)
    """
    # The common case: Python and Java parse plain numbers alike.
    if _NUMBER.fullmatch(text) is not None:
        return float(text)
    stripped = text.strip()
    if _DOUBLE.fullmatch(stripped) is None:
        raise ValueError(f"{text!r} is not a number")
    return float(stripped.rstrip("fFdD"))


def _doubles(column: Sequence[str]) -> Sequence[float]:
    numbers = list(map(float, column))
    # float() accepts words, underscores and digits that Java rejects: parse those one by one.
    if all(map(isfinite, numbers)) and "_" not in (joined := "".join(column)) and joined.isascii():
        return numbers
    return [parse_double(text) for text in column]


def narrow(number: float) -> float:
    """Return the nearest 32-bit float."""
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


def parse_decimal(text: str) -> Decimal:
    """Parse a number as Java's BigDecimal does."""
    # Decimal() accepts underscores, NaN and Infinity, Java does not.
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a number")
    return Decimal(text)


@dataclass(frozen=True)
class DecimalSize:
    """The maximum number of digits of a decimal, and the number of fractional digits."""

    precision: int
    scale: int

    def fit(self, number: Decimal | None) -> Decimal | None:
        """Return a number rounded half up, or None if it has too many digits, like Flink's DecimalData.

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
    "BigDecimal": lambda text: parse_decimal(text.strip()),
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


def parser_of(type_info: TypeInformation, owner: str) -> Parse:
    """Return the parser of a basic type; it raises ValueError for malformed text.

    Args:
        type_info: the type.
        owner: the name of the caller, for the error if the type is not a basic one.
    """
    parser = _PARSERS.get(str(type_info))
    if parser is None:
        raise InvalidProgramError(f"{owner}: the type {type_info} has no text form; use a basic type.")
    return parser


def column_parser_of(type_info: TypeInformation) -> ParseColumn:
    """Return the parser of many values; it raises ValueError if one is malformed."""
    name = str(type_info)
    if name in _COLUMN_PARSERS:
        return _COLUMN_PARSERS[name]
    parse = _PARSERS[name]
    return lambda column: [parse(text) for text in column]


def check_row_type(type_info: object, owner: str) -> RowTypeInfo:
    """Return a row type of Types or DataTypes as a RowTypeInfo; fail for any other object."""
    if hasattr(type_info, "type_information"):
        type_info = as_type_information(type_info)
    if not isinstance(type_info, RowTypeInfo):
        raise InvalidProgramError(
            f"{owner} takes a row type such as Types.ROW_NAMED(['id'], [Types.INT()]) or "
            f"DataTypes.ROW([DataTypes.FIELD('id', DataTypes.INT())]), not {type_info!r}."
        )
    return type_info
