"""Calc: leaves rows for which a condition is true, and makes columns of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import Column, Expression
from millstream.sql.operators.base import BatchOperator
from millstream.sql.operators.session import Session


class CalcOperator(BatchOperator):
    """Filters, then projects."""

    def __init__(self, expressions: Sequence[Expression], condition: Expression | None, session: Session) -> None:
        self.expressions = tuple(expressions)
        self.condition = condition
        self.session = session

    def open(self) -> None:
        self._keep = None
        self._columns: list[int | Callable[[Batch], pa.Array]] = [
            e.index if isinstance(e, Column) else self._compiled(e) for e in self.expressions
        ]
        if self.condition is not None:
            from millstream.sql.functions.evaluate import condition

            self._keep = condition(self.condition, self._context)

    def close(self) -> None:
        self._context.close()

    def _compiled(self, expression: Expression) -> Callable[[Batch], pa.Array]:
        from millstream.sql.functions.evaluate import compiled

        return compiled(expression, self._context)

    @cached_property
    def _context(self) -> Any:
        return self.session.context(self.setup, self._watermark)

    def _watermark(self) -> int | None:
        # As in Flink there is none before the first.
        return self.watermark if self.watermark > -(1 << 63) else None

    def process(self, batch: Batch) -> Iterable[Batch]:
        if self._keep is not None:
            batch = batch.filter(self._keep(batch))
            if not len(batch):
                return ()
        return (batch.with_columns([batch.columns[c] if isinstance(c, int) else c(batch) for c in self._columns]),)
