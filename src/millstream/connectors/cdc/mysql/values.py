"""Values of MariaDB's and MySQL's columns, equal whether read by SELECT or from the binlog. Pure."""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import TypeAlias
from uuid import UUID

from millstream.common.aliases import Value

__all__ = [
    "ColumnInfo",
    "Convert",
    "from_log",
    "from_table",
    "is_ordered",
    "normalized_time",
    "shortest_float",
    "unsupported_reason",
]

Convert: TypeAlias = Callable[[Value], Value]

_DATES = ("date", "datetime", "timestamp")
# Python has these charsets, but in another byte order than the server.
_WIDE = ("ucs2", "utf16", "utf32")
# Types whose order differs from their comparison with strings, or whose digits are not all shown.
_UNORDERED = ("enum", "set", "bit", "float")
_FLOAT = struct.Struct("<f")


@dataclass(frozen=True)
class ColumnInfo:
    """A column as the catalog describes it."""

    name: str
    type: str
    full_type: str
    charset: str | None
    collation: str | None

    @property
    def width(self) -> int:
        return int(re.sub(r"\D", "", self.full_type.partition(")")[0]) or 1)


def unsupported_reason(column: ColumnInfo) -> str | None:
    """Return the reason that a column cannot be read from the binlog, or None if it can."""
    if "compressed" in column.full_type.lower():
        return "is compressed"
    if column.charset is None:
        return None
    if column.charset in _WIDE or not _is_known(column.charset):
        return f"has the character set {column.charset}"
    return None


def _is_known(charset: str) -> bool:
    # An optional package.
    from pymysql.charset import charset_by_name

    try:
        codecs.lookup(charset_by_name(charset).encoding)
    except (KeyError, LookupError):
        return False
    return True


def is_ordered(column: ColumnInfo) -> bool:
    """Return whether a column may be part of a key that divides a table into chunks."""
    return column.type not in _UNORDERED


def from_table(column: ColumnInfo) -> Convert | None:
    """Return the converter of a value that SELECT returned, or None if it needs none."""
    if column.type == "set":
        return lambda v: set(v.split(",")) if v else set()
    if column.type == "bit":
        return lambda v: format(int.from_bytes(v, "big"), f"0{column.width}b")
    if column.type == "float":
        return shortest_float
    if column.type in _DATES:
        # Python has no day 0.
        return lambda v: None if isinstance(v, str) else v
    return _address if column.type in ("inet4", "inet6") else None


def from_log(column: ColumnInfo) -> Convert | None:
    """Return the converter of a value of the binlog, or None if it needs none."""
    make = {"uuid": _uuid, "inet4": _address, "inet6": _address}.get(column.type, bytes)
    width = {"uuid": 16, "inet4": 4, "inet6": 16, "binary": column.width}.get(column.type, 0)
    if not width and not column.type.endswith(("blob", "varbinary")):
        return None

    def convert(value: Value) -> Value:
        # Empty bytes are decoded as text. Other text was logged before the column got this type.
        if value and not isinstance(value, bytes):
            return value
        # Trailing zeros are not logged.
        return make((value or b"").ljust(width, b"\0"))

    return convert


def _uuid(value: bytes) -> str:
    return str(UUID(bytes=value))


def _address(value: str | bytes) -> str:
    return str(ip_address(value))


def shortest_float(value: float) -> float:
    """Return the shortest decimal that is the same FLOAT.

    Example:
        >>> shortest_float(1.2000000476837158)
        1.2
    """
    exact = _FLOAT.pack(value)
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        if _FLOAT.pack(short) == exact:
            return short
    return value


def normalized_time(value: timedelta) -> timedelta:
    """Correct a negative TIME with a fraction, which mysql-replication decodes as its complement.

    Example:
        >>> normalized_time(timedelta(seconds=-5, microseconds=-750_000)).total_seconds()
        -5.25
    """
    if value >= timedelta(0) or not value.microseconds:
        return value
    whole = -value // timedelta(seconds=1)
    fraction = -value - timedelta(seconds=whole)
    return -(timedelta(seconds=whole + 1) - fraction)
