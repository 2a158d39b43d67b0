"""Avro's logical types: dates, times, timestamps, decimals and UUIDs, as Python's own."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any
from uuid import UUID

from millstream.formats.avro.schema import kind_of, logical_type_of

Real = Callable[[Any], Any]

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# How many microseconds the number in a file counts.
_UNITS = {"millis": 1000, "micros": 1}
_TIMES = ("time", "timestamp", "local-timestamp")


def logical_reader_of(schema: Any, naive_is_utc: bool) -> Real | None:
    """Return the function that makes the value of a logical type, or raises ValueError; None: there is no such type.

    It takes Python's value, and the plain number or bytes that Avro holds for it.

    Args:
        schema: the schema.
        naive_is_utc: whether a timestamp without a time zone is in UTC; else it is in the machine's.
    """
    kind, logical = kind_of(schema), logical_type_of(schema) or ""
    what, _, unit = logical.rpartition("-")
    if kind == "int" and logical == "date":
        return _date
    if kind in ("bytes", "fixed") and logical == "decimal":
        return _decimals(schema["precision"], schema.get("scale", 0))
    if kind == "string" and logical == "uuid":
        return lambda value: value if isinstance(value, UUID) else UUID(value)
    # A time of day in milliseconds is an int, everything else a long; else the logical type does not count.
    if what not in _TIMES or unit not in _UNITS or kind != ("int" if logical == "time-millis" else "long"):
        return None
    if what == "time":
        return _times(_UNITS[unit])
    return _timestamps(_UNITS[unit], naive_is_utc) if what == "timestamp" else _local_timestamps(_UNITS[unit])


def _date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime):
        raise ValueError(value)
    return value if isinstance(value, datetime.date) else (_EPOCH + datetime.timedelta(days=_number(value))).date()


def _times(unit: int) -> Real:
    def read(value: Any) -> datetime.time:
        if not isinstance(value, datetime.time):
            moment = _EPOCH + datetime.timedelta(microseconds=_number(value) * unit)
            if moment.date() != _EPOCH.date():
                raise ValueError(value)
            return moment.time()
        return value.replace(microsecond=_cut(value.microsecond, unit), tzinfo=None)

    return read


def _timestamps(unit: int, naive_is_utc: bool) -> Real:
    def read(value: Any) -> datetime.datetime:
        if not isinstance(value, datetime.datetime):
            return _EPOCH + datetime.timedelta(microseconds=_number(value) * unit)
        if value.tzinfo is None and naive_is_utc:
            value = value.replace(tzinfo=datetime.UTC)
        moment: datetime.datetime = value.astimezone(datetime.UTC)
        return moment.replace(microsecond=_cut(moment.microsecond, unit))

    return read


def _local_timestamps(unit: int) -> Real:
    def read(value: Any) -> datetime.datetime:
        if not isinstance(value, datetime.datetime):
            value = _EPOCH + datetime.timedelta(microseconds=_number(value) * unit)
        local: datetime.datetime = value.replace(tzinfo=None, microsecond=_cut(value.microsecond, unit))
        return local

    return read


def _decimals(precision: int, scale: int) -> Real:
    context = Context(prec=precision, traps=[Inexact, InvalidOperation])
    one = Decimal(1).scaleb(-scale)

    def read(value: Any) -> Decimal:
        if isinstance(value, (bytes, bytearray)):
            value = Decimal(int.from_bytes(value, signed=True)).scaleb(-scale, context)
        if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
            raise ValueError(value)
        try:
            found = Decimal(value).quantize(one, context=context)
        except (Inexact, InvalidOperation):
            raise ValueError(value) from None
        if not found.is_finite():
            raise ValueError(value)
        return found

    return read


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value


def _cut(microseconds: int, unit: int) -> int:
    """Leave off what a file does not hold; Flink does so too."""
    return microseconds - microseconds % unit
