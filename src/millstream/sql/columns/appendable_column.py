"""Columns of Arrow to which values are appended, at little cost for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.sql.columns.append_buffer import Room, room_for
from millstream.sql.columns.keys import stable_order
from millstream.state.array_storage import IN_MEMORY, Arrays

Ints = NDArray[np.int64]

# Parts of a column that are put together have so few values, or so few bytes together.
_SMALL, _LARGEST = 1 << 16, 1 << 30


class GrowingColumn:
    """An Arrow column that grows."""

    __slots__ = ("_ends", "_parts", "_room", "kind")

    def __init__(self, kind: pa.DataType, arrays: Arrays = IN_MEMORY) -> None:
        self.kind = kind
        # Where the last part is and has room for more; None for types of which no part has.
        self._room = room_for(kind, arrays)
        # Few, and where each ends.
        self._parts: list[pa.Array] = []
        self._ends = np.zeros(0, np.int64)

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return sum(part.nbytes for part in self._parts)

    def extend(self, column: pa.Array) -> None:
        """Add values."""
        if not len(column):
            # A part without values would never be put together with another.
            return
        if self._room is None:
            self._put_together(column)
        else:
            self._put_behind(column, self._room)
        self._ends = np.cumsum([len(part) for part in self._parts])

    def _put_behind(self, column: pa.Array, room: Room) -> None:
        """Copy values into the room that the last part has."""
        if self._parts and room.nbytes + column.nbytes < _LARGEST:
            self._parts.pop()
        else:
            self._room = room = room.another()
        room.extend(column)
        self._parts.append(room.array())

    def _put_together(self, column: pa.Array) -> None:
        """Make parts of parts, each larger than the next, so that there are few of them and none is copied often."""
        self._parts.append(column)
        while len(self._parts) > 1 and self._are_merged(*self._parts[-2:]):
            last = self._parts.pop()
            self._parts[-1] = pa.concat_arrays([self._parts[-1], last])

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
        # Somebody may still have what was here: the memory is left to them.
        self._parts, self._ends = [], np.zeros(0, np.int64)
        self.extend(column)

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
