"""Places in MariaDB's and MySQL's binlog. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from millstream.common.tags import tagged

__all__ = ["BinlogSeen", "Place", "place_of"]


@tagged("mysql-offset")
class Place(NamedTuple):
    """A place in the binlog, in the order of the log.

    Attributes:
        number: the number of the file.
        position: the place in the file.
        changes: how many changes of the transaction that begins there were dealt out.
        prefix: the rest of the file's name.
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
        """Where the transaction begins."""
        return self._replace(changes=0)


def place_of(file: str, position: int) -> Place:
    """Return a place as the server tells it.

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
    """What a snapshot sees that was taken at a place: every transaction before it. One is named by where it begins."""

    place: Place

    def sees(self, transaction: Place) -> bool:
        return transaction[:2] < self.place[:2]

    def is_past(self, point: Place) -> bool:
        return self.place[:2] >= point[:2]
