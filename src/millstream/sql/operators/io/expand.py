"""Expand: each row once for every grouping set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import Column, Constant, Expression
from millstream.sql.functions.evaluate import compiled
from millstream.sql.operators.base import Evaluating
from millstream.sql.operators.query_context import Session


class ExpandOperator(Evaluating):
    """Makes of each row one for every set of expressions."""

    def __init__(self, sets: Sequence[Sequence[Expression]], kinds: Sequence[pa.DataType], session: Session) -> None:
        """Make one.

        Args:
            sets: for each set the expressions of all columns.
            kinds: the Arrow types of the columns.
            session: what the query was made in.
        """
        self.sets = [tuple(one) for one in sets]
        self.kinds = list(kinds)
        self.session = session

    def open(self) -> None:
        self._columns = [[self._compiled(e) for e in one] for one in self.sets]

    def _compiled(self, expression: Expression) -> Callable[[Batch], pa.Array]:
        if isinstance(expression, Column):
            index = expression.index
            return lambda batch: batch.columns[index]
        if isinstance(expression, Constant) and expression.value is None:
            kind = arrow_type(expression.type)
            return lambda batch: pa.nulls(len(batch), kind)
        return compiled(expression, self.context)

    def process(self, batch: Batch) -> Iterable[Batch]:
        made = [
            batch.with_columns([self._fit(f(batch), k) for f, k in zip(one, self.kinds, strict=True)])
            for one in self._columns
        ]
        together = Batch.concatenated(made)
        # All that comes of one row, then all of the next.
        rows = np.arange(len(batch) * len(made)).reshape(len(made), len(batch)).T.ravel()
        return (together.take(rows),)

    @staticmethod
    def _fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
        return column if column.type == kind else column.cast(kind)
