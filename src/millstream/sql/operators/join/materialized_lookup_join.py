"""A lookup join that keeps what it has emitted, after Flink's KeyedLookupJoinWrapper."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, Batch
from millstream.sql.columns.keyed_columns import Kept, KeyedColumns
from millstream.sql.columns.numpy_arrays import from_python, python_values
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED
from millstream.sql.operators.base import KeyedBatchOperator
from millstream.sql.operators.join.lookup_join import LookupJoinOperator

log = logging.getLogger("millstream")

_CLEARED = (
    "The state is cleared because of state ttl. This will result in incorrect result. You can increase the state ttl "
    "to avoid this."
)
Found = tuple[Any, ...]


class MaterializedLookupJoinOperator(LookupJoinOperator, KeyedBatchOperator):
    """Looks rows up that are added, and retracts with what was found then."""

    def __init__(
        self,
        *of_join: Any,
        kinds: Sequence[pa.DataType],
        state_key: Sequence[int],
        replaces: bool,
        ttl: int = 0,
    ) -> None:
        """Make one.

        Args:
            of_join: the arguments of `LookupJoinOperator`.
            kinds: the Arrow types of the input's columns.
            state_key: the input's columns by which it keeps what was found.
            replaces: whether a row that is added replaces the last one of its key. Else equal rows are kept apart.
            ttl: how long a key lives without a row that is added, in milliseconds; 0 for ever.
        """
        super().__init__(*of_join)
        self.kinds = list(kinds)
        self.state_key = tuple(state_key)
        self.replaces = replaces
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.state_key]
        # For each row that was added, the rows that were found for it.
        columns = KeyedColumns(kinds, [Kept("found", object, list), Kept(TOUCHED, np.int64)])
        self._state: KeyedColumns = self.keeps("found", columns)

    def process(self, batch: Batch) -> Iterator[Batch]:
        state = self._state
        state.compact()
        if self.ttl:
            state.expire(TOUCHED, self.setup.clock() - self.ttl)
        adds = np.isin(batch.all_kinds(), (INSERT, UPDATE_AFTER))
        found = self._found_for(batch, np.flatnonzero(adds))
        slots, _ = state.find_or_add([batch.columns[k] for k in self.state_key], len(batch))
        kept = state.column("found")
        rows: list[tuple[int, Found]] = []
        for row, slot in enumerate(slots.tolist()):
            rows += [(row, one) for one in (self._add if adds[row] else self._retract)(kept[slot], found.get(row, []))]
        state.column(TOUCHED)[slots[adds]] = self.setup.clock()
        changed = np.unique(slots)
        state.changed(changed)
        empty = np.fromiter((not kept[s] for s in changed.tolist()), np.bool_, len(changed))
        state.remove(changed[empty])
        if rows:
            yield self._emitted(batch, adds, rows)

    def _found_for(self, batch: Batch, added: Any) -> dict[int, list[Found]]:
        """Return for each row that is added those that are found for it now."""
        if not len(added):
            return {}
        columns, left, right = self.matched(batch.take(added))
        values = list(zip(*map(python_values, columns), strict=True))
        found: dict[int, list[Found]] = {}
        for row, at in zip(added[left].tolist(), right.tolist(), strict=True):
            if at >= 0:
                found.setdefault(row, []).append(values[at])
        return found

    def _add(self, kept: list[list[Found]], found: list[Found]) -> list[Found]:
        if self.replaces:
            kept.clear()
        kept.append(found)
        return self._padded(found)

    def _retract(self, kept: list[list[Found]], found: list[Found]) -> list[Found]:
        if not kept:
            log.warning(_CLEARED)
            return self._padded([])
        return self._padded(kept.pop())

    def _padded(self, found: list[Found]) -> list[Found]:
        return found if found or not self.keeps_all else [(None,) * len(self.expressions)]

    def _emitted(self, batch: Batch, adds: Any, rows: list[tuple[int, Found]]) -> Batch:
        places = np.array([row for row, _ in rows], np.int64)
        taken = batch.take(places)
        kinds = np.where(adds[places], taken.all_kinds(), DELETE).astype(np.int8)
        made = [
            from_python([found[i] for _, found in rows], arrow_type(e.type)) for i, e in enumerate(self.expressions)
        ]
        return Batch([*taken.columns, *made], kinds if kinds.any() else None, len(rows))
