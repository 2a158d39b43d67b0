"""Window aggregates, one row per key and window when it ends, and window table functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.index import KeyIds
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.keys import grouped
from millstream.sql.columns.numpy_arrays import from_numpy, plain
from millstream.sql.columns.zones import is_utc, zone_named
from millstream.sql.errors import null_rowtime
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler, signs_of
from millstream.sql.operators.base import BatchOperator, KeyedBatchOperator, split_batches
from millstream.sql.operators.window.windowing import Times, Windowing, local_times, points

# The end of a key id's slice or window; for a slice also the end of the last window emitted with it.
_END, _DONE, _START, _ROWS = "end", "done", "start", "rows"
_MIN_TIME = -(1 << 62)


class WindowTimes:
    """The times of rows, and when windows end."""

    def __init__(self, column: int, is_event_time: bool, zone: str, has_window: tuple[int, int] | None = None) -> None:
        """Create it.

        Args:
            column: the time attribute.
            is_event_time: whether it is a rowtime, not processing time.
            zone: the time zone of windows over TIMESTAMP_LTZ.
            has_window: the window_start and window_end columns, if the input has them.
        """
        self.column = column
        self.is_event_time = is_event_time
        self.zone = zone
        self.has_window = has_window
        # Whether times are instants (TIMESTAMP_LTZ); window bounds are then local times.
        self.are_points = not is_event_time

    def of(self, batch: Batch, now: int) -> Times:
        """Return the times of rows."""
        if not self.is_event_time:
            return np.full(len(batch), self.local(now), np.int64)
        column = batch.columns[self.column]
        if column.null_count:
            raise null_rowtime()
        return local_times(column, self.zone)

    def local(self, point: int) -> int:
        """Return the local time of an instant, if windows are in local time."""
        if not self.are_points or is_utc(self.zone) or abs(point) > 1 << 52:
            return point
        moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=point)
        offset = moment.astimezone(zone_named(self.zone)).utcoffset()
        assert offset is not None
        return point + round(offset.total_seconds() * 1000)

    def triggers(self, ends: Times) -> Times:
        """Return the times at which windows end."""
        return (points(ends, self.zone) if self.are_points else ends) - 1


# Rows, perhaps repeated, with the starts (if the input has windows) and ends of their slices or windows.
WindowedRows = tuple[Batch, Times | None, Times]


def with_windows(batch: Batch, windowing: Windowing, times: WindowTimes, shares: bool, now: int) -> WindowedRows:
    """Return rows with their windows, or their slices if windows share those."""
    if times.has_window is not None:
        start, end = (local_times(batch.columns[c], times.zone) for c in times.has_window)
        return batch, start, end
    if shares:
        return batch, None, windowing.slice_ends(times.of(batch, now))
    rows, end = windowing.all_ends(times.of(batch, now))
    return batch if windowing.has_one_window else batch.take(rows), None, end


def shares_slices(windowing: Windowing, times: WindowTimes, aggregates: AggregateHandler) -> bool:
    """Return whether overlapping windows share slices."""
    return times.has_window is None and not windowing.has_one_window and aggregates.combine


class WindowAggregateOperator(KeyedBatchOperator):
    """Emits keys, aggregates, then window properties.

    Overlapping windows share slices if the aggregates can be merged.
    """

    emits_later = True

    def __init__(
        self,
        windowing: Windowing,
        times: WindowTimes,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        properties: Sequence[tuple[str, pa.DataType]],
        *,
        retracts: bool = False,
        batch: bool = False,
    ) -> None:
        """Create the operator.

        Args:
            windowing: the windows.
            times: the times of rows.
            keys: the columns to group by.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
            properties: which of "start", "end", "rowtime" and "proctime" the last columns are, and their types.
            retracts: whether the input may retract rows.
            batch: whether the job runs in batch mode, where no row is late.
        """
        self.windowing = windowing
        self.times = times
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.calls = tuple(calls)
        self.aggregates = AggregateHandler(calls, kinds, retracts)
        self.properties = list(properties)
        self.retracts = retracts
        self.batch = batch
        if times.is_event_time and times.has_window is None:
            times.are_points = kinds[times.column].tz is not None
        self.shares = shares_slices(windowing, times, self.aggregates)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        window = [pa.int64()] if self.times.has_window is None else [pa.int64(), pa.int64()]
        # The last column of the key is the window end.
        self._kinds = kinds = [*(self.kinds[k] for k in self.keys), *window]
        state_columns = [StateColumn(_END, np.int64)]
        state_columns += [] if self.times.has_window is None else [StateColumn(_START, np.int64)]
        state_columns += [StateColumn(_DONE, np.int64, _MIN_TIME)] if self.shares else []
        state_columns += [StateColumn(_ROWS, np.int64)] if self.retracts else []
        columns = KeyedColumns(kinds, [*state_columns, *self.aggregates.state_columns], len(self.keys))
        self._state: KeyedColumns = self.state_table("windows", columns)
        self.aggregates.open(kinds, self.state_table, len(self.keys))
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        self._late = setup.context.get_metrics_group().counter("numLateRecordsDropped")

    def process(self, batch: Batch) -> Iterable[Batch]:
        batch, start, end = self._with_windows(batch)
        if not self.batch:
            ended_by = self.watermark if self.times.is_event_time else _MIN_TIME
            in_time = self.times.triggers(self.windowing.last_ends(end) if self.shares else end) > ended_by
            if not in_time.all():
                self._late.inc(int((~in_time).sum()))
                batch, end, start = batch.filter(in_time), end[in_time], None if start is None else start[in_time]
        if len(batch):
            self._process(batch, start, end)
        return ()

    def _with_windows(self, batch: Batch) -> WindowedRows:
        return with_windows(batch, self.windowing, self.times, self.shares, self.setup.clock())

    def _process(self, batch: Batch, start: Times | None, end: Times) -> None:
        state = self._state
        state.compact()
        window = [pa.array(times) for times in (start, end) if times is not None]
        keys = [*self._keys_of(batch), *window]
        key_ids, new = state.find_or_add(keys, len(batch))
        if len(new):
            added = slice(state.bound - len(new), state.bound)
            state.column(_END)[added] = end[new]
            if start is not None:
                state.column(_START)[added] = start[new]
            if self.shares and self.watermark > MIN_WATERMARK:
                state.column(_DONE)[added] = self.times.local(self.watermark) + 1
            self._expect(end[new])
        self._fold(batch, keys, key_ids)
        state.changed(key_ids)

    def _keys_of(self, batch: Batch) -> list[pa.Array]:
        return [batch.columns[k] for k in self.keys]

    def _fold(self, batch: Batch, keys: list[pa.Array], key_ids: KeyIds) -> None:
        """Process rows whose key ids are known."""
        if self.retracts:
            signs = signs_of(batch)
            np.add.at(self._state.column(_ROWS), key_ids, np.ones(len(key_ids), np.int64) if signs is None else signs)
        self.aggregates.fold(batch, keys, key_ids, self._state)

    # --- time

    def _expect(self, ends: Times) -> None:
        """Schedule the end of open windows, or of the first windows of slices."""
        first = np.unique(self.windowing.first_ends(ends) if self.shares else ends)
        self._next = min(self._next, int(self.times.triggers(first).min()))

    def _schedule_timer(self) -> None:
        """Schedule the windows in restored state."""
        self._next = MAX_WATERMARK
        key_ids = self._state.key_ids()
        if len(key_ids):
            self._next = _MIN_TIME if self.shares else self._next
            self._expect(self._state.column(_END)[key_ids])

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        if MIN_WATERMARK < self._next < MAX_WATERMARK:
            yield "windows", len(self._state), self._next

    def on_watermark(self, watermark: int) -> int | None:
        if self.times.is_event_time and watermark >= self._next:
            self._fire(watermark)
        self.watermark = watermark
        return watermark

    @property
    def follows_clock(self) -> bool:
        return not self.times.is_event_time

    def on_processing_time(self) -> None:
        if not self.times.is_event_time and self.setup.clock() >= self._next:
            self._fire(self.setup.clock())

    def next_wake(self) -> int | None:
        return None if self.times.is_event_time or self._next == MAX_WATERMARK else self._next

    def _fire(self, time: int) -> None:
        """Emit the windows that end by a time."""
        if self.shares:
            self._fire_slices(time)
        else:
            self._fire_windows(time)
        self._schedule_timer()

    def _fire_windows(self, time: int) -> None:
        state, key_ids = self._state, self._state.key_ids()
        ends = state.column(_END)[key_ids]
        due = self.times.triggers(ends) <= time
        key_ids, ends = key_ids[due], ends[due]
        order = np.argsort(ends, kind="stable")
        key_ids, ends = key_ids[order], ends[order]
        fired_key_ids = key_ids
        if self.retracts:
            has_rows = state.column(_ROWS)[key_ids] > 0
            fired_key_ids, ends = key_ids[has_rows], ends[has_rows]
        keys = state.keys_at(fired_key_ids)[: len(self.keys)]
        starts = self.windowing.starts(ends) if self.times.has_window is None else state.column(_START)[fired_key_ids]
        columns = keys + self.aggregates.results(state, fired_key_ids) + self._properties(starts, ends)
        self.emit(split_batches(columns, len(fired_key_ids)))
        state.remove(key_ids)
        self.aggregates.discard(len(self._kinds) - 1, lambda ends: self.times.triggers(ends) <= time)

    def _fire_slices(self, time: int) -> None:
        state, windowing = self._state, self.windowing
        while True:
            key_ids = state.key_ids()
            ends, done = state.column(_END)[key_ids], state.column(_DONE)[key_ids]
            first, last = windowing.first_ends(ends), windowing.last_ends(ends)
            after = first + (np.maximum(done - first, -windowing.step) // windowing.step + 1) * windowing.step
            due = (after <= last) & (self.times.triggers(after) <= time)
            if not due.any():
                break
            window = int(after[due].min())
            (start,) = windowing.starts(np.array([window])).tolist()
            self._fire_one(key_ids[(ends > start) & (ends <= window)], start, window)
        has_ended = self.times.triggers(windowing.last_ends(ends)) <= time
        state.remove(key_ids[has_ended])

    def _fire_one(self, members: KeyIds, start: int, window: int) -> None:
        """Emit a window that consists of some key ids."""
        state = self._state
        all_keys = state.keys_at(members)[: len(self.keys)]
        by_key = grouped(all_keys, len(members))
        members = members[by_key.order]
        starts = np.cumsum(by_key.sizes) - by_key.sizes
        done = state.column(_DONE)
        new = np.minimum.reduceat(done[members], starts) < window
        if self.retracts:
            new &= np.add.reduceat(state.column(_ROWS)[members], starts) > 0
        done[members] = np.maximum(done[members], window)
        state.changed(members)
        moment, mask = pa.array(by_key.first[new]), pa.array(new)
        results = [a.combined(state, members, starts).filter(mask) for a in self.aggregates.accumulators]
        ends = np.full(len(moment), window, np.int64)
        columns = [k.take(moment) for k in all_keys] + results + self._properties(np.full_like(ends, start), ends)
        self.emit(split_batches(columns, len(moment)))

    def _properties(self, starts: Times, ends: Times) -> list[pa.Array]:
        return [property_column(name, kind, starts, ends, self.times) for name, kind in self.properties]


class GlobalWindowAggregateOperator(WindowAggregateOperator):
    """The second phase; merges the output of a `LocalWindowAggregateOperator` with the same arguments."""

    def _with_windows(self, batch: Batch) -> WindowedRows:
        start = None if self.times.has_window is None else plain(batch.columns[-2])
        return batch, start, plain(batch.columns[-1])

    def _keys_of(self, batch: Batch) -> list[pa.Array]:
        return list(batch.columns[: len(self.keys)])

    def _fold(self, batch: Batch, keys: list[pa.Array], key_ids: KeyIds) -> None:
        columns = list(batch.columns[len(self.keys) : -1 if self.times.has_window is None else -2])
        if self.retracts:
            np.add.at(self._state.column(_ROWS), key_ids, plain(columns.pop(0)))
        self.aggregates.merge(columns, keys, key_ids, self._state)


def property_column(name: str, kind: pa.DataType, starts: Times, ends: Times, times: WindowTimes) -> pa.Array:
    """Return a window property as a column."""
    if name == "proctime":
        return pa.nulls(len(ends), kind)
    values = starts if name == "start" else ends
    if kind.tz is not None and times.are_points:
        values = points(values, times.zone)
    if name == "rowtime":
        values = values - 1
    return from_numpy(values, None, pa.timestamp("ms", kind.tz)).cast(kind)


class WindowTableOperator(BatchOperator):
    """Adds window_start, window_end and window_time."""

    def __init__(self, windowing: Windowing, times: WindowTimes, kinds: Sequence[pa.DataType]) -> None:
        """Create the operator.

        Args:
            windowing: the windows.
            times: the times of rows.
            kinds: the Arrow types of the three columns.
        """
        self.windowing = windowing
        self.times = times
        self.kinds = list(kinds)

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows, ends = self.windowing.all_ends(self.times.of(batch, self.setup.clock()))
        batch = batch if self.windowing.has_one_window else batch.take(rows)
        starts = self.windowing.starts(ends)
        time = "rowtime" if self.times.is_event_time else "proctime"
        names = ["start", "end", time]
        columns = [property_column(n, k, starts, ends, self.times) for n, k in zip(names, self.kinds, strict=True)]
        return (batch.with_columns([*batch.columns, *columns]),)
