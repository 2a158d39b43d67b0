"""ORDER BY and LIMIT."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import OperatorSetup, OperatorSnapshot, Split
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.numpy_arrays import Ints, plain
from millstream.sql.columns.row_order import Order, sorted_rows
from millstream.sql.errors import null_rowtime
from millstream.sql.operators.aggregate.aggregate_handler import signs_of
from millstream.sql.operators.base import KeyedBatchOperator, split_batches


class SortOperator(KeyedBatchOperator):
    """Sorts rows: at the end in batch mode, with the watermark in a stream ordered by rowtime."""

    emits_later = True

    def __init__(
        self,
        order: Order,
        kinds: Sequence[pa.DataType],
        offset: int = 0,
        limit: int | None = None,
        rowtime: int | None = None,
    ) -> None:
        """Create the operator.

        Args:
            order: (column, descending, nulls first).
            kinds: the Arrow types of the columns.
            offset: the number of rows to skip.
            limit: the maximum number of rows to emit; None for all.
            rowtime: the column by which the watermark emits rows; None for at the end.
        """
        self.order = tuple(order)
        self.kinds = list(kinds)
        self.offset = offset
        self.limit = limit
        self.rowtime = rowtime

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._rows: KeyedRows = self.state_table("rows", KeyedRows(self.kinds, ()))
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        # The time of the last emitted row: earlier rows are late.
        self._last = MIN_WATERMARK

    def process(self, batch: Batch) -> Iterable[Batch]:
        if self.rowtime is not None:
            times = self._times(batch.columns[self.rowtime])
            batch = batch.filter(times > self._last)
            if len(batch):
                self._next = min(self._next, int(self._times(batch.columns[self.rowtime]).min()))
        if len(batch):
            self._buffer(batch)
        return ()

    @staticmethod
    def _times(column: pa.Array) -> Ints:
        if column.null_count:
            raise null_rowtime()
        return plain(column.cast(pa.timestamp("ms", column.type.tz), safe=False)).astype(np.int64)

    def _buffer(self, batch: Batch) -> None:
        rows, signs = self._rows, signs_of(batch)
        rows.compact()
        keys = rows.find_or_add([], len(batch))
        if signs is None:
            rows.add(keys, batch.columns)
            return
        added, taken = np.flatnonzero(signs > 0), np.flatnonzero(signs < 0)
        rows.add(keys[added], batch.take(added).columns)
        removed = rows.equal_rows(keys[taken], batch.take(taken).columns)
        rows.remove(removed[removed >= 0])

    def _schedule_timer(self) -> None:
        self._next = MAX_WATERMARK
        rows = self._rows.all_rows()
        if self.rowtime is not None and len(rows):
            self._next = int(self._times(self._rows.take(self.rowtime, rows)).min())

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        return self.rows_until(self._next, self._rows) if self.rowtime is not None else ()

    def on_watermark(self, watermark: int) -> int | None:
        if self.rowtime is not None and len(self._rows) and watermark >= self._next:
            rows = self._rows.all_rows()
            times = self._times(self._rows.take(self.rowtime, rows))
            due = rows[times <= watermark]
            self._last = int(times[times <= watermark].max())
            self._emit_sorted(due)
            self._rows.remove(due)
            self._schedule_timer()
        self.watermark = watermark
        return watermark

    def runtime_snapshot(self) -> OperatorSnapshot:
        return self._last

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._last = snapshot

    def redistribute(
        self, snapshots: list[OperatorSnapshot], subtask: int, reads: Callable[[Split], bool] | None
    ) -> OperatorSnapshot:
        return max(snapshots)

    def finish(self) -> None:
        if self.rowtime is None:
            rows = self._rows.all_rows()
            self._emit_sorted(rows)
            self._rows.remove(rows)

    def _emit_sorted(self, rows: Ints) -> None:
        columns = [self._rows.take(i, rows) for i in range(len(self.kinds))]
        order = sorted_rows(columns, self.order, len(rows))[self.offset :]
        positions = pa.array(order if self.limit is None else order[: self.limit])
        self.emit(split_batches([c.take(positions) for c in columns], len(positions)))


class LimitOperator(KeyedBatchOperator):
    """Emits the first rows of append-only input."""

    def __init__(self, offset: int, limit: int | None) -> None:
        self.offset = offset
        self.limit = limit

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._seen: KeyedColumns = self.state_table("seen", KeyedColumns([], [StateColumn("rows", np.int64)]))

    def process(self, batch: Batch) -> Iterable[Batch]:
        key_ids, _ = self._seen.find_or_add([], 1)
        seen = self._seen.column("rows")
        before = int(seen[key_ids[0]])
        seen[key_ids] += len(batch)
        self._seen.changed(key_ids)
        start = min(max(self.offset - before, 0), len(batch))
        end = len(batch)
        if self.limit is not None:
            end = min(max(self.offset + self.limit - before, start), len(batch))
        return (batch.slice(start, end),)
