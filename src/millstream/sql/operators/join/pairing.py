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
        match_counts: the number of matches of each probe row.
    """

    def __init__(
        self,
        probe: Sequence[pa.Array],
        build: Sequence[pa.Array],
        null_safe: Sequence[bool],
        sizes: tuple[int, int],
    ) -> None:
        """Find the matches.

        Args:
            probe: the key columns of the probe rows.
            build: the key columns of the other rows.
            null_safe: for each pair of columns whether nulls are equal.
            sizes: the number of rows of both.
        """
        both = [
            pa.concat_arrays([a, b if b.type == a.type else b.cast(a.type)]) for a, b in zip(probe, build, strict=True)
        ]
        by_key = grouped(both, sum(sizes))
        codes, others = by_key.codes[: sizes[0]], by_key.codes[sizes[0] :]
        can_join = can_match(build, null_safe, sizes[1])
        self._rows = (
            stable_order(others, by_key.count) if can_join.all() else _sorted_by_code(others, can_join, by_key.count)
        )
        counts = np.bincount(others[self._rows], minlength=by_key.count)
        self.match_counts = counts.take(codes) if by_key.count else np.zeros(sizes[0], np.int64)
        can_probe = can_match(probe, null_safe, sizes[0])
        if not can_probe.all():
            self.match_counts = np.where(can_probe, self.match_counts, 0)
        self._begins = (np.cumsum(counts) - counts).take(codes) if by_key.count else self.match_counts
        self._ends = np.cumsum(self.match_counts)

    def __len__(self) -> int:
        """Return the number of pairs."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def pairs(self, max_rows: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield at most `max_rows` pairs at a time, in order of the probe rows, then of the others."""
        total = len(self)
        for start in range(0, total, max_rows):
            stop = min(start + max_rows, total)
            first, last = np.searchsorted(self._ends, [start, stop - 1], side="right")
            match_counts = self.match_counts[first : last + 1]
            probe_rows = np.repeat(np.arange(first, last + 1), match_counts)
            number = np.arange(len(probe_rows)) - np.repeat(np.cumsum(match_counts) - match_counts, match_counts)
            skipped = start - int(self._ends[first] - self.match_counts[first])
            part = slice(skipped, skipped + stop - start)
            probe_rows, number = probe_rows[part], number[part]
            yield probe_rows, self._rows[self._begins[probe_rows] + number]


def _sorted_by_code(codes: Ints, can_join: Mask, bound: int) -> Ints:
    rows = np.flatnonzero(can_join)
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
    right_rows = np.flatnonzero(can_match(right, null_safe, sizes[1]))
    right_rows = right_rows[stable_order(right_codes[right_rows], by_key.count)]
    counts = np.bincount(right_codes[right_rows], minlength=by_key.count)
    begins = np.cumsum(counts) - counts
    match_counts = np.where(left_codes < 0, 0, counts[left_codes]) if by_key.count else np.zeros(sizes[0], np.int64)
    left_rows = np.repeat(np.arange(sizes[0]), match_counts)
    number = np.arange(len(left_rows)) - np.repeat(np.cumsum(match_counts) - match_counts, match_counts)
    return left_rows, right_rows[begins[left_codes[left_rows]] + number]


def side_by_side(left: Batch, left_rows: Ints, right: Batch, right_rows: Ints) -> Batch:
    """Return pairs as rows; position -1 gives nulls."""
    columns = [c.take(_nullable(left_rows)) for c in left.columns] + [
        c.take(_nullable(right_rows)) for c in right.columns
    ]
    return Batch(columns, None, len(left_rows))


def joined(
    left: Batch,
    right: Batch,
    keys: tuple[Sequence[int], Sequence[int]],
    null_safe: Sequence[bool],
    kind: JoinKind,
    holds: Holds | None,
) -> Iterator[Batch]:
    """Yield the join of two batches of inserted rows."""
    left_keys, right_keys = [left.columns[k] for k in keys[0]], [right.columns[k] for k in keys[1]]
    left_rows, right_rows = equal_keys(left_keys, right_keys, null_safe, (len(left), len(right)))
    if holds is not None and len(left_rows):
        parts = [slice(i, i + _AT_ONCE) for i in range(0, len(left_rows), _AT_ONCE)]
        keep = np.concatenate([holds(side_by_side(left, left_rows[p], right, right_rows[p])) for p in parts])
        left_rows, right_rows = left_rows[keep], right_rows[keep]
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        has_match = np.bincount(left_rows, minlength=len(left)) > 0
        yield left.filter(has_match != (kind is JoinKind.ANTI))
        return
    if kind in (JoinKind.LEFT, JoinKind.FULL):
        unmatched = np.flatnonzero(np.bincount(left_rows, minlength=len(left)) == 0)
        order = np.argsort(np.concatenate([left_rows, unmatched]), kind="stable")
        right_rows = np.concatenate([right_rows, np.full(len(unmatched), -1)])[order]
        left_rows = np.concatenate([left_rows, unmatched])[order]
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        matched = right_rows[right_rows >= 0]
        unmatched = np.flatnonzero(np.bincount(matched, minlength=len(right)) == 0)
        left_rows = np.concatenate([left_rows, np.full(len(unmatched), -1)])
        right_rows = np.concatenate([right_rows, unmatched])
    for start in range(0, len(left_rows), _AT_ONCE):
        yield side_by_side(left, left_rows[start : start + _AT_ONCE], right, right_rows[start : start + _AT_ONCE])


def _nullable(rows: Ints) -> pa.Array:
    missing = rows < 0
    return pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
