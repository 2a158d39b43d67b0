"""Vectorized matching of rows with equal keys, without materializing all pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keys import grouped, stable_order
from millstream.sql.columns.numpy_arrays import Ints, Mask, valid_of
from millstream.sql.plan.specs import JoinKind


def can_match(columns: Sequence[pa.Array], null_safe: Sequence[bool], rows: int) -> Mask:
    """Return which rows can match: those without null in their key."""
    matches = np.ones(rows, np.bool_)
    for column, safe in zip(columns, null_safe, strict=True):
        valid = None if safe else valid_of(column)
        if valid is not None:
            matches &= valid
    return matches


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

    def pairs(self, max_rows: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield at most `most` pairs at a time, in order of the probe rows, then of the others."""
        total = len(self)
        for start in range(0, total, max_rows):
            stop = min(start + max_rows, total)
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


Holds = Callable[[Batch], Mask]
# Maximum pairs processed at once.
_AT_ONCE = 1 << 18


def equal_keys(
    left: Sequence[pa.Array], right: Sequence[pa.Array], null_safe: Sequence[bool], sizes: tuple[int, int]
) -> tuple[Ints, Ints]:
    """Return the pairs of rows with equal keys, in order of the left, then the right rows."""
    both = [pa.concat_arrays([a, b]) for a, b in zip(left, right, strict=True)]
    by_key = grouped(both, sum(sizes))
    left_codes, right_codes = by_key.codes[: sizes[0]], by_key.codes[sizes[0] :]
    left_codes = np.where(can_match(left, null_safe, sizes[0]), left_codes, -1)
    theirs = np.flatnonzero(can_match(right, null_safe, sizes[1]))
    theirs = theirs[stable_order(right_codes[theirs], by_key.count)]
    counts = np.bincount(right_codes[theirs], minlength=by_key.count)
    begins = np.cumsum(counts) - counts
    many = np.where(left_codes < 0, 0, counts[left_codes]) if by_key.count else np.zeros(sizes[0], np.int64)
    places = np.repeat(np.arange(sizes[0]), many)
    number = np.arange(len(places)) - np.repeat(np.cumsum(many) - many, many)
    return places, theirs[begins[left_codes[places]] + number]


def side_by_side(left: Batch, places: Ints, right: Batch, rows: Ints) -> Batch:
    """Return pairs as rows; position -1 gives nulls."""
    columns = [c.take(_nullable(places)) for c in left.columns] + [c.take(_nullable(rows)) for c in right.columns]
    return Batch(columns, None, len(places))


def joined(
    left: Batch,
    right: Batch,
    keys: tuple[Sequence[int], Sequence[int]],
    null_safe: Sequence[bool],
    kind: JoinKind,
    holds: Holds | None,
) -> Iterator[Batch]:
    """Yield the join of two batches of inserted rows."""
    mine, theirs = [left.columns[k] for k in keys[0]], [right.columns[k] for k in keys[1]]
    places, rows = equal_keys(mine, theirs, null_safe, (len(left), len(right)))
    if holds is not None and len(places):
        parts = [slice(i, i + _AT_ONCE) for i in range(0, len(places), _AT_ONCE)]
        keep = np.concatenate([holds(side_by_side(left, places[p], right, rows[p])) for p in parts])
        places, rows = places[keep], rows[keep]
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        has = np.bincount(places, minlength=len(left)) > 0
        yield left.filter(has != (kind is JoinKind.ANTI))
        return
    if kind in (JoinKind.LEFT, JoinKind.FULL):
        alone = np.flatnonzero(np.bincount(places, minlength=len(left)) == 0)
        order = np.argsort(np.concatenate([places, alone]), kind="stable")
        rows = np.concatenate([rows, np.full(len(alone), -1)])[order]
        places = np.concatenate([places, alone])[order]
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        there = rows[rows >= 0]
        alone = np.flatnonzero(np.bincount(there, minlength=len(right)) == 0)
        places = np.concatenate([places, np.full(len(alone), -1)])
        rows = np.concatenate([rows, alone])
    for start in range(0, len(places), _AT_ONCE):
        yield side_by_side(left, places[start : start + _AT_ONCE], right, rows[start : start + _AT_ONCE])


def _nullable(rows: Ints) -> pa.Array:
    missing = rows < 0
    return pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
