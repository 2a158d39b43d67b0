"""Functions of the current time."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millstream.sql import types as t
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.value_text import local
from millstream.sql.functions.cast_times import DAY
from millstream.sql.functions.function import Datum, Function, Kernel, Site
from millstream.sql.functions.rules import DATE, any_type, takes

_LTZ = t.DataTypes.TIMESTAMP_LTZ(3)
_TIMESTAMP = t.DataTypes.TIMESTAMP(3)
_TIME = t.DataTypes.TIME(0)


def _instant(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pa.scalar(site.context.now(), arrow_type(_LTZ))


def _of_row(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pa.scalar(site.context.clock(), arrow_type(_LTZ))


def _local_milliseconds(site: Site) -> int:
    now = pa.array([site.context.now()], arrow_type(_LTZ))
    return int(local(now, site.context.time_zone)[0].value)


def _timestamp(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pa.scalar(_local_milliseconds(site), arrow_type(_TIMESTAMP))


def _date(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pa.scalar(_local_milliseconds(site) // DAY, pa.date32())


def _time(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    return pa.scalar(_local_milliseconds(site) % DAY // 1000 * 1000, pa.time32("ms"))


def _watermark(site: Site, rows: int, values: Sequence[Datum]) -> Datum:
    result = site.context.watermark()
    if result is not None and isinstance(site.type, t.TimestampType):
        result = int(local(pa.array([result], arrow_type(_LTZ)), "UTC")[0].value)
    return pa.scalar(result, arrow_type(site.type))


def _watermark_type(arguments: object) -> t.DataType | None:
    (kind,) = arguments.types  # type: ignore[attr-defined]
    if not isinstance(kind, (t.TimestampType, t.LocalZonedTimestampType)):
        return None
    return type(kind)(3)


def _now(name: str, kind: t.DataType, kernel: Kernel, api: str = "") -> Function:
    return Function(name, takes(to=kind, nulls="never"), kernel, api=api, deterministic=False)


FUNCTIONS = [
    _now("CURRENT_TIMESTAMP", _LTZ, _instant, "current_timestamp"),
    _now("NOW", _LTZ, _instant),
    _now("CURRENT_ROW_TIMESTAMP", _LTZ, _of_row),
    _now("PROCTIME", _LTZ, _of_row),
    _now("LOCALTIMESTAMP", _TIMESTAMP, _timestamp, "local_timestamp"),
    _now("CURRENT_DATE", DATE, _date, "current_date"),
    _now("CURRENT_TIME", _TIME, _time, "current_time"),
    _now("LOCALTIME", _TIME, _time, "local_time"),
    Function(
        "CURRENT_WATERMARK",
        takes(any_type, to=_watermark_type, nulls="always"),
        _watermark,
        api="current_watermark",
        deterministic=False,
    ),
]
