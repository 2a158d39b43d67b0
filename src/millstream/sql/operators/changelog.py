"""Changes of results, by vectors: what is said when something is there before and after, or only one of it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from millstream.common.fast_dataclass import record
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Kinds
from millstream.sql.operators.aggregate.segments import Ints

Mask = NDArray[np.bool_]


@record
class Changelog:
    """For each of some places: whether the old is taken back, whether the new is said, and whether that is an update.

    Attributes:
        old, new, update: for each place.
        order: in which order the places are; where each is among those that it was made of.
        places: the numbers of the places, in this order.
    """

    old: Mask
    new: Mask
    update: Mask
    order: Ints

    @staticmethod
    def of(existed: Mask, exists: Mask, differs: Mask, pairs: bool) -> Changelog:
        """Return the changes.

        Args:
            there_before, there_after: whether there is a result before and after.
            differs: whether the two differ; where they do not, nothing is said.
            pairs: whether an update is -U and +U, not +U alone.
        """
        update = existed & exists & differs
        gone = existed & ~exists
        old = update | gone if pairs else gone
        return Changelog(old, update | (~existed & exists), update, np.arange(len(update)))

    def in_order(self, order: Ints) -> Changelog:
        """Return the changes of the same places in another order."""
        return Changelog(self.old[order], self.new[order], self.update[order], self.order[order])

    @property
    def places(self) -> Ints:
        return np.arange(len(self.order))

    @cached_property
    def _ends(self) -> tuple[Ints, Ints, int]:
        sizes = self.old.astype(np.int64) + self.new
        ends = np.cumsum(sizes)
        return (ends - sizes)[self.old], (ends - 1)[self.new], int(ends[-1]) if len(ends) else 0

    @cached_property
    def _are_all_pairs(self) -> bool:
        """Whether every place says both halves of an update, as most do once keys are known."""
        return bool(self.old.all() and self.update.all())

    def chosen(self, of_old: Ints, of_new: Ints) -> Ints:
        """Return for each row that is said a number: of its place, one for what is old and one for what is new."""
        if self._are_all_pairs:
            return np.stack([of_old, of_new], axis=1).reshape(-1)
        at_old, at_new, total = self._ends
        chosen = np.empty(total, np.int64)
        chosen[at_old], chosen[at_new] = of_old[self.old], of_new[self.new]
        return chosen

    @property
    def kinds(self) -> Kinds | None:
        """What each row says; None when all are inserted."""
        if self._are_all_pairs and len(self.old):
            return np.tile(np.array([UPDATE_BEFORE, UPDATE_AFTER], np.int8), len(self.old))
        at_old, at_new, total = self._ends
        kinds = np.empty(total, np.int8)
        kinds[at_old] = np.where(self.update[self.old], UPDATE_BEFORE, DELETE)
        kinds[at_new] = np.where(self.update[self.new], UPDATE_AFTER, INSERT)
        return kinds if kinds.any() else None
