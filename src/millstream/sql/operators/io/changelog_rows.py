"""TO_CHANGELOG and FROM_CHANGELOG: row kinds as an op column, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql.columns.batch import Batch
from millstream.sql.errors import TableException
from millstream.sql.operators.base import BatchOperator
from millstream.sql.schema import Changes

# In the order of the row kind numbers of a batch.
_KINDS = [c.name for c in Changes]


class ToChangelogOperator(BatchOperator):
    """Prepends an op column; all output rows are inserts."""

    def __init__(self, codes: Sequence[tuple[str, str]]) -> None:
        """Create the operator.

        Args:
            codes: row kinds with their op codes; rows of other kinds are dropped.
        """
        words = dict(codes)
        self.words = [words.get(kind) for kind in _KINDS]

    def process(self, batch: Batch) -> Iterable[Batch]:
        words = pa.array(self.words, pa.string()).take(pa.array(batch.all_kinds()))
        known = pc.is_valid(words).to_numpy(zero_copy_only=False)
        found = Batch([words, *batch.columns], None, len(batch))
        return (found if known.all() else found.filter(known),)


class FromChangelogOperator(BatchOperator):
    """Removes the op column and sets the row kinds from it."""

    def __init__(self, place: int, codes: Sequence[tuple[str, str]]) -> None:
        """Create the operator.

        Args:
            place: the position of the op column.
            codes: op codes with their row kinds.
        """
        self.place = place
        self.codes = list(codes)

    def process(self, batch: Batch) -> Iterable[Batch]:
        column = batch.columns[self.place]
        if column.null_count:
            raise TableException("Received NULL op code. Every changelog row must carry an operation code.")
        known = pc.index_in(column, value_set=pa.array([code for code, _ in self.codes], pa.string()))
        if known.null_count:
            code = column.filter(pc.is_null(known))[0].as_py()
            defined = ", ".join(code for code, _ in self.codes)
            raise TableException(f"Received invalid op code '{code}'. Defined op codes are: [{defined}].")
        numbers = np.array([_KINDS.index(kind) for _, kind in self.codes], np.int8)
        kinds = numbers[known.to_numpy(zero_copy_only=False)]
        rest = [c for i, c in enumerate(batch.columns) if i != self.place]
        return (Batch(rest, kinds if kinds.any() else None, len(batch)),)
