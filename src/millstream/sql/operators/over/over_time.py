"""OVER ordered by time: each row with aggregates over the earlier rows of its partition.

In event time, rows are pending until the watermark passes them and are processed in time order; in processing time, in
order of arrival. Rows that leave a sliding frame are retracted from running sums, as in Flink, so float sums equal
Flink's to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, Batch
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.numpy_arrays import Ints, plain
from millstream.sql.errors import null_rowtime
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED, AggregateHandler
from millstream.sql.operators.aggregate.segments import Segments
from millstream.sql.operators.base import KeyedBatchOperator, split_batches
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
    unbounded,
)

# The time up to which a key's rows were emitted, with Flink's initial value.
_LAST = "last"


class OverOperator(KeyedBatchOperator):
    """Emits the input's columns, then the aggregates."""

    emits_later = True

    def __init__(
        self,
        partition: Sequence[int],
        rowtime: int | None,
        rows: bool,
        preceding: int | None,
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        ttl: int = 0,
    ) -> None:
        """Create the operator.

        Args:
            partition: the columns to partition by.
            rowtime: the time column; None for processing time.
            rows: whether the frame counts rows; rows of equal time then have different frames.
            preceding: the number of rows or milliseconds before the row where its frame begins; None for unbounded.
            calls: the aggregates; LAG has its offset as an option.
            kinds: the Arrow types of the input's columns.
            ttl: state TTL of a partition in milliseconds; 0 for none.
        """
        self.partition = tuple(partition)
        self.rowtime = rowtime
        self.rows = rows
        self.preceding = preceding
        self.calls = list(calls)
        self.kinds = list(kinds)
        self.ttl = ttl
        # In processing time, rows of a RANGE frame are pending until their millisecond ends; others are not.
        self.buffers_input = rowtime is not None or (not rows and preceding is not None)
        self._shifts = max((lag_of(c) for c in calls if c.function == "LAG"), default=0)
        by_sums = [as_over(c, kinds) for c in calls if not self._is_by_frame(c)]
        self.aggregates = AggregateHandler(by_sums, kinds, retracts=preceding is not None)
        # Columns needed of emitted rows while they are in frames.
        used = {c for call in calls for c in (*call.arguments, call.condition) if c is not None}
        self._framed = sorted({*used, *self.partition})

    def _is_by_frame(self, call: AggregateCall) -> bool:
        if call.function == "LAG":
            return True
        return self.preceding is not None and call.function in BY_FRAME and call.user is None

    @property
    def _keeps_frames(self) -> bool:
        return self.preceding is not None or self._shifts > 0

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        keys = [self.kinds[k] for k in self.partition]
        state_columns = [StateColumn(_LAST, np.int64), StateColumn(TOUCHED, np.int64), *self.aggregates.state_columns]
        self._state: KeyedColumns = self.state_table("partitions", KeyedColumns(keys, state_columns))
        self.aggregates.open(keys, self.state_table)
        if self.buffers_input:
            # The mark of a row is its time.
            pending = KeyedRows(self.kinds, self.partition)
            self._pending: KeyedRows = self.state_table("pending", pending)
        if self._keeps_frames:
            positions = [self._framed.index(p) for p in self.partition]
            framed = KeyedRows([self.kinds[c] for c in self._framed], positions)
            self._frames: KeyedRows = self.state_table("frames", framed)
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        self._late = setup.context.get_metrics_group().counter("numLateRecordsDropped")

    # --- rows

    def process(self, batch: Batch) -> Iterable[Batch]:
        if not self.buffers_input:
            return self._in_time_order(batch, np.full(len(batch), self.setup.clock(), np.int64))
        if self.rowtime is None:
            self._wait(batch, np.full(len(batch), self.setup.clock(), np.int64))
            return ()
        column = batch.columns[self.rowtime]
        if column.null_count:
            raise null_rowtime()
        times = plain(column.cast(pa.timestamp("ms", column.type.tz), safe=False)).astype(np.int64)
        in_time = times > self._passed(batch)
        if not in_time.all():
            self._late.inc(int((~in_time).sum()))
            batch, times = batch.filter(in_time), times[in_time]
        if len(batch):
            self._wait(batch, times)
        return ()

    def _passed(self, batch: Batch) -> Ints:
        """Return for each row the time up to which rows of its partition are late."""
        if self.preceding is None:
            return np.full(len(batch), self.watermark, np.int64)
        # As in Flink: up to the last emitted row of the partition, initially 1970.
        key_ids = self._state.find([batch.columns[k] for k in self.partition], len(batch))
        last = np.zeros(len(batch), np.int64)
        last[key_ids >= 0] = self._state.column(_LAST)[key_ids[key_ids >= 0]]
        return last

    def _wait(self, batch: Batch, times: Ints) -> None:
        self._pending.compact()
        keys = self._pending.find_or_add([batch.columns[k] for k in self.partition], len(batch))
        self._pending.add(keys, batch.columns, times)
        self._next = min(self._next, int(times.min()))

    def _schedule_timer(self) -> None:
        rows = self._pending.all_rows() if self.buffers_input else np.zeros(0, np.int64)
        self._next = int(self._pending.marks[rows].min()) if len(rows) else MAX_WATERMARK

    # --- time

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        return self.rows_until(self._next, self._pending) if self.rowtime is not None else ()

    def on_watermark(self, watermark: int) -> int | None:
        if self.rowtime is not None:
            if watermark >= self._next:
                self._emit_due(watermark)
            self._discard(watermark)
        self.watermark = watermark
        return watermark

    @property
    def follows_clock(self) -> bool:
        return self.buffers_input and self.rowtime is None

    def on_processing_time(self) -> None:
        if self.follows_clock and self.setup.clock() > self._next:
            self._emit_due(self.setup.clock() - 1)

    def next_wake(self) -> int | None:
        return self._next + 1 if self.follows_clock and self._next < MAX_WATERMARK else None

    def finish(self) -> None:
        if self.follows_clock:
            self._emit_due(MAX_WATERMARK)

    def _emit_due(self, time: int) -> None:
        """Emit pending rows up to a time."""
        rows = self._pending.all_rows()
        times = self._pending.marks[rows]
        due = np.flatnonzero(times <= time)
        if not len(due):
            return
        due = due[np.argsort(times[due], kind="stable")]
        rows, times = rows[due], times[due]
        batch = self._pending.batch(rows)
        self._pending.remove(rows)
        self.emit(self._in_time_order(batch, times))
        self._schedule_timer()

    def _discard(self, watermark: int) -> None:
        """Discard partitions without rows in any future frame, as early as Flink does."""
        if self.rows or self.preceding is None or not len(self._state):
            return
        state, reach = self._state, self.preceding + self.preceding // 2 + 1
        key_ids = state.key_ids()
        over = key_ids[state.column(_LAST)[key_ids] + reach <= watermark]
        if len(over):
            self._remove(over)
            state.compact()

    def _remove(self, key_ids: Ints) -> None:
        """Discard partitions and their frame rows."""
        if self._keeps_frames:
            keys = self._frames.find(self._state.keys_at(key_ids), len(key_ids))
            positions, rows = self._frames.pairs(keys)
            self._retract(key_ids[positions], rows)
            self._frames.remove(rows)
        self._state.remove(key_ids)

    def _retract(self, key_ids: Ints, rows: Ints) -> None:
        """Retract rows from aggregates, so that distinct values are removed."""
        if len(rows) and any(c.distinct for c in self.aggregates.calls):
            columns = [pa.nulls(len(rows))] * len(self.kinds)
            for index, c in enumerate(self._framed):
                columns[c] = self._frames.take(index, rows)
            batch = Batch(columns, np.full(len(rows), DELETE, np.int8), len(rows))
            self.aggregates.fold(batch, [columns[k] for k in self.partition], key_ids, self._state)

    def _expire(self) -> None:
        now, state = self.setup.clock(), self._state
        over = state.expired(TOUCHED, now - self.ttl)
        if len(over):
            self._remove(over)
        self.aggregates.expire(now, self.ttl)

    # --- output

    def _in_time_order(self, batch: Batch, times: Ints) -> Iterator[Batch]:
        """Yield rows in time order, with their aggregates."""
        if self.ttl:
            self._expire()
        self._state.compact()
        keys = [batch.columns[k] for k in self.partition]
        first_new = self._state.bound
        key_ids, _ = self._state.find_or_add(keys, len(batch))
        order = np.argsort(key_ids, kind="stable")
        sorted_batch = batch.take(order)
        every, all_key_ids, all_times, new = self._with_frames(sorted_batch, key_ids[order], times[order])
        frames = self._frames_of(all_key_ids, all_times, new)
        columns = self._results(every, all_key_ids, new, frames, first_new)
        distinct, ends = np.unique(key_ids[order][::-1], return_index=True)
        self._state.column(_LAST)[distinct] = times[order][::-1][ends]
        self._state.column(TOUCHED)[distinct] = self.setup.clock()
        self._state.changed(distinct)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        positions = pa.array(back)
        yield from split_batches([*batch.columns, *(c.take(positions) for c in columns)], len(batch))

    def _with_frames(self, batch: Batch, key_ids: Ints, times: Ints) -> tuple[Batch, Ints, Ints, Ints]:
        """Return new rows together with the frame rows, by partition, and which of them are new."""
        if not self._keeps_frames:
            return batch, key_ids, times, np.arange(len(batch))
        framed = self._frames
        framed.compact()
        keys = framed.find_or_add([batch.columns[k] for k in self.partition], len(batch))
        first = np.flatnonzero(np.append(True, key_ids[1:] != key_ids[:-1]))
        owners, stored = framed.pairs(keys[first])
        old_key_ids, old_times = key_ids[first][owners], framed.marks[stored]
        added = framed.add(keys, [batch.columns[c] for c in self._framed], times)
        order = np.argsort(np.concatenate([old_key_ids, key_ids]), kind="stable")
        positions, count = pa.array(order), len(stored) + len(batch)
        columns = [pa.nulls(count)] * len(self.kinds)
        for index, c in enumerate(self._framed):
            columns[c] = pa.concat_arrays([framed.take(index, stored), batch.columns[c]]).take(positions)
        self._in_order = np.concatenate([stored, added])[order]
        whole = Batch(columns, None, count)
        new = np.flatnonzero(order >= len(stored))
        return whole, np.concatenate([old_key_ids, key_ids])[order], np.concatenate([old_times, times])[order], new

    def _frames_of(self, key_ids: Ints, times: Ints, new: Ints) -> Frames:
        high = new
        if not self.rows and self.buffers_input:
            high = ends_of(_numbered(key_ids, times))[new]
        if self.preceding is None:
            if not self._keeps_frames:
                return unbounded(key_ids, high)
            low = new
            frames = Frames.sliding(key_ids, new, starts_of(key_ids)[new], high)
            frames = Frames(low, high, frames.events, frames.shown)
            first_needed = np.maximum(ends_of(key_ids)[new] - self._shifts + 1, 0)
        elif self.rows:
            low = np.maximum(new - self.preceding, starts_of(key_ids)[new])
            frames = Frames.sliding(key_ids, new, low, high)
            first_needed = np.maximum(ends_of(key_ids)[new] - max(self.preceding, self._shifts - 1), 0)
        else:
            low = places_before(key_ids, times, key_ids[new], times[new] - self.preceding, equal=False)
            frames = Frames.sliding(key_ids, new, low, high)
            first_needed = low
        self._drop_frames(key_ids, new, first_needed)
        return frames

    def _drop_frames(self, key_ids: Ints, new: Ints, low: Ints) -> None:
        """Discard rows before the last frame of their partition."""
        last = np.append(key_ids[new[1:]] != key_ids[new[:-1]], True)
        begins = np.repeat(
            low[last], np.diff(np.flatnonzero(np.append(True, key_ids[1:] != key_ids[:-1])), append=len(key_ids))
        )
        self._frames.remove(self._in_order[np.arange(len(key_ids)) < begins])

    def _results(self, every: Batch, key_ids: Ints, new: Ints, frames: Frames, first_new: int) -> list[pa.Array]:
        sums = self._sums(every, key_ids, frames, first_new)
        results = []
        for call in self.calls:
            if not self._is_by_frame(call):
                results.append(next(sums))
            elif call.function == "LAG":
                values = every.columns[call.arguments[0]]
                default = every.columns[call.arguments[2]] if len(call.arguments) > 2 else None
                # As in Flink, rows of equal time look from the last of them.
                results.append(shifted(values, key_ids, frames.high, lag_of(call), default))
            else:
                counted = None if call.condition is None else is_true(every.columns[call.condition])
                columns = [every.columns[a] for a in call.arguments]
                results.append(by_frame(call, columns, counted, frames))
        return results

    def _sums(self, every: Batch, key_ids: Ints, frames: Frames, first_new: int) -> Iterator[pa.Array]:
        if not self.aggregates.calls:
            return
        goes = frames.events < 0
        rows = np.where(goes, ~frames.events, frames.events)
        kinds = np.where(goes, DELETE, INSERT).astype(np.int8) if goes.any() else None
        taken = every.take(rows)
        events = Batch(taken.columns, kinds, len(taken))
        signs = None if kinds is None else np.where(goes, -1, 1)
        segments = Segments.of(key_ids[rows], first_new, self._state.bound, signs)
        keys = [events.columns[k] for k in self.partition]
        running = self.aggregates.run(events, keys, segments, self._state)
        yield from (r.take(frames.shown) for r in running)


def _numbered(keys: Ints, values: Ints) -> Ints:
    """Return numbers that are equal for neighbours with equal key and value."""
    changes = (keys[1:] != keys[:-1]) | (values[1:] != values[:-1])
    return np.cumsum(np.append(0, changes)) if len(keys) else keys


def lag_of(call: AggregateCall) -> int:
    """Return the offset of LAG or LEAD."""
    return next((o for o in call.options if isinstance(o, int)), 1)
