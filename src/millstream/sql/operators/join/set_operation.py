"""INTERSECT and EXCEPT, computed from the number of copies of a row on each side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, Batch
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.numpy_arrays import Ints
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED, signs_of
from millstream.sql.operators.aggregate.segments import Segments
from millstream.sql.operators.base import KeyedBatchOperator, split_batches
from millstream.sql.operators.spilling import SpillingOperator

_SIDES = ("left", "right")


class SetOperationOperator(KeyedBatchOperator):
    """Counts the rows of both sides."""

    inputs = 2
    emits_later = True

    def __init__(
        self, operator: str, all_rows: bool, kinds: Sequence[pa.DataType], final_only: bool = False, ttl: int = 0
    ) -> None:
        """Create the operator.

        Args:
            operator: INTERSECT or EXCEPT.
            all_rows: whether duplicates count (ALL).
            kinds: the Arrow types of the columns.
            final_only: whether only the final result is emitted.
            ttl: state TTL in milliseconds; 0 for none.
        """
        self.ttl = ttl
        self.operator = operator
        self.all_rows = all_rows
        self.kinds = list(kinds)
        self.final_only = final_only

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        state_columns = [StateColumn(side, np.int64) for side in (*_SIDES, *([TOUCHED] if self.ttl else []))]
        self._state: KeyedColumns = self.state_table("rows", KeyedColumns(self.kinds, state_columns))

    def starved_inputs(self) -> Iterable[tuple[int, int]]:
        counts = [int(np.maximum(self._state.column(side), 0).sum()) for side in _SIDES]
        for side in (0, 1):
            if self.operator.upper() == "INTERSECT" and counts[1 - side] and not counts[side]:
                yield side, counts[1 - side]

    def process_left(self, batch: Batch) -> Iterable[Batch]:
        return self._process(batch, 0)

    def process_right(self, batch: Batch) -> Iterable[Batch]:
        return self._process(batch, 1)

    def _process(self, batch: Batch, side: int) -> Iterator[Batch]:
        state = self._state
        state.compact()
        if self.ttl:
            state.expire(TOUCHED, self.setup.clock() - self.ttl)
        first_new = state.bound
        of_rows, _ = state.find_or_add(batch.columns, len(batch))
        segments = Segments.of(of_rows, first_new, state.bound, signs_of(batch))
        key_ids = segments.key_ids
        own_counts, other_counts = state.column(_SIDES[side]), state.column(_SIDES[1 - side])
        signs = np.ones(len(batch), np.int64) if segments.signs is None else segments.signs
        begins = segments.begins(own_counts, 0)
        after = segments.sums(signs, begins)
        segments.leave(own_counts, after)
        if self.ttl:
            state.column(TOUCHED)[key_ids] = self.setup.clock()
        state.changed(key_ids)
        if not self.final_only:
            yield self._changes(batch, side, segments, np.concatenate([after, begins]), other_counts)
        state.remove(key_ids[(own_counts[key_ids] == 0) & (other_counts[key_ids] == 0)])

    def _changes(self, batch: Batch, side: int, segments: Segments, own_counts: Ints, other_column: Ints) -> Batch:
        other_counts = other_column[segments.key_ids]
        repeated = np.concatenate([np.repeat(other_counts, segments.sizes), other_counts])
        copies = self._copies(own_counts, repeated) if side == 0 else self._copies(repeated, own_counts)
        added = copies[: segments.rows] - copies[segments.before]
        changed = np.flatnonzero(added)
        rows = segments.order[changed]
        order = np.argsort(rows)
        kinds = np.where(added[changed] > 0, INSERT, DELETE).astype(np.int8)[order]
        taken = batch.take(rows[order])
        return Batch(taken.columns, kinds if kinds.any() else None, len(rows))

    def _copies(self, left: Ints, right: Ints) -> Ints:
        """Return the number of copies in the result, from those on both sides."""
        left, right = np.maximum(left, 0), np.maximum(right, 0)
        copies: Ints
        if self.operator.upper() == "INTERSECT":
            copies = np.minimum(left, right) if self.all_rows else ((left > 0) & (right > 0)).astype(np.int64)
        else:
            copies = np.maximum(left - right, 0) if self.all_rows else ((left > 0) & (right == 0)).astype(np.int64)
        return copies

    def finish(self) -> None:
        """Emit the final result in batch mode."""
        if self.final_only:
            self.emit(self._results())

    def _results(self) -> Iterator[Batch]:
        key_ids = self._state.key_ids()
        copies = self._copies(*(self._state.column(side)[key_ids] for side in _SIDES))
        rows = np.repeat(key_ids, copies)
        yield from split_batches(self._state.keys_at(rows), len(rows))


class BatchSetOperationOperator(SpillingOperator, SetOperationOperator):
    """The same in batch mode, on append-only input."""

    def __init__(self, operator: str, all_rows: bool, kinds: Sequence[pa.DataType]) -> None:
        """Create the operator; see `SetOperationOperator`."""
        SetOperationOperator.__init__(self, operator, all_rows, kinds, final_only=True)

    def prepare(self, setup: OperatorSetup) -> None:
        every = range(len(self.kinds))
        self.may_overflow(setup, [(self.kinds, every), (self.kinds, every)])
        super().prepare(setup)

    def _process(self, batch: Batch, side: int) -> Iterator[Batch]:
        if not self.overflow.must_spill(side, batch):
            yield from super()._process(batch, side)
            self.overflow.grew()

    def _later(self, side: int, batch: Batch) -> None:
        for _ in super()._process(batch, side):
            pass

    def finishing(self) -> Iterator[None]:
        for _ in self.overflow.bins(self._later):
            for batch in self._results():
                self.emit([batch])
                yield
