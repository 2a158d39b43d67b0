"""Base of operators that buffer the rows of open windows and emit when the windows end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_rows import Ints, KeyedRows
from millstream.sql.operators.base import KeyedBatchOperator
from millstream.sql.operators.window.window_aggregate import WindowTimes
from millstream.sql.operators.window.windowing import local_times


class BufferedInput:
    """A buffered input: its column types, its key, and the window-end column."""

    def __init__(self, kinds: Sequence[pa.DataType], keys: Sequence[int], end: int) -> None:
        self.kinds = list(kinds)
        self.keys = tuple(keys)
        self.end = end


class WindowRowsOperator(KeyedBatchOperator):
    """Buffers rows until their windows end; rows of ended windows are late."""

    emits_later = True

    def __init__(self, times: WindowTimes, kept: Sequence[BufferedInput]) -> None:
        self.times = times
        self.kept = list(kept)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        # The mark of a row is the time at which its window ends.
        self._rows: list[KeyedRows] = [
            self.state_table(f"rows{i}", KeyedRows(kept.kinds, kept.keys)) for i, kept in enumerate(self.kept)
        ]
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        self._late = setup.context.get_metrics_group().counter("numLateRecordsDropped")

    def _keep(self, batch: Batch, index: int) -> None:
        """Buffer the rows of an input's batch, except late ones."""
        kept, rows = self.kept[index], self._rows[index]
        triggers = self.times.triggers(local_times(batch.columns[kept.end], self.times.zone))
        if self.times.is_event_time:
            in_time = triggers > self.watermark
            if not in_time.all():
                self._late.inc(int((~in_time).sum()))
                batch, triggers = batch.filter(in_time), triggers[in_time]
        if not len(batch):
            return
        rows.compact()
        keys = rows.find_or_add([batch.columns[k] for k in kept.keys], len(batch))
        rows.add(keys, batch.columns, triggers)
        self._next = min(self._next, int(triggers.min()))

    def _schedule_timer(self) -> None:
        self._next = MAX_WATERMARK
        for rows in self._rows:
            there = rows.all_rows()
            if len(there):
                self._next = min(self._next, int(rows.marks[there].min()))

    def _due(self, index: int, time: int) -> tuple[Batch, Ints]:
        """Remove and return the rows whose windows end by a time, with their trigger times."""
        rows = self._rows[index]
        there = rows.all_rows()
        there = there[rows.marks[there] <= time]
        triggers = rows.marks[there].copy()
        batch = Batch([rows.take(i, there) for i in range(len(self.kept[index].kinds))], None, len(there))
        rows.remove(there)
        return batch, triggers

    @abstractmethod
    def _fire(self, time: int) -> None:
        """Emit the results of windows that end by a time."""

    def waiting(self) -> Iterable[tuple[str, int, int]]:
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
