"""Functions on dates, times and timestamps: arithmetic, fields, rounding, differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.numpy_arrays import NumpyColumn
from millstream.sql.columns.value_text import local
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.functions.cast_times import DAY, UNITS, cast, scaled, to_instants
from millstream.sql.functions.function import Arguments, Datum, Function, Kernel, Resolved, Site
from millstream.sql.functions.rules import BIGINT, BOOLEAN, INT, takes
from millstream.sql.functions.vectors import as_array, from_numpy, to_numpy


def arithmetic(operator: str, site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    """Return the sum, difference, product or quotient of times and intervals."""
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    left, right = (as_array(v, 1 if fixed else rows) for v in values)
    kinds = list(site.types)
    if type_rules.is_temporal(kinds[1]) or (operator == "*" and type_rules.is_interval(kinds[1])):
        left, right = right, left
        kinds.reverse()
    if type_rules.is_interval(kinds[0]):
        result = _of_lengths(operator, left, right, site)
    else:
        result = _moved(operator, left, right, kinds, site)
    return result[0] if fixed else result


def _of_lengths(operator: str, left: pa.Array, right: pa.Array, site: Site) -> pa.Array:
    kind = arrow_type(site.type)
    if operator in "+-":
        return (pc.add if operator == "+" else pc.subtract)(left.cast(kind), right.cast(kind))
    if pa.types.is_integer(right.type):
        operation = pc.multiply if operator == "*" else _quotient
        return operation(left.cast(pa.int64()), right.cast(pa.int64())).cast(kind, safe=False)
    factors = right.cast(pa.float64())
    exact = (pc.multiply if operator == "*" else pc.divide)(left.cast(pa.float64()), factors)
    return pc.trunc(exact).cast(kind, safe=False)


def _quotient(left: pa.Array, right: pa.Array) -> pa.Array:
    try:
        return pc.divide(left, right)
    except pa.ArrowInvalid:
        raise TableException("ArithmeticException: / by zero") from None


def _moved(operator: str, left: pa.Array, right: pa.Array, kinds: list[t.DataType], site: Site) -> pa.Array:
    length = to_numpy(right).astype(np.int64)
    length = -length if operator == "-" else length
    if isinstance(kinds[1], t.YearMonthIntervalType):
        result = plus_months(left, length, [left, right])
    else:
        result = plus_milliseconds(left, length, [left, right])
    # The result may have a higher precision than the time.
    return cast(result, kinds[0], site.type, site.context, False) if result.type != arrow_type(site.type) else result


def plus_milliseconds(column: pa.Array, length: NumpyColumn, like: Sequence[pa.Array]) -> pa.Array:
    """Return times shifted by milliseconds."""
    values = to_numpy(column).astype(np.int64)
    if pa.types.is_date(column.type):
        # Fractions of a day are truncated towards zero.
        days = np.sign(length) * (np.abs(length) // DAY)
        return from_numpy((values + days).astype(np.int32), column.type, like)
    if pa.types.is_time(column.type):
        return from_numpy(((values + length) % DAY).astype(np.int32), column.type, like)
    return from_numpy(values + scaled(length, UNITS[column.type.unit] // 1000, like[-1]), column.type, like)


def plus_months(column: pa.Array, months: NumpyColumn, like: Sequence[pa.Array]) -> pa.Array:
    """Return times shifted by months; a day beyond the month's end becomes its last day."""
    if pa.types.is_time(column.type):
        return column
    if pa.types.is_date(column.type):
        days = to_numpy(column).astype(np.int64)
        return from_numpy(_plus_months(days, months).astype(np.int32), column.type, like)
    per_day = 86400 * UNITS[column.type.unit]
    values = to_numpy(column)
    days = values // per_day
    moved = scaled(_plus_months(days, months), per_day, column)
    return from_numpy(moved + values % per_day, column.type, like)


def _plus_months(days: NumpyColumn, months: NumpyColumn) -> NumpyColumn:
    dates = days.astype("datetime64[D]")
    month = dates.astype("datetime64[M]")
    day = (dates - month.astype("datetime64[D]")).astype(np.int64)
    moved = month + months.astype("timedelta64[M]")
    last = ((moved + 1).astype("datetime64[D]") - moved.astype("datetime64[D]")).astype(np.int64) - 1
    result: NumpyColumn = moved.astype("datetime64[D]").astype(np.int64) + np.minimum(day, last)
    return result


_TIMESTAMPS = (t.TimestampType, t.LocalZonedTimestampType)
MILLISECONDS = {"WEEK": 7 * DAY, "DAY": DAY, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1000, "MILLISECOND": 1}
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12, "DECADE": 120, "CENTURY": 1200, "MILLENNIUM": 12000}


def wall(value: Datum, kind: t.DataType, zone: str, rows: int) -> pa.Array:
    """Return an instant as local time."""
    column = as_array(value, rows)
    return local(column, zone) if isinstance(kind, t.LocalZonedTimestampType) else column


class Parts:
    """The fields of times as numeric columns."""

    def __init__(self, column: pa.Array) -> None:
        values = to_numpy(column).astype(np.int64)
        if pa.types.is_date(column.type):
            self.days, self.nanos = values, np.zeros(len(values), np.int64)
        elif pa.types.is_time(column.type):
            self.days, self.nanos = np.zeros(len(values), np.int64), values * 1_000_000
        else:
            per_second = UNITS[column.type.unit]
            self.days = values // (86400 * per_second)
            self.nanos = values % (86400 * per_second) * (1_000_000_000 // per_second)
        self._dates = self.days.astype("datetime64[D]")

    @property
    def year(self) -> NumpyColumn:
        return self._dates.astype("datetime64[Y]").astype(np.int64) + 1970

    @property
    def month(self) -> NumpyColumn:
        return self._dates.astype("datetime64[M]").astype(np.int64) % 12 + 1

    @property
    def day(self) -> NumpyColumn:
        result: NumpyColumn = (self._dates - self._dates.astype("datetime64[M]")).astype(np.int64) + 1
        return result

    @property
    def day_of_year(self) -> NumpyColumn:
        result: NumpyColumn = (self._dates - self._dates.astype("datetime64[Y]")).astype(np.int64) + 1
        return result

    @property
    def iso_day(self) -> NumpyColumn:
        """Day of the week, Monday is 1."""
        return (self.days + 3) % 7 + 1

    def _thursday(self) -> NumpyColumn:
        """The Thursday of the week, which determines its year."""
        result: NumpyColumn = (self.days - self.iso_day + 4).astype("datetime64[D]")
        return result

    @property
    def iso_year(self) -> NumpyColumn:
        return self._thursday().astype("datetime64[Y]").astype(np.int64) + 1970

    @property
    def week(self) -> NumpyColumn:
        thursday = self._thursday()
        result: NumpyColumn = (thursday - thursday.astype("datetime64[Y]")).astype(np.int64) // 7 + 1
        return result


_PARTS: dict[str, Callable[[Parts], NumpyColumn]] = {
    "YEAR": lambda p: p.year,
    "QUARTER": lambda p: (p.month + 2) // 3,
    "MONTH": lambda p: p.month,
    "WEEK": lambda p: p.week,
    "DAY": lambda p: p.day,
    "HOUR": lambda p: p.nanos // 3_600_000_000_000,
    "MINUTE": lambda p: p.nanos // 60_000_000_000 % 60,
    "SECOND": lambda p: p.nanos // 1_000_000_000 % 60,
    "MILLISECOND": lambda p: p.nanos // 1_000_000 % 1000,
    "MICROSECOND": lambda p: p.nanos // 1000 % 1_000_000,
    "NANOSECOND": lambda p: p.nanos % 1_000_000_000,
    "DOW": lambda p: p.iso_day % 7 + 1,
    "ISODOW": lambda p: p.iso_day,
    "DOY": lambda p: p.day_of_year,
    "ISOYEAR": lambda p: p.iso_year,
    "EPOCH": lambda p: p.days * 86400 + p.nanos // 1_000_000_000,
    "DECADE": lambda p: p.year // 10,
    "CENTURY": lambda p: (p.year + 99) // 100,
    "MILLENNIUM": lambda p: (p.year + 999) // 1000,
}


def _extracted(unit: str, site: Site, rows: int, value: Datum) -> Datum:
    fixed = isinstance(value, pa.Scalar)
    kind = site.types[0]
    if type_rules.is_interval(kind):
        result = _of_interval(unit, as_array(value, 1 if fixed else rows))
    else:
        column = wall(value, kind, site.context.time_zone, 1 if fixed else rows)
        result = from_numpy(_PARTS[unit](Parts(column)).astype(np.int64), pa.int64(), [column])
    return result[0] if fixed else result


def _of_interval(unit: str, column: pa.Array) -> pa.Array:
    values = to_numpy(column).astype(np.int64)
    sign, size = np.sign(values), np.abs(values)
    if unit in ("YEAR", "QUARTER", "MONTH"):
        result = size // 12 if unit == "YEAR" else size % 12
    elif unit == "DAY":
        result = size // DAY
    else:
        above = {"HOUR": DAY, "MINUTE": 3_600_000, "SECOND": 60_000, "MILLISECOND": 1000}[unit]
        result = size % above // MILLISECONDS[unit]
    return from_numpy(sign * result, pa.int64(), [column])


def _extract_kernel(unit: str | None) -> Kernel:
    return lambda site, rows, values: _extracted(unit or site.options[0], site, rows, values[0])


def _dated(kind: t.DataType) -> t.DataType | None:
    return kind if isinstance(kind, (t.DateType, *_TIMESTAMPS)) else None


def _timed(kind: t.DataType) -> t.DataType | None:
    if type_rules.is_temporal(kind) or type_rules.is_interval(kind):
        return kind
    return None


def _extract_rule(arguments: Arguments) -> Resolved | None:
    unit = arguments.options[0]
    if unit not in _PARTS:
        return None
    if unit in ("NANOSECOND", "MICROSECOND") and isinstance(arguments.types[0], t.DateType):
        raise ValidationException(f"unit {unit} can not be applied to {arguments.types[0]} variable")
    return takes(_timed, to=BIGINT)(arguments)


# --- rounding


def _rounded(up: bool) -> Kernel:
    def kernel(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
        fixed = isinstance(values[0], pa.Scalar)
        zoned = isinstance(site.types[0], t.LocalZonedTimestampType)
        column = wall(values[0], site.types[0], site.context.time_zone, 1 if fixed else rows)
        result = _round(column, site.options[0], up)
        if zoned:
            result = to_instants(result, site.context.time_zone)
        return result[0] if fixed else result

    return kernel


def _round(column: pa.Array, unit: str, up: bool) -> pa.Array:
    values = to_numpy(column).astype(np.int64)
    if pa.types.is_date(column.type):
        per_day, per_second = 1, 0
    elif pa.types.is_time(column.type):
        per_day, per_second = DAY, 1000
    else:
        per_second = UNITS[column.type.unit]
        per_day = 86400 * per_second
    if unit in MONTHS or unit == "WEEK":
        days = values // per_day
        low = _floored_days(days, unit) * per_day
        result = np.where(low < values, _next_days(days, unit) * per_day, low) if up else low
    else:
        if up and unit == "DAY" and not per_second:
            # In Flink a day is never its own end.
            return from_numpy((values + 1).astype(np.int32), column.type, [column])
        step = MILLISECONDS[unit] * per_second // 1000 if per_second else 1
        if step == 0:
            return column
        low = values // step * step
        result = np.where(low < values, low + step, low) if up else low
    dtype = np.int32 if column.type.bit_width == 32 else np.int64
    return from_numpy(result.astype(dtype), column.type, [column])


def _floored_days(days: NumpyColumn, unit: str) -> NumpyColumn:
    if unit == "WEEK":
        # Weeks begin on Sunday.
        sunday: NumpyColumn = days - (days + 4) % 7
        return sunday
    return _month_start(_floored_months(days, unit))


def _next_days(days: NumpyColumn, unit: str) -> NumpyColumn:
    if unit == "WEEK":
        return _floored_days(days, unit) + 7
    return _month_start(_floored_months(days, unit) + MONTHS[unit])


def _floored_months(days: NumpyColumn, unit: str) -> NumpyColumn:
    months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) + 1970 * 12
    size = MONTHS[unit]
    # Centuries and millennia begin with the year 1.
    shift = 12 if unit in ("CENTURY", "MILLENNIUM") else 0
    return (months - shift) // size * size + shift


def _month_start(months: NumpyColumn) -> NumpyColumn:
    return (months - 1970 * 12).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


# --- moving and distance


def _add_rule(arguments: Arguments) -> Resolved | None:
    unit = arguments.options[0]
    if len(arguments) != 2 or not (unit in MONTHS or unit in MILLISECONDS):
        return None
    count, kind = arguments.types
    if not type_rules.is_numeric(count) or not type_rules.is_temporal(kind):
        return None
    result = kind
    if isinstance(kind, t.DateType) and unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND"):
        result = t.DataTypes.TIMESTAMP(6)
    return Resolved(result.with_nullability(arguments.any_nullable), (BIGINT.with_nullability(count.is_nullable), kind))


def _add(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    rows = 1 if fixed else rows
    unit = site.options[0]
    count, column = as_array(values[0], rows), as_array(values[1], rows)
    wide = cast(column, site.types[1], site.type, site.context, False) if not _same(site) else column
    lengths = to_numpy(count)
    if unit in MONTHS:
        result = plus_months(wide, lengths * MONTHS[unit], [column, count])
    else:
        result = plus_milliseconds(wide, lengths * MILLISECONDS[unit], [column, count])
    return result[0] if fixed else result


def _same(site: Site) -> bool:
    return bool(arrow_type(site.types[1]) == arrow_type(site.type))


def _difference_rule(arguments: Arguments) -> Resolved | None:
    if len(arguments) != 2 or not all(isinstance(k, (t.DateType, *_TIMESTAMPS)) for k in arguments.types):
        return None
    return Resolved(INT.with_nullability(arguments.any_nullable), arguments.types)


def _difference(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    rows = 1 if fixed else rows
    unit = site.options[0]
    columns = [as_array(v, rows) for v in values]
    columns = [wall(c, k, site.context.time_zone, rows) for c, k in zip(columns, site.types, strict=True)]
    start, end = (_milliseconds(c) for c in columns)
    if unit in MONTHS:
        result = (
            _months_between(start, end) // MONTHS[unit]
            if unit == "MONTH"
            else _trunc(_months_between(start, end), MONTHS[unit])
        )
    else:
        result = _trunc(end - start, MILLISECONDS[unit])
    created = from_numpy(result.astype(np.int32), pa.int32(), columns)
    return created[0] if fixed else created


def _trunc(values: NumpyColumn, size: int) -> NumpyColumn:
    result: NumpyColumn = np.sign(values) * (np.abs(values) // size)
    return result


def _milliseconds(column: pa.Array) -> NumpyColumn:
    values = to_numpy(column).astype(np.int64)
    if pa.types.is_date(column.type):
        return values * DAY
    return values // (UNITS[column.type.unit] // 1000)


def _months_between(start: NumpyColumn, end: NumpyColumn) -> NumpyColumn:
    """Return the whole months between two times."""
    a, b = (v // DAY for v in (start, end))
    month_a, month_b = (d.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) for d in (a, b))
    rest_a, rest_b = (v - _month_start(m + 1970 * 12) * DAY for v, m in ((start, month_a), (end, month_b)))
    months = month_b - month_a
    months = np.where((months > 0) & (rest_b < rest_a), months - 1, months)
    return np.where((months < 0) & (rest_b > rest_a), months + 1, months)


def _overlaps_rule(arguments: Arguments) -> Resolved | None:
    """Accept two periods, each a time with its end or duration."""
    if len(arguments) != 4:
        return None
    for start, end in (arguments.types[:2], arguments.types[2:]):
        if not type_rules.is_temporal(start) or not (type_rules.is_interval(end) or type(end) is type(start)):
            return None
    return Resolved(BOOLEAN.with_nullability(arguments.any_nullable), arguments.types)


def _overlaps(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    bounds = []
    for i in (0, 2):
        start, end = values[i], values[i + 1]
        if type_rules.is_interval(site.types[i + 1]):
            moved = Site("+", site.types[i], site.types[i : i + 2], (), site.context)
            end = arithmetic("+", moved, rows, [start, end])
        low = pc.min_element_wise(start, end, skip_nulls=False)
        bounds.append((low, pc.max_element_wise(start, end, skip_nulls=False)))
    (a, b), (c, d) = bounds
    return pc.and_kleene(pc.greater_equal(b, c), pc.greater_equal(d, a))


def _periods_rule(arguments: Arguments) -> Resolved | None:
    """Accept two rows, each a time with its end or duration."""
    if not all(isinstance(k, t.RowType) and len(k) == 2 for k in arguments.types):
        return None
    members = tuple(m for k in arguments.types if isinstance(k, t.RowType) for m in k.field_types())
    result = _overlaps_rule(Arguments(members))
    return None if result is None else Resolved(result.type, arguments.types)


def _periods_overlap(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    columns = [as_array(v, 1 if fixed else rows) for v in values]
    members = [pc.struct_field(c, [i]) for c in columns for i in (0, 1)]
    kinds = tuple(m for k in site.types if isinstance(k, t.RowType) for m in k.field_types())
    result = _overlaps(Site(site.name, site.type, kinds, (), site.context), len(columns[0]), members)
    return result[0] if fixed else result


_NAMED = {
    "YEAR": "YEAR",
    "QUARTER": "QUARTER",
    "MONTH": "MONTH",
    "WEEK": "WEEK",
    "DAYOFYEAR": "DOY",
    "DAYOFMONTH": "DAY",
    "DAYOFWEEK": "DOW",
    "HOUR": "HOUR",
    "MINUTE": "MINUTE",
    "SECOND": "SECOND",
}

# Units that INTERVAL does not support.
_OF_DATES = frozenset(["WEEK", "DOY", "DOW"])

FUNCTIONS = [
    Function("EXTRACT", _extract_rule, _extract_kernel(None), api="extract"),
    *(
        Function(name, takes(_dated if unit in _OF_DATES else _timed, to=BIGINT), _extract_kernel(unit))
        for name, unit in _NAMED.items()
    ),
    Function("TEMPORAL_OVERLAPS", _overlaps_rule, _overlaps, api="temporal_overlaps"),
    Function("OVERLAPS", _periods_rule, _periods_overlap),
    Function("TIMESTAMPADD", _add_rule, _add),
    Function("TIMESTAMPDIFF", _difference_rule, _difference, api="timestamp_diff"),
]
ROUND_UP, ROUND_DOWN = _rounded(True), _rounded(False)
