"""Arrays to which values are appended, at little cost for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

_FIRST = 256


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

    __slots__ = ("_parts", "kind")

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        # Each larger than the next, so that there are few of them and none is copied often.
        self._parts: list[pa.Array] = []

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return sum(part.nbytes for part in self._parts)

    def extend(self, column: pa.Array) -> None:
        """Add values."""
        self._parts.append(column)
        while len(self._parts) > 1 and len(self._parts[-2]) < 2 * len(self._parts[-1]):
            last = self._parts.pop()
            self._parts[-1] = pa.concat_arrays([self._parts[-1], last])

    def take(self, rows: NDArray[Any] | pa.Array) -> pa.Array:
        """Return the values at some places; at one that is null, null."""
        if not self._parts:
            # All that can be asked for here is null.
            return pa.nulls(len(rows), self.kind)
        if len(self._parts) == 1:
            return self._parts[0].take(pa.array(rows))
        return _one(pa.chunked_array(self._parts).take(pa.array(rows)))

    def replace(self, column: pa.Array) -> None:
        """Have other values."""
        self._parts = [column]


def _one(column: pa.ChunkedArray) -> pa.Array:
    chunks: Sequence[pa.Array] = column.chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks) if chunks else pa.array([], column.type)
