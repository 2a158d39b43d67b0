"""Which rows of two batches have equal keys: found by vectors, and told pair by pair without listing all of them."""

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
    """Tell which rows can have partners: those without a null in their key."""
    found = np.ones(rows, np.bool_)
    for column, safe in zip(columns, null_safe, strict=True):
        valid = None if safe else valid_of(column)
        if valid is not None:
            found &= valid
    return found


class Matches:
    """The partners of rows, by equal keys.

    Attributes:
        many: how many partners each row has.
    """

    def __init__(
        self,
        mine: Sequence[pa.Array],
        theirs: Sequence[pa.Array],
        null_safe: Sequence[bool],
        sizes: tuple[int, int],
    ) -> None:
        """Find them.

        Args:
            mine: the key columns of the rows that ask.
            theirs: those of the rows among which partners are.
            null_safe: for each pair of columns whether nulls are equal.
            sizes: how many rows there are of both.
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
        """Return how many pairs there are."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def pairs(self, most: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs of rows, so many at most at once, in the order of those that ask, then of the others."""
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
