"""Table aggregate: a user function returns several rows per group, re-emitted in full on every input row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, Batch
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.expressions import AggregateCall
from millstream.sql.functions.context import OpenedTableAggregate
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED, signs_of
from millstream.sql.operators.base import KeyedBatchOperator, split_batches

_ROWS, _ACCUMULATOR = "rows", "accumulator"


class TableAggregateOperator(KeyedBatchOperator):
    """Emits keys, then the function's columns."""

    emits_later = True

    def __init__(
        self,
        keys: Sequence[int],
        call: AggregateCall,
        kinds: Sequence[pa.DataType],
        *,
        takes_back: bool = True,
        final_only: bool = False,
        ttl: int = 0,
    ) -> None:
        """Create the operator.

        Args:
            keys: the columns to group by.
            call: the function.
            kinds: the Arrow types of the input's columns.
            takes_back: whether a group's rows are deleted before the new ones are emitted.
            final_only: whether only the final results are emitted.
            ttl: state TTL in milliseconds; 0 for none.
        """
        self.keys = tuple(keys)
        self.calls = (call,)
        self.kinds = list(kinds)
        self.takes_back = takes_back
        self.final_only = final_only
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        state_columns = [
            StateColumn(_ROWS, np.int64),
            StateColumn(TOUCHED, np.int64),
            StateColumn(_ACCUMULATOR, object, lambda: None),
        ]
        columns = KeyedColumns([self.kinds[k] for k in self.keys], state_columns)
        self._state: KeyedColumns = self.state_table("groups", columns)

    def process(self, batch: Batch) -> Iterable[Batch]:
        state, (call,) = self._state, self.calls
        function: OpenedTableAggregate = call.user.opened
        state.compact()
        if self.ttl:
            state.expire(TOUCHED, self.setup.clock() - self.ttl)
        keys = [batch.columns[k] for k in self.keys]
        slots, _ = state.find_or_add(keys, len(batch))
        rows = function.rows([batch.columns[a] for a in call.arguments], len(batch))
        signs = signs_of(batch)
        weights = np.ones(len(batch), np.int64) if signs is None else signs
        counts, accumulators = state.column(_ROWS), state.column(_ACCUMULATOR)
        positions: list[int] = []
        kinds: list[int] = []
        results: list[tuple[Value, ...]] = []

        def emit_results(position: int, kind: int, rows: list[tuple[Value, ...]]) -> None:
            positions.extend([position] * len(rows))
            kinds.extend([kind] * len(rows))
            results.extend(rows)

        for position, (slot, row, weight) in enumerate(zip(slots.tolist(), rows, weights.tolist(), strict=True)):
            is_first = not counts[slot]
            if is_first:
                if weight < 0:
                    # A group without rows ignores retractions.
                    continue
                accumulators[slot] = function.begin()
            elif not self.final_only and self.takes_back:
                emit_results(position, DELETE, function.value(accumulators[slot]))
            step = function.add if weight > 0 else function.retract
            accumulators[slot] = step(accumulators[slot], row)
            counts[slot] += weight
            if counts[slot] and not self.final_only:
                emit_results(position, INSERT, function.value(accumulators[slot]))
        distinct = np.unique(slots)
        state.column(TOUCHED)[distinct] = self.setup.clock()
        state.changed(distinct)
        state.remove(distinct[counts[distinct] == 0])
        taken = pa.array(np.array(positions, np.int64))
        row_kinds = np.array(kinds, np.int8)
        columns = [*(k.take(taken) for k in keys), *function.columns(results)]
        return (Batch(columns, row_kinds if row_kinds.any() else None, len(positions)),)

    def finish(self) -> None:
        """Emit the final results in batch mode."""
        if not self.final_only:
            return
        function: OpenedTableAggregate = self.calls[0].user.opened
        slots = self._state.slots()
        results = [function.value(accumulator) for accumulator in self._state.column(_ACCUMULATOR)[slots]]
        positions = np.repeat(slots, [len(rows) for rows in results])
        columns = [*self._state.keys_at(positions), *function.columns([row for rows in results for row in rows])]
        self.emit(split_batches(columns, len(positions)))
