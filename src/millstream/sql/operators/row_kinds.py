"""Row kinds: those that an operator emits when results appear, change or disappear, and those in an op column.

`Changelog` is used by all operators that update results; everything is vectorized.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Kinds
from millstream.sql.columns.numpy_arrays import Ints, Mask
from millstream.sql.errors import TableException
from millstream.sql.operators.base import BatchOperator
from millstream.sql.schema import Changes


@fast_dataclass
class Changelog:
    """The changes at some positions: whether the old row is retracted, the new row emitted, and both are an update.

    Attributes:
        old, new, update: flags per position.
        order: the position in the original input of each entry.
        positions: the positions, in this order.
    """

    old: Mask
    new: Mask
    update: Mask
    order: Ints

    @staticmethod
    def of(existed: Mask, exists: Mask, differs: Mask, pairs: bool) -> Changelog:
        """Return the changes.

        Args:
            existed, exists: whether a result exists before and after.
            differs: whether the two differ; equal results emit nothing.
            pairs: whether an update is emitted as -U and +U, not as +U alone.
        """
        update = existed & exists & differs
        removed = existed & ~exists
        old = update | removed if pairs else removed
        return Changelog(old, update | (~existed & exists), update, np.arange(len(update)))

    def in_order(self, order: Ints) -> Changelog:
        """Return the changes of the same positions in another order."""
        return Changelog(self.old[order], self.new[order], self.update[order], self.order[order])

    @property
    def positions(self) -> Ints:
        return np.arange(len(self.order))

    @cached_property
    def _ends(self) -> tuple[Ints, Ints, int]:
        sizes = self.old.astype(np.int64) + self.new
        ends = np.cumsum(sizes)
        return (ends - sizes)[self.old], (ends - 1)[self.new], int(ends[-1]) if len(ends) else 0

    @cached_property
    def _are_all_pairs(self) -> bool:
        """Whether every position emits UPDATE_BEFORE and UPDATE_AFTER, the common case once all keys exist."""
        return bool(self.old.all() and self.update.all())

    def chosen(self, of_old: Ints, of_new: Ints) -> Ints:
        """Return for each emitted row the number from `of_old` or `of_new` at its position."""
        if self._are_all_pairs:
            return np.stack([of_old, of_new], axis=1).reshape(-1)
        at_old, at_new, total = self._ends
        chosen = np.empty(total, np.int64)
        chosen[at_old], chosen[at_new] = of_old[self.old], of_new[self.new]
        return chosen

    @property
    def kinds(self) -> Kinds | None:
        """The row kinds; None if all rows are inserts."""
        if self._are_all_pairs and len(self.old):
            return np.tile(np.array([UPDATE_BEFORE, UPDATE_AFTER], np.int8), len(self.old))
        at_old, at_new, total = self._ends
        kinds = np.empty(total, np.int8)
        kinds[at_old] = np.where(self.update[self.old], UPDATE_BEFORE, DELETE)
        kinds[at_new] = np.where(self.update[self.new], UPDATE_AFTER, INSERT)
        return kinds if kinds.any() else None


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
        result = Batch([words, *batch.columns], None, len(batch))
        return (result if known.all() else result.filter(known),)


class FromChangelogOperator(BatchOperator):
    """Removes the op column and sets the row kinds from it."""

    def __init__(self, index: int, codes: Sequence[tuple[str, str]]) -> None:
        """Create the operator.

        Args:
            index: the position of the op column.
            codes: op codes with their row kinds.
        """
        self.index = index
        self.codes = list(codes)

    def process(self, batch: Batch) -> Iterable[Batch]:
        column = batch.columns[self.index]
        if column.null_count:
            raise TableException("Received NULL op code. Every changelog row must carry an operation code.")
        known = pc.index_in(column, value_set=pa.array([code for code, _ in self.codes], pa.string()))
        if known.null_count:
            code = column.filter(pc.is_null(known))[0].as_py()
            defined = ", ".join(code for code, _ in self.codes)
            raise TableException(f"Received invalid op code '{code}'. Defined op codes are: [{defined}].")
        numbers = np.array([_KINDS.index(kind) for _, kind in self.codes], np.int8)
        kinds = numbers[known.to_numpy(zero_copy_only=False)]
        rest = [c for i, c in enumerate(batch.columns) if i != self.index]
        return (Batch(rest, kinds if kinds.any() else None, len(batch)),)
