"""The first phase of two-phase aggregation: partial results per key before the exchange.

It has no state: partial results are emitted at the end of the epoch at the latest. The second phase
(`GlobalGroupAggregateOperator`, `GlobalWindowAggregateOperator`) merges them; a key may occur several times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.append_buffer import GrowingArray, GrowingColumn
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.index import KeyIds, first_rows, index_for
from millstream.sql.columns.keyed_columns import Columns, FreshColumns, StateColumn, filled
from millstream.sql.columns.numpy_arrays import Ints, NumpyColumn
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler, signs_of
from millstream.sql.operators.base import BatchOperator, split_batches
from millstream.sql.operators.window.window_aggregate import WindowTimes, shares_slices, with_windows
from millstream.sql.operators.window.windowing import Times, Windowing

# Keys remain indexed after they are taken out, because they often recur: up to this many idle ones.
_MAX_IDLE = 1 << 16


class Bundle:
    """Keys, each with an id that is its index in the value columns."""

    def __init__(self, kinds: Sequence[pa.DataType], columns: Sequence[StateColumn]) -> None:
        self._kinds = list(kinds)
        self._specs = list(columns)
        self._clear()

    def _clear(self) -> None:
        self._index = index_for(self._kinds)
        self._keys = [GrowingColumn(kind) for kind in self._kinds]
        self._columns = {k.name: GrowingArray(k.dtype) for k in self._specs}
        # The current keys, in order of first arrival.
        self._order = GrowingArray(np.int64)
        self._is_current = GrowingArray(np.bool_)

    def column(self, name: str) -> NumpyColumn:
        """Return a value column, to be changed in place; valid until keys are added."""
        return self._columns[name].values

    def add(self, keys: Sequence[pa.Array], rows: int) -> KeyIds:
        """Return the key ids of keys; new keys are added."""
        key_ids, new = self._index.find_or_add(keys, rows)
        if len(new):
            added = pa.array(new)
            for column, key in zip(self._keys, keys, strict=True):
                column.extend(key.take(added))
            for spec in self._specs:
                self._columns[spec.name].extend(filled(spec, len(new)))
            self._is_current.extend(np.zeros(len(new), np.bool_))
        self._mark_current(key_ids)
        return key_ids

    def _mark_current(self, key_ids: KeyIds) -> None:
        returning = key_ids.take(np.flatnonzero(~self._is_current.values.take(key_ids)))
        if not len(returning):
            return
        self._is_current.values[returning] = True
        self._order.extend(returning.take(first_rows(returning, np.empty(len(self._is_current), np.int64))))

    def key_ids(self) -> KeyIds:
        """Return the key ids of keys added since the last `reset`, in order of first arrival."""
        return self._order.values.copy()

    def keys_at(self, key_ids: KeyIds) -> list[pa.Array]:
        """Return the keys of key ids."""
        return [column.take(key_ids) for column in self._keys]

    def reset(self, key_ids: KeyIds) -> None:
        """Reset the values of all current keys, whose key ids are given."""
        if len(self._is_current) > _MAX_IDLE and 2 * len(key_ids) < len(self._is_current):
            self._clear()
            return
        for spec in self._specs:
            self._columns[spec.name].values[key_ids] = filled(spec, len(key_ids))
        self._is_current.values[key_ids] = False
        self._order.replace(key_ids[:0])


_ROWS = "rows"
# Maximum rows aggregated before the result is emitted.
MAX_ROWS = 1 << 17
# Rows are pre-aggregated if the output has at most this share of them, measured on this many rows; else the next try
# is after this many rows.
_MAX_OUTPUT_RATIO = 0.6
_MIN_MEASURED_ROWS = 1 << 10
_ROWS_UNTIL_RETRY = 1 << 21


class LocalAggregateOperator(BatchOperator):
    """Pre-aggregates rows of equal keys."""

    emits_later = True
    buffers_output = True

    def __init__(
        self,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        retracts: bool,
        max_rows: int = MAX_ROWS,
    ) -> None:
        """Create the operator.

        Args:
            keys: the columns to group by.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
            retracts: whether the input may retract rows.
            max_rows: maximum rows aggregated before the result is emitted.
        """
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.aggregates = AggregateHandler(calls, kinds, retracts)
        self.retracts = retracts
        # Lists of distinct values hold the rows of one batch.
        self.max_rows = 0 if any(call.distinct for call in calls) else max_rows

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._specs = [*([StateColumn(_ROWS, np.int64)] if self.retracts else []), *self.aggregates.state_columns]
        self._bundle = Bundle(self._key_kinds(), self._specs)
        self._held_rows = 0
        # Number of rows to forward unaggregated, since pre-aggregation did not pay off.
        self._rows_to_pass = 0

    def _key_kinds(self) -> list[pa.DataType]:
        return [self.kinds[k] for k in self.keys]

    def process(self, batch: Batch) -> Iterable[Batch]:
        return self._aggregate(batch, [batch.columns[k] for k in self.keys])

    def _aggregate(self, batch: Batch, keys: list[pa.Array]) -> Iterator[Batch]:
        """Aggregate keyed rows; yield partial results that are not held back."""
        if self._rows_to_pass > 0 or not self.aggregates.is_exact:
            self._rows_to_pass -= len(batch)
            key_ids = np.arange(len(batch))
            state = FreshColumns(self._specs, len(batch))
            self._fold(batch, key_ids, state)
            yield self._partial_batch(keys, self._columns(batch, key_ids, key_ids, state), len(batch))
            return
        key_ids = self._bundle.add(keys, len(batch))
        self._fold(batch, key_ids, self._bundle)
        self._held_rows += len(batch)
        if self._held_rows >= self.max_rows:
            yield from self._released(batch, key_ids)

    def _fold(self, batch: Batch, key_ids: Ints, state: Columns) -> None:
        if self.retracts:
            signs = signs_of(batch)
            np.add.at(state.column(_ROWS), key_ids, np.ones(len(key_ids), np.int64) if signs is None else signs)
        self.aggregates.fold_unfiltered(batch, key_ids, state)

    def _released(self, batch: Batch | None = None, of_rows: Ints | None = None) -> Iterator[Batch]:
        """Yield the partial results held back; with distinct values, those of one batch with its rows' key ids."""
        bundle, key_ids = self._bundle, self._bundle.key_ids()
        if not len(key_ids):
            return
        if of_rows is not None:
            index_of_key_id = np.empty(int(key_ids.max()) + 1, np.int64)
            index_of_key_id[key_ids] = np.arange(len(key_ids))
            of_rows = index_of_key_id.take(of_rows)
        keys = bundle.keys_at(key_ids)
        columns = self._columns(batch, of_rows, key_ids, bundle)
        bundle.reset(key_ids)
        if self._held_rows >= _MIN_MEASURED_ROWS and len(key_ids) > _MAX_OUTPUT_RATIO * self._held_rows:
            self._rows_to_pass = _ROWS_UNTIL_RETRY
        self._held_rows = 0
        whole = self._partial_batch(keys, columns, len(key_ids))
        yield from split_batches(list(whole.columns), len(key_ids))

    def _columns(self, batch: Batch | None, of_rows: Ints | None, key_ids: Ints, state: Columns) -> list[pa.Array]:
        """Return the partial results of key ids."""
        rows = [pa.array(state.column(_ROWS)[key_ids])] if self.retracts else []
        columns = [*rows, *self.aggregates.partials(state, key_ids)]
        if batch is not None and of_rows is not None:
            columns += self.aggregates.distinct_lists(batch, of_rows, len(key_ids))
        return columns

    def _partial_batch(self, keys: list[pa.Array], columns: list[pa.Array], rows: int) -> Batch:
        return Batch([*keys, *columns], None, rows)

    def flush(self) -> None:
        self.emit(self._released())

    def finish(self) -> None:
        self.flush()


class LocalGroupAggregateOperator(LocalAggregateOperator):
    """Emits keys, the row count if rows may be retracted, and partial results."""


class LocalWindowAggregateOperator(LocalAggregateOperator):
    """The same per key and slice of time, or window.

    The last column is the slice's end; before it is the start if the input has window columns.
    """

    def __init__(
        self,
        windowing: Windowing,
        times: WindowTimes,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        retracts: bool,
    ) -> None:
        super().__init__(keys, calls, kinds, retracts)
        self.windowing = windowing
        self.times = times
        if times.has_window is None:
            times.are_points = kinds[times.column].tz is not None
        self.shares = shares_slices(windowing, times, self.aggregates)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._next = MAX_WATERMARK

    def _key_kinds(self) -> list[pa.DataType]:
        window = [pa.int64()] if self.times.has_window is None else [pa.int64(), pa.int64()]
        return [*super()._key_kinds(), *window]

    def process(self, batch: Batch) -> Iterable[Batch]:
        batch, start, end = with_windows(batch, self.windowing, self.times, self.shares, self.setup.clock())
        if not len(batch):
            return ()
        self._next = min(self._next, self._first_end(end))
        window = [pa.array(times) for times in (start, end) if times is not None]
        return self._aggregate(batch, [*(batch.columns[k] for k in self.keys), *window])

    def _first_end(self, ends: Times) -> int:
        """Return the watermark at which the first window ends."""
        (first,) = self.times.triggers(
            self.windowing.first_ends(ends.min(keepdims=True)) if self.shares else ends.min(keepdims=True)
        )
        return int(first)

    def on_watermark(self, watermark: int) -> int | None:
        # Partial results of windows that end now are emitted before the watermark.
        if watermark >= self._next:
            self.flush()
            self._next = MAX_WATERMARK
        self.watermark = watermark
        return watermark

    def on_idle(self) -> bool:
        # An idle input does not hold back the watermark of others.
        self.flush()
        return True

    def _partial_batch(self, keys: list[pa.Array], columns: list[pa.Array], rows: int) -> Batch:
        width = len(self.keys)
        return Batch([*keys[:width], *columns, *keys[width:]], None, rows)
