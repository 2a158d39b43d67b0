"""BucketAssigner: assigns records to directories of a FileSink."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.watermark_strategy import MIN_WATERMARK

__all__ = ["BucketAssigner", "BucketContext"]


class BucketContext:
    """Gives an assigner the times that it can use."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    def current_processing_time(self) -> int:
        """Return the wall-clock time in milliseconds."""
        return self._clock()

    def current_watermark(self) -> int:
        """Return the minimum: sinks do not receive watermarks."""
        return MIN_WATERMARK

    def timestamp(self) -> int | None:
        """Return None: timestamps do not reach a sink."""
        return None


class BucketAssigner(ABC):
    """Assigns a bucket to each record: a directory below the base path, "" for the base path itself.

    Example:
        >>> from pathlib import Path
        >>> from millstream.common import Encoder
        >>> from millstream.connectors.files.sink import FileSink
        >>> class ByFirstLetter(BucketAssigner):
        ...     def get_bucket_id(self, element, context): return element[0]
        >>> sink = FileSink.for_row_format("out", Encoder.simple_string_encoder()).with_bucket_assigner(ByFirstLetter())
        >>> _ = env.from_collection(["to", "be"]).sink_to(sink.build())
        >>> _ = env.execute()
        >>> sorted(path.name for path in Path("out").iterdir())
        ['b', 't']
    """

    # Whether the bucket depends on the record. An assigner that uses only the clock is called once per batch.
    by_element = True

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Return an assigner that writes all files to the base path, without buckets."""
        return _BasePath()

    @staticmethod
    def date_time_bucket_assigner(format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None) -> BucketAssigner:
        """Return an assigner by the time of writing.

        Args:
            format_str: a pattern of Java's DateTimeFormatter with the letters y, M, d, H, m and s.
            timezone_id: such as "Europe/Berlin" or "GMT-08:00"; None for the local zone.

        Example:
            >>> daily = BucketAssigner.date_time_bucket_assigner("yyyy-MM-dd", "Europe/Berlin")
            >>> daily.get_bucket_id("to", BucketContext(lambda: 0))
            '1970-01-01'
        """
        return _DateTime(format_str, timezone_id)

    @abstractmethod
    def get_bucket_id(self, element: Value, context: BucketContext) -> Value:
        """Return the bucket; `str` of it is its path."""


class _BasePath(BucketAssigner):
    by_element = False

    def get_bucket_id(self, element: Value, context: BucketContext) -> str:
        return ""


class _DateTime(BucketAssigner):
    by_element = False

    def __init__(self, pattern: str, timezone_id: str | None) -> None:
        self._template = python_template(pattern)
        self._zone = None if timezone_id is None else time_zone(timezone_id)

    def get_bucket_id(self, element: Value, context: BucketContext) -> str:
        now = datetime.fromtimestamp(context.current_processing_time() / 1000, self._zone)
        return self._template.format(now=now, short_year=now.year % 100)


_FIELDS = {
    "yyyy": "{now.year:04d}",
    "yy": "{short_year:02d}",
    "y": "{now.year}",
    "MM": "{now.month:02d}",
    "M": "{now.month}",
    "dd": "{now.day:02d}",
    "d": "{now.day}",
    "HH": "{now.hour:02d}",
    "H": "{now.hour}",
    "mm": "{now.minute:02d}",
    "m": "{now.minute}",
    "ss": "{now.second:02d}",
    "s": "{now.second}",
}
# Two quotes; quoted text; a run of one letter; any other character.
_PATTERN = re.compile(r"(?P<quote>'')|'(?P<quoted>(?:[^']|'')+)'|(?P<field>([A-Za-z])\4*)|(?P<other>.)", re.DOTALL)


def python_template(pattern: str) -> str:
    """Convert a pattern of Java's DateTimeFormatter to a template for str.format.

    Example:
        >>> python_template("yyyy'y'M")
        '{now.year:04d}y{now.month}'
    """
    parts: list[str] = []
    for match in _PATTERN.finditer(pattern):
        field, other = match["field"], match["other"]
        if (field is not None and field not in _FIELDS) or (other is not None and other in "'[]{}#"):
            raise InvalidProgramError(
                f"date_time_bucket_assigner: {field or other!r} in the pattern {pattern!r} is not supported; "
                f"use {', '.join(_FIELDS)} and put other text in single quotes."
            )
        if field is not None:
            parts.append(_FIELDS[field])
        elif match["quote"]:
            parts.append("'")
        else:
            text = other or match["quoted"].replace("''", "'")
            parts.append(text.replace("{", "{{").replace("}", "}}"))
    return "".join(parts)


_OFFSET = re.compile(r"(?:GMT|UTC|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?")


def time_zone(timezone_id: str) -> tzinfo:
    """Return a time zone by name or offset."""
    offset = _OFFSET.fullmatch(timezone_id)
    if offset is not None:
        distance = timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"] or 0))
        if distance <= timedelta(hours=18):
            return timezone(-distance if offset["sign"] == "-" else distance)
    try:
        return UTC if timezone_id == "Z" else ZoneInfo(timezone_id)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidProgramError(
            f"date_time_bucket_assigner: there is no time zone {timezone_id!r}; use a name or an offset, such as "
            "'Europe/Berlin' or 'GMT-08:00'."
        ) from None
