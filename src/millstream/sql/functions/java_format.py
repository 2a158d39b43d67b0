"""Java's String.format, for PRINTF."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable

from millstream.common.aliases import Value
from millstream.sql.columns.value_text import java_double

# Formats a value with flags, width and precision.
_Write = Callable[[Value, str, str | None, str | None], str]
_SPECIFIER = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(<]*)?(\d+)?(\.\d+)?([a-zA-Z%])")


class BadFormat(ValueError):
    """A format that does not match its arguments."""


def formatted(pattern: str, arguments: list[Value]) -> str:
    """Return formatted arguments.

    Raises:
        BadFormat: the format does not match the arguments.

    Example:
        >>> formatted("%05d|%-4s|%.2f", [42, "a", 1.005])
        '00042|a   |1.01'
    """
    out: list[str] = []
    end = ordinary = 0
    for result in _SPECIFIER.finditer(pattern):
        between = pattern[end : result.start()]
        if "%" in between:
            raise BadFormat("UnknownFormatConversionException")
        out.append(between)
        end = result.end()
        index, flags, width, precision, conversion = result.groups()
        if conversion == "%":
            out.append(_justified("%", flags, width))
            continue
        if conversion == "n":
            out.append("\n")
            continue
        argument = int(index) - 1 if index else ordinary
        ordinary += 0 if index else 1
        if argument >= len(arguments):
            raise BadFormat("MissingFormatArgumentException")
        out.append(_one(conversion, flags, width, precision, arguments[argument]))
    rest = pattern[end:]
    if "%" in rest:
        raise BadFormat("UnknownFormatConversionException")
    return "".join([*out, rest])


def _justified(text: str, flags: str, width: str | None) -> str:
    if width is None:
        return text
    return text.ljust(int(width)) if "-" in flags else text.rjust(int(width))


def _one(conversion: str, flags: str, width: str | None, precision: str | None, value: Value) -> str:
    upper = conversion.isupper()
    text = _CONVERSIONS.get(conversion.lower(), _unknown)(value, flags, width, precision)
    text = _justified(text, flags, width)
    return text.upper() if upper else text


def _unknown(value: Value, flags: str, width: str | None, precision: str | None) -> str:
    raise BadFormat("UnknownFormatConversionException")


def java_text(value: Value) -> str:
    """Return a value's text as Java's String.valueOf does."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return java_double(value) if isinstance(value, float) else str(value)


def _string(value: Value, flags: str, width: str | None, precision: str | None) -> str:
    text = java_text(value)
    return text[: int(precision[1:])] if precision else text


def _boolean(value: Value, flags: str, width: str | None, precision: str | None) -> str:
    truth = value if isinstance(value, bool) else value is not None
    return "true" if truth else "false"


def _character(value: Value, flags: str, width: str | None, precision: str | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, int) and not isinstance(value, bool):
        return chr(value)
    raise BadFormat("IllegalFormatConversionException")


def _signed(negative: bool, digits: str, flags: str, width: str | None) -> str:
    before = "-" if negative and "(" not in flags else "+" if "+" in flags and not negative else ""
    before = " " if not before and " " in flags and not negative else before
    after = ""
    if negative and "(" in flags:
        before, after = "(", ")"
    if "0" in flags and width is not None:
        digits = digits.rjust(int(width) - len(before) - len(after), "0")
    return before + digits + after


def _decimal(value: Value, flags: str, width: str | None, precision: str | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadFormat("IllegalFormatConversionException")
    digits = f"{abs(value):,}" if "," in flags else str(abs(value))
    return _signed(value < 0, digits, flags, width)


def _in_base(letter: str, prefix: str) -> _Write:
    def write(value: Value, flags: str, width: str | None, precision: str | None) -> str:
        if value is None:
            return "null"
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadFormat("IllegalFormatConversionException")
        digits = format(value & (0xFFFFFFFF if -(1 << 31) <= value < 1 << 31 else (1 << 64) - 1), letter)
        digits = (prefix if "#" in flags else "") + digits
        return digits.rjust(int(width), "0") if "0" in flags and width else digits

    return write


def _number(value: Value) -> decimal.Decimal:
    if isinstance(value, (float, decimal.Decimal)):
        return decimal.Decimal(repr(value)) if isinstance(value, float) else value
    raise BadFormat("IllegalFormatConversionException")


def _fixed(value: Value, flags: str, width: str | None, precision: str | None) -> str:
    if value is None:
        return "null"
    number = _number(value)
    places = int(precision[1:]) if precision else 6
    size = abs(number).quantize(decimal.Decimal(1).scaleb(-places), decimal.ROUND_HALF_UP, decimal.Context(prec=400))
    digits = f"{size:,f}" if "," in flags else f"{size:f}"
    return _signed(number.is_signed(), digits, flags, width)


def _scientific(value: Value, flags: str, width: str | None, precision: str | None) -> str:
    if value is None:
        return "null"
    number = _number(value)
    places = int(precision[1:]) if precision else 6
    mantissa, _, exponent = f"{abs(number):.{places}e}".partition("e")
    return _signed(number.is_signed(), f"{mantissa}e{int(exponent):+03d}", flags, width)


_CONVERSIONS: dict[str, _Write] = {
    "s": _string,
    "b": _boolean,
    "c": _character,
    "d": _decimal,
    "x": _in_base("x", "0x"),
    "o": _in_base("o", "0"),
    "f": _fixed,
    "e": _scientific,
}
