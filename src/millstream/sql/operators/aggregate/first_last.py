"""Vectorized FIRST_VALUE and LAST_VALUE on append-only input."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from millstream.sql.columns.index import KeyIds
from millstream.sql.columns.keyed_columns import Columns, StateColumn
from millstream.sql.columns.numpy_arrays import Ints, Mask, NumpyColumn, Valid, from_python, python_values, valid_of
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.accumulators import Accumulator, Counted, both, differing
from millstream.sql.operators.aggregate.segments import Running, Segments


class FirstOrLastEver(Accumulator):
    """The first or last non-null value of a key, stored as a Python object.

    Running results are row positions of the values, so the work per row is numeric.
    """

    def __init__(self, call: AggregateCall, name: str) -> None:
        super().__init__(call, name)
        self._first = call.function == "FIRST_VALUE"

    @property
    def state_columns(self) -> list[StateColumn]:
        return [StateColumn(self.name, object, None)]

    def run(self, segments: Segments, arguments: Sequence[pa.Array], counted: Counted, state: Columns) -> Running:
        column = state.column(self.name)
        before = segments.begins(column, None)
        has_stored = np.fromiter((v is not None for v in before), np.bool_, segments.count)
        has_value = _counts(arguments[0], counted, segments.rows)
        chosen = _first_so_far(segments, has_value) if self._first else _last_so_far(segments, has_value)
        # Positions after the batch's rows represent the stored values of keys.
        initial = segments.rows + segments.of_row
        chosen = np.where(has_stored[segments.of_row] & self._first, initial, np.where(chosen < 0, initial, chosen))
        positions = np.concatenate([chosen, segments.rows + np.arange(segments.count)])
        values = pa.concat_arrays([arguments[0], from_python(list(before), arguments[0].type)])
        last = segments.last
        taken = values.take(pa.array(chosen[segments.ends[last]]))
        _put(column, segments.key_ids[last], taken)
        return RunningPositions(values, positions, self.result)

    def fold(
        self,
        key_ids: KeyIds,
        signs: Ints | None,
        arguments: Sequence[pa.Array],
        counted: Counted,
        state: Columns,
    ) -> None:
        rows = np.flatnonzero(_counts(arguments[0], counted, len(key_ids)))
        column = state.column(self.name)
        if self._first:
            rows = rows[::-1]
        chosen = np.full(int(key_ids.max()) + 1, -1, np.int64)
        chosen[key_ids[rows]] = rows
        touched = np.flatnonzero(chosen >= 0)
        if self._first and len(touched):
            touched = touched[np.fromiter((v is None for v in column[touched]), np.bool_, len(touched))]
        _put(column, touched, arguments[0].take(pa.array(chosen[touched])))

    def results(self, state: Columns, key_ids: KeyIds) -> pa.Array:
        return from_python(list(state.column(self.name)[key_ids]), self.result)


class RunningPositions:
    """Results given as positions in a column."""

    def __init__(self, values: pa.Array, positions: Ints, result: pa.DataType) -> None:
        self._values = values
        self._positions = positions
        self._result = result

    def differs(self, before: Ints, after: Ints) -> Mask:
        differs: Mask = self._positions[before] != self._positions[after]
        rows = np.flatnonzero(differs)
        if pa.types.is_nested(self._values.type):
            pairs = zip(*(python_values(self.take(positions[rows])) for positions in (before, after)), strict=True)
            differs[rows] = np.fromiter((a != b for a, b in pairs), np.bool_, len(rows))
        else:
            differs[rows] = differing(self.take(before[rows]), self.take(after[rows]))
        return differs

    def take(self, positions: Ints) -> pa.Array:
        taken = self._values.take(pa.array(self._positions[positions]))
        return taken if taken.type == self._result else taken.cast(self._result)


def _counts(argument: pa.Array, counted: Counted, rows: int) -> Mask:
    """Return which rows count: those with a value that pass the filter."""
    valid: Valid = both(valid_of(argument), None if counted is None else counted.astype(np.bool_))
    return np.ones(rows, np.bool_) if valid is None else valid


def _last_so_far(segments: Segments, has_value: Mask) -> Ints:
    """Return for each row the latest counting row of its segment so far, or -1."""
    last_rows = np.maximum.accumulate(np.where(has_value, np.arange(segments.rows), -1))
    return np.where(last_rows >= segments.starts[segments.of_row], last_rows, -1)


def _first_so_far(segments: Segments, has_value: Mask) -> Ints:
    """Return for each row the first counting row of its segment so far, or -1."""
    rows = np.arange(segments.rows)
    first = np.minimum.reduceat(np.where(has_value, rows, segments.rows), segments.starts)[segments.of_row]
    return np.where(first <= rows, first, -1)


def _put(column: NumpyColumn, key_ids: KeyIds, values: pa.Array) -> None:
    """Store values in a column of objects."""
    objects = np.empty(len(key_ids), object)
    objects[:] = python_values(values)
    column[key_ids] = objects
