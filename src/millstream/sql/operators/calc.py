"""Calc: leaves rows for which a condition is true, and makes columns of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa

from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import Column, Expression
from millstream.sql.functions.evaluate import compiled, condition
from millstream.sql.operators.base import Evaluating
from millstream.sql.operators.session import Session


class CalcOperator(Evaluating):
    """Filters, then projects."""

    def __init__(self, expressions: Sequence[Expression], condition: Expression | None, session: Session) -> None:
        self.expressions = tuple(expressions)
        self.condition = condition
        self.session = session

    def open(self) -> None:
        self._keep = None if self.condition is None else condition(self.condition, self.context)
        self._columns: list[int | Callable[[Batch], pa.Array]] = [
            e.index if isinstance(e, Column) else compiled(e, self.context) for e in self.expressions
        ]

    def process(self, batch: Batch) -> Iterable[Batch]:
        if self._keep is not None:
            batch = batch.filter(self._keep(batch))
            if not len(batch):
                return ()
        return (batch.with_columns([batch.columns[c] if isinstance(c, int) else c(batch) for c in self._columns]),)
