"""Window joins and window rank: buffer the rows of open windows and emit when the windows end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.keys import grouped
from millstream.sql.columns.numpy_arrays import Ints
from millstream.sql.columns.row_order import Order, sorted_rows
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import condition
from millstream.sql.operators.base import EvaluatingOperator, KeyedBatchOperator, split_batches
from millstream.sql.operators.join.pairing import joined
from millstream.sql.operators.over.over_frames import starts_of
from millstream.sql.operators.query_context import Session
from millstream.sql.operators.window.window_aggregate import WindowTimes
from millstream.sql.operators.window.windowing import local_times
from millstream.sql.plan.specs import JoinKind


class BufferedInput:
    """A buffered input: its column types, its key, and the window-end column."""

    def __init__(self, kinds: Sequence[pa.DataType], keys: Sequence[int], end: int) -> None:
        self.kinds = list(kinds)
        self.keys = tuple(keys)
        self.end = end


class WindowRowsOperator(KeyedBatchOperator):
    """Buffers rows until their windows end; rows of ended windows are late."""

    emits_later = True

    def __init__(self, times: WindowTimes, inputs: Sequence[BufferedInput]) -> None:
        self.times = times
        self.buffered_inputs = list(inputs)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        # The mark of a row is the time at which its window ends.
        self._rows: list[KeyedRows] = [
            self.state_table(f"rows{i}", KeyedRows(buffered.kinds, buffered.keys))
            for i, buffered in enumerate(self.buffered_inputs)
        ]
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        self._late = setup.context.get_metrics_group().counter("numLateRecordsDropped")

    def _buffer(self, batch: Batch, index: int) -> None:
        """Buffer the rows of an input's batch, except late ones."""
        buffered, rows = self.buffered_inputs[index], self._rows[index]
        triggers = self.times.triggers(local_times(batch.columns[buffered.end], self.times.zone))
        if self.times.is_event_time:
            in_time = triggers > self.watermark
            if not in_time.all():
                self._late.inc(int((~in_time).sum()))
                batch, triggers = batch.filter(in_time), triggers[in_time]
        if not len(batch):
            return
        rows.compact()
        keys = rows.find_or_add([batch.columns[k] for k in buffered.keys], len(batch))
        rows.add(keys, batch.columns, triggers)
        self._next = min(self._next, int(triggers.min()))

    def _schedule_timer(self) -> None:
        self._next = MAX_WATERMARK
        for rows in self._rows:
            stored = rows.all_rows()
            if len(stored):
                self._next = min(self._next, int(rows.marks[stored].min()))

    def _due(self, index: int, time: int) -> tuple[Batch, Ints]:
        """Remove and return the rows whose windows end by a time, with their trigger times."""
        rows = self._rows[index]
        stored = rows.all_rows()
        stored = stored[rows.marks[stored] <= time]
        triggers = rows.marks[stored].copy()
        batch = Batch([rows.take(i, stored) for i in range(len(self.buffered_inputs[index].kinds))], None, len(stored))
        rows.remove(stored)
        return batch, triggers

    @abstractmethod
    def _fire(self, time: int) -> None:
        """Emit the results of windows that end by a time."""

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        return self.rows_until(self._next, *self._rows) if self.times.is_event_time else ()

    def on_watermark(self, watermark: int) -> int | None:
        if self.times.is_event_time and watermark >= self._next:
            self._fire(watermark)
            self._schedule_timer()
        self.watermark = watermark
        return watermark

    @property
    def follows_clock(self) -> bool:
        return not self.times.is_event_time

    def on_processing_time(self) -> None:
        if not self.times.is_event_time and self.setup.clock() >= self._next:
            self._fire(self.setup.clock())
            self._schedule_timer()

    def next_wake(self) -> int | None:
        return None if self.times.is_event_time or self._next == MAX_WATERMARK else self._next


def by_trigger(batch: Batch, triggers: Ints) -> Batch:
    """Return rows in order of their windows' ends."""
    return batch.take(np.argsort(triggers, kind="stable"))


class WindowJoinOperator(EvaluatingOperator, WindowRowsOperator):
    """Joins two inputs window by window; the window is part of the key."""

    inputs = 2

    def __init__(
        self,
        kind: JoinKind,
        times: WindowTimes,
        left: BufferedInput,
        right: BufferedInput,
        null_safe: Sequence[bool],
        condition: Expression | None,
        session: Session,
    ) -> None:
        """Create the operator.

        Args:
            kind: the kind of join.
            times: when windows end.
            left, right: the inputs.
            null_safe: for each pair of keys whether nulls are equal.
            condition: a further condition on the columns of both; None for none.
            session: the session settings.
        """
        super().__init__(times, [left, right])
        self.kind = kind
        self.null_safe = tuple(null_safe)
        self.condition = condition
        self.session = session

    def open(self) -> None:
        self._holds = None if self.condition is None else condition(self.condition, self.context)

    def process_left(self, batch: Batch) -> Iterable[Batch]:
        self._buffer(batch, 0)
        return ()

    def process_right(self, batch: Batch) -> Iterable[Batch]:
        self._buffer(batch, 1)
        return ()

    def _fire(self, time: int) -> None:
        left, right = (by_trigger(*self._due(i, time)) for i in (0, 1))
        keys = (self.buffered_inputs[0].keys, self.buffered_inputs[1].keys)
        self.emit(joined(left, right, keys, self.null_safe, self.kind, self._holds))


# Rows that cannot reach the last rank are removed when there are this many rows, then when the number has doubled.
_TRIM_ROWS = 1 << 14


class WindowRankOperator(WindowRowsOperator):
    """Emits a range of ranks of each partition, of which the window is a part."""

    def __init__(
        self,
        times: WindowTimes,
        end: int,
        partition: Sequence[int],
        order: Order,
        kinds: Sequence[pa.DataType],
        first: int,
        last: int,
        shows_rank: bool,
        last_wins: bool = False,
    ) -> None:
        """Create the operator.

        Args:
            times: when windows end.
            end: the window-end column.
            partition: the columns to partition by.
            order: (column, descending, nulls first).
            kinds: the Arrow types of the input's columns.
            first, last: the ranks, from 1.
            shows_rank: whether the rank is the last column.
            last_wins: whether ties prefer the later row.
        """
        super().__init__(times, [BufferedInput(kinds, partition, end)])
        self.partition = tuple(partition)
        self.order = tuple(order)
        self.first = first
        self.last = last
        self.shows_rank = shows_rank
        self.last_wins = last_wins

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._trim_at = _TRIM_ROWS

    def process(self, batch: Batch) -> Iterable[Batch]:
        self._buffer(batch, 0)
        rows = self._rows[0]
        if len(rows) > self._trim_at:
            stored = rows.all_rows()
            columns = [rows.take(i, stored) for i in range(len(self.buffered_inputs[0].kinds))]
            order, ranks = self._ranked(columns, rows.marks[stored])
            rows.remove(stored[order[ranks > self.last]])
            self._trim_at = max(_TRIM_ROWS, 2 * len(rows))
        return ()

    def _ranked(self, columns: list[pa.Array], triggers: Ints) -> tuple[Ints, Ints]:
        """Return rows sorted by window, partition and order, and their ranks."""
        count = len(triggers)
        partition = grouped([columns[k] for k in self.partition], count).codes
        arrival = np.arange(count)
        levels = [pa.array(triggers), pa.array(partition), *columns, pa.array(arrival)]
        sort_order = [(0, False, True), (1, False, True), *((c + 2, d, n) for c, d, n in self.order)]
        order = sorted_rows(levels, [*sort_order, (len(levels) - 1, self.last_wins, True)], count)
        in_order = partition[order]
        return order, np.arange(count) - starts_of(in_order) + 1

    def _fire(self, time: int) -> None:
        batch, triggers = self._due(0, time)
        order, ranks = self._ranked(list(batch.columns), triggers)
        shown = (ranks >= self.first) & (ranks <= self.last)
        positions = pa.array(order[shown])
        columns = [c.take(positions) for c in batch.columns]
        if self.shows_rank:
            columns.append(pa.array(ranks[shown]))
        self.emit(split_batches(columns, len(positions)))
