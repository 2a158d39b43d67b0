"""Binlog offsets and GTID sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged

__all__ = ["BinlogSeen", "Gtids", "Place", "place_of"]


_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)")
_MYSQL = re.compile(r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})((?::\d+(?:-\d+)?)+)")
# Ranges of sequence numbers by domain (MariaDB) or server (MySQL).
Spans = Mapping[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Gtids:
    """A set of transactions by GTID.

    Example:
        >>> done = Gtids.parse("0-1-270,1-1-3")
        >>> done.has("0-2-270"), done.has("0-1-271"), done.has("1-1-3")
        (True, False, True)
        >>> Gtids.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7").has("3E11FA47-71CA-11E1-9E33-C80AA9429562:6")
        False
    """

    spans: Spans

    @staticmethod
    def parse(text: str) -> Gtids:
        """Parse a set as the server writes it: MariaDB's `0-1-270` is the last of its domain."""
        spans: dict[str, tuple[tuple[int, int], ...]] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            if found := _MARIADB.fullmatch(part):
                spans[found[1]] = ((1, int(found[3])),)
            elif found := _MYSQL.fullmatch(part):
                bounds = [b.split("-") for b in found[2][1:].split(":")]
                here = tuple((int(b[0]), int(b[-1])) for b in bounds)
                spans[found[1].lower()] = (*spans.get(found[1].lower(), ()), *here)
            else:
                raise InvalidProgramError(
                    f"{part!r} is not a GTID: MariaDB's are of the form '0-1-270', MySQL's "
                    "'3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5'; a file of the binlog needs a place in it, as in "
                    "specific_offset('binlog.000003', 4)."
                )
        return Gtids(spans)

    def has(self, gtid: str) -> bool:
        """Return whether a transaction is in the set."""
        if not self.spans:
            return False
        if found := _MARIADB.fullmatch(gtid):
            source, number = found[1], int(found[3])
        else:
            source, number = gtid.rpartition(":")[0].lower(), int(gtid.rpartition(":")[2])
        return any(first <= number <= last for first, last in self.spans.get(source, ()))

    def covers(self, other: Gtids) -> bool:
        """Return whether this set contains all transactions of another."""
        return all(
            any(first <= low and high <= last for first, last in self.spans.get(source, ()))
            for source, spans in other.spans.items()
            for low, high in spans
        )


@tagged("mysql-offset")
class Place(NamedTuple):
    """A binlog offset; offsets compare in log order.

    Attributes:
        number: the file's number.
        position: the position in the file.
        changes: number of assigned changes of the transaction that starts there.
        prefix: the rest of the file name.
    """

    number: int
    position: int
    changes: int = 0
    prefix: str = ""

    @property
    def file(self) -> str:
        digits = str(self.number)
        return f"{self.prefix}.{digits:0>6}"

    @property
    def at_begin(self) -> Place:
        """The offset where the transaction starts."""
        return self._replace(changes=0)


def place_of(file: str, position: int) -> Place:
    """Return the offset for a file and position as the server reports them.

    Example:
        >>> place_of("binlog.000012", 345) < place_of("binlog.000013", 4)
        True
        >>> place_of("binlog.000012", 345).file
        'binlog.000012'
    """
    prefix, _, number = file.rpartition(".")
    return Place(int(number), position, 0, prefix)


@tagged("mysql-binlog-seen")
@dataclass(frozen=True)
class BinlogSeen:
    """The transactions that a snapshot at an offset sees: all that start before it."""

    place: Place

    def sees(self, transaction: Place) -> bool:
        return transaction[:2] < self.place[:2]

    def is_past(self, point: Place) -> bool:
        return self.place[:2] >= point[:2]
