"""Arrays to which values are appended, at little cost for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

_FIRST = 256
# Parts of a column that are put together have so few values, or so few bytes together.
_SMALL, _LARGEST = 1 << 16, 1 << 30


class Growing:
    """A numpy array that grows."""

    __slots__ = ("_array", "_count", "values")

    def __init__(self, dtype: DTypeLike) -> None:
        self._array = np.empty(_FIRST, dtype)
        self._count = 0
        # What there is; good until more comes.
        self.values = self._array[:0]

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """How many bytes it takes; of objects, what stands for them."""
        return self._array.nbytes

    def extend(self, values: NDArray[Any]) -> None:
        """Add values."""
        end = self._count + len(values)
        if end > len(self._array):
            larger = np.empty(max(2 * len(self._array), end), self._array.dtype)
            larger[: self._count] = self.values
            self._array = larger
        self._array[self._count : end] = values
        self._count = end
        self.values = self._array[:end]

    def replace(self, values: NDArray[Any]) -> None:
        """Have other values."""
        self._count = 0
        self.extend(values)


class GrowingColumn:
    """An Arrow column that grows."""

    __slots__ = ("_ends", "_parts", "kind")

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        # Each larger than the next, so that there are few of them and none is copied often; and where each ends.
        self._parts: list[pa.Array] = []
        self._ends = np.zeros(0, np.int64)

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return sum(part.nbytes for part in self._parts)

    def extend(self, column: pa.Array) -> None:
        """Add values."""
        self._parts.append(column)
        while len(self._parts) > 1 and self._are_merged(*self._parts[-2:]):
            last = self._parts.pop()
            self._parts[-1] = pa.concat_arrays([self._parts[-1], last])
        self._ends = np.cumsum([len(part) for part in self._parts])

    @staticmethod
    def _are_merged(before: pa.Array, last: pa.Array) -> bool:
        if len(before) >= 2 * len(last):
            return False
        # Texts of one array have room for two gigabytes.
        return len(last) < _SMALL or before.nbytes + last.nbytes < _LARGEST

    def take(self, rows: NDArray[Any] | pa.Array) -> pa.Array:
        """Return the values at some places; at one that is null, null."""
        if not self._parts:
            # All that can be asked for here is null.
            return pa.nulls(len(rows), self.kind)
        if len(self._parts) == 1:
            return self._parts[0].take(pa.array(rows))
        return self._taken(rows)

    def _taken(self, rows: NDArray[Any] | pa.Array) -> pa.Array:
        # Arrow would put all parts together for it.
        nulls = None
        if isinstance(rows, pa.Array):
            if rows.null_count:
                nulls = rows.is_null().to_numpy(zero_copy_only=False)
                rows = rows.fill_null(0)
            rows = rows.to_numpy(zero_copy_only=False)
        part_of = np.searchsorted(self._ends, rows, "right").astype(np.int8)
        counts = np.bincount(part_of, minlength=len(self._parts))
        if counts.max(initial=0) == len(rows):
            at = int(counts.argmax()) if len(rows) else 0
            return self._parts[at].take(pa.array(rows - (self._ends[at] - len(self._parts[at])), mask=nulls))
        order = np.argsort(part_of, kind="stable")
        in_order, pieces, start = rows[order], [], 0
        for part, end, count in zip(self._parts, self._ends.tolist(), counts.tolist(), strict=True):
            if count:
                pieces.append(part.take(pa.array(in_order[start : start + count] - (end - len(part)))))
            start += count
        place = np.empty(len(rows), np.int64)
        place[order] = np.arange(len(rows))
        return pa.concat_arrays(pieces).take(pa.array(place, mask=nulls))

    def replace(self, column: pa.Array) -> None:
        """Have other values."""
        self._parts = [column]
        self._ends = np.array([len(column)])
