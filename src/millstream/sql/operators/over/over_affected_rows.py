"""Which rows of a partition stand around one that comes or goes, as far as its coming or going concerns them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from millstream.common.fast_dataclass import record
from millstream.sql.columns.keyed_rows import Ints, Mask
from millstream.sql.operators.over.over_batch import OF_PARTITION
from millstream.sql.plan.nodes import OverSpec

# So many rows are laid out at once.
_AT_ONCE = 1 << 18


@record(frozen=True)
class Surrounded:
    """Changes, each with the rows around the one that it is about, and that one, in order.

    Attributes:
        first, last: which changes they are, up to the last and without it.
        rows: the rows, those of the first change first.
        change: of each row which change it is laid out for, from 0 for the first.
        is_it: whether a row is the one that comes or goes.
        wanted: which rows may have another result for it, and itself; the others are in the frames of those.
    """

    first: int
    last: int
    rows: Ints
    change: Ints
    is_it: Mask
    wanted: Mask


@record(frozen=True)
class _Reach:
    """How far from a row its coming and going is felt, and how far around that frames reach; None for everywhere.

    Attributes:
        before, behind: where rows may have another result, so many before and so many behind it.
        around: what stands in their frames, so many before and behind it.
    """

    before: int | None
    behind: int | None
    around: int | None

    @staticmethod
    def of(over: OverSpec) -> _Reach:
        if not over.rows or any(c.function in OF_PARTITION for c in over.calls):
            return _Reach(None, None, None)
        # A row is in the frames of those behind it that look back to it, and of those before it that look ahead.
        behind = None if over.start is None else max(-over.start, 0)
        before = None if over.end is None else max(over.end, 0)
        return _Reach(before, behind, None if before is None or behind is None else before + behind)

    def ranges(self, place: int, count: int) -> tuple[int, int, int, int]:
        """Return from where to where, of so many rows around a place, they are laid out, and are wanted."""
        low = 0 if self.around is None else max(place - self.around, 0)
        high = count if self.around is None else min(place + self.around + 1, count)
        first = 0 if self.before is None else max(place - self.before, 0)
        last = count if self.behind is None else min(place + self.behind + 1, count)
        return low, high, first, last


def affected_ranges(before: Ints, keys: Ints, changed: Ints, adds: Mask, over: OverSpec) -> Iterator[Surrounded]:
    """Yield changes with what is around them, as it is when their turn comes.

    Args:
        before: the rows that are there first, ascending: rows are numbered in order, those of a partition together.
        keys: of each row its partition.
        changed: the row that each change is about.
        adds: which of the changes are rows that come.
        over: the OVER.
    """
    reach = _Reach.of(over)
    there: dict[int, list[int]] = {}
    starts = np.flatnonzero(np.append(True, keys[before][1:] != keys[before][:-1])) if len(before) else before
    for rows in np.split(before, starts[1:]) if len(before) else ():
        there[int(keys[rows[0]])] = rows.tolist()
    laid, about, first = list[int](), list[tuple[int, int, int, int]](), 0
    for number, (row, key, comes) in enumerate(
        zip(changed.tolist(), keys[changed].tolist(), adds.tolist(), strict=True), 1
    ):
        mine = there.setdefault(key, [])
        place = bisect_left(mine, row)
        if comes:
            mine.insert(place, row)
        low, high, wanted, end = reach.ranges(place, len(mine))
        laid += mine[low:high]
        about.append((high - low, place - low, wanted - low, end - low))
        if not comes:
            del mine[place]
        if len(laid) >= _AT_ONCE or number == len(changed):
            yield _surrounded(first, number, laid, about)
            laid, about, first = [], [], number


def _surrounded(first: int, last: int, laid: list[int], about: list[tuple[int, int, int, int]]) -> Surrounded:
    sizes, places, wanted, ends = np.array(about, np.int64).T
    change = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(change)) - (np.cumsum(sizes) - sizes)[change]
    is_wanted = (place >= wanted[change]) & (place < ends[change])
    return Surrounded(first, last, np.array(laid, np.int64), change, place == places[change], is_wanted)
