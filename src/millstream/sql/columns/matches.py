"""Vectorized matching of rows with equal keys, without materializing all pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.sql.columns.keys import grouped, stable_order
from millstream.sql.columns.numpy_arrays import valid_of

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def can_match(columns: Sequence[pa.Array], null_safe: Sequence[bool], rows: int) -> Mask:
    """Return which rows can match: those without null in their key."""
    found = np.ones(rows, np.bool_)
    for column, safe in zip(columns, null_safe, strict=True):
        valid = None if safe else valid_of(column)
        if valid is not None:
            found &= valid
    return found


class Matches:
    """Matching rows by equal keys.

    Attributes:
        many: the number of matches of each probe row.
    """

    def __init__(
        self,
        mine: Sequence[pa.Array],
        theirs: Sequence[pa.Array],
        null_safe: Sequence[bool],
        sizes: tuple[int, int],
    ) -> None:
        """Find the matches.

        Args:
            mine: the key columns of the probe rows.
            theirs: the key columns of the other rows.
            null_safe: for each pair of columns whether nulls are equal.
            sizes: the number of rows of both.
        """
        both = [
            pa.concat_arrays([a, b if b.type == a.type else b.cast(a.type)]) for a, b in zip(mine, theirs, strict=True)
        ]
        by_key = grouped(both, sum(sizes))
        codes, others = by_key.codes[: sizes[0]], by_key.codes[sizes[0] :]
        able = can_match(theirs, null_safe, sizes[1])
        self._rows = stable_order(others, by_key.count) if able.all() else _some(others, able, by_key.count)
        counts = np.bincount(others[self._rows], minlength=by_key.count)
        self.many = counts.take(codes) if by_key.count else np.zeros(sizes[0], np.int64)
        asking = can_match(mine, null_safe, sizes[0])
        if not asking.all():
            self.many = np.where(asking, self.many, 0)
        self._begins = (np.cumsum(counts) - counts).take(codes) if by_key.count else self.many
        self._ends = np.cumsum(self.many)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def pairs(self, most: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield at most `most` pairs at a time, in order of the probe rows, then of the others."""
        total = len(self)
        for start in range(0, total, most):
            stop = min(start + most, total)
            first, last = np.searchsorted(self._ends, [start, stop - 1], side="right")
            many = self.many[first : last + 1]
            places = np.repeat(np.arange(first, last + 1), many)
            number = np.arange(len(places)) - np.repeat(np.cumsum(many) - many, many)
            skipped = start - int(self._ends[first] - self.many[first])
            part = slice(skipped, skipped + stop - start)
            places, number = places[part], number[part]
            yield places, self._rows[self._begins[places] + number]


def _some(codes: Ints, able: Mask, bound: int) -> Ints:
    rows = np.flatnonzero(able)
    return rows[stable_order(codes[rows], bound)]
