"""Values as text in Java's and Flink's format, for CAST(.. AS STRING) and `print`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.java_text import java_digits
from millstream.sql import types as t
from millstream.sql.columns.zones import arrow_zone

_DAY = 86_400_000


def to_text(column: pa.Array, kind: t.DataType, zone: str = "UTC") -> pa.Array:
    """Return the values of a column as text; null stays null.

    Example:
        >>> to_text(pa.array([1e8, 0.5]), t.DataTypes.DOUBLE()).to_pylist()
        ['1.0E8', '0.5']
    """
    if isinstance(kind, (t.CharType, t.VarCharType)):
        return column
    write = _WRITERS.get(type(kind))
    if write is None:
        return column.cast(pa.string())
    return write(column, kind, zone)


def _booleans(column: pa.Array, kind: t.DataType, zone: str) -> pa.Array:
    return pc.if_else(column, "TRUE", "FALSE")


def _decimals(column: pa.Array, kind: t.DataType, zone: str) -> pa.Array:
    text = column.cast(pa.string())
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    # Arrow writes small decimals with an exponent.
    return pa.array([None if v is None else format(v, "f") for v in column.to_pylist()], pa.string())


def java_double(value: float) -> str:
    """Return a number in the format of Java's Double.toString.

    Example:
        >>> java_double(1e-05), java_double(123456789.0), java_double(100.0)
        ('1.0E-5', '1.23456789E8', '100.0')
    """
    return java_digits(value, repr(value))


def java_float(value: float) -> str:
    """Return a number in the format of Java's Float.toString."""
    return java_digits(value, str(np.float32(value)))


def _floats(column: pa.Array, kind: t.DataType, zone: str) -> pa.Array:
    write = java_double if isinstance(kind, t.DoubleType) else java_float
    size = pc.abs(column)
    usual = pc.or_(pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)), pc.equal(column, 0.0))
    usual = pc.fill_null(usual, True)
    # Arrow writes the same digits; only some numbers have another layout.
    text = column.cast(pa.string())
    whole = pc.invert(pc.match_substring(text, "."))
    text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    if pc.all(usual).as_py() is not False:
        return text
    positions = np.flatnonzero(~usual.to_numpy(zero_copy_only=False))
    exceptions = column.take(pa.array(positions)).to_pylist()
    mask = pc.invert(usual)
    return pc.replace_with_mask(text, mask, pa.array([write(v) for v in exceptions], pa.string()))


def _bytes(column: pa.Array, kind: t.DataType, zone: str) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [None if v is None else v.decode("utf-8", "replace") for v in column.to_pylist()]
        return pa.array(decoded, pa.string())


def _times(column: pa.Array, kind: t.DataType, zone: str) -> pa.Array:
    assert isinstance(kind, t.TimeType)
    text = _truncated(column.cast(pa.string()), 8, min(kind.precision, 3))
    if kind.precision == 0:
        return text
    # Trailing zeros of the fraction are dropped, except the first digit.
    short = pc.utf8_rtrim(text, "0")
    return pc.if_else(pc.ends_with(short, "."), pc.binary_join_element_wise(short, "0", ""), short)


def _truncated(text: pa.Array, seconds: int, digits: int) -> pa.Array:
    """Truncate the fraction of seconds at the end of texts."""
    return pc.utf8_slice_codeunits(text, 0, seconds if digits == 0 else seconds + 1 + digits)


def _timestamps(column: pa.Array, kind: t.DataType, zone: str) -> pa.Array:
    assert isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType))
    if isinstance(kind, t.LocalZonedTimestampType):
        column = local(column, zone)
    text = column.cast(pa.string())
    source_digits = {"ms": 3, "us": 6, "ns": 9}[column.type.unit]
    if kind.precision == source_digits:
        return text
    surplus = source_digits - kind.precision + (1 if kind.precision == 0 else 0)
    return pc.utf8_slice_codeunits(text, 0, -surplus)


def local(column: pa.Array, zone: str) -> pa.Array:
    """Return instants as local times of a zone."""
    name = arrow_zone(zone)
    if name == "UTC":
        return column.cast(pa.timestamp(column.type.unit))
    return pc.local_timestamp(column.cast(pa.timestamp(column.type.unit, name)))


def months_text(months: int) -> str:
    """Return months as text: years and months."""
    years, rest = divmod(abs(months), 12)
    return f"{'-' if months < 0 else '+'}{years}-{rest:02d}"


def milliseconds_text(length: int) -> str:
    """Return a duration as text: days, hours, minutes, seconds."""
    days, rest = divmod(abs(length), _DAY)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    sign = "-" if length < 0 else "+"
    return f"{sign}{days} {hours:02d}:{minutes:02d}:{rest // 1000:02d}.{rest % 1000:03d}"


def _per_value(write: Callable[[int], str]) -> Callable[[pa.Array, t.DataType, str], pa.Array]:
    return lambda column, kind, zone: pa.array(
        [None if v is None else write(v) for v in column.to_pylist()], pa.string()
    )


# --- collections: members are converted first, as columns


def _members(column: pa.Array, kind: t.DataType, zone: str) -> list[str]:
    return [("NULL" if v is None else v) for v in to_text(column, kind, zone).to_pylist()]


def _lists(column: pa.Array, kind: t.DataType, zone: str) -> pa.Array:
    assert isinstance(kind, t.ArrayType)
    inner = _members(column.values, kind.element_type, zone)
    return _joined(column, lambda start, stop: f"[{', '.join(inner[start:stop])}]")


def _maps(column: pa.Array, kind: t.DataType, zone: str) -> pa.Array:
    if isinstance(kind, t.MultisetType):
        key, value = kind.element_type, t.DataTypes.INT()
    else:
        assert isinstance(kind, t.MapType)
        key, value = kind.key_type, kind.value_type  # type: ignore[assignment]
    keys, values = _members(column.keys, key, zone), _members(column.items, value, zone)
    pairs = [f"{k}={v}" for k, v in zip(keys, values, strict=True)]
    return _joined(column, lambda start, stop: f"{{{', '.join(pairs[start:stop])}}}")


def _joined(column: pa.Array, join: Callable[[int, int], str]) -> pa.Array:
    ends = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    texts = [join(ends[i], ends[i + 1]) if valid[i] else None for i in range(len(column))]
    return pa.array(texts, pa.string())


def _rows(column: pa.Array, kind: t.DataType, zone: str) -> pa.Array:
    assert isinstance(kind, t.RowType)
    fields = [_members(column.field(i), f.data_type, zone) for i, f in enumerate(kind)]
    valid = column.is_valid().to_pylist()
    rows = zip(*fields, strict=True) if fields else [()] * len(column)
    return pa.array([f"({', '.join(r)})" if ok else None for r, ok in zip(rows, valid, strict=True)], pa.string())


_WRITERS: dict[type[t.DataType], Callable[[pa.Array, t.DataType, str], pa.Array]] = {
    t.BooleanType: _booleans,
    t.DecimalType: _decimals,
    t.FloatType: _floats,
    t.DoubleType: _floats,
    t.BinaryType: _bytes,
    t.VarBinaryType: _bytes,
    t.TimeType: _times,
    t.TimestampType: _timestamps,
    t.LocalZonedTimestampType: _timestamps,
    t.YearMonthIntervalType: _per_value(months_text),
    t.DayTimeIntervalType: _per_value(milliseconds_text),
    t.ArrayType: _lists,
    t.MapType: _maps,
    t.MultisetType: _maps,
    t.RowType: _rows,
}
