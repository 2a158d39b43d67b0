"""Where rows go: sinks of tables, with what must hold of rows that are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from millstream.operators.sink import Sink, SinkOperator
from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.columns.numbers import valid_of
from millstream.sql.errors import TableException
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


class NotNullOperator(BatchOperator):
    """Refuses rows with nulls in columns that must not be null, or leaves them out."""

    def __init__(self, columns: Sequence[tuple[int, str]], drops: bool) -> None:
        """Make one.

        Args:
            columns: the columns that must not be null, with their names.
            drops: whether rows with a null are left out, not refused.
        """
        self.columns = list(columns)
        self.drops = drops

    def process(self, batch: Batch) -> Iterable[Batch]:
        keep = None
        for index, name in self.columns:
            valid = valid_of(batch.columns[index])
            if valid is None:
                continue
            if not self.drops:
                raise TableException(
                    f"Column '{name}' is NOT NULL, however, a null value is being written into it. You can set job "
                    "configuration 'table.exec.sink.not-null-enforcer'='DROP' to suppress this exception and drop such "
                    "records silently."
                )
            keep = valid if keep is None else keep & valid
        return (batch if keep is None else batch.filter(np.asarray(keep)),)
