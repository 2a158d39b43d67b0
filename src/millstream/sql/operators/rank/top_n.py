"""Top-N: a range of ranks of each partition.

The operator for changelogs works row by row, like Flink's: a new row shifts those after it.

The operator for append-only input is vectorized, with the same output. Partitions are independent, so the first rows of
all partitions in a batch are inserted at once, then the second ones, and so on. Of a partition with many rows few can
enter the top N."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.aliases import Value
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.columns.index import KeyIds
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.numpy_arrays import Ints, Mask, from_python, is_number_like, plain, python_values
from millstream.sql.columns.row_order import Order, sort_key, sorted_rows
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED
from millstream.sql.operators.base import KeyedBatchOperator, split_batches

Row = tuple[Value, ...]
# (row kind, row, rank)
_Change = tuple[int, Row, int]

# State of a partition: its sorted rows, and the time of its last change.
ROWS = "rows"
STATE_COLUMNS = [StateColumn(ROWS, object, list), StateColumn(TOUCHED, np.int64)]


class TopNOperator(KeyedBatchOperator):
    """Stores the sorted rows of each partition."""

    emits_later = True

    def __init__(
        self,
        partition: Sequence[int],
        order: Order,
        kinds: Sequence[pa.DataType],
        first: int,
        last: int | None,
        shows_rank: bool,
        *,
        retracts: bool = False,
        unique: Sequence[int] | None = None,
        pairs: bool = True,
        final_only: bool = False,
        ttl: int = 0,
    ) -> None:
        """Create the operator.

        Args:
            partition: the columns to partition by.
            order: (column, descending, nulls first).
            kinds: the Arrow types of the input's columns.
            first, last: the ranks, from 1; `last` is None for all from the first.
            shows_rank: whether the rank is the last column.
            retracts: whether the input may retract rows: then all rows are stored.
            unique: the columns by which a row replaces another, if updates come without -U.
            pairs: whether an update is emitted as -U and +U, not as +U alone.
            final_only: whether only the final result is emitted.
            ttl: state TTL of a partition in milliseconds; 0 for none.
        """
        self.ttl = ttl
        self.partition = tuple(partition)
        self.order = tuple(order)
        self.kinds = list(kinds)
        self.first = first
        self.last = last
        self.shows_rank = shows_rank
        self.retracts = retracts
        self.unique = None if unique is None else tuple(unique)
        self.pairs = pairs
        self.final_only = final_only

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.partition]
        columns = KeyedColumns(kinds, STATE_COLUMNS)
        self._state: KeyedColumns = self.state_table("partitions", columns)
        self._key = sort_key(self.order)
        self._max_rank = len(self.kinds) and (self.last if self.last is not None else 1 << 62)

    def process(self, batch: Batch) -> Iterable[Batch]:
        state = self._state
        state.compact()
        if self.ttl:
            state.expire(TOUCHED, self.setup.clock() - self.ttl)
        keys = [batch.columns[k] for k in self.partition]
        of_rows, _ = state.find_or_add(keys, len(batch))
        key_ids = np.unique(of_rows)
        lists = state.column(ROWS)
        if not self.retracts and self.unique is None:
            excluded = self._excluded(batch, of_rows, key_ids)
            if excluded is not None:
                batch, of_rows = batch.filter(~excluded), of_rows[~excluded]
        rows = list(zip(*map(python_values, batch.columns), strict=True))
        changes: list[_Change] = []
        for row, kind, key_id in zip(rows, batch.all_kinds().tolist(), of_rows.tolist(), strict=True):
            stored_rows = lists[key_id]
            if kind in (INSERT, UPDATE_AFTER):
                self._add(stored_rows, row, changes)
            else:
                self._remove(stored_rows, row, changes)
        state.column(TOUCHED)[key_ids] = self.setup.clock()
        state.changed(key_ids)
        empty = np.fromiter((not lists[s] for s in key_ids.tolist()), np.bool_, len(key_ids))
        state.remove(key_ids[empty])
        return () if self.final_only else (self._batch(changes),)

    def _excluded(self, batch: Batch, of_rows: KeyIds, key_ids: KeyIds) -> Mask | None:
        """Return a mask of rows that cannot enter a full partition's top N, or None if no cheap test applies.

        Once a job has run for a while these are most rows: the vectorized test leaves few for the row-by-row path.
        """
        column, descending, _ = self.order[0] if self.order else (0, False, False)
        values = batch.columns[column]
        if not self.order or not is_number_like(values.type) or values.null_count or 4 * len(key_ids) > len(batch):
            return None
        numbers, lists = plain(values), self._state.column(ROWS)
        last, is_full = np.zeros(self._state.bound, numbers.dtype), np.zeros(self._state.bound, np.bool_)
        for key_id in key_ids.tolist():
            stored_rows = lists[key_id]
            if len(stored_rows) >= self._max_rank and stored_rows[self._max_rank - 1][column] is not None:
                last[key_id], is_full[key_id] = stored_rows[self._max_rank - 1][column], True
        last_values = last.take(of_rows)
        is_behind: Mask = numbers < last_values if descending else numbers > last_values
        if len(self.order) == 1:
            # Ties keep the earlier row.
            is_behind |= numbers == last_values
        return is_behind & is_full.take(of_rows)

    def _add(self, stored_rows: list[Row], row: Row, changes: list[_Change]) -> None:
        if self.unique is not None:
            self._replace(stored_rows, row, changes)
            return
        position = bisect_right(stored_rows, self._key(row), key=self._key)
        if position >= self._max_rank and not self.retracts:
            return
        stored_rows.insert(position, row)
        self._record_insert(stored_rows, position, changes)
        if not self.retracts and len(stored_rows) > self._max_rank:
            stored_rows.pop()

    def _record_insert(self, stored_rows: list[Row], position: int, changes: list[_Change]) -> None:
        """Record the changes of a row inserted at a position."""
        if self.final_only or position >= self._max_rank:
            return
        if self.shows_rank or self.first > 1:
            for i in range(max(position, self.first - 1), min(len(stored_rows), self._max_rank)):
                if i + 1 < len(stored_rows):
                    changes.append((UPDATE_BEFORE, stored_rows[i + 1], i + 1))
                    changes.append((UPDATE_AFTER, stored_rows[i], i + 1))
                else:
                    changes.append((INSERT, stored_rows[i], i + 1))
            return
        if len(stored_rows) > self._max_rank:
            changes.append((DELETE, stored_rows[self._max_rank], 0))
        changes.append((INSERT, stored_rows[position], 0))

    def _remove(self, stored_rows: list[Row], row: Row, changes: list[_Change]) -> None:
        position = self._find(stored_rows, row)
        if position is None:
            return
        removed = stored_rows.pop(position)
        if self.final_only or position >= self._max_rank:
            return
        if self.shows_rank or self.first > 1:
            before = removed
            for i in range(position, min(len(stored_rows) + 1, self._max_rank)):
                if i >= self.first - 1:
                    if i < len(stored_rows):
                        changes.append((UPDATE_BEFORE, before, i + 1))
                        changes.append((UPDATE_AFTER, stored_rows[i], i + 1))
                    else:
                        changes.append((DELETE, before, i + 1))
                if i < len(stored_rows):
                    before = stored_rows[i]
            return
        changes.append((DELETE, removed, 0))
        if len(stored_rows) >= self._max_rank:
            changes.append((INSERT, stored_rows[self._max_rank - 1], 0))

    def _find(self, stored_rows: list[Row], row: Row) -> int | None:
        if self.unique is not None:
            return next((i for i, r in enumerate(stored_rows) if all(r[u] == row[u] for u in self.unique)), None)
        key = self._key(row)
        for i in range(bisect_left(stored_rows, key, key=self._key), bisect_right(stored_rows, key, key=self._key)):
            if stored_rows[i] == row:
                return i
        return None

    def _replace(self, stored_rows: list[Row], row: Row, changes: list[_Change]) -> None:
        """Replace the row with the same unique key."""
        if not self.retracts:
            self._replace_upwards(stored_rows, row, changes)
            return
        before = stored_rows[: self._max_rank]
        old = self._find(stored_rows, row)
        if old is not None:
            stored_rows.pop(old)
        position = bisect_right(stored_rows, self._key(row), key=self._key)
        stored_rows.insert(position, row)
        if self.final_only:
            return
        after = stored_rows[: self._max_rank]
        if self.shows_rank or self.first > 1:
            for i in range(self.first - 1, len(after)):
                if i >= len(before):
                    changes.append((INSERT, after[i], i + 1))
                elif before[i] != after[i]:
                    changes.append((UPDATE_BEFORE, before[i], i + 1))
                    changes.append((UPDATE_AFTER, after[i], i + 1))
            return
        if old is not None and old < self._max_rank and position < self._max_rank:
            if before[old] != row:
                changes.append((UPDATE_BEFORE, before[old], 0))
                changes.append((UPDATE_AFTER, row, 0))
            return
        for removed in [r for r in before if r not in after]:
            changes.append((DELETE, removed, 0))
        for added in [r for r in after if r not in before]:
            changes.append((INSERT, added, 0))

    def _replace_upwards(self, stored_rows: list[Row], row: Row, changes: list[_Change]) -> None:
        """Replace the row with the same unique key, which never moves down."""
        old = self._find(stored_rows, row)
        if old is None:
            position = bisect_right(stored_rows, self._key(row), key=self._key)
            if position < self._max_rank:
                stored_rows.insert(position, row)
                self._record_insert(stored_rows, position, changes)
                del stored_rows[self._max_rank :]
            return
        removed = stored_rows.pop(old)
        position = (
            old if self._key(removed) == self._key(row) else bisect_right(stored_rows, self._key(row), key=self._key)
        )
        stored_rows.insert(position, row)
        if self.final_only:
            return
        if not (self.shows_rank or self.first > 1):
            changes += [(UPDATE_BEFORE, removed, 0), (UPDATE_AFTER, row, 0)]
            return
        emitted: list[_Change] = []
        for i in range(position, old):
            emitted.append((UPDATE_BEFORE, stored_rows[i + 1], i + 1))
            if i == position:
                # An updated row is retracted before it is emitted again.
                emitted.append((UPDATE_BEFORE, removed, old + 1))
            emitted.append((UPDATE_AFTER, stored_rows[i], i + 1))
        if position == old:
            emitted.append((UPDATE_BEFORE, removed, old + 1))
        emitted.append((UPDATE_AFTER, stored_rows[old], old + 1))
        changes += [c for c in emitted if c[2] >= self.first]

    def _batch(self, changes: list[_Change]) -> Batch:
        if not self.pairs:
            changes = [c for c in changes if c[0] != UPDATE_BEFORE]
        kinds = np.fromiter((c[0] for c in changes), np.int8, len(changes))
        columns = [from_python([c[1][i] for c in changes], kind) for i, kind in enumerate(self.kinds)]
        if self.shows_rank:
            columns.append(pa.array([c[2] for c in changes], pa.int64()))
        return Batch(columns, kinds if kinds.any() else None, len(changes))

    def finish(self) -> None:
        """Emit the final result in batch mode."""
        if self.final_only:
            lists = self._state.column(ROWS)
            changes: list[_Change] = []
            for key_id in self._state.key_ids().tolist():
                for i, row in enumerate(lists[key_id][self.first - 1 : self._max_rank], self.first):
                    changes.append((INSERT, row, i))
            batch = self._batch(changes)
            self.emit(split_batches(list(batch.columns), len(batch)))


# Maximum rank: with more, the table of partitions would be wide and mostly empty.
MAX_RANKS = 64
_NO_RANK = np.iinfo(np.int64).max


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
        retained = np.zeros(len(ranks), np.bool_)
        retained[tables.rows[tables.rows >= 0]] = True
        rows.remove(stored[~retained[: len(stored)]])
        new = np.flatnonzero(retained[len(stored) :])
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
        remaining = np.argsort(partition, kind="stable")
        while True:
            remaining = remaining[ranks[remaining] < tables.ranks[partition[remaining], -1]]
            if not len(remaining):
                return
            partitions = partition[remaining]
            is_first = np.append(True, partitions[1:] != partitions[:-1])
            rows = remaining[is_first]
            remaining = remaining[~is_first]
            before, count, key_id_in_table = tables.insert(partition[rows], ranks[rows], rows + offset)
            if self.shows_rank or self.first > 1:
                after = tables.rows[partition[rows]]
                changes.add_shifts(
                    rows, before, after, count, np.maximum(key_id_in_table, self.first - 1), self.first, self.pairs
                )
            else:
                changes.add_inserts(rows, before[:, -1], count == self.last, rows + offset)

    def _batch(self, batch: Batch, stored: Ints, changes: _Changes) -> Batch:
        rows, kinds, ranks = changes.in_order()
        stored_in_output = rows[rows < len(stored)]
        # Only rows in the output are looked up.
        distinct_stored, of_stored = np.unique(stored_in_output, return_inverse=True)
        positions = np.empty(len(rows), np.int64)
        positions[rows < len(stored)] = of_stored
        positions[rows >= len(stored)] = rows[rows >= len(stored)] - len(stored) + len(distinct_stored)
        whole = (
            Batch.concatenated([self._rows.batch(stored[distinct_stored]), batch]) if len(distinct_stored) else batch
        )
        columns = [column.take(pa.array(positions)) for column in whole.columns]
        if self.shows_rank:
            columns.append(pa.array(ranks))
        return Batch(columns, kinds if kinds.any() else None, len(rows))


class _Tables:
    """The rows of partitions in order, one line per partition.

    Attributes:
        ranks: the order position of each row.
        rows: the row numbers, -1 for none.
    """

    def __init__(self, partitions: int, positions: int, partition_of: Ints, ranks: Ints) -> None:
        """Fill the table with the stored rows, numbered from 0."""
        self.ranks = np.full((partitions, positions), _NO_RANK, np.int64)
        self.rows = np.full((partitions, positions), -1, np.int64)
        order = np.lexsort((ranks, partition_of))
        owners = partition_of[order]
        sizes = np.bincount(owners, minlength=partitions)
        key_id_in_table = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        self.ranks[owners, key_id_in_table] = ranks[order]
        self.rows[owners, key_id_in_table] = order

    def insert(self, partitions: Ints, ranks: Ints, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Insert one row into each given partition; return its previous rows, their number, and the insert position."""
        stored_rows, stored_ranks = self.rows[partitions], self.ranks[partitions]
        key_id_in_table = (stored_ranks < ranks[:, None]).sum(axis=1)
        columns = np.arange(self.rows.shape[1])
        # Rows after the inserted one shift by one.
        source = columns - (columns > key_id_in_table[:, None])
        lines = np.arange(len(partitions))
        for table, values, new in ((self.rows, stored_rows, rows), (self.ranks, stored_ranks, ranks)):
            moved = np.take_along_axis(values, source, axis=1)
            moved[lines, key_id_in_table] = new
            table[partitions] = moved
        return stored_rows, (stored_rows >= 0).sum(axis=1), key_id_in_table


class _Changes:
    """Changes collected over several rounds."""

    def __init__(self, positions: int) -> None:
        self._places = positions
        # (arrival, row, row kind, rank)
        self._parts: list[tuple[Ints, Ints, Ints, Ints]] = []

    def _add(self, arrival: Ints, step: Ints, rows: Ints, kind: int, key_id_in_table: Ints) -> None:
        when = arrival * (2 * self._places + 2) + step
        self._parts.append((when, rows, np.full(len(rows), kind, np.int64), key_id_in_table))

    def add_shifts(
        self, arrival: Ints, before: Ints, after: Ints, count: Ints, start: Ints, first: int, pairs: bool
    ) -> None:
        """Record inserted rows and the shift of those after them."""
        columns = np.arange(self._places)
        lines, positions = np.nonzero((columns >= start[:, None]) & (columns < count[:, None]))
        if pairs:
            self._add(arrival[lines], 2 * positions, before[lines, positions], UPDATE_BEFORE, positions + 1)
        self._add(arrival[lines], 2 * positions + 1, after[lines, positions], UPDATE_AFTER, positions + 1)
        growing = np.flatnonzero((count < self._places) & (count >= first - 1))
        last = count[growing]
        self._add(arrival[growing], 2 * last, after[growing, last], INSERT, last + 1)

    def add_inserts(self, arrival: Ints, replaced_rows: Ints, is_full: Mask, rows: Ints) -> None:
        """Record inserted rows and, in full partitions, the rows they evict."""
        full = np.flatnonzero(is_full)
        no_rank = np.zeros(len(arrival), np.int64)
        self._add(arrival[full], no_rank[full], replaced_rows[full], DELETE, no_rank[full])
        self._add(arrival, no_rank + 1, rows, INSERT, no_rank)

    def in_order(self) -> tuple[Ints, NDArray[np.int8], Ints]:
        """Return the rows, their kinds and their ranks, in order of arrival."""
        if not self._parts:
            no_rows = np.zeros(0, np.int64)
            return no_rows, no_rows.astype(np.int8), no_rows
        when, rows, kinds, ranks = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        order = np.argsort(when, kind="stable")
        return rows[order], kinds[order].astype(np.int8), ranks[order]
