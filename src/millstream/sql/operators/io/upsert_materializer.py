"""Before a sink whose primary key is not the query's: which row of each primary key is the one to be written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, Batch
from millstream.sql.columns.keyed_columns import Kept, KeyedColumns
from millstream.sql.columns.numpy_arrays import from_python, python_values
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED
from millstream.sql.operators.base import KeyedBatchOperator


class MaterializeOperator(KeyedBatchOperator):
    """Keeps the rows of each primary key in the order they came, and writes the last."""

    def __init__(self, keys: Sequence[int], kinds: Sequence[pa.DataType], ttl: int = 0) -> None:
        """Make one.

        Args:
            keys: the columns of the primary key.
            kinds: the Arrow types of the columns.
            ttl: how long a key lives that is not changed, in milliseconds; 0 for ever.
        """
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.keys]
        columns = KeyedColumns(kinds, [Kept("rows", object, list), Kept(TOUCHED, np.int64)])
        self._state: KeyedColumns = self.keeps("keys", columns)

    def process(self, batch: Batch) -> Iterable[Batch]:
        state = self._state
        state.compact()
        if self.ttl:
            state.expire(TOUCHED, self.setup.clock() - self.ttl)
        keys = [batch.columns[k] for k in self.keys]
        of_rows, _ = state.find_or_add(keys, len(batch))
        slots = np.unique(of_rows)
        lists = state.column("rows")
        rows = list(zip(*map(python_values, batch.columns), strict=True))
        changes: list[tuple[int, tuple[Any, ...]]] = []
        for row, kind, slot in zip(rows, batch.all_kinds().tolist(), of_rows.tolist(), strict=True):
            self._take(lists[slot], row, kind in (INSERT, UPDATE_AFTER), changes)
        state.column(TOUCHED)[slots] = self.setup.clock()
        state.changed(slots)
        empty = np.fromiter((not lists[s] for s in slots.tolist()), np.bool_, len(slots))
        state.remove(slots[empty])
        kinds = np.fromiter((c[0] for c in changes), np.int8, len(changes))
        columns = [from_python([c[1][i] for c in changes], kind) for i, kind in enumerate(self.kinds)]
        return (Batch(columns, kinds if kinds.any() else None, len(changes)),)

    @staticmethod
    def _take(there: list[Any], row: Any, adds: bool, changes: list[tuple[int, Any]]) -> None:
        if adds:
            changes.append((UPDATE_AFTER if there else INSERT, row))
            there.append(row)
        elif row in there:
            place = there.index(row)
            was_last = place == len(there) - 1
            del there[place]
            if not there:
                changes.append((DELETE, row))
            elif was_last:
                changes.append((UPDATE_AFTER, there[-1]))
