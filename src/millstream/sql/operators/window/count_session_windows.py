"""Session and count windows over buffered rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_columns import KeyedColumns
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.numpy_arrays import Ints, Mask
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler, signs_of
from millstream.sql.operators.base import KeyedBatchOperator, split_batches
from millstream.sql.operators.window.window_aggregate import WindowTimes, property_column
from millstream.sql.operators.window.windowing import Times

_MIN_TIME = -(1 << 62)


class RowWindowOperator(KeyedBatchOperator):
    """Buffers rows until their window is known."""

    emits_later = True
    # The name of the state table with buffered rows.
    table_name = "rows"

    def __init__(
        self,
        times: WindowTimes,
        partition: Sequence[int],
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        properties: Sequence[tuple[str, pa.DataType]],
    ) -> None:
        """Create the operator.

        Args:
            times: the times of rows.
            partition: the columns by which windows are formed.
            keys: the columns to group by, within a window.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
            properties: the window properties and their types.
        """
        self.times = times
        self.partition = tuple(partition)
        self.keys = tuple(keys)
        self.calls = tuple(calls)
        self.kinds = list(kinds)
        self.properties = list(properties)
        if times.is_event_time:
            times.are_points = kinds[times.column].tz is not None

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._rows: KeyedRows = self.state_table(self.table_name, self._row_table())

    def _row_table(self) -> KeyedRows:
        # The mark is the time of a row.
        return KeyedRows(self.kinds, self.partition)

    def _keys_of(self, batch: Batch) -> Ints:
        return self._rows.find_or_add([batch.columns[k] for k in self.partition], len(batch))

    def _results(self, rows: Ints, windows: Ints, starts: Times, ends: Times) -> Iterator[Batch]:
        """Yield the results of rows in windows, in order of windows."""
        if not len(rows):
            return
        batch = self._rows.batch(rows)
        aggregates = AggregateHandler(self.calls, self.kinds, False)
        keys = [batch.columns[k] for k in self.keys] + [pa.array(windows)]
        kinds = [k.type for k in keys]
        state = KeyedColumns(kinds, aggregates.state_columns)
        aggregates.open(kinds, lambda name, table: table)
        key_ids, new = state.find_or_add(keys, len(rows))
        aggregates.fold(batch, keys, key_ids, state)
        result_key_ids = state.key_ids()
        window = windows[new]
        columns = state.keys_at(result_key_ids)[: len(self.keys)] + aggregates.results(state, result_key_ids)
        columns += [property_column(n, k, starts[window], ends[window], self.times) for n, k in self.properties]
        yield from split_batches(columns, len(result_key_ids))


class SessionWindowOperator(RowWindowOperator):
    """Session windows: rows within a gap of each other."""

    def __init__(
        self,
        gap: int,
        times: WindowTimes,
        partition: Sequence[int],
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        properties: Sequence[tuple[str, pa.DataType]],
        batch: bool = False,
    ) -> None:
        """Create the operator.

        Args:
            gap: the session gap in milliseconds.
            times, partition, keys, calls, kinds, properties: see `RowWindowOperator`.
            batch: whether the job runs in batch mode, where no row is late.
        """
        super().__init__(times, partition, keys, calls, kinds, properties)
        self.gap = gap
        self.batch = batch

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        self._late = setup.context.get_metrics_group().counter("numLateRecordsDropped")

    def process(self, batch: Batch) -> Iterable[Batch]:
        self._rows.compact()
        times = self.times.of(batch, self.setup.clock())
        keys = self._keys_of(batch)
        signs = signs_of(batch)
        if self.times.is_event_time and not self.batch:
            in_time = self._in_time(times, keys)
            if not in_time.all():
                self._late.inc(int((~in_time).sum()))
                batch, times, keys = batch.filter(in_time), times[in_time], keys[in_time]
                signs = signs_of(batch)
        if not len(batch):
            return ()
        added = np.arange(len(batch)) if signs is None else np.flatnonzero(signs > 0)
        taken = np.zeros(0, np.int64) if signs is None else np.flatnonzero(signs < 0)
        self._rows.add(keys[added], batch.take(added).columns, times[added])
        if len(taken):
            removed = self._rows.equal_rows(keys[taken], batch.take(taken).columns)
            self._rows.remove(removed[removed >= 0])
        self._next = min(self._next, int(self.times.triggers(times + self.gap).min()))
        return ()

    def _in_time(self, times: Times, keys: Ints) -> Mask:
        """Return which rows are not late: a row behind the watermark may belong to an open session."""
        in_time = self.times.triggers(times + self.gap) > self.watermark
        for row in np.flatnonzero(~in_time).tolist():
            _, stored = self._rows.pairs(keys[row : row + 1])
            others = np.concatenate([self._rows.marks[stored], times[:row][in_time[:row] & (keys[:row] == keys[row])]])
            in_time[row] = bool((np.abs(others - times[row]) <= self.gap).any())
        return in_time

    def _sessions(self) -> tuple[Ints, Ints, Times, Times]:
        """Return all rows, the session of each, and the starts and ends of sessions."""
        rows = self._rows.all_rows()
        times, keys = self._rows.marks[rows], self._rows.keys_of(rows)
        order = np.lexsort((times, keys))
        rows, times, keys = rows[order], times[order], keys[order]
        if not len(rows):
            no_key_ids = np.zeros(0, np.int64)
            return rows, no_key_ids, no_key_ids, no_key_ids
        starts_session = np.append(True, (keys[1:] != keys[:-1]) | (np.diff(times) > self.gap))
        session = np.cumsum(starts_session) - 1
        first = np.flatnonzero(starts_session)
        last = np.append(first[1:], len(rows)) - 1
        return rows, session, times[first], times[last] + self.gap

    def _schedule_timer(self) -> None:
        _, _, _, ends = self._sessions()
        self._next = int(self.times.triggers(ends).min()) if len(ends) else MAX_WATERMARK

    def _fire(self, time: int) -> None:
        rows, session, starts, ends = self._sessions()
        due = self.times.triggers(ends) <= time
        is_due = due[session]
        rows, session = rows[is_due], session[is_due]
        # By session end, then by arrival.
        order = np.lexsort((rows, ends[session]))
        self.emit(self._results(rows[order], session[order], starts, ends))
        self._rows.remove(rows)
        self._schedule_timer()

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        return self.rows_until(self._next, self._rows) if self.times.is_event_time else ()

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


class SessionTableOperator(SessionWindowOperator):
    """Emits each row with its session, when that ends."""

    def _results(self, rows: Ints, windows: Ints, starts: Times, ends: Times) -> Iterator[Batch]:
        columns = [self._rows.take(i, rows) for i in range(len(self.kinds))]
        columns += [property_column(n, k, starts[windows], ends[windows], self.times) for n, k in self.properties]
        yield from split_batches(columns, len(rows))


class CountWindowOperator(RowWindowOperator):
    """Count windows: `size` rows of a key, every `slide` rows."""

    def __init__(
        self,
        size: int,
        slide: int,
        times: WindowTimes,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
    ) -> None:
        super().__init__(times, keys, keys, calls, kinds, ())
        self.size = size
        self.slide = slide

    def process(self, batch: Batch) -> Iterator[Batch]:
        rows = self._rows
        rows.compact()
        keys = self._keys_of(batch)
        added = rows.add(keys, batch.columns)
        numbers = rows.numbers_of(added)
        # The rows that complete a window.
        full = np.flatnonzero((numbers + 1 >= self.size) & ((numbers + 1 - self.size) % self.slide == 0))
        members, window = [], []
        for i, row in enumerate(full.tolist()):
            _, stored = rows.pairs(keys[row : row + 1])
            number = rows.numbers_of(stored)
            window_rows = stored[(number > numbers[row] - self.size) & (number <= numbers[row])]
            members.append(window_rows)
            window.append(np.full(len(window_rows), i))
        if members:
            no_key_ids = np.zeros(len(members), np.int64)
            yield from self._results(np.concatenate(members), np.concatenate(window), no_key_ids, no_key_ids)
        self._discard(np.unique(keys[full]))

    def _discard(self, keys: Ints) -> None:
        """Discard rows that are in no future window, except the newest of a key, which has the row number."""
        positions, stored = self._rows.pairs(keys)
        if not len(stored):
            return
        newest = np.zeros(len(keys), np.int64)
        number = self._rows.numbers_of(stored)
        np.maximum.at(newest, positions, number + 1)
        # The start of the next incomplete window.
        begins = ((newest - self.size) // self.slide + 1) * self.slide
        self._rows.remove(stored[number < np.clip(begins, 0, newest - 1)[positions]])
