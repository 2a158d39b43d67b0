"""Which transactions a snapshot of PostgreSQL sees. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.common.tags import tagged

_XIDS = 1 << 32
_HALF = 1 << 31


@tagged("postgres-visibility")
@dataclass(frozen=True)
class Visibility:
    """What `pg_current_snapshot()` says: transactions before `xmax` have ended, but for those that run.

    Example:
        >>> seen = Visibility.parse("10:14:10,12")
        >>> [xid for xid in range(8, 16) if seen.sees(xid)]
        [8, 9, 11, 13]
    """

    xmin: int
    xmax: int
    running: frozenset[int] = frozenset()

    @staticmethod
    def parse(text: str) -> Visibility:
        xmin, xmax, running = text.split(":")
        return Visibility(int(xmin), int(xmax), frozenset(int(x) % _XIDS for x in running.split(",") if x))

    def sees(self, xid: int) -> bool:
        """Tell whether what a committed transaction did is seen; the log has the last 32 bits of its number."""
        ahead = (xid - self.xmax) % _XIDS
        return ahead >= _HALF and xid % _XIDS not in self.running

    def is_past(self, xid: int) -> bool:
        """Tell whether all transactions before one, given in full, have ended."""
        return self.xmin >= xid
