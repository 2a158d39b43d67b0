"""Sorting of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.aliases import Value
from millstream.sql.columns.numpy_arrays import Ints, NumpyColumn, is_number_like, plain, valid_of

# (column, descending, nulls first)
Order = Sequence[tuple[int, bool, bool]]


def sorted_rows(columns: Sequence[pa.Array], order: Order, rows: int) -> Ints:
    """Return the stable sort order of rows."""
    levels: list[NumpyColumn] = []
    for column, descending, nulls_first in order:
        nulls, positions = _places(columns[column], nulls_first)
        levels += [nulls, -positions if descending else positions]
    return np.lexsort(levels[::-1]) if levels else np.arange(rows)


def _places(column: pa.Array, nulls_first: bool) -> tuple[NumpyColumn, NumpyColumn]:
    """Return numbers that sort like the values, and a sort key for nulls."""
    valid = valid_of(column)
    is_null = np.zeros(len(column), np.int8) if valid is None else (~valid).astype(np.int8)
    if pa.types.is_null(column.type):
        positions: NumpyColumn = np.zeros(len(column), np.int64)
    elif is_number_like(column.type):
        positions = plain(column)
        positions = positions.astype(np.int64) if positions.dtype.kind != "f" else positions
        if len(positions) and _has_no_negative(positions):
            positions = np.unique(positions, return_inverse=True)[1].astype(np.int64)
    else:
        positions = pc.rank(column, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
    if valid is not None:
        positions = np.where(valid, positions, 0)
    return -is_null if nulls_first else is_null, positions


def _has_no_negative(numbers: NumpyColumn) -> bool:
    """Return whether negation does not reverse the order: with NaN, and the smallest integer."""
    if numbers.dtype.kind == "f":
        return bool(np.isnan(numbers).any())
    return bool(numbers.min() == np.iinfo(np.int64).min)


class _Reversed:
    """A value with reversed order."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(other.value == self.value)

    __hash__ = None  # type: ignore[assignment]


def sort_key(order: Order) -> Callable[[tuple[Value, ...]], tuple[Value, ...]]:
    """Return a sort key function for rows of Python values."""

    def key(row: tuple[Value, ...]) -> tuple[Value, ...]:
        parts: list[Value] = []
        for column, descending, nulls_first in order:
            value = row[column]
            if value is None:
                parts += [0 if nulls_first else 2, 0]
            else:
                parts += [1, _Reversed(value) if descending else value]
        return tuple(parts)

    return key
