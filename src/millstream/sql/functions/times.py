"""Arithmetic of days, times, points in time and lengths of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.sql import type_rules
from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.errors import TableException
from millstream.sql.functions.cast_times import DAY, UNITS, cast, scaled
from millstream.sql.functions.function import Site, Value
from millstream.sql.functions.vectors import as_array, from_numpy, to_numpy


def arithmetic(operator: str, site: Site, rows: int, values: Sequence[Value]) -> Value:
    """Return the sum, difference, product or quotient of times and lengths of time."""
    fixed = all(isinstance(v, pa.Scalar) for v in values)
    left, right = (as_array(v, 1 if fixed else rows) for v in values)
    kinds = list(site.types)
    if type_rules.is_temporal(kinds[1]) or (operator == "*" and type_rules.is_interval(kinds[1])):
        left, right = right, left
        kinds.reverse()
    if type_rules.is_interval(kinds[0]):
        found = _of_lengths(operator, left, right, site)
    else:
        found = _moved(operator, left, right, kinds, site)
    return found[0] if fixed else found


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
        found = plus_months(left, length, [left, right])
    else:
        found = plus_milliseconds(left, length, [left, right])
    # The result may have more digits than the time had.
    return cast(found, kinds[0], site.type, site.context, False) if found.type != arrow_type(site.type) else found


def plus_milliseconds(column: pa.Array, length: NDArray[Any], like: Sequence[pa.Array]) -> pa.Array:
    """Return times moved by lengths in milliseconds."""
    values = to_numpy(column).astype(np.int64)
    if pa.types.is_date(column.type):
        # Of a part of a day nothing is left, whichever way it goes.
        days = np.sign(length) * (np.abs(length) // DAY)
        return from_numpy((values + days).astype(np.int32), column.type, like)
    if pa.types.is_time(column.type):
        return from_numpy(((values + length) % DAY).astype(np.int32), column.type, like)
    return from_numpy(values + scaled(length, UNITS[column.type.unit] // 1000, like[-1]), column.type, like)


def plus_months(column: pa.Array, months: NDArray[Any], like: Sequence[pa.Array]) -> pa.Array:
    """Return times moved by months; the day stays, or is the month's last one."""
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


def _plus_months(days: NDArray[Any], months: NDArray[Any]) -> NDArray[Any]:
    dates = days.astype("datetime64[D]")
    month = dates.astype("datetime64[M]")
    day = (dates - month.astype("datetime64[D]")).astype(np.int64)
    moved = month + months.astype("timedelta64[M]")
    last = ((moved + 1).astype("datetime64[D]") - moved.astype("datetime64[D]")).astype(np.int64) - 1
    found: NDArray[Any] = moved.astype("datetime64[D]").astype(np.int64) + np.minimum(day, last)
    return found
