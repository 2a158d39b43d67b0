"""Time zones by Java's names: regions or offsets."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from zoneinfo import ZoneInfo

from millstream.sql.errors import ValidationException

_OFFSET = re.compile(r"(?:GMT|UTC|UT)?([+-])(\d{1,2})(?::?(\d{2}))?")


@lru_cache(maxsize=64)
def zone_named(name: str) -> dt.tzinfo:
    """Return a time zone.

    Raises:
        ValidationException: no time zone has this name.

    Example:
        >>> zone_named("GMT+05:30").utcoffset(None)
        datetime.timedelta(seconds=19800)
    """
    minutes = _minutes(name)
    if minutes is not None:
        return dt.timezone(dt.timedelta(minutes=minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValidationException(
            f"Invalid time zone '{name}': it is like 'America/Los_Angeles', 'UTC' or 'GMT-08:00'."
        ) from None


@lru_cache(maxsize=64)
def arrow_zone(name: str) -> str:
    """Return Arrow's name of a time zone."""
    minutes = _minutes(name)
    if minutes is None:
        zone_named(name)
        return name
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "UTC"


# Regions that have always been on UTC.
_UTC = frozenset(
    [
        "UTC",
        "Etc/UTC",
        "GMT",
        "Etc/GMT",
        "UCT",
        "Etc/UCT",
        "Universal",
        "Etc/Universal",
        "Zulu",
        "Etc/Zulu",
        "Greenwich",
    ]
)


@lru_cache(maxsize=64)
def is_utc(name: str) -> bool:
    """Return whether a time zone is UTC, so that no conversion is needed."""
    return arrow_zone(name) in _UTC


def _minutes(name: str) -> int | None:
    match = _OFFSET.fullmatch(name)
    if match is None:
        return 0 if name in ("Z", "UTC", "GMT") else None
    minutes = int(match.group(2)) * 60 + int(match.group(3) or 0)
    return -minutes if match.group(1) == "-" else minutes
