"""OVER by columns that are no time: a row that comes in somewhere changes those behind it, which is told of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.columns.order import sorted_rows
from millstream.sql.columns.rows import Ints, KeyedRows, equal_values
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.base import KeyedBatchOperator
from millstream.sql.operators.over_batch import Partitions
from millstream.sql.plan.nodes import OverSpec

_COUNTS = frozenset(["ROW_NUMBER", "RANK", "DENSE_RANK"])


def streamed(over: OverSpec) -> OverSpec:
    """Return an OVER of a stream as Flink takes it: all ranks count the rows of the frame."""
    calls = tuple(AggregateCall("COUNT", (), c.type) if c.function in _COUNTS else c for c in over.calls)
    return replace(over, calls=calls)


class ColumnOverOperator(KeyedBatchOperator):
    """The input's columns, then the aggregates of the rows of its partition up to each row."""

    def __init__(self, over: OverSpec, kinds: Sequence[pa.DataType], ttl: int = 0) -> None:
        """Make one.

        Args:
            over: the partition, the order and the aggregates; frames begin with the partition and end with the row.
            kinds: the Arrow types of the input's columns.
            ttl: how long a partition lives that nothing comes for, in milliseconds; 0 for ever.
        """
        self.over = over
        self.ttl = ttl
        self.calls = over.calls
        self.kinds = list(kinds)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        clock = setup.clock if self.ttl else None
        rows = KeyedRows(self.kinds, self.over.partition, clock=clock)
        self._rows: KeyedRows = self.keeps("rows", rows)

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows = self._rows
        if self.ttl:
            rows.expire(self.setup.clock() - self.ttl)
        rows.compact()
        keys = rows.find_or_add([batch.columns[k] for k in self.over.partition], len(batch))
        if self.ttl:
            # A partition lives and goes as one.
            rows.changed(rows.pairs(np.unique(keys))[1])
        known: dict[int, _Ordered] = {}
        for place, (key, kind) in enumerate(zip(keys.tolist(), batch.all_kinds().tolist(), strict=True)):
            mine = known.get(key)
            if mine is None:
                mine = known[key] = self._ordered(key)
            one = Batch(batch.slice(place, place + 1).columns, None, 1)
            if kind in (INSERT, UPDATE_AFTER):
                number = rows.add(keys[place : place + 1], one.columns)
                yield mine.with_row(one, int(number[0]), kind)
                continue
            at = mine.find(one)
            if at is not None:
                rows.remove(mine.numbers[at : at + 1])
                yield mine.without_row(at)

    def _ordered(self, key: int) -> _Ordered:
        _, there = self._rows.pairs(np.array([key]))
        columns = [self._rows.take(i, there) for i in range(len(self.kinds))]
        order = sorted_rows(columns, self.over.order, len(there))
        return _Ordered(Batch(columns, None, len(there)).take(order), there[order], self.over)


class _Ordered:
    """The rows of a partition in order, with their aggregates."""

    def __init__(self, rows: Batch, numbers: Ints, over: OverSpec) -> None:
        self.rows = rows
        self.numbers = numbers
        self._over = over
        self._results = self._told()

    def _told(self) -> Batch:
        if not len(self.rows):
            return Batch([], None, 0)
        return Batch(Partitions(self.rows, np.zeros(len(self.rows), np.int64), self._over).results())

    def find(self, row: Batch) -> int | None:
        """Return the place of the last row that is equal to one."""
        equal = np.ones(len(self.rows), np.bool_)
        for column, value in zip(self.rows.columns, row.columns, strict=True):
            equal &= equal_values(column, value.take(pa.array(np.zeros(len(self.rows), np.int64))))
        found = np.flatnonzero(equal)
        return int(found[-1]) if len(found) else None

    def with_row(self, row: Batch, number: int, kind: int) -> Batch:
        """Add a row behind those that are equal in order; return what changes."""
        before, count = self._results, len(self.rows)
        both = Batch.concatenated([self.rows, row]) if count else row
        order = sorted_rows(both.columns, self._over.order, count + 1)
        self.rows, self.numbers = both.take(order), np.append(self.numbers, number)[order]
        self._results = self._told()
        place = int(np.flatnonzero(order == count)[0])
        old = np.insert(np.arange(count), place, -1)
        return self._changes(self.rows, old, before, np.arange(count + 1), self._results, place, kind)

    def without_row(self, place: int) -> Batch:
        """Remove a row; return what changes."""
        before, rows, count = self._results, self.rows, len(self.rows)
        left = np.delete(np.arange(count), place)
        self.rows, self.numbers = rows.take(left), self.numbers[left]
        self._results = self._told()
        new = np.insert(np.arange(count - 1), place, -1)
        return self._changes(rows, np.arange(count), before, new, self._results, place, DELETE)

    def _changes(self, rows: Batch, old: Ints, before: Batch, new: Ints, after: Batch, place: int, kind: int) -> Batch:
        """Return what is said of rows whose aggregates were at some places before and are at others after."""
        there = (old >= 0) & (new >= 0)
        differs = np.zeros(len(rows), np.bool_)
        for one, other in zip(before.columns, after.columns, strict=False):
            a, b = one.take(pa.array(old[there])), other.take(pa.array(new[there]))
            differs[there] |= ~equal_values(a, b)
        said = differs.astype(np.int64) * 2
        said[place] = 1
        at = np.repeat(np.arange(len(rows)), said)
        second = np.append(False, at[1:] == at[:-1])
        kinds = np.where(second, UPDATE_AFTER, UPDATE_BEFORE)
        kinds[at == place] = kind
        is_old = (kinds == UPDATE_BEFORE) | (kinds == DELETE)
        is_old[at == place] = kind == DELETE
        found = [c.take(pa.array(at)) for c in rows.columns]
        width = len(self._over.calls)
        for i in range(width):
            parts = [b.columns[i] for b in (before, after) if len(b)]
            whole = pa.concat_arrays(parts)
            shift = len(before)
            found.append(whole.take(pa.array(np.where(is_old, old[at], new[at] + shift))))
        return Batch(found, kinds.astype(np.int8) if kinds.any() else None, len(at))
