"""Top-N in batch mode: rows that cannot enter their partition's top N are discarded early.

Rows that do not fit into memory are on disk, in bins by the hash of their partition, which are read in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keys import grouped
from millstream.sql.columns.row_order import Order, sorted_rows
from millstream.sql.columns.spillable_rows import SLAB_BYTES, HashBins, Ints, slabs
from millstream.sql.operators.base import StepwiseFinishOperator, split_batches
from millstream.sql.operators.over.over_frames import starts_of

# Rows beyond the last rank are discarded when at least this many have arrived.
_MANY = 1 << 16


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
        self._max_rank = _MANY

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows = self._rows
        rows.add(batch)
        if self.last is not None and len(rows) > self._max_rank and not rows.is_on_disk:
            rows.retain(self._possible)
            self._max_rank = max(_MANY, 4 * len(rows))
        return ()

    def finishing(self) -> Iterator[None]:
        for batches in self._rows.by_bin():
            yield from self._emitted(batches)

    def _emitted(self, batches: Iterable[Batch]) -> Iterator[None]:
        """Emit the requested ranks of complete partitions."""
        kept: Batch | None = None
        for slab in slabs(batches, SLAB_BYTES):
            kept = slab if kept is None else Batch.concatenated([kept, slab])
            if self.last is not None:
                kept = kept.take(self._possible(kept))
        if kept is None:
            return
        in_order, places = self._placed(kept)
        asked = places >= self.first
        found = kept.take(in_order[asked])
        columns = [*found.columns, pa.array(places[asked])] if self.shows_rank else list(found.columns)
        for batch in split_batches(columns, len(found)):
            self.emit([batch])
            yield

    def _possible(self, rows: Batch) -> Ints:
        """Return the rows up to the last rank, in order of arrival."""
        assert self.last is not None
        in_order, places = self._placed(rows)
        return np.sort(in_order[places <= self.last])

    def _placed(self, rows: Batch) -> tuple[Ints, Ints]:
        """Return the rows sorted by partition and order, and the rank of each."""
        keys = grouped([rows.columns[k] for k in self.partition], len(rows)).codes
        by_key = [pa.array(keys), *rows.columns]
        in_order = sorted_rows(by_key, [(0, False, True), *((c + 1, d, n) for c, d, n in self.order)], len(rows))
        return in_order, np.arange(1, len(rows) + 1) - starts_of(keys[in_order])
