"""Of upserts all changes, and only of rows that pass a condition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.sql.columns.batch import DELETE, Batch
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import condition
from millstream.sql.operators.base import Evaluating
from millstream.sql.operators.query_context import Session
from millstream.sql.operators.rank.deduplicate import LastRowOperator


class FilteredLastRowOperator(Evaluating, LastRowOperator):
    """Keeps the last row of each key that passes a condition; one that fails it takes the row of its key away."""

    def __init__(
        self,
        keys: Sequence[int],
        kinds: Sequence[pa.DataType],
        passes: Expression,
        session: Session,
        *,
        pairs: bool = True,
        says_equal: bool = False,
        ttl: int = 0,
        drops_old_halves: bool = False,
    ) -> None:
        """Make one.

        Args:
            passes: the condition.
            session: what the query was made in.
            keys, kinds, pairs, says_equal, ttl, drops_old_halves: see `LastRowOperator`.
        """
        super().__init__(keys, kinds, pairs=pairs, says_equal=says_equal, ttl=ttl, drops_old_halves=drops_old_halves)
        self.passes = passes
        self.session = session

    def open(self) -> None:
        super().open()
        self._passes = condition(self.passes, self.context)

    def process(self, batch: Batch) -> Iterator[Batch]:
        if self.drops_old_halves:
            batch = self.without_old_halves(batch)
        if len(batch):
            kinds = np.where(self._passes(batch), batch.all_kinds(), np.int8(DELETE)).astype(np.int8)
            yield from super().process(Batch(batch.columns, kinds if kinds.any() else None, len(batch)))
