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
        partition_of_stored, kept = rows.pairs(touched)
        ranks = self._ranks(batch, kept)
        tables = _Tables(len(touched), self.last, partition_of_stored, ranks[: len(kept)])
        changes = _Changes(self.last)
        self._insert_rows(tables, partition, ranks[len(kept) :], len(kept), changes)
        out = self._batch(batch, kept, changes)
        stays = np.zeros(len(ranks), np.bool_)
        stays[tables.rows[tables.rows >= 0]] = True
        rows.remove(kept[~stays[: len(kept)]])
        new = np.flatnonzero(stays[len(kept) :])
        rows.add(keys[new], batch.take(new).columns)
        return (out,)

    def _ranks(self, batch: Batch, kept: Ints) -> Ints:
        """Return the order positions of stored rows, then of the batch's; ties keep the earlier row."""
        columns = list(batch.columns)
        for column, _, _ in self.order:
            columns[column] = pa.concat_arrays([self._rows.take(column, kept), columns[column]])
        count = len(kept) + len(batch)
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
            before, count, place = tables.insert(partition[rows], ranks[rows], rows + offset)
            if self.shows_rank or self.first > 1:
                after = tables.rows[partition[rows]]
                changes.moved(rows, before, after, count, np.maximum(place, self.first - 1), self.first, self.pairs)
            else:
                changes.replaced(rows, before[:, -1], count == self.last, rows + offset)

    def _batch(self, batch: Batch, kept: Ints, changes: _Changes) -> Batch:
        rows, kinds, places = changes.in_order()
        used = rows[rows < len(kept)]
        # Only rows in the output are looked up.
        asked, of_stored = np.unique(used, return_inverse=True)
        at = np.empty(len(rows), np.int64)
        at[rows < len(kept)] = of_stored
        at[rows >= len(kept)] = rows[rows >= len(kept)] - len(kept) + len(asked)
        whole = Batch.concatenated([self._rows.batch(kept[asked]), batch]) if len(asked) else batch
        columns = [column.take(pa.array(at)) for column in whole.columns]
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
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.ranks[owners, place] = ranks[order]
        self.rows[owners, place] = order

    def insert(self, partitions: Ints, ranks: Ints, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Insert one row into each given partition; return its previous rows, their number, and the insert position."""
        there, ranks_there = self.rows[partitions], self.ranks[partitions]
        place = (ranks_there < ranks[:, None]).sum(axis=1)
        columns = np.arange(self.rows.shape[1])
        # Rows after the inserted one shift by one.
        source = columns - (columns > place[:, None])
        lines = np.arange(len(partitions))
        for table, values, new in ((self.rows, there, rows), (self.ranks, ranks_there, ranks)):
            moved = np.take_along_axis(values, source, axis=1)
            moved[lines, place] = new
            table[partitions] = moved
        return there, (there >= 0).sum(axis=1), place


class _Changes:
    """Changes collected over several rounds."""

    def __init__(self, places: int) -> None:
        self._places = places
        # (arrival, row, row kind, rank)
        self._parts: list[tuple[Ints, Ints, Ints, Ints]] = []

    def _add(self, arrival: Ints, step: Ints, rows: Ints, kind: int, place: Ints) -> None:
        when = arrival * (2 * self._places + 2) + step
        self._parts.append((when, rows, np.full(len(rows), kind, np.int64), place))

    def moved(
        self, arrival: Ints, before: Ints, after: Ints, count: Ints, start: Ints, first: int, pairs: bool
    ) -> None:
        """Record inserted rows and the shift of those after them."""
        columns = np.arange(self._places)
        lines, at = np.nonzero((columns >= start[:, None]) & (columns < count[:, None]))
        if pairs:
            self._add(arrival[lines], 2 * at, before[lines, at], UPDATE_BEFORE, at + 1)
        self._add(arrival[lines], 2 * at + 1, after[lines, at], UPDATE_AFTER, at + 1)
        grows = np.flatnonzero((count < self._places) & (count >= first - 1))
        last = count[grows]
        self._add(arrival[grows], 2 * last, after[grows, last], INSERT, last + 1)

    def replaced(self, arrival: Ints, gone: Ints, is_full: Mask, come: Ints) -> None:
        """Record inserted rows and, in full partitions, the rows they evict."""
        full = np.flatnonzero(is_full)
        nowhere = np.zeros(len(arrival), np.int64)
        self._add(arrival[full], nowhere[full], gone[full], DELETE, nowhere[full])
        self._add(arrival, nowhere + 1, come, INSERT, nowhere)

    def in_order(self) -> tuple[Ints, NDArray[np.int8], Ints]:
        """Return the rows, their kinds and their ranks, in order of arrival."""
        if not self._parts:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing.astype(np.int8), nothing
        when, rows, kinds, places = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.argsort(when, kind="stable")
        return rows[order], kinds[order].astype(np.int8), places[order]
