"""Short-lived keyed columns: values that are taken out once and not read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.sql.columns.append_buffer import GrowingArray, GrowingColumn
from millstream.sql.columns.index import Slots, first_rows, index_for
from millstream.sql.columns.keyed_columns import StateColumn, filled

# Keys remain indexed after they are taken out, because they often recur: up to this many idle ones.
_MOST_IDLE = 1 << 16


class Bundle:
    """Keys, each with a slot in value columns."""

    def __init__(self, kinds: Sequence[pa.DataType], kept: Sequence[StateColumn]) -> None:
        self._kinds = list(kinds)
        self._kept = list(kept)
        self._clear()

    def _clear(self) -> None:
        self._index = index_for(self._kinds)
        self._keys = [GrowingColumn(kind) for kind in self._kinds]
        self._columns = {k.name: GrowingArray(k.dtype) for k in self._kept}
        # The current keys, in order of first arrival.
        self._order = GrowingArray(np.int64)
        self._there = GrowingArray(np.bool_)

    def column(self, name: str) -> NDArray[Any]:
        """Return a value column, to be changed in place; valid until keys are added."""
        return self._columns[name].values

    def add(self, keys: Sequence[pa.Array], rows: int) -> Slots:
        """Return the slots of keys; new keys are added."""
        slots, new = self._index.find_or_add(keys, rows)
        if len(new):
            at = pa.array(new)
            for column, key in zip(self._keys, keys, strict=True):
                column.extend(key.take(at))
            for kept in self._kept:
                self._columns[kept.name].extend(filled(kept, len(new)))
            self._there.extend(np.zeros(len(new), np.bool_))
        self._see(slots)
        return slots

    def _see(self, slots: Slots) -> None:
        come = slots.take(np.flatnonzero(~self._there.values.take(slots)))
        if not len(come):
            return
        self._there.values[come] = True
        self._order.extend(come.take(first_rows(come, np.empty(len(self._there), np.int64))))

    def slots(self) -> Slots:
        """Return the slots of keys added since the last `take_out`, in order of first arrival."""
        return self._order.values.copy()

    def keys_at(self, slots: Slots) -> list[pa.Array]:
        """Return the keys of slots."""
        return [column.take(slots) for column in self._keys]

    def take_out(self, slots: Slots) -> None:
        """Reset the values of all current keys, whose slots are given."""
        if len(self._there) > _MOST_IDLE and 2 * len(slots) < len(self._there):
            self._clear()
            return
        for kept in self._kept:
            self._columns[kept.name].values[slots] = filled(kept, len(slots))
        self._there.values[slots] = False
        self._order.replace(slots[:0])
