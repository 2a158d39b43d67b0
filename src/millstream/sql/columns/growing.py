"""Arrays to which values are appended, at little cost for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from millstream.sql.columns.keys import stable_order

Ints = NDArray[np.int64]

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
        return take_all([self], rows)[0]

    def range(self, start: int, stop: int) -> pa.Array:
        """Return the values at places that follow each other; they are copied only where parts meet."""
        pieces, end = [], 0
        for part in self._parts:
            first, end = end, end + len(part)
            if start < end and first < stop:
                pieces.append(part.slice(max(start - first, 0), min(stop, end) - max(start, first)))
        if not pieces:
            return pa.nulls(0, self.kind)
        return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)

    def replace(self, column: pa.Array) -> None:
        """Have other values."""
        self._parts = [column]
        self._ends = np.array([len(column)])

    def _picked(self, rows: pa.Array, known: dict[bytes, _Picked]) -> pa.Array:
        if not self._parts:
            # All that can be asked for here is null.
            return pa.nulls(len(rows), self.kind)
        if len(self._parts) == 1:
            return self._parts[0].take(rows)
        ends = self._ends.tobytes()
        picked = known.get(ends)
        if picked is None:
            picked = known[ends] = _Picked(rows, self._ends)
        return picked.of(self._parts)


def take_all(columns: Iterable[GrowingColumn], rows: NDArray[Any] | pa.Array) -> list[pa.Array]:
    """Return the values of columns at some places; at one that is null, null."""
    places = rows if isinstance(rows, pa.Array) else pa.array(rows)
    # Columns of the same rows mostly have the same parts.
    known: dict[bytes, _Picked] = {}
    return [column._picked(places, known) for column in columns]


class _Picked:
    """Places of columns that have the same parts. Arrow would put all parts together for it."""

    def __init__(self, rows: pa.Array, ends: Ints) -> None:
        nulls = None
        if rows.null_count:
            nulls = rows.is_null().to_numpy(zero_copy_only=False)
            rows = rows.fill_null(0)
        distinct, place = _distinct(rows.to_numpy(zero_copy_only=False), int(ends[-1]))
        # Which places of which part there are, each once and in order.
        self._asked: list[tuple[int, pa.Array]] = []
        edges = np.searchsorted(distinct, ends).tolist()
        for part, (start, stop) in enumerate(pairwise([0, *edges])):
            if stop > start:
                offset = ends[part - 1] if part else 0
                self._asked.append((part, pa.array(distinct[start:stop] - offset)))
        # Where each of those that were asked for is among them; None where it is as they are.
        self._place = (
            None
            if place is None and nulls is None
            else pa.array(np.arange(len(rows)) if place is None else place, mask=nulls)
        )

    def of(self, parts: Sequence[pa.Array]) -> pa.Array:
        """Return the values of a column."""
        if not self._asked:
            return parts[0].slice(0, 0)
        pieces = [parts[part].take(rows) for part, rows in self._asked]
        found = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        return found if self._place is None else found.take(self._place)


def _distinct(rows: Ints, bound: int) -> tuple[Ints, Ints | None]:
    """Return numbers each once and in order, and where each is among those; None where they are that already."""
    if (rows[1:] > rows[:-1]).all():
        return rows, None
    order = stable_order(rows, bound)
    in_order = rows.take(order)
    is_first = np.append(True, in_order[1:] != in_order[:-1])
    place = np.empty(len(rows), np.int64)
    place[order] = np.cumsum(is_first) - 1
    return in_order[is_first], place
