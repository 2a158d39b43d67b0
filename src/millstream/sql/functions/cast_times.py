"""Casts between dates, times, timestamps and text."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type, unit_of
from millstream.sql.columns.numpy_arrays import NumpyColumn
from millstream.sql.columns.value_text import local
from millstream.sql.columns.zones import arrow_zone, zone_named
from millstream.sql.errors import TableException
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.functions.vectors import from_numpy, to_numpy

DAY = 86_400_000
UNITS = {"ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_TIMESTAMPS = (t.TimestampType, t.LocalZonedTimestampType)


def takes(source: t.DataType, target: t.DataType) -> bool:
    """Return whether a cast is implemented here."""
    return type_rules.is_temporal(target) and (type_rules.is_temporal(source) or type_rules.is_string(source))


def cast(
    column: pa.Array, source: t.DataType, target: t.DataType, context: EvaluationContext, lenient: bool
) -> pa.Array:
    """Return a column of dates, times, timestamps or text as one of the first three."""
    if type_rules.is_string(source):
        return _from_text(column, target, context, lenient)
    if isinstance(source, t.LocalZonedTimestampType) and isinstance(target, t.LocalZonedTimestampType):
        return truncate_timestamp(column, target)
    if isinstance(source, t.LocalZonedTimestampType):
        return cast(local(column, context.time_zone), t.TimestampType(source.precision), target, context, lenient)
    if isinstance(target, t.LocalZonedTimestampType):
        plain = t.TimestampType(target.precision)
        return to_instants(cast(column, source, plain, context, lenient), context.time_zone)
    if isinstance(target, t.TimestampType):
        return _to_timestamp(column, source, target)
    if isinstance(source, _TIMESTAMPS):
        per_second = UNITS[column.type.unit]
        values = to_numpy(column)
        if isinstance(target, t.DateType):
            return from_numpy((values // (86400 * per_second)).astype(np.int32), pa.date32(), [column])
        of_day = values % (86400 * per_second) // (per_second // 1000)
        return truncate_time(from_numpy(of_day.astype(np.int32), pa.time32("ms"), [column]), target)
    if isinstance(target, t.TimeType) and isinstance(source, t.TimeType):
        return truncate_time(column, target)
    raise TableException(f"Unsupported cast from '{source}' to '{target}'.")


def _to_timestamp(column: pa.Array, source: t.DataType, target: t.TimestampType) -> pa.Array:
    if isinstance(source, t.TimestampType):
        return truncate_timestamp(column, target)
    unit = unit_of(target.precision)
    values = to_numpy(column).astype(np.int64)
    if isinstance(source, t.DateType):
        return from_numpy(scaled(values, 86400 * UNITS[unit], column), pa.timestamp(unit), [column])
    return truncate_timestamp(from_numpy(values * (UNITS[unit] // 1000), pa.timestamp(unit), [column]), target)


def scaled(values: NumpyColumn, factor: int, like: pa.Array) -> NumpyColumn:
    """Return times in a finer unit; values under nulls are undefined.

    Raises:
        TableException: a time is out of the range of nanoseconds.
    """
    result: NumpyColumn = values.astype(np.int64) * factor
    if factor > 1 and len(values):
        far = np.abs(values.astype(np.float64)) * factor > 9.2e18
        if like.null_count:
            far &= like.is_valid().to_numpy(zero_copy_only=False)
        if far.any():
            raise _too_far()
    return result


def _too_far() -> TableException:
    return TableException("A TIMESTAMP with more than 6 digits holds the years 1678 to 2261: use TIMESTAMP(6).")


def truncate_timestamp(column: pa.Array, target: t.DataType) -> pa.Array:
    """Return timestamps truncated to a type's precision."""
    assert isinstance(target, _TIMESTAMPS)
    kind = arrow_type(target)
    source_unit, target_unit = UNITS[column.type.unit], UNITS[kind.unit]
    values = to_numpy(column)
    digit = target_unit // 10**target.precision
    if target_unit > source_unit:
        values = scaled(values, target_unit // source_unit, column)
    elif target_unit < source_unit:
        values = values // (source_unit // target_unit)
    if digit > 1 and not (target_unit > source_unit and target_unit // source_unit >= digit):
        values = values // digit * digit
    return from_numpy(values, kind, [column])


def truncate_time(column: pa.Array, target: t.DataType) -> pa.Array:
    """Return times of day truncated to a type's precision."""
    assert isinstance(target, t.TimeType)
    if target.precision >= 3:
        return column
    digit = 10 ** (3 - target.precision)
    return from_numpy(to_numpy(column) // digit * digit, column.type, [column])


def to_instants(column: pa.Array, zone: str) -> pa.Array:
    """Return local timestamps of a time zone as instants.

    As in Java, an ambiguous time is the earlier one, and a skipped time uses the offset before the gap.
    """
    unit = column.type.unit
    name = arrow_zone(zone)
    if name == "UTC":
        return column.cast(pa.timestamp(unit, "UTC"))
    try:
        zoned = pc.assume_timezone(column, name, ambiguous="earliest", nonexistent="raise")
        return zoned.cast(pa.timestamp(unit, "UTC"))
    except pa.ArrowInvalid:
        offsets = _offsets(column, zone_named(zone))
        return from_numpy(to_numpy(column) - offsets * UNITS[unit], pa.timestamp(unit, "UTC"), [column])


def _offsets(column: pa.Array, zone: dt.tzinfo) -> NumpyColumn:
    epoch = dt.datetime(1970, 1, 1)
    seconds = (to_numpy(column) // UNITS[column.type.unit]).tolist()
    result = []
    for second in seconds:
        offset = (epoch + dt.timedelta(seconds=second)).replace(tzinfo=zone).utcoffset()
        result.append(0 if offset is None else int(offset.total_seconds()))
    return np.array(result, np.int64)


# --- from text

_PLAIN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}"


def _from_text(column: pa.Array, target: t.DataType, context: EvaluationContext, lenient: bool) -> pa.Array:
    kind = arrow_type(target)
    quick = _quick(column, target, context)
    if quick is not None:
        return quick
    read = _READERS[type(target)]
    known: dict[str | None, int | None] = {None: None}
    for text in set(column.to_pylist()) - {None}:
        try:
            known[text] = read(text, target, context)
        except TableException:
            if not lenient:
                raise
            known[text] = None
    values = [known[text] for text in column.to_pylist()]
    return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


def _quick(column: pa.Array, target: t.DataType, context: EvaluationContext) -> pa.Array | None:
    """Return Arrow's parse of text in the usual format; None if some text differs."""
    if not len(column):
        return pa.nulls(0, arrow_type(target))
    if isinstance(target, t.DateType):
        pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
    elif isinstance(target, _TIMESTAMPS) and target.precision in (3, 6):
        pattern = _PLAIN + rf"(\.[0-9]{{1,{target.precision}}})?$"
    else:
        return None
    if pc.all(pc.match_substring_regex(column, pattern)).as_py() is False:
        return None
    try:
        if isinstance(target, t.LocalZonedTimestampType):
            return to_instants(column.cast(pa.timestamp(unit_of(target.precision))), context.time_zone)
        return column.cast(arrow_type(target))
    except pa.ArrowInvalid:
        return None


_EPOCH = dt.date(1970, 1, 1)


def days_of(year: int, month: int, day: int) -> int | None:
    """Return days since 1970; None for an invalid date."""
    try:
        return (dt.date(year, month, day) - _EPOCH).days
    except (ValueError, OverflowError):
        return None


_WHOLE = re.compile(r"[+-]?\d+")


def read_date(text: str) -> int | None:
    """Parse a date as CAST does: month and day are optional, and text after a blank is ignored."""
    end = text.find(" ")
    parts = (text[:end] if end > 0 else text).split("-", 2)
    numbers = [int(p) for p in parts if _WHOLE.fullmatch(p.strip())]
    if len(numbers) != len(parts):
        return None
    year, month, day = numbers + [1] * (3 - len(numbers))
    return days_of(year, month, day)


def _read_date(text: str, target: t.DataType, context: EvaluationContext) -> int:
    result = read_date(text)
    if result is None:
        raise TableException(f"DateTimeException: For input string: '{text}'.")
    return result


_TIME = re.compile(r"\s*(\d{1,2})\s*(?::\s*(\d{1,2})\s*(?::\s*(\d{1,2})(?:\.(\d*))?\s*)?)?")


def read_time(text: str) -> int | None:
    """Parse a time of day as CAST does, in milliseconds."""
    result = _TIME.fullmatch(text)
    if result is None:
        return None
    hour, minute, second = (int(result.group(i) or 0) for i in (1, 2, 3))
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((hour * 60 + minute) * 60 + second) * 1000 + int((result.group(4) or "")[:3].ljust(3, "0"))


def _read_time(text: str, target: t.DataType, context: EvaluationContext) -> int:
    result = read_time(text)
    if result is None:
        raise TableException(f"DateTimeException: For input string: '{text}'.")
    assert isinstance(target, t.TimeType)
    digit: int = 10 ** max(0, 3 - target.precision)
    return result // digit * digit


_TIMESTAMP = re.compile(r"(\d{4,})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?")


def read_timestamp(text: str) -> int | None:
    """Parse a timestamp as CAST does, in nanoseconds since 1970."""
    result = _TIMESTAMP.fullmatch(text)
    if result is None:
        return None
    year, month, day, hour, minute, second = (int(result.group(i) or 0) for i in range(1, 7))
    # A day beyond the month's end becomes the last day.
    days = next((d for back in range(4) if (d := days_of(year, month, day - back)) is not None), None)
    if days is None or day > 31 or hour > 23 or minute > 59 or second > 59:
        return None
    seconds = days * 86400 + (hour * 60 + minute) * 60 + second
    return seconds * 1_000_000_000 + int((result.group(7) or "").ljust(9, "0"))


def _read_timestamp(text: str, target: t.DataType, context: EvaluationContext) -> int:
    assert isinstance(target, _TIMESTAMPS)
    result = read_timestamp(text)
    if result is None:
        raise TableException(f"DateTimeParseException: Text '{text}' could not be parsed at index 0")
    digit: int = 10 ** (9 - target.precision)
    if target.precision > 6 and abs(result) >= 1 << 63:
        raise _too_far()
    return result // digit * digit // (1_000_000_000 // UNITS[unit_of(target.precision)])


def _read_instant(text: str, target: t.DataType, context: EvaluationContext) -> int:
    plain = _read_timestamp(text, target, context)
    assert isinstance(target, _TIMESTAMPS)
    column = pa.array([plain], pa.timestamp(unit_of(target.precision)))
    return to_instants(column, context.time_zone)[0].value  # type: ignore[no-any-return]


_READERS: dict[type[t.DataType], Callable[[str, t.DataType, EvaluationContext], int]] = {
    t.DateType: _read_date,
    t.TimeType: _read_time,
    t.TimestampType: _read_timestamp,
    t.LocalZonedTimestampType: _read_instant,
}
