"""Group aggregates in batch mode: one row per key at the end of input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_columns import FreshColumns
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.group_aggregate import GlobalGroupAggregateOperator, GroupAggregateOperator
from millstream.sql.operators.base import BATCH_ROWS
from millstream.sql.operators.spilling import SpillingOperator


class BatchGroupAggregateOperator(SpillingOperator, GroupAggregateOperator):
    """Emits keys, then aggregates, of append-only input; without aggregates, the distinct keys."""

    def __init__(self, keys: Sequence[int], calls: Sequence[AggregateCall], kinds: Sequence[pa.DataType]) -> None:
        """Create the operator.

        Args:
            keys: the columns to group by.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
        """
        GroupAggregateOperator.__init__(self, keys, calls, kinds, final_only=True)

    def prepare(self, setup: OperatorSetup) -> None:
        self.may_overflow(setup, [self._input()])
        super().prepare(setup)

    def _input(self) -> tuple[list[pa.DataType], Sequence[int]]:
        """Return the types of the input columns, and which of them are the key."""
        return self.kinds, self.keys

    def process(self, batch: Batch) -> Iterable[Batch]:
        if self.overflow.must_spill(0, batch):
            return ()
        output = super().process(batch)
        self.overflow.grew()
        return output

    def finishing(self) -> Iterator[None]:
        if not self.keys and not self.overflow.is_full:
            # A global aggregate has a result without input.
            self._state.find_or_add([], 1)
        for _ in self.overflow.bins(self._later):
            slots = self._state.slots()
            for start in range(0, len(slots), BATCH_ROWS):
                part = slots[start : start + BATCH_ROWS]
                columns = self._state.keys_at(part) + self.aggregates.results(self._state, part)
                self.emit([Batch(columns, None, len(part))])
                yield

    def _later(self, index: int, batch: Batch) -> None:
        super().process(batch)


class BatchGlobalGroupAggregateOperator(BatchGroupAggregateOperator, GlobalGroupAggregateOperator):
    """The second phase; merges the output of a `LocalGroupAggregateOperator` with the same arguments."""

    def _input(self) -> tuple[list[pa.DataType], Sequence[int]]:
        nothing = np.zeros(0, np.int64)
        partials = self.aggregates.partials(FreshColumns(self.aggregates.state_columns, 0), nothing)
        return [*(self.kinds[k] for k in self.keys), *(column.type for column in partials)], range(len(self.keys))
