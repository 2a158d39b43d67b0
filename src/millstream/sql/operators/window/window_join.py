"""Window joins: join the rows of two inputs in the same window, when it ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millstream.sql.columns.batch import Batch
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import condition
from millstream.sql.operators.base import EvaluatingOperator
from millstream.sql.operators.join.pairing import joined
from millstream.sql.operators.query_context import Session
from millstream.sql.operators.window.buffered_window import BufferedInput, WindowRowsOperator, by_trigger
from millstream.sql.operators.window.window_aggregate import WindowTimes
from millstream.sql.plan.specs import JoinKind


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
        self._keep(batch, 0)
        return ()

    def process_right(self, batch: Batch) -> Iterable[Batch]:
        self._keep(batch, 1)
        return ()

    def _fire(self, time: int) -> None:
        left, right = (by_trigger(*self._due(i, time)) for i in (0, 1))
        keys = (self.kept[0].keys, self.kept[1].keys)
        self.emit(joined(left, right, keys, self.null_safe, self.kind, self._holds))
