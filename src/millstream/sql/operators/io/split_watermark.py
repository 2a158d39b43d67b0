"""Watermarks of a source's splits: each has its own, and the slowest of those that are not idle counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from millstream.common.tags import tagged
from millstream.common.time import Duration
from millstream.common.watermark_strategy import (
    MIN_WATERMARK,
    Watermark,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millstream.operators.watermarks import WatermarkOperator
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.numpy_arrays import plain, valid_of
from millstream.sql.errors import TableException
from millstream.sql.expressions import Expression
from millstream.sql.functions.context import EvaluationContext
from millstream.sql.functions.evaluate import compiled
from millstream.sql.operators.query_context import Session


def _read_highest(highest: int) -> _Highest:
    generator = _Highest()
    generator.highest = highest
    return generator


@tagged("highest-watermark", write=lambda generator: (generator.highest,), read=_read_highest)
class _Highest(WatermarkGenerator):
    """How far the rows of a split have come."""

    def __init__(self) -> None:
        self.highest = MIN_WATERMARK

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.highest = max(self.highest, event)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if self.highest > MIN_WATERMARK:
            output.emit_watermark(Watermark(self.highest))


class SplitWatermarkOperator(WatermarkOperator):
    """Makes the watermarks of splits by an expression over rows, when some of a split have been read.

    Args:
        column: the rowtime.
        expression: the watermark, a time.
        session: what the query was made in.
        idle_timeout: after so many milliseconds without a row a split holds others back no more; 0 for never.
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
    def _marks(self) -> Callable[[Batch], Any]:
        return compiled(self.expression, self._context)

    def on_event(self, event: Batch, timestamp: int | None) -> None:
        """A batch has passed."""
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
