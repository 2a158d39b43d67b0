"""OVER in batch mode: partitions are complete, so any frame and any order is possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_columns import KeyedColumns
from millstream.sql.columns.keyed_rows import equal_values
from millstream.sql.columns.keys import grouped
from millstream.sql.columns.numpy_arrays import Ints, Mask, NumpyColumn, is_number_like, plain, unscaled, valid_of
from millstream.sql.columns.row_order import sorted_rows
from millstream.sql.columns.spillable_rows import HashBins
from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler
from millstream.sql.operators.base import StepwiseFinishOperator, split_batches
from millstream.sql.operators.over.over_frames import (
    BY_FRAME,
    Frames,
    as_over,
    by_frame,
    ends_of,
    is_true,
    places_before,
    shifted,
    starts_of,
)
from millstream.sql.operators.over.over_time import lag_of
from millstream.sql.plan.specs import OverSpec

# Maximum frame rows processed at once.
_AT_ONCE = 1 << 20
_DAY = 86_400_000


class BatchOverOperator(StepwiseFinishOperator):
    """Emits the input's columns, then the aggregates; rows by partition, in the OVER's order."""

    def __init__(self, over: OverSpec, kinds: Sequence[pa.DataType]) -> None:
        """Create the operator.

        Args:
            over: the partition, order, frame and aggregates.
            kinds: the Arrow types of the input's columns.
        """
        self.over = over
        self.calls = over.calls
        self.kinds = list(kinds)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._rows = self.spillable_rows("rows", self.kinds, self.over.partition, HashBins(self.over.partition))

    def process(self, batch: Batch) -> Iterable[Batch]:
        self._rows.add(batch)
        return ()

    def finishing(self) -> Iterator[None]:
        for batches in self._rows.by_bin():
            yield from self._emitted(list(batches))

    def _emitted(self, batches: list[Batch]) -> Iterator[None]:
        """Emit the results of complete partitions."""
        rows = Batch.concatenated(batches)
        keys = grouped([rows.columns[k] for k in self.over.partition], len(rows)).codes
        by_key = [pa.array(keys), *rows.columns]
        order = sorted_rows(by_key, [(0, False, True), *((c + 1, d, n) for c, d, n in self.over.order)], len(rows))
        every = rows.take(order)
        results = Partitions(every, keys[order], self.over).results()
        for batch in split_batches([*every.columns, *results], len(rows)):
            self.emit([batch])
            yield


class Partitions:
    """Rows sorted by partition and order, with results over their frames."""

    def __init__(self, rows: Batch, keys: Ints, over: OverSpec) -> None:
        self._rows = rows
        self._keys = keys
        self._over = over
        changes = keys[1:] != keys[:-1]
        for column, _, _ in over.order:
            values = rows.columns[column]
            changes |= ~equal_values(values.slice(1), values.slice(0, len(values) - 1))
        # Peers, rows equal in partition and order, share a number.
        self._peers = np.cumsum(np.append(0, changes))
        self._first, self._last = starts_of(keys), ends_of(keys)

    def results(self, requested: Ints | None = None) -> list[pa.Array]:
        """Return the aggregates, one column each, of some or all rows."""
        frames: tuple[Ints, Ints] | None = None
        columns = []
        for call in self._over.calls:
            special = _OF_PARTITION.get(call.function)
            if special is not None:
                column = special(self, call)
                columns.append(column if requested is None else column.take(pa.array(requested)))
                continue
            if frames is None:
                low, high = self._frames()
                frames = (low, high) if requested is None else (low[requested], high[requested])
            columns.append(self._aggregate(call, *frames))
        return columns

    # --- frames

    def _frames(self) -> tuple[Ints, Ints]:
        """Return the frame bounds of each row; an end before the start is an empty frame."""
        over, positions = self._over, np.arange(len(self._keys))
        if over.rows:
            low = self._first if over.start is None else np.maximum(positions + over.start, self._first)
            high = self._last if over.end is None else np.minimum(positions + over.end, self._last)
            return low, high
        low = self._first if over.start is None else self._bound(over.start, is_end=False)
        high = self._last if over.end is None else self._bound(over.end, is_end=True)
        return low, high

    def _bound(self, distance: int, is_end: bool) -> Ints:
        if distance == 0:
            return ends_of(self._peers) if is_end else starts_of(self._peers)
        column, descending, nulls_first = self._over.order[0]
        values, valid = _numbers(self._rows.columns[column])
        sign = -1 if descending else 1
        levels, reach = sign * values, _reach(distance, self._rows.columns[column].type)
        # Nulls form a group of their own, before or after all others.
        group = self._keys * 2 + (0 if valid is None else np.where(valid, int(nulls_first), int(not nulls_first)))
        shifted_levels = levels if valid is None else np.where(valid, levels, 0)
        bounds = shifted_levels + reach if valid is None else np.where(valid, shifted_levels + reach, 0)
        positions = places_before(group, shifted_levels, group, bounds, equal=is_end)
        return positions - 1 if is_end else positions

    # --- aggregates

    def _aggregate(self, call: AggregateCall, low: Ints, high: Ints) -> pa.Array:
        if call.function in BY_FRAME and call.user is None:
            columns = [self._rows.columns[a] for a in call.arguments]
            counted = None if call.condition is None else is_true(self._rows.columns[call.condition])
            has_rows = high >= low
            frames = Frames(np.where(has_rows, low, 0), np.where(has_rows, high, 0), low, low)
            values = by_frame(call, columns, counted, frames)
            return values if has_rows.all() else values.take(pa.array(np.arange(len(low)), mask=~has_rows))
        # Rows with the same frame have the same result.
        by_frames = grouped([pa.array(low), pa.array(high)], len(low))
        first = by_frames.first
        parts = [self._folded(call, low[part], high[part]) for part in _split(first, (high - low + 1)[first])]
        whole = pa.concat_arrays(parts)
        return whole.take(pa.array(by_frames.codes))

    def _folded(self, call: AggregateCall, low: Ints, high: Ints) -> pa.Array:
        """Return an aggregate, computed for each frame separately."""
        sizes = np.maximum(high - low + 1, 0)
        frame = np.repeat(np.arange(len(low)), sizes)
        rows = np.arange(len(frame)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + low[frame]
        batch = self._rows.take(rows)
        kinds = [c.type for c in batch.columns]
        aggregates = AggregateHandler([as_over(call, kinds)], kinds, retracts=False)
        state = KeyedColumns([pa.int64()], aggregates.state_columns)
        aggregates.open([pa.int64()], lambda name, table: table)
        state.find_or_add([pa.array(np.arange(len(low)))], len(low))
        if len(rows):
            aggregates.fold(batch, [pa.array(frame)], frame, state)
        (values,) = aggregates.results(state, np.arange(len(low)))
        return values

    # --- positions in the order

    def _row_number(self, call: AggregateCall) -> pa.Array:
        return pa.array(np.arange(len(self._keys)) - self._first + 1)

    def _rank(self, call: AggregateCall) -> pa.Array:
        return pa.array(starts_of(self._peers) - self._first + 1)

    def _dense_rank(self, call: AggregateCall) -> pa.Array:
        return pa.array(self._peers - self._peers[self._first] + 1)

    def _percent_rank(self, call: AggregateCall) -> pa.Array:
        others = self._last - self._first
        rank = (starts_of(self._peers) - self._first).astype(np.float64)
        return pa.array(np.where(others > 0, rank / np.maximum(others, 1), 0.0))

    def _cume_dist(self, call: AggregateCall) -> pa.Array:
        # As in Flink, peers are counted one by one.
        return pa.array((np.arange(len(self._keys)) - self._first + 1) / (self._last - self._first + 1))

    def _ntile(self, call: AggregateCall) -> pa.Array:
        parts = lag_of(call)
        if parts <= 0:
            raise TableException("NTILE needs at least one bucket.")
        size, rest = np.divmod(self._last - self._first + 1, parts)
        positions = np.arange(len(self._keys)) - self._first
        # The first buckets have one row more if the rows do not divide evenly.
        rows_in_larger = rest * (size + 1)
        bucket = np.where(size > 0, (positions - rows_in_larger) // np.maximum(size, 1), 0) + rest
        return pa.array(np.where(positions < rows_in_larger, positions // (size + 1), bucket) + 1)

    def _shifted(self, call: AggregateCall) -> pa.Array:
        by = lag_of(call) if call.function == "LAG" else -lag_of(call)
        default = self._rows.columns[call.arguments[2]] if len(call.arguments) > 2 else None
        values, positions = self._rows.columns[call.arguments[0]], np.arange(len(self._keys))
        return shifted(values, self._keys, positions, by, default).cast(arrow_type(call.type))


_OF_PARTITION = {
    "ROW_NUMBER": Partitions._row_number,
    "RANK": Partitions._rank,
    "DENSE_RANK": Partitions._dense_rank,
    "PERCENT_RANK": Partitions._percent_rank,
    "CUME_DIST": Partitions._cume_dist,
    "NTILE": Partitions._ntile,
    "LAG": Partitions._shifted,
    "LEAD": Partitions._shifted,
}
# Functions of the whole partition, not of a frame.
OF_PARTITION = frozenset(_OF_PARTITION)


def _split(rows: Ints, sizes: Ints) -> Iterator[Ints]:
    """Yield rows in groups of bounded total size."""
    part = np.cumsum(np.maximum(sizes, 0)) // _AT_ONCE
    for positions in np.split(rows, np.flatnonzero(np.diff(part)) + 1):
        if len(positions):
            yield positions


def _numbers(column: pa.Array) -> tuple[NumpyColumn, Mask | None]:
    """Return the numbers in which a RANGE measures distances."""
    if pa.types.is_decimal(column.type):
        return unscaled(column), valid_of(column)
    if not is_number_like(column.type):
        raise TableException(f"RANGE with a distance needs an order by a number or a time, not by {column.type}.")
    values = plain(column)
    return values if values.dtype.kind == "f" else values.astype(np.int64), valid_of(column)


def _reach(distance: int, kind: pa.DataType) -> int:
    """Return a distance (milliseconds for times) in the units of a type."""
    if pa.types.is_decimal(kind):
        return int(distance * 10**kind.scale)
    if pa.types.is_timestamp(kind):
        return distance * {"ms": 1, "us": 1000, "ns": 1_000_000}[kind.unit]
    return distance // _DAY if pa.types.is_date(kind) else distance
