"""Conversion between times and text by Java's patterns."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.value_text import local
from millstream.sql.columns.zones import zone_named
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.functions.cast_times import UNITS, read_date, read_timestamp, to_instants, truncate_timestamp
from millstream.sql.functions.date_patterns import (
    BadDatePattern,
    Moment,
    formatter,
    parser,
    pieces_of,
    simple_formatter,
    simple_parser,
)
from millstream.sql.functions.dates import wall
from millstream.sql.functions.function import Arguments, Datum, Function, Site
from millstream.sql.functions.rules import BIGINT, DATE, STRING, bigint, first_of, integer, number, takes, text
from millstream.sql.functions.vectors import as_array, by_row, from_numpy, to_numpy

_DEFAULT = "yyyy-MM-dd HH:mm:ss"
_TIMESTAMPS = (t.TimestampType, t.LocalZonedTimestampType)
# Positions of fields in Arrow's text format.
_QUICK = {"yyyy": (0, 4), "MM": (5, 7), "dd": (8, 10), "HH": (11, 13), "mm": (14, 16), "ss": (17, 19), "SSS": (20, 23)}
_SHOWN = "0000-00-00 00:00:00.000"
_DAY = 86_400_000
# Durations of fields in milliseconds, except those longer than a day.
_MILLIS = {"yyyy": _DAY, "MM": _DAY, "dd": _DAY, "HH": 3_600_000, "mm": 60_000, "ss": 1000, "SSS": 1}


def _java_zone(name: str) -> dt.tzinfo:
    """Return the zone that java.util.TimeZone has for a name; GMT for an unknown one."""
    if name[:1] in ("+", "-"):
        return dt.UTC
    try:
        return zone_named(name)
    except ValidationException:
        return dt.UTC


# --- DATE_FORMAT


def _date_format(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    kind, pattern = site.types[0], values[1]
    if type_rules.is_string(kind):
        return by_row(_reformatted)(site, rows, values)
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    count = 1 if fixed else rows
    column = wall(values[0], kind, site.context.time_zone, count)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    if isinstance(pattern, pa.Scalar) and pattern.is_valid:
        result = _formatted(column, pattern.as_py())
    else:
        patterns = as_array(pattern, count).to_pylist()
        result = pa.array([_one(m, p) for m, p in zip(_moments(column), patterns, strict=True)], pa.string())
    return result[0] if fixed else result


def _formatted(column: pa.Array, pattern: str) -> pa.Array:
    pieces = _quick_pieces(pattern)
    if pieces is not None:
        # Many rows share a day or minute: format each once.
        times = truncate_timestamp(column, t.TimestampType(3))
        unit = min((_MILLIS[letters] for letters, _ in pieces if letters), default=_DAY)
        encoded = from_numpy(to_numpy(times) // unit * unit, times.type, [times]).dictionary_encode()
        shown = encoded.dictionary.cast(pa.string())
        lengths = pc.min_max(pc.utf8_length(shown)).as_py()
        if lengths["min"] == lengths["max"] == len(_SHOWN):
            return _from_slices(shown, pieces).take(encoded.indices)
    return pa.array([_one(m, pattern) for m in _moments(column)], pa.string())


def _quick_pieces(pattern: str) -> list[tuple[str, str]] | None:
    """Return the pieces of a pattern; None if it has letters without a fast path."""
    try:
        pieces = [(piece.letter * piece.count, piece.text) for piece in pieces_of(pattern)]
    except BadDatePattern:
        return None
    return pieces if all(not letters or letters in _QUICK for letters, _ in pieces) and pieces else None


def _from_slices(shown: pa.Array, pieces: list[tuple[str, str]]) -> pa.Array:
    """Concatenate slices of formatted times; adjacent slices are taken as one."""
    parts: list[pa.Array | str] = []
    span: tuple[int, int] | None = None
    for letters, text_between in pieces:
        letters_span = _QUICK.get(letters)
        if letters_span is None and span is not None and span[1] < len(_SHOWN) and _SHOWN[span[1]] == text_between:
            letters_span = (span[1], span[1] + 1)
        if letters_span is not None and span is not None and letters_span[0] == span[1]:
            span = (span[0], letters_span[1])
            continue
        if span is not None:
            parts.append(pc.utf8_slice_codeunits(shown, *span))
        span = letters_span
        if letters_span is None:
            parts.append(text_between)
    if span is not None:
        parts.append(pc.utf8_slice_codeunits(shown, *span))
    if len(parts) == 1 and not isinstance(parts[0], str):
        return parts[0]
    # An empty column propagates nulls if all pieces are literal text.
    return pc.binary_join_element_wise(*parts, pc.utf8_slice_codeunits(shown, 0, 0), "")


def _moments(column: pa.Array) -> list[Moment | None]:
    per_second = UNITS[column.type.unit]
    values = to_numpy(column).tolist()
    valid = column.is_valid().to_pylist()
    scale = 1_000_000_000 // per_second
    return [
        Moment.of(v // per_second, v % per_second * scale) if ok else None for v, ok in zip(values, valid, strict=True)
    ]


def _one(moment: Moment | None, pattern: str | None) -> str | None:
    if moment is None or pattern is None:
        return None
    try:
        return formatter(pattern)(moment)
    except BadDatePattern as e:
        raise TableException(str(e)) from None


def _reformatted(value: str, pattern: str) -> str | None:
    result = simple_parser(_DEFAULT)(value)
    return None if result is None else _one(Moment.of(*result), pattern)


def _dated_or_text(kind: t.DataType) -> t.DataType | None:
    return kind if isinstance(kind, _TIMESTAMPS) else text(kind)


# --- TO_TIMESTAMP, TO_DATE, TO_TIMESTAMP_LTZ


def _read(value: str, pattern: str | None) -> int | None:
    """Return nanoseconds since 1970; None if the text does not match the pattern."""
    if pattern is None:
        return read_timestamp(value)
    try:
        result = parser(pattern)(value)
    except BadDatePattern:
        return None
    return _read_by_java(value) if result is None else result[0] * 1_000_000_000 + result[1]


_JAVA_TIMESTAMP = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d+):(\d+):(\d+)(?:\.(\d{1,9}))?)?", re.ASCII)


def _read_by_java(value: str) -> int | None:
    """Parse like Java's Timestamp.valueOf, Flink's fallback for text that does not match its pattern."""
    result = _JAVA_TIMESTAMP.fullmatch(value.strip())
    if result is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in result.groups()[:6])
    if not year or not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    # Days and hours that are too large overflow into the next month and day.
    days = (dt.date(year, month, 1) - dt.date(1970, 1, 1)).days + day - 1
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    return seconds * 1_000_000_000 + int((result.group(7) or "").ljust(9, "0"))


def _to_timestamp(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    quick = _quick_timestamps(values)
    if quick is not None:
        return quick
    return by_row(lambda v, p=None: _milliseconds(_read(v, p)))(site, rows, values)


def _quick_timestamps(values: Sequence[Datum]) -> pa.Array | None:
    """Return Arrow's parse of text in the usual format; None if some text differs."""
    if isinstance(values[0], pa.Scalar) or not len(values[0]):
        return None
    if len(values) > 1 and (not isinstance(values[1], pa.Scalar) or values[1].as_py() != _DEFAULT):
        return None
    form = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$"
    if pc.all(pc.match_substring_regex(values[0], form)).as_py() is False:
        return None
    try:
        return values[0].cast(pa.timestamp("ms"))
    except pa.ArrowInvalid:
        return None


def _milliseconds(nanoseconds: int | None) -> int | None:
    return None if nanoseconds is None else nanoseconds // 1_000_000


def _by_simple_pattern(value: str, pattern: str) -> tuple[int, int] | None:
    try:
        return simple_parser(pattern)(value)
    except BadDatePattern as e:
        raise TableException(f"IllegalArgumentException: {e}") from None


def _to_date(value: str, pattern: str | None = None) -> int | None:
    if pattern is None:
        return read_date(value)
    result = _by_simple_pattern(value, pattern)
    return None if result is None else result[0] // 86400


_LTZ = t.DataTypes.TIMESTAMP_LTZ(3)


def _number_to_instant(site: Site, value: float | decimal.Decimal, precision: int = 3) -> int | None:
    """Return an instant of a given precision in the unit of its type."""
    if not 0 <= precision <= 9:
        raise TableException(f"The precision of TO_TIMESTAMP_LTZ is from 0 to 9, not {precision}.")
    exact = decimal.Decimal(repr(value) if isinstance(value, float) else value)
    result = int(exact.scaleb(_digits(site) - precision, decimal.Context(prec=60)))
    return result if -(2**63) <= result < 2**63 else None


def _digits(site: Site) -> int:
    """Return the precision of a result column."""
    return {"ms": 3, "us": 6, "ns": 9}[arrow_type(site.type).unit]


def _text_to_instant(site: Site, value: str, pattern: str | None = None, zone: str = "UTC") -> int | None:
    nanoseconds = _read(value, pattern)
    if nanoseconds is None:
        if pattern is None:
            raise TableException(f"DateTimeParseException: Text '{value}' could not be parsed at index 0")
        return None
    unit = arrow_type(site.type).unit
    try:
        column = pa.array([nanoseconds // 10 ** (9 - _digits(site))], pa.timestamp(unit))
        return to_instants(column, zone)[0].value  # type: ignore[no-any-return]
    except (pa.ArrowInvalid, ValidationException):
        return None


def _to_instant(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    if type_rules.is_string(site.types[0]):
        return by_row(_text_to_instant, with_site=True)(site, rows, values)
    precision = 3 if len(values) == 1 else values[1].as_py() if isinstance(values[1], pa.Scalar) else None
    is_integer = isinstance(values[0], pa.Array) and isinstance(site.types[0], t.IntegralType)
    if is_integer and precision is not None and 0 <= precision <= _digits(site):
        scale = 10 ** (_digits(site) - precision)
        return pc.multiply(values[0].cast(pa.int64()), scale).cast(arrow_type(site.type))
    return by_row(_number_to_instant, with_site=True)(site, rows, values)


# --- UNIX_TIMESTAMP, FROM_UNIXTIME, CONVERT_TZ


def _unix_timestamp(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    if not values:
        return pa.scalar(site.context.now() // 1000, pa.int64())
    quick = _quick_timestamps(values)
    if quick is not None:
        instants = to_instants(quick, site.context.time_zone)
        return pc.floor(pc.divide(instants.cast(pa.int64()).cast(pa.float64()), 1000.0)).cast(pa.int64())
    return by_row(_unix_seconds, with_site=True)(site, rows, values)


def _unix_seconds(site: Site, value: str, pattern: str = _DEFAULT) -> int | None:
    result = _by_simple_pattern(value, pattern)
    if result is None:
        # As Flink has it.
        return -(2**63)
    return _to_utc(result[0], zone_named(site.context.time_zone))


def _to_utc(seconds: int, zone: dt.tzinfo) -> int:
    """Return the instant of a local time in a zone."""
    try:
        shown = dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)
    except OverflowError:
        return seconds
    offset = shown.replace(tzinfo=zone).utcoffset()
    return seconds - (int(offset.total_seconds()) if offset is not None else 0)


def _from_utc(seconds: int, zone: dt.tzinfo) -> int:
    try:
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
        offset = moment.astimezone(zone).utcoffset()
    except OverflowError:
        return seconds
    return seconds + (int(offset.total_seconds()) if offset is not None else 0)


def _from_unixtime(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    pattern = _DEFAULT if len(values) == 1 else values[1].as_py() if isinstance(values[1], pa.Scalar) else None
    pieces = None if pattern is None else _quick_pieces(pattern)
    if pieces is not None and not isinstance(values[0], pa.Scalar) and all(letters != "SSS" for letters, _ in pieces):
        instants = pc.multiply(values[0], 1000).cast(pa.timestamp("ms", "UTC"))
        return _formatted(local(instants, site.context.time_zone), pattern or _DEFAULT)
    return by_row(_from_one_unixtime, with_site=True)(site, rows, values)


def _from_one_unixtime(site: Site, value: int, pattern: str = _DEFAULT) -> str:
    zone = zone_named(site.context.time_zone)
    try:
        return simple_formatter(pattern)(Moment.of(_from_utc(value, zone)), site.context.time_zone)
    except BadDatePattern as e:
        raise TableException(str(e)) from None


def _convert_tz(value: str, source: str, target: str) -> str | None:
    result = simple_parser(_DEFAULT)(value)
    if result is None:
        return None
    moment = _from_utc(_to_utc(result[0], _java_zone(source)), _java_zone(target))
    try:
        return simple_formatter(_DEFAULT)(Moment.of(moment), target)
    except BadDatePattern:
        return None


def _instant_of_number(arguments: Arguments) -> t.DataType:
    return t.LocalZonedTimestampType(max(3, min(arguments.constant(1) or 3, 9)))


def _instant_of_text(arguments: Arguments) -> t.DataType | None:
    """Return the type of a parsed instant, with the pattern's precision."""
    zone = arguments.constant(2)
    if zone is not None:
        try:
            zone_named(zone)
        except ValidationException as e:
            raise ValidationException(f"Invalid timezone for parsing TIMESTAMP_LTZ: {e}") from None
    pattern = arguments.constant(1)
    if pattern is None:
        return _LTZ
    try:
        parser(pattern)
    except BadDatePattern:
        return None
    digits = max((piece.count for piece in pieces_of(pattern) if piece.letter == "S"), default=0)
    return t.LocalZonedTimestampType(max(3, min(digits, 9)))


_TO_INSTANT = first_of(
    takes(number, integer, to=_instant_of_number, optional=1, nulls="always"),
    takes(text, text, text, to=_instant_of_text, optional=2, nulls="always"),
)


FUNCTIONS = [
    Function(
        "DATE_FORMAT",
        takes(_dated_or_text, text, to=STRING, nulls="always"),
        _date_format,
        api="date_format",
        fails=True,
    ),
    Function(
        "TO_TIMESTAMP",
        takes(text, text, to=t.DataTypes.TIMESTAMP(3), optional=1, nulls="always"),
        _to_timestamp,
        api="to_timestamp",
    ),
    Function(
        "TO_DATE", takes(text, text, to=DATE, optional=1, nulls="always"), by_row(_to_date), api="to_date", fails=True
    ),
    Function("TO_TIMESTAMP_LTZ", _TO_INSTANT, _to_instant, api="to_timestamp_ltz", fails=True),
    Function(
        "UNIX_TIMESTAMP", takes(text, text, to=BIGINT, optional=2), _unix_timestamp, api="unix_timestamp", fails=True
    ),
    Function(
        "FROM_UNIXTIME",
        takes(bigint, text, to=STRING, optional=1, nulls="always"),
        _from_unixtime,
        api="from_unixtime",
        fails=True,
    ),
    Function("CONVERT_TZ", takes(text, text, text, to=STRING, nulls="always"), by_row(_convert_tz), api="convert_tz"),
]
