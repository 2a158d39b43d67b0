"""Sources and sinks of tables: VALUES, scans, and writers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np

from millstream.operators.base import Downstream
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.sink import Sink, SinkOperator
from millstream.operators.source import (
    Source,
    SourceOperator,
    SourceReader,
    SplitAssignment,
    SplitEnumerator,
    SplitRange,
)
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.columns.numpy_arrays import constants
from millstream.sql.expressions import Constant
from millstream.sql.operators.base import BATCH_ROWS, BatchOperator
from millstream.sql.types import DataType


class ScanOperator(SourceOperator):
    """Reads a source whose records are batches."""

    emits_batches = True

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        # A batch may be empty.
        with w.block(f"if len({value.name}):"):
            super().code(w, input_index, value, key, downstream)


class ValuesSource(Source[Batch]):
    """The rows of a VALUES clause."""

    name = "Values"

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: bool | None = None) -> SplitEnumerator:
        return _Once(bool(restored))

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _ValuesReader(self.batch)


class _Once(SplitEnumerator):
    """Assigns everything to the first subtask, at once."""

    def __init__(self, is_assigned: bool) -> None:
        self._is_assigned = is_assigned

    def poll(self, budget: int, now: float) -> SplitAssignment:
        if self._is_assigned:
            return SplitAssignment({})
        self._is_assigned = True
        return SplitAssignment({0: ["all"]})

    def is_finished(self) -> bool:
        return self._is_assigned

    def snapshot(self) -> bool:
        return self._is_assigned


class _ValuesReader(SourceReader):
    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def read(self, split_range: SplitRange) -> Iterator[Collection[Batch]]:
        rows = len(self._batch)
        yield [self._batch.slice(start, min(start + BATCH_ROWS, rows)) for start in range(0, rows, BATCH_ROWS)]


def values_batch(rows: Sequence[Sequence[Constant]], types: Sequence[DataType]) -> Batch:
    """Return constants as a batch of columns of some types."""
    columns = [constants([row[i].value for row in rows], arrow_type(kind)) for i, kind in enumerate(types)]
    return Batch(columns, None, len(rows))


class TableSinkOperator(SinkOperator):
    """Writes batches to a sink."""

    takes_batches = True

    def __init__(self, sink: Sink[Batch]) -> None:
        super().__init__(sink)
        self.encodes_input = False

    def on_watermark(self, watermark: int) -> int | None:
        self.writer.on_watermark(watermark)
        return super().on_watermark(watermark)


class ByKeyOperator(BatchOperator):
    """Adapts changes to a keyed sink: UPDATE_BEFORE becomes DELETE.

    Args:
        takes_deletes: whether the sink accepts deletes; if not, UPDATE_BEFORE is dropped.
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
