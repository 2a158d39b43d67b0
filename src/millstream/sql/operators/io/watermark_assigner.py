"""Watermark assigners: watermarks from an expression over each row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from millstream.common.tags import tagged
from millstream.common.time import Duration
from millstream.common.watermark_strategy import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millstream.operators.base import OperatorSetup, OperatorSnapshot, Split
from millstream.operators.watermarks import WatermarkEmitter, WatermarkOperator
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.numpy_arrays import Ints, plain, valid_of
from millstream.sql.errors import TableException, null_rowtime
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import compiled
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.operators.base import EvaluatingOperator
from millstream.sql.operators.query_context import Session


class RowWatermarkOperator(WatermarkEmitter, EvaluatingOperator):
    """Emits the watermarks that Flink emits after each row, if they advance by more than an interval.

    The position of a watermark between two rows matters only if a row is late for it. So a watermark is sent after the
    batch, and within it only before a late row: lateness does not depend on the batches.
    """

    idle_advice = "SET 'table.exec.source.idle-timeout' = '10 s'"

    def __init__(
        self, column: int, strategy: Expression, session: Session, interval: int = 200, idle_timeout: int = 0
    ) -> None:
        """Create the operator.

        Args:
            column: the rowtime.
            strategy: the watermark expression, a time.
            session: the session settings.
            interval: the minimum advance in milliseconds.
            idle_timeout: milliseconds without a row after which the input is idle; 0 for never.
        """
        self.column = column
        self.strategy = strategy
        self.session = session
        self.interval = interval
        self.idle_timeout = idle_timeout

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        # The watermark of the rows so far, and the last one sent. As in Flink, it begins in 1970.
        self._current = self._emitted = 0
        self._ended = self._is_idle = False
        self._last_row = setup.clock()
        # Whether rows arrived in this epoch, and whether the previous one had none.
        self._has_rows = self._was_quiet = False

    def open(self) -> None:
        self._strategy: Callable[[Batch], pa.Array] = compiled(self.strategy, self.context)

    def process(self, batch: Batch) -> Iterable[Batch]:
        times = batch.columns[self.column]
        if times.null_count:
            raise null_rowtime()
        return (batch,) if self.session.batch else self._marked(batch, plain(times))

    def _on_rows(self) -> None:
        self._last_row, self._has_rows = self.setup.clock(), True
        if self._is_idle:
            self._is_idle = False
            self.advance(self._emitted)

    def _marked(self, batch: Batch, times: Ints) -> Iterator[Batch]:
        self._on_rows()
        current, sent, start = self._running(batch), self._emitted, 0
        # A row can only be late for the watermark of earlier rows.
        before = np.append(self._current, current[:-1])
        passed = 0
        for row in np.flatnonzero(times <= before).tolist():
            sent, passed = self._reached(sent, current, passed, row), row
            if times[row] <= sent and sent > self._emitted:
                if row > start:
                    yield batch.slice(start, row)
                self._send(sent)
                start = row
        sent = self._reached(sent, current, passed, len(batch))
        self._current = int(current[-1])
        yield batch.slice(start, len(batch)) if start else batch
        self._send(sent)

    def _running(self, batch: Batch) -> Ints:
        """Return the watermark after each row."""
        marks = self._strategy(batch)
        values, valid = plain(marks).astype(np.int64), valid_of(marks)
        if valid is not None:
            values = np.where(valid, values, MIN_WATERMARK)
        return np.maximum(np.maximum.accumulate(values), self._current)

    def _reached(self, sent: int, current: Ints, start: int, end: int) -> int:
        """Return the last watermark sent after rows `start` to `end`; `sent` is the one before."""
        position = start
        while position < end:
            # The next row after which the watermark advances by more than the interval.
            position += int(np.searchsorted(current[position:end], sent + self.interval, "right"))
            if position < end:
                sent = int(current[position])
                position += 1
        return sent

    def _send(self, watermark: int) -> None:
        if watermark > self._emitted:
            self._emitted = watermark
            self.advance(watermark)

    @property
    def emitted_watermark(self) -> int:
        return self._emitted if self._emitted > 0 else MIN_WATERMARK

    def split_progress(self) -> Iterable[tuple[Split, int, bool, int]]:
        return [(None, self.emitted_watermark, self._is_idle, self._last_row)]

    def on_watermark(self, watermark: int) -> int | None:
        # Watermarks of the input are dropped, except the last.
        if watermark == MAX_WATERMARK and not self._ended:
            self._ended = True
            self._emitted = watermark
            return watermark
        return None

    def on_idle(self) -> bool:
        return False

    # --- processing time

    @property
    def follows_clock(self) -> bool:
        return not self.session.batch

    def on_processing_time(self) -> None:
        """Send a watermark pending for an interval; detect idleness.

        The duration of an epoch does not count: the input is idle only after an epoch without rows.
        """
        if self._ended or self.session.batch or not self._was_quiet or self._has_rows:
            return
        waited = self.setup.clock() - self._last_row
        if waited >= self.interval and self._current > self._emitted:
            self._send(self._current)
        if self.idle_timeout and waited >= self.idle_timeout and not self._is_idle:
            self._is_idle = True
            self.advance(None)

    def next_wake(self) -> int | None:
        if self._ended or self.session.batch:
            return None
        wakes = [self._last_row + self.interval] if self._current > self._emitted else []
        if self.idle_timeout and not self._is_idle:
            wakes.append(self._last_row + self.idle_timeout)
        return min(wakes, default=None)

    # --- snapshots

    def runtime_snapshot(self) -> OperatorSnapshot:
        # Called at the end of every epoch.
        self._was_quiet, self._has_rows = not self._has_rows, False
        return self._current, self._emitted, self._ended, self._is_idle, self._last_row

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._current, self._emitted, self._ended, self._is_idle, self._last_row = snapshot

    def redistribute(
        self, snapshots: list[OperatorSnapshot], subtask: int, reads: Callable[[Split], bool] | None
    ) -> OperatorSnapshot:
        slowest = min(snapshots, key=lambda one: one[0])
        # Downstream subtasks have not received it over their new channels: it is sent again.
        return (*slowest[:2], False, all(one[3] for one in snapshots), slowest[4])

    def announce(self) -> None:
        """Send the watermark again, to subtasks that have not received it."""
        if self._is_idle:
            self.advance(None)
        elif self._emitted > 0:
            self.advance(self._emitted)


class OnEventWatermarkOperator(RowWatermarkOperator):
    """Emits a watermark after every row that advances it, as Flink's sources do 'on-event'."""

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._current = self._emitted = MIN_WATERMARK

    def _marked(self, batch: Batch, times: Ints) -> Iterator[Batch]:
        self._on_rows()
        current, start = self._running(batch), 0
        for row in np.flatnonzero(current > np.append(self._emitted, current[:-1])).tolist():
            yield batch.slice(start, row + 1)
            self._send(int(current[row]))
            start = row + 1
        self._current = self._emitted
        if start < len(batch):
            yield batch.slice(start, len(batch))

    @property
    def emitted_watermark(self) -> int:
        return self._emitted

    def announce(self) -> None:
        if self._is_idle:
            self.advance(None)
        elif self._emitted > MIN_WATERMARK:
            self.advance(self._emitted)


def _read_highest(highest: int) -> _Highest:
    generator = _Highest()
    generator.highest = highest
    return generator


@tagged("highest-watermark", write=lambda generator: (generator.highest,), read=_read_highest)
class _Highest(WatermarkGenerator):
    """The watermark of a split's rows."""

    def __init__(self) -> None:
        self.highest = MIN_WATERMARK

    def on_event(self, event: int, event_timestamp: int, output: WatermarkOutput) -> None:
        self.highest = max(self.highest, event)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if self.highest > MIN_WATERMARK:
            output.emit_watermark(Watermark(self.highest))


class SplitWatermarkOperator(WatermarkOperator):
    """Assigns watermarks per split by an expression over rows.

    Args:
        column: the rowtime.
        expression: the watermark, a time.
        session: the session settings.
        idle_timeout: milliseconds without a row after which a split is idle; 0 for never.
    """

    encodes_input = False
    takes_batches = True
    emits_batches = True

    def __init__(self, column: int, expression: Expression, session: Session, idle_timeout: int) -> None:
        strategy = WatermarkStrategy.for_generator(_Highest)
        if idle_timeout:
            strategy = strategy.with_idleness(Duration.of_millis(idle_timeout))
        super().__init__(strategy)
        self.column = column
        self.expression = expression
        self.session = session

    @cached_property
    def _context(self) -> EvaluationContext:
        return self.session.context(self.setup, lambda: None)

    @cached_property
    def _marks(self) -> Callable[[Batch], pa.Array]:
        return compiled(self.expression, self._context)

    def on_event(self, event: Batch, timestamp: int | None) -> None:
        """Update the watermark for a batch."""
        if event.columns[self.column].null_count:
            raise TableException("RowTime field should not be null, please convert it to a non-null long value.")
        marks = self._marks(event)
        values, valid = plain(marks), valid_of(marks)
        if valid is not None:
            values = values[valid]
        if len(values):
            super().on_event(int(values.max()), None)

    def close(self) -> None:
        self._context.close()
        super().close()
