"""Where a CSV file can be cut: behind a record. A newline within quotes is no end of one.

The driver looks for such places, so that a large file is read in many epochs, though by one subtask. A regular
expression finds all that are complete at once, which is many times quicker than reading them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import BinaryIO

from millstream.formats.csv.dialect import CsvDialect


def can_be_cut(dialect: CsvDialect) -> bool:
    """Tell whether quoted fields can be found by their first character and the one before it."""
    quote = dialect.quote or ""
    return dialect.escape is None and not dialect.comments and (quote + dialect.separator).isascii()


@lru_cache
def _records(dialect: CsvDialect) -> re.Pattern[bytes]:
    """Return what finds as many records as there are, each with its newline, in one go."""
    quote, separator = re.escape((dialect.quote or "").encode()), re.escape(dialect.separator.encode())
    rest = rb"[^\r\n" + separator + rb"]*+"
    quoted = quote + rb"(?:[^" + quote + rb"]++|" + quote * 2 + rb")*+" + quote + rest
    field = rb"(?:" + quoted + rb"|(?!" + quote + rb")" + rest + rb")"
    return re.compile(rb"(?:(?:" + field + rb"[\r" + separator + rb"])*+" + field + rb"\n)*+")


def last_record_end(data: bytes, dialect: CsvDialect) -> int:
    """Return how much of some text, which begins with a record, are complete records that end in newlines.

    Example:
        >>> last_record_end(b'a,b\\n"c\\nd",e\\n"f\\n', CsvDialect())
        12
    """
    if dialect.quote is None or dialect.quote.encode() not in data:
        return data.rfind(b"\n") + 1
    found = _records(dialect).match(data)
    return 0 if found is None else found.end()


def cut_behind_record(file: BinaryIO, start: int, wanted: int, end: int, dialect: CsvDialect) -> int:
    """Return where to cut a file: behind the last record before `wanted`, or behind the one that goes on there."""
    file.seek(start)
    length = wanted - start
    data = file.read(length)
    while not (found := last_record_end(data, dialect)):
        if start + len(data) >= end or not (more := file.read(min(len(data), end - start - len(data)))):
            return end
        data += more
    return start + found
