"""Where rows go: sinks of tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from millstream.operators.sink import Sink, SinkOperator
from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.operators.base import BatchOperator


class TableSinkOperator(SinkOperator):
    """Writes batches to a sink."""

    takes_batches = True

    def __init__(self, sink: Sink[Any]) -> None:
        super().__init__(sink)
        self.encodes_input = False

    def on_watermark(self, watermark: int) -> int | None:
        self.writer.on_watermark(watermark)
        return super().on_watermark(watermark)


class ByKeyOperator(BatchOperator):
    """Before a sink that goes by key: the old half of an update, which it does not know, is a row that goes.

    Args:
        takes_deletes: whether the sink takes rows that go; without, old halves are left out.
    """

    def __init__(self, takes_deletes: bool) -> None:
        self.takes_deletes = takes_deletes

    def process(self, batch: Batch) -> Iterable[Batch]:
        if batch.kinds is None:
            return (batch,)
        old = batch.kinds == UPDATE_BEFORE
        if not self.takes_deletes:
            return (batch.filter(~old),)
        return (Batch(batch.columns, np.where(old, np.int8(DELETE), batch.kinds), len(batch)),)
