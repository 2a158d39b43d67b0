"""The first of two phases of an aggregate: what rows come to for each key, before they are exchanged.

It keeps no state: what it has is emitted when the epoch ends at the latest. What it emits for a key is what the
accumulators have kept of its rows, which the second phase puts together (`GlobalGroupAggregateOperator`,
`GlobalWindowAggregateOperator`); a key may come several times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.bundle import Bundle
from millstream.sql.columns.keyed_columns import Columns, FreshColumns, StateColumn
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler, signs_of
from millstream.sql.operators.aggregate.segments import Ints
from millstream.sql.operators.base import BatchOperator, split_batches
from millstream.sql.operators.window.window_aggregate import WindowTimes, placed, shares_slices
from millstream.sql.operators.window.windowing import Times, Windowing

_ROWS = "rows"
# So many rows are taken together at most.
MAX_ROWS = 1 << 17
# Rows are taken together where that leaves at most this share of them, which few rows do not tell; else it is tried
# again after so many rows.
_WORTH = 0.6
_ENOUGH = 1 << 10
_TRY_AGAIN = 1 << 21


class LocalAggregateOperator(BatchOperator):
    """Takes rows of equal keys together."""

    emits_later = True
    holds_back = True

    def __init__(
        self,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        retracts: bool,
        max_rows: int = MAX_ROWS,
    ) -> None:
        """Make one.

        Args:
            keys: the columns to group by.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
            retracts: whether the input may take rows back.
            most_rows: of so many rows at most what they come to is held back.
        """
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.aggregates = AggregateHandler(calls, kinds, retracts)
        self.retracts = retracts
        # Lists of distinct values are made of the rows of one batch.
        self.max_rows = 0 if any(call.distinct for call in calls) else max_rows

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._kept = [*([StateColumn(_ROWS, np.int64)] if self.retracts else []), *self.aggregates.kept]
        self._bundle = Bundle(self._key_kinds(), self._kept)
        self._held = 0
        # So many rows more go on one by one, since taking them together was not worth it.
        self._alone = 0

    def _key_kinds(self) -> list[pa.DataType]:
        return [self.kinds[k] for k in self.keys]

    def process(self, batch: Batch) -> Iterable[Batch]:
        return self._taken(batch, [batch.columns[k] for k in self.keys])

    def _taken(self, batch: Batch, keys: list[pa.Array]) -> Iterator[Batch]:
        """Take rows that have keys; yield what is not held back."""
        if self._alone > 0 or not self.aggregates.is_exact:
            self._alone -= len(batch)
            slots = np.arange(len(batch))
            state = FreshColumns(self._kept, len(batch))
            self._add_up(batch, slots, state)
            yield self._made(keys, self._columns(batch, slots, slots, state), len(batch))
            return
        slots = self._bundle.add(keys, len(batch))
        self._add_up(batch, slots, self._bundle)
        self._held += len(batch)
        if self._held >= self.max_rows:
            yield from self._released(batch, slots)

    def _add_up(self, batch: Batch, slots: Ints, state: Columns) -> None:
        if self.retracts:
            signs = signs_of(batch)
            np.add.at(state.column(_ROWS), slots, np.ones(len(slots), np.int64) if signs is None else signs)
        self.aggregates.fold_unfiltered(batch, slots, state)

    def _released(self, batch: Batch | None = None, of_rows: Ints | None = None) -> Iterator[Batch]:
        """Yield what is held back; where there are distinct values, that of one batch, whose rows have slots."""
        bundle, slots = self._bundle, self._bundle.slots()
        if not len(slots):
            return
        if of_rows is not None:
            place = np.empty(int(slots.max()) + 1, np.int64)
            place[slots] = np.arange(len(slots))
            of_rows = place.take(of_rows)
        keys = bundle.keys_at(slots)
        columns = self._columns(batch, of_rows, slots, bundle)
        bundle.take_out(slots)
        if self._held >= _ENOUGH and len(slots) > _WORTH * self._held:
            self._alone = _TRY_AGAIN
        self._held = 0
        whole = self._made(keys, columns, len(slots))
        yield from split_batches(list(whole.columns), len(slots))

    def _columns(self, batch: Batch | None, of_rows: Ints | None, slots: Ints, state: Columns) -> list[pa.Array]:
        """Return what slots have."""
        rows = [pa.array(state.column(_ROWS)[slots])] if self.retracts else []
        columns = [*rows, *self.aggregates.partials(state, slots)]
        if batch is not None and of_rows is not None:
            columns += self.aggregates.distinct_lists(batch, of_rows, len(slots))
        return columns

    def _made(self, keys: list[pa.Array], columns: list[pa.Array], rows: int) -> Batch:
        return Batch([*keys, *columns], None, rows)

    def flush(self) -> None:
        self.emit(self._released())

    def finish(self) -> None:
        self.flush()


class LocalGroupAggregateOperator(LocalAggregateOperator):
    """Keys, if rows may be taken back how many rows, and what the aggregates have kept."""


class LocalWindowAggregateOperator(LocalAggregateOperator):
    """The same for each key and slice of time, or window.

    The last column is its end, and the one before that its start where rows have been given windows.
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
        batch, start, end = placed(batch, self.windowing, self.times, self.shares, self.setup.clock())
        if not len(batch):
            return ()
        self._next = min(self._next, self._first_over(end))
        window = [pa.array(times) for times in (start, end) if times is not None]
        return self._taken(batch, [*(batch.columns[k] for k in self.keys), *window])

    def _first_over(self, ends: Times) -> int:
        """Return how far time must have come for the first window to end, by the ends of slices or windows."""
        (first,) = self.times.triggers(
            self.windowing.first_ends(ends.min(keepdims=True)) if self.shares else ends.min(keepdims=True)
        )
        return int(first)

    def on_watermark(self, watermark: int) -> int | None:
        # What is held back of windows that end now comes before it.
        if watermark >= self._next:
            self.flush()
            self._next = MAX_WATERMARK
        self.watermark = watermark
        return watermark

    def on_idle(self) -> bool:
        # Then others decide how far time has come.
        self.flush()
        return True

    def _made(self, keys: list[pa.Array], columns: list[pa.Array], rows: int) -> Batch:
        width = len(self.keys)
        return Batch([*keys[:width], *columns, *keys[width:]], None, rows)
