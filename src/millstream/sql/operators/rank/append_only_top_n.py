"""Vectorized Top-N on append-only input, with the same output as `TopNOperator`.

A new row shifts the rows after it. Partitions are independent, so the first rows of all partitions in a batch are
inserted at once, then the second ones, and so on. Of a partition with many rows few can enter the top N.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.numpy_arrays import Ints, Mask
from millstream.sql.columns.row_order import Order, sorted_rows
from millstream.sql.operators.base import KeyedBatchOperator

# Maximum rank: with more, the table of partitions would be wide and mostly empty.
MAX_RANKS = 64
_NOBODY = np.iinfo(np.int64).max


class AppendOnlyTopNOperator(KeyedBatchOperator):
    """Stores the first rows of each partition."""

    def __init__(
        self,
        partition: Sequence[int],
        order: Order,
        kinds: Sequence[pa.DataType],
        first: int,
        last: int,
        shows_rank: bool,
        *,
        pairs: bool = True,
    ) -> None:
        """Create the operator; the arguments are those of `TopNOperator`."""
        self.partition = tuple(partition)
        self.order = tuple(order)
        self.kinds = list(kinds)
        self.first = first
        self.last = last
        self.shows_rank = shows_rank
        self.pairs = pairs

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        rows = KeyedRows(self.kinds, self.partition, marked=False)
        self._rows: KeyedRows = self.state_table("rows", rows)

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows = self._rows
        rows.compact()
        keys = rows.find_or_add([batch.columns[k] for k in self.partition], len(batch))
        touched, partition = np.unique(keys, return_inverse=True)
        partition_of_stored, stored = rows.pairs(touched)
        ranks = self._ranks(batch, stored)
        tables = _Tables(len(touched), self.last, partition_of_stored, ranks[: len(stored)])
        changes = _Changes(self.last)
        self._insert_rows(tables, partition, ranks[len(stored) :], len(stored), changes)
        out = self._batch(batch, stored, changes)
        stays = np.zeros(len(ranks), np.bool_)
        stays[tables.rows[tables.rows >= 0]] = True
        rows.remove(stored[~stays[: len(stored)]])
        new = np.flatnonzero(stays[len(stored) :])
        rows.add(keys[new], batch.take(new).columns)
        return (out,)

    def _ranks(self, batch: Batch, stored: Ints) -> Ints:
        """Return the order positions of stored rows, then of the batch's; ties keep the earlier row."""
        columns = list(batch.columns)
        for column, _, _ in self.order:
            columns[column] = pa.concat_arrays([self._rows.take(column, stored), columns[column]])
        count = len(stored) + len(batch)
        ranks = np.empty(count, np.int64)
        ranks[sorted_rows(columns, self.order, count)] = np.arange(count)
        return ranks

    def _insert_rows(self, tables: _Tables, partition: Ints, ranks: Ints, offset: int, changes: _Changes) -> None:
        """Insert rows of the batch; their numbers start at `offset`."""
        left = np.argsort(partition, kind="stable")
        while True:
            left = left[ranks[left] < tables.ranks[partition[left], -1]]
            if not len(left):
                return
            own = partition[left]
            is_first = np.append(True, own[1:] != own[:-1])
            rows = left[is_first]
            left = left[~is_first]
            before, count, slot_in_table = tables.insert(partition[rows], ranks[rows], rows + offset)
            if self.shows_rank or self.first > 1:
                after = tables.rows[partition[rows]]
                changes.moved(
                    rows, before, after, count, np.maximum(slot_in_table, self.first - 1), self.first, self.pairs
                )
            else:
                changes.replaced(rows, before[:, -1], count == self.last, rows + offset)

    def _batch(self, batch: Batch, stored: Ints, changes: _Changes) -> Batch:
        rows, kinds, places = changes.in_order()
        used = rows[rows < len(stored)]
        # Only rows in the output are looked up.
        needed, of_stored = np.unique(used, return_inverse=True)
        positions = np.empty(len(rows), np.int64)
        positions[rows < len(stored)] = of_stored
        positions[rows >= len(stored)] = rows[rows >= len(stored)] - len(stored) + len(needed)
        whole = Batch.concatenated([self._rows.batch(stored[needed]), batch]) if len(needed) else batch
        columns = [column.take(pa.array(positions)) for column in whole.columns]
        if self.shows_rank:
            columns.append(pa.array(places))
        return Batch(columns, kinds if kinds.any() else None, len(rows))


class _Tables:
    """The rows of partitions in order, one line per partition.

    Attributes:
        ranks: the order position of each row.
        rows: the row numbers, -1 for none.
    """

    def __init__(self, partitions: int, places: int, partition_of: Ints, ranks: Ints) -> None:
        """Fill the table with the stored rows, numbered from 0."""
        self.ranks = np.full((partitions, places), _NOBODY, np.int64)
        self.rows = np.full((partitions, places), -1, np.int64)
        order = np.lexsort((ranks, partition_of))
        owners = partition_of[order]
        sizes = np.bincount(owners, minlength=partitions)
        slot_in_table = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.ranks[owners, slot_in_table] = ranks[order]
        self.rows[owners, slot_in_table] = order

    def insert(self, partitions: Ints, ranks: Ints, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Insert one row into each given partition; return its previous rows, their number, and the insert position."""
        there, ranks_there = self.rows[partitions], self.ranks[partitions]
        slot_in_table = (ranks_there < ranks[:, None]).sum(axis=1)
        columns = np.arange(self.rows.shape[1])
        # Rows after the inserted one shift by one.
        source = columns - (columns > slot_in_table[:, None])
        lines = np.arange(len(partitions))
        for table, values, new in ((self.rows, there, rows), (self.ranks, ranks_there, ranks)):
            moved = np.take_along_axis(values, source, axis=1)
            moved[lines, slot_in_table] = new
            table[partitions] = moved
        return there, (there >= 0).sum(axis=1), slot_in_table


class _Changes:
    """Changes collected over several rounds."""

    def __init__(self, places: int) -> None:
        self._places = places
        # (arrival, row, row kind, rank)
        self._parts: list[tuple[Ints, Ints, Ints, Ints]] = []

    def _add(self, arrival: Ints, step: Ints, rows: Ints, kind: int, slot_in_table: Ints) -> None:
        when = arrival * (2 * self._places + 2) + step
        self._parts.append((when, rows, np.full(len(rows), kind, np.int64), slot_in_table))

    def moved(
        self, arrival: Ints, before: Ints, after: Ints, count: Ints, start: Ints, first: int, pairs: bool
    ) -> None:
        """Record inserted rows and the shift of those after them."""
        columns = np.arange(self._places)
        lines, positions = np.nonzero((columns >= start[:, None]) & (columns < count[:, None]))
        if pairs:
            self._add(arrival[lines], 2 * positions, before[lines, positions], UPDATE_BEFORE, positions + 1)
        self._add(arrival[lines], 2 * positions + 1, after[lines, positions], UPDATE_AFTER, positions + 1)
        grows = np.flatnonzero((count < self._places) & (count >= first - 1))
        last = count[grows]
        self._add(arrival[grows], 2 * last, after[grows, last], INSERT, last + 1)

    def replaced(self, arrival: Ints, replaced_rows: Ints, is_full: Mask, come: Ints) -> None:
        """Record inserted rows and, in full partitions, the rows they evict."""
        full = np.flatnonzero(is_full)
        nowhere = np.zeros(len(arrival), np.int64)
        self._add(arrival[full], nowhere[full], replaced_rows[full], DELETE, nowhere[full])
        self._add(arrival, nowhere + 1, come, INSERT, nowhere)

    def in_order(self) -> tuple[Ints, NDArray[np.int8], Ints]:
        """Return the rows, their kinds and their ranks, in order of arrival."""
        if not self._parts:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing.astype(np.int8), nothing
        when, rows, kinds, places = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.argsort(when, kind="stable")
        return rows[order], kinds[order].astype(np.int8), places[order]
