"""Rows of a batch sorted by key, and running computations over the rows of each key."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.sql.columns.index import KeyIds
from millstream.sql.columns.keys import stable_order
from millstream.sql.columns.numpy_arrays import Ints, Mask, NumpyColumn, Valid

# Longer segments are scanned one by one, shorter ones together, row by row.
_LONG = 48


class Segments:
    """Rows sorted by key, split where a key begins, or begins again after its deletion.

    Attributes:
        order: the rows; everything below is in this order.
        starts, ends: the first and the last position of each segment.
        key_ids: the key id of each segment's key.
        fresh: whether a segment begins empty, not with the state of its key id.
        signs: 1 for an added row and -1 for a retracted one; None if all are added.
    """

    def __init__(self, order: Ints, starts: Ints, key_ids: KeyIds, fresh: Mask, signs: Ints | None) -> None:
        self.order = order
        self.starts = starts
        self.key_ids = key_ids
        self.fresh = fresh
        self.signs = signs
        self.count = len(starts)
        self.rows = len(order)
        self.sizes = np.diff(starts, append=self.rows)
        self.ends = starts + self.sizes - 1

    @staticmethod
    def of(key_ids: KeyIds, first_new: int, bound: int, signs: Ints | None) -> Segments:
        """Return the segments of rows; each begins with the state of its key id unless the key id is new.

        Args:
            key_ids: the key id of each row.
            first_new: the first new key id.
            bound: an exclusive upper bound of key ids.
            signs: 1 or -1 for each row; None if all are added.
        """
        order = stable_order(key_ids, bound)
        in_order = key_ids[order]
        starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1])) if len(key_ids) else order
        of_segment = in_order[starts]
        return Segments(order, starts, of_segment, of_segment >= first_new, None if signs is None else signs[order])

    @cached_property
    def of_row(self) -> Ints:
        """The segment of each row."""
        return np.repeat(np.arange(self.count), self.sizes)

    @cached_property
    def is_start(self) -> Mask:
        """Whether a row starts a segment."""
        is_last = np.zeros(self.rows, np.bool_)
        is_last[self.starts] = True
        return is_last

    @cached_property
    def before(self) -> Ints:
        """Index of the value before each row: among the rows' values, followed by the segments' initial values."""
        positions = np.arange(-1, self.rows - 1)
        positions[self.starts] = self.rows + np.arange(self.count)
        return positions

    @cached_property
    def last(self) -> Mask:
        """Whether a segment is the last of its key in this batch."""
        return np.append(self.key_ids[1:] != self.key_ids[:-1], True)[: self.count]

    def split_after(self, cut: Mask) -> Segments:
        """Return segments that also end after some rows; the next segment begins empty."""
        inner = np.flatnonzero(cut) + 1
        inner = inner[inner < self.rows]
        inner = inner[~self.is_start[inner]]
        if not len(inner):
            return self
        starts = np.concatenate([self.starts, inner])
        order = np.argsort(starts, kind="stable")
        key_ids = np.concatenate([self.key_ids, self.key_ids[self.of_row[inner]]])
        fresh = np.concatenate([self.fresh, np.ones(len(inner), np.bool_)])
        return Segments(self.order, starts[order], key_ids[order], fresh[order], self.signs)

    def begins(self, column: NumpyColumn, initial: Value) -> NumpyColumn:
        """Return the initial value of each segment from a state column."""
        values = column[self.key_ids]
        if self.fresh.any():
            values[self.fresh] = initial
        return values

    def leave(self, column: NumpyColumn, values: NumpyColumn) -> None:
        """Store the last value of each key in a state column."""
        last = self.last
        column[self.key_ids[last]] = values[self.ends[last]]

    def sums(self, deltas: NumpyColumn, begins: NumpyColumn) -> NumpyColumn:
        """Return running sums: exact for integers, added in row order for floats."""
        if deltas.dtype.kind == "f":
            return self.scan(np.add, deltas, begins)
        if deltas.dtype != object:
            deltas = deltas.astype(np.int64, copy=False)
        # One cumulative sum over all rows: a segment's first row adds its initial value less the sum before it.
        steps = deltas.copy()
        steps[self.starts] += begins
        steps[self.starts[1:]] -= begins[:-1] + np.add.reduceat(deltas, self.starts)[:-1]
        return np.cumsum(steps)

    def scan(self, add: np.ufunc, values: NumpyColumn, begins: NumpyColumn) -> NumpyColumn:
        """Return the running result of an operation applied value by value."""
        out = np.empty(self.rows, np.result_type(values, begins))
        long = np.flatnonzero(self.sizes > _LONG)
        for start, size, begin in zip(self.starts[long].tolist(), self.sizes[long].tolist(), begins[long], strict=True):
            run = np.concatenate([[begin], values[start : start + size]])
            out[start : start + size] = add.accumulate(run)[1:]
        short = np.flatnonzero(self.sizes <= _LONG)
        positions, current = self.starts[short], begins[short]
        left = self.sizes[short]
        while len(positions):
            current = add(current, values[positions])
            out[positions] = current
            left = left - 1
            on = left > 0
            positions, current, left = positions[on] + 1, current[on], left[on]
        return out


class Running(Protocol):
    """Results of an aggregate after each row, followed by those before the first row of each segment."""

    def differs(self, before: Ints, after: Ints) -> Mask:
        """Return whether the results at some positions differ from those at others."""

    def take(self, positions: Ints) -> pa.Array:
        """Return the results at positions."""


class RunningNumbers:
    """Results in numpy arrays."""

    def __init__(
        self,
        values: NumpyColumn,
        begins: NumpyColumn,
        valid: Valid,
        valid_begins: Valid,
        column: Callable[[NumpyColumn, Valid], pa.Array],
    ) -> None:
        self._values = np.concatenate([values, begins])
        self._valid = None
        if valid is not None and valid_begins is not None:
            self._valid = np.concatenate([valid, valid_begins])
        self._column = column

    def differs(self, before: Ints, after: Ints) -> Mask:
        differs: Mask = self._values[after] != self._values[before]
        if self._valid is None:
            return differs
        now, then = self._valid[after], self._valid[before]
        changed: Mask = (now != then) | (now & then & differs)
        return changed

    def take(self, positions: Ints) -> pa.Array:
        return self._column(self._values[positions], None if self._valid is None else self._valid[positions])


class RunningObjects:
    """Results that are Python objects."""

    def __init__(self, values: list[Value], column: Callable[[list[Value]], pa.Array]) -> None:
        self._values = values
        self._column = column

    def differs(self, before: Ints, after: Ints) -> Mask:
        values, pairs = self._values, zip(before.tolist(), after.tolist(), strict=True)
        return np.fromiter((values[a] != values[b] for b, a in pairs), np.bool_, len(after))

    def take(self, positions: Ints) -> pa.Array:
        values = self._values
        return self._column([values[i] for i in positions.tolist()])
