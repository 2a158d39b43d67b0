"""Calc: filters rows and computes columns. Expand: one row per grouping set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import Call, Column, Constant, Expression, UserCall, replaced, walk
from millstream.sql.functions.evaluate import can_fail, compiled, compiled_all, condition, is_same_each_time, makes_json
from millstream.sql.operators.base import EvaluatingOperator
from millstream.sql.operators.query_context import Session


class CalcOperator(EvaluatingOperator):
    """Filters, then projects."""

    def __init__(self, expressions: Sequence[Expression], condition: Expression | None, session: Session) -> None:
        self.expressions = tuple(expressions)
        self.condition = condition
        self.session = session

    def open(self) -> None:
        # The filtered inputs: columns, fields of columns, and results that the condition has computed.
        leaves: list[Expression] = []
        positions: dict[str, int] = {}
        computed = _computed(self.condition)

        def leaf(part: Expression) -> Expression | None:
            name = repr(part)
            if not (isinstance(part, Column) or _is_field(part) or name in computed):
                return None
            if name not in positions:
                positions[name] = len(leaves)
                leaves.append(part)
            return Column(part.type, positions[name])

        outputs = [replaced(e, leaf) for e in self.expressions]
        tests = [] if self.condition is None else [self.condition]
        columns, self._discard = compiled_all([*outputs, *leaves, *tests], self.context)
        self._columns = columns[: len(outputs)]
        self._leaves = columns[len(outputs) : len(outputs) + len(leaves)]
        self._filter = None if self.condition is None else condition(self.condition, self.context)

    def process(self, batch: Batch) -> Iterable[Batch]:
        try:
            return self._computed_rows(batch)
        finally:
            self._discard()

    def _computed_rows(self, batch: Batch) -> Iterable[Batch]:
        keep = None if self._filter is None else self._filter(batch)
        if keep is not None and not keep.any():
            return ()
        batch = batch.with_columns([leaf(batch) for leaf in self._leaves])
        if keep is not None:
            batch = batch.filter(keep)
        return (batch.with_columns([column(batch) for column in self._columns]),)


def _is_field(part: Expression) -> bool:
    """Return whether an expression is a field of a column: reading it is free, filtering all fields is not."""
    if not isinstance(part, Call) or part.function != "FIELD":
        return False
    (inner,) = part.arguments
    return isinstance(inner, Column) or _is_field(inner)


def _computed(condition: Expression | None) -> set[str]:
    """Return the calls that a condition computes for all rows, as text, for reuse."""
    if condition is None:
        return set()
    calls = (p for p in walk(condition) if isinstance(p, (Call, UserCall)))
    # JSON stays a call: an outer JSON function must see that its argument is JSON, not text.
    return {repr(p) for p in calls if is_same_each_time(p) and not can_fail(p) and not makes_json(p)}


class ExpandOperator(EvaluatingOperator):
    """Emits one row per set of expressions for each row."""

    def __init__(self, sets: Sequence[Sequence[Expression]], kinds: Sequence[pa.DataType], session: Session) -> None:
        """Create the operator.

        Args:
            sets: for each set the expressions of all columns.
            kinds: the Arrow types of the columns.
            session: the session settings.
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
        copies = [
            batch.with_columns([self._fit(f(batch), k) for f, k in zip(one, self.kinds, strict=True)])
            for one in self._columns
        ]
        together = Batch.concatenated(copies)
        # All output of one row, then all of the next.
        rows = np.arange(len(batch) * len(copies)).reshape(len(copies), len(batch)).T.ravel()
        return (together.take(rows),)

    @staticmethod
    def _fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
        return column if column.type == kind else column.cast(kind)
