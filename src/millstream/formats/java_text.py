"""Values in the format of Java's toString, for the print connector."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.java_text import java_number
from millstream.sql import types as t
from millstream.sql.columns.value_conversion import stored_type

_Write = Callable[[Value], str]
_NANOS = 1_000_000_000


def texts(column: pa.Array, kind: t.DataType) -> list[str]:
    """Return the values of a column in Java's format; null is `null`."""
    write = _writer(kind)
    return ["null" if v is None else write(v) for v in _plain(column)]


def _plain(column: pa.Array) -> list[Value]:
    """Return Python values with timestamps as numbers, which retain nanoseconds."""
    return column.cast(stored_type(column.type)).to_pylist()  # type: ignore[no-any-return]


def _writer(kind: t.DataType) -> _Write:
    make = _WRITERS.get(type(kind))
    return make(kind) if make is not None else str


def _timestamp(kind: t.DataType) -> _Write:
    assert isinstance(kind, t.TimestampType)
    return lambda value: iso_timestamp(value * _to_nanos(kind.precision))


def _instant(kind: t.DataType) -> _Write:
    assert isinstance(kind, t.LocalZonedTimestampType)
    return lambda value: iso_instant(value * _to_nanos(kind.precision))


def _to_nanos(precision: int) -> int:
    return 1_000_000 if precision <= 3 else 1000 if precision <= 6 else 1


def _parts(nanos: int) -> tuple[str, int, int, int, int]:
    seconds, nano = divmod(nanos, _NANOS)
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, second = divmod(rest, 60)
    return iso_date(days), hours, minutes, second, nano


def iso_date(days: int) -> str:
    """Return a date, in days since 1970, in the format of Java's LocalDate."""
    return str(np.datetime64(days, "D"))


def iso_timestamp(nanos: int) -> str:
    """Return nanoseconds since 1970 in the format of Java's LocalDateTime.

    Example:
        >>> iso_timestamp(0), iso_timestamp(1_500_000_000)
        ('1970-01-01T00:00', '1970-01-01T00:00:01.500')
    """
    day, hour, minute, second, nano = _parts(nanos)
    return f"{day}T{_clock(hour, minute, second, nano)}"


def _clock(hour: int, minute: int, second: int, nano: int) -> str:
    seconds = f":{second:02}{_fraction(nano)}" if second or nano else ""
    return f"{hour:02}:{minute:02}{seconds}"


def _fraction(nano: int) -> str:
    if not nano:
        return ""
    digits = f"{nano:09}"
    for width in (3, 6):
        if not digits[width:].strip("0"):
            return f".{digits[:width]}"
    return f".{digits}"


def iso_instant(nanos: int) -> str:
    """Return nanoseconds since 1970 in the format of Java's Instant.

    Example:
        >>> iso_instant(0)
        '1970-01-01T00:00:00Z'
    """
    day, hour, minute, second, nano = _parts(nanos)
    return f"{day}T{hour:02}:{minute:02}:{second:02}{_fraction(nano)}Z"


def _time(kind: t.DataType) -> _Write:
    def write(value: Value) -> str:
        return _clock(value.hour, value.minute, value.second, value.microsecond * 1000)

    return write


def _array(kind: t.DataType) -> _Write:
    assert isinstance(kind, t.ArrayType)
    inner = _writer(kind.element_type)
    return lambda value: f"[{', '.join('null' if v is None else inner(v) for v in value)}]"


def _map(kind: t.DataType) -> _Write:
    if isinstance(kind, t.MapType):
        of_key, of_value = _writer(kind.key_type), _writer(kind.value_type)
    else:
        assert isinstance(kind, t.MultisetType)
        of_key, of_value = _writer(kind.element_type), str

    def write(value: Value) -> str:
        return f"{{{', '.join(f'{of_key(k)}={_null_or(of_value, v)}' for k, v in value)}}}"

    return write


def _null_or(write: _Write, value: Value) -> str:
    return "null" if value is None else write(value)


def _row(kind: t.DataType) -> _Write:
    assert isinstance(kind, t.RowType)
    inner = [_writer(f.data_type) for f in kind.fields]

    def write(value: dict[str, Value]) -> str:
        members = [_null_or(w, v) for w, v in zip(inner, value.values(), strict=True)]
        return f"+I[{', '.join(members)}]"

    return write


def _months(months: int) -> str:
    years, rest = divmod(abs(months), 12)
    sign = "-" if months < 0 else ""
    parts = [f"{sign}{years}Y" if years else "", f"{sign}{rest}M" if rest else ""]
    return "P" + "".join(parts) if any(parts) else "P0D"


def _duration(millis: int) -> str:
    """Return a duration in the format of Java's Duration."""
    if not millis:
        return "PT0S"
    seconds, rest = divmod(abs(millis), 1000)
    sign = "-" if millis < 0 else ""
    hours, left = divmod(seconds, 3600)
    minutes, second = divmod(left, 60)
    text = f"{sign}{hours}H" if hours else ""
    text += f"{sign}{minutes}M" if minutes else ""
    if second or rest:
        digits = f".{rest:03}".rstrip("0") if rest else ""
        text += f"{sign}{second}{digits}S"
    return f"PT{text}"


def _bytes(kind: t.DataType) -> _Write:
    return lambda value: f"[{', '.join(str(b - 256 if b > 127 else b) for b in value)}]"


_WRITERS: dict[type[t.DataType], Callable[[t.DataType], _Write]] = {
    t.BooleanType: lambda kind: lambda value: "true" if value else "false",
    t.FloatType: lambda kind: lambda value: java_number(value, True),
    t.DoubleType: lambda kind: lambda value: java_number(value, False),
    t.DecimalType: lambda kind: lambda value: format(value, "f"),
    t.BinaryType: _bytes,
    t.VarBinaryType: _bytes,
    t.TimeType: _time,
    t.TimestampType: _timestamp,
    t.LocalZonedTimestampType: _instant,
    t.ArrayType: _array,
    t.MapType: _map,
    t.MultisetType: _map,
    t.RowType: _row,
    t.YearMonthIntervalType: lambda kind: _months,
    t.DayTimeIntervalType: lambda kind: _duration,
}
