"""ORDER BY and top N in batch mode: rows that do not fit into memory are on disk.

A sort merges sorted runs. Top N discards early the rows that cannot enter their partition's top N, and spills into bins
by the hash of the partition, which are read in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keys import grouped
from millstream.sql.columns.numpy_arrays import Ints
from millstream.sql.columns.row_order import Order, sorted_rows
from millstream.sql.columns.spillable_rows import SPILL_CHUNK_BYTES, HashBins, SortedRuns, SpillableRows, in_chunks
from millstream.sql.operators.base import BATCH_ROWS, StepwiseFinishOperator, split_batches
from millstream.sql.operators.over.over_frames import starts_of

# Rows after the limit or last rank are discarded when this many have arrived.
_TRIM_ROWS = 1 << 16
# Minimum rows of a run in memory before runs are merged.
_MIN_LOADED_ROWS = 1 << 11


class BatchSortOperator(StepwiseFinishOperator):
    """Sorts append-only rows; the sort is stable."""

    def __init__(self, order: Order, kinds: Sequence[pa.DataType], offset: int = 0, limit: int | None = None) -> None:
        """Create the operator.

        Args:
            order: (column, descending, nulls first).
            kinds: the Arrow types of the columns.
            offset: the number of rows to skip.
            limit: the maximum number of rows to emit; None for all.
        """
        self.order = tuple(order)
        self.kinds = list(kinds)
        self.offset = offset
        self.limit = limit

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._rows: SpillableRows = self.spillable_rows("rows", self.kinds, (), SortedRuns(self.order))

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows = self._rows
        rows.add(batch)
        if (
            self.limit is not None
            and len(rows) > max(_TRIM_ROWS, 4 * (self.offset + self.limit))
            and not rows.is_on_disk
        ):
            rows.retain(self._first)
        return ()

    def _first(self, rows: Batch) -> Ints:
        assert self.limit is not None
        return np.sort(sorted_rows(rows.columns, self.order, len(rows))[: self.offset + self.limit])

    def finishing(self) -> Iterator[None]:
        seen = 0
        for batch in in_order(self._rows, self.order):
            start = max(self.offset - seen, 0)
            end = len(batch) if self.limit is None else min(self.offset + self.limit - seen, len(batch))
            seen += len(batch)
            if start < end:
                self.emit([batch.slice(start, end)])
                yield
            if end < len(batch):
                break
        self._rows.clear()


def in_order(rows: SpillableRows, order: Order) -> Iterator[Batch]:
    """Yield the rows of sorted runs in order."""
    if rows.is_on_disk:
        rows.spill()
        yield from merged([rows.of(run) for run in sorted(rows.extents)], order)
    elif len(rows):
        whole = Batch.concatenated(rows.in_memory())
        order_of_rows = sorted_rows(whole.columns, order, len(whole))
        for start in range(0, len(order_of_rows), BATCH_ROWS):
            yield whole.take(order_of_rows[start : start + BATCH_ROWS])


class _Run:
    """The unread rows of a sorted run."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self.head: Batch | None = None
        self.is_read = False

    def fill(self) -> None:
        """Load rows until there are enough, if there are more."""
        while not self.is_read and (self.head is None or len(self.head) < _MIN_LOADED_ROWS):
            more = next(self._batches, None)
            if more is None:
                self.is_read = True
            else:
                self.head = more if self.head is None else Batch.concatenated([self.head, more])


def merged(runs: Sequence[Iterator[Batch]], order: Order) -> Iterator[Batch]:
    """Yield the rows of sorted runs in order; ties keep the order of runs."""
    open_runs = [_Run(batches) for batches in runs]
    while True:
        for run in open_runs:
            run.fill()
        open_runs = [run for run in open_runs if run.head is not None and len(run.head)]
        if not open_runs:
            return
        heads = [run.head for run in open_runs if run.head is not None]
        loaded = Batch.concatenated(heads)
        in_order = sorted_rows(loaded.columns, order, len(loaded))
        ends = np.cumsum([len(head) for head in heads])
        positions = np.empty(len(in_order), np.int64)
        positions[in_order] = np.arange(len(in_order))
        # Rows after the last loaded row of a run may belong after rows that are not loaded yet.
        last = [int(positions[end - 1]) for end, run in zip(ends, open_runs, strict=True) if not run.is_read]
        count = min(last) + 1 if last else len(in_order)
        taken = in_order[:count]
        yield loaded.take(taken)
        for run, head, end in zip(open_runs, heads, ends, strict=True):
            count_of_run = int(np.count_nonzero((taken >= end - len(head)) & (taken < end)))
            run.head = head.slice(count_of_run, len(head))


class BatchTopNOperator(StepwiseFinishOperator):
    """Emits a range of ranks of each partition of append-only rows; ties keep the order of arrival."""

    def __init__(
        self,
        partition: Sequence[int],
        order: Order,
        kinds: Sequence[pa.DataType],
        first: int,
        last: int | None,
        shows_rank: bool,
    ) -> None:
        """Create the operator.

        Args:
            partition: the columns to partition by.
            order: (column, descending, nulls first).
            kinds: the Arrow types of the columns.
            first, last: the ranks, from 1; `last` is None for all from the first.
            shows_rank: whether the rank is the last column.
        """
        self.partition = tuple(partition)
        self.order = tuple(order)
        self.kinds = list(kinds)
        self.first = first
        self.last = last
        self.shows_rank = shows_rank

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._rows = self.spillable_rows("rows", self.kinds, self.partition, HashBins(self.partition))
        self._trim_rows = _TRIM_ROWS

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows = self._rows
        rows.add(batch)
        if self.last is not None and len(rows) > self._trim_rows and not rows.is_on_disk:
            rows.retain(self._possible)
            self._trim_rows = max(_TRIM_ROWS, 4 * len(rows))
        return ()

    def finishing(self) -> Iterator[None]:
        for batches in self._rows.by_bin():
            yield from self._emitted(batches)

    def _emitted(self, batches: Iterable[Batch]) -> Iterator[None]:
        """Emit the requested ranks of complete partitions."""
        retained: Batch | None = None
        for chunk in in_chunks(batches, SPILL_CHUNK_BYTES):
            retained = chunk if retained is None else Batch.concatenated([retained, chunk])
            if self.last is not None:
                retained = retained.take(self._possible(retained))
        if retained is None:
            return
        in_order, ranks = self._ranked(retained)
        requested = ranks >= self.first
        result = retained.take(in_order[requested])
        columns = [*result.columns, pa.array(ranks[requested])] if self.shows_rank else list(result.columns)
        for batch in split_batches(columns, len(result)):
            self.emit([batch])
            yield

    def _possible(self, rows: Batch) -> Ints:
        """Return the rows up to the last rank, in order of arrival."""
        assert self.last is not None
        in_order, ranks = self._ranked(rows)
        return np.sort(in_order[ranks <= self.last])

    def _ranked(self, rows: Batch) -> tuple[Ints, Ints]:
        """Return the rows sorted by partition and order, and the rank of each."""
        keys = grouped([rows.columns[k] for k in self.partition], len(rows)).codes
        by_key = [pa.array(keys), *rows.columns]
        in_order = sorted_rows(by_key, [(0, False, True), *((c + 1, d, n) for c, d, n in self.order)], len(rows))
        return in_order, np.arange(1, len(rows) + 1) - starts_of(keys[in_order])
