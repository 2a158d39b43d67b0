"""Java's text forms of numbers and times, and the iteration order of its HashMap."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

from millstream.common.aliases import Value
from millstream.common.time import Instant

_INT = 0xFFFFFFFF
_SINGLE = struct.Struct("f")
K = TypeVar("K")
V = TypeVar("V")


def java_number(value: float, narrow: bool) -> str:
    """Format a number as Java's Double.toString does (Float.toString if `narrow`).

    Example:
        >>> java_number(1e-05, False), java_number(5e-324, False), java_number(0.1, True)
        ('1.0E-5', '4.9E-324', '0.1')
    """
    return java_digits(value, repr(value)) if not narrow else _java_float(value)


def java_digits(value: float, shortest: str) -> str:
    """Format a number from its shortest digits, as Java does since JDK 19.

    Args:
        value: the number.
        shortest: the fewest digits that round-trip, in Python's notation.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return _plain(shortest)
    sign, digits, exponent = _digits(shortest)
    if len(digits) == 1:
        # Java prints at least two digits, the nearest: 4.9E-324.
        sign, digits, exponent = _digits(f"{value:.1e}")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _java_float(value: float) -> str:
    try:
        single = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return "Infinity" if value > 0 else "-Infinity"
    if not math.isfinite(single):
        return java_digits(single, "")
    fewest = (f"{single:.{n}g}" for n in range(1, 10))
    return java_digits(single, next(d for d in fewest if _SINGLE.pack(float(d)) == _SINGLE.pack(single)))


def _digits(shortest: str) -> tuple[str, str, int]:
    """Return the sign, the digits, and the exponent of the first of them."""
    sign = "-" if shortest.startswith("-") else ""
    mantissa, _, exponent = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    joined = (whole + fraction).lstrip("0")
    leading = len(whole) if whole.strip("0") else -(len(fraction) - len(fraction.lstrip("0")))
    return sign, joined.rstrip("0") or "0", leading - 1 + int(exponent or 0)


def _plain(shortest: str) -> str:
    if "e" not in shortest:
        return shortest if "." in shortest else f"{shortest}.0"
    sign, digits, exponent = _digits(shortest)
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 1, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"


def java_timestamp(value: datetime.datetime) -> str:
    """Format a timestamp as Java's Timestamp does: with at least one fractional digit.

    Example:
        >>> java_timestamp(datetime.datetime(2024, 1, 1))
        '2024-01-01 00:00:00.0'
    """
    fraction = f"{value.microsecond:06d}".rstrip("0") or "0"
    return f"{value.replace(tzinfo=None):%Y-%m-%d %H:%M:%S}.{fraction}".rjust(21, "0")


def java_instant(value: Instant) -> str:
    """Format an instant as Java's Instant does: with fractional digits in groups of three.

    Example:
        >>> java_instant(Instant(1, 500_000_000))
        '1970-01-01T00:00:01.500Z'
    """
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=value.seconds)
    fraction = f"{value.nanos:09d}"
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{moment.isoformat()}{'.' + fraction if fraction else ''}Z"


def _text_hash(value: str) -> int:
    h = 0
    units = value.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        h = (31 * h + (units[i] << 8 | units[i + 1])) & _INT
    return h


def _folded(bits: int) -> int:
    return (bits ^ bits >> 32) & _INT


def _bits_of(value: float, whole: str, part: str) -> int:
    bits: int = struct.unpack(whole, struct.pack(part, float("nan") if value != value else value))[0]
    return bits


# Java's hash codes by type name.
_HASHES: dict[str, Callable[[Value], int]] = {
    "String": _text_hash,
    "Char": ord,
    "Byte": lambda v: v & _INT,
    "Short": lambda v: v & _INT,
    "Integer": lambda v: v & _INT,
    "Long": lambda v: _folded(v & 0xFFFFFFFFFFFFFFFF),
    "Double": lambda v: _folded(_bits_of(v, ">Q", ">d")),
    "Float": lambda v: _bits_of(v, ">I", ">f"),
    "Boolean": lambda v: 1231 if v else 1237,
}


def as_hash_map(items: Iterable[tuple[K, V]], key_type: str, capacity: int = 0) -> list[tuple[K, V]]:
    """Return a map's items in the iteration order of Java's HashMap; unchanged if the key type's hash is unknown.

    Args:
        items: in insertion order.
        key_type: the name of the keys' type.
        capacity: the initial capacity; the map grows when it is three quarters full.

    Example:
        >>> as_hash_map({"k": 1, "b": 2, "zz": 3}.items(), "String")
        [('zz', 3), ('b', 2), ('k', 1)]
    """
    entries = list(items)
    hash_of = _HASHES.get(key_type)
    if hash_of is None:
        return entries
    # Flink sizes the map to be at most three quarters full; Java rounds up to a power of 2.
    required = len(entries) + 1 if len(entries) <= 2 else -(-len(entries) * 4 // 3)
    buckets = max(capacity, 1 << (required - 1).bit_length())

    def bucket(entry: tuple[K, V]) -> int:
        h = 0 if entry[0] is None else hash_of(entry[0])
        return (h ^ h >> 16) & (buckets - 1)

    return sorted(entries, key=bucket)
