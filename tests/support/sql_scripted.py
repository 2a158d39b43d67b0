"""Runs transcripts of SQL operators as jobs; each step is one epoch, which preserves the order of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.stream_execution_environment import builder_of
from millstream.graph.transformations import UpstreamEdge
from millstream.operators.base import Operator
from millstream.operators.runtime.partitioners import GlobalPartitioner
from millstream.operators.watermarks import WatermarkEmitter
from millstream.sql.columns.batch import Batch
from millstream.sql.operators.base import BatchOperator
from millstream.sql.operators.io.table_io import ScanOperator, TableSinkOperator
from millstream.testing import CollectSink, TestingSource

# A step: the index of an input and its rows; or a watermark.
Step = tuple[int, Batch] | int


class _Played(WatermarkEmitter, BatchOperator):
    """Receives steps as batches whose last two columns are input and watermark; emits those of one input."""

    def __init__(self, side: int) -> None:
        self.side = side
        self._sent = -1

    @property
    def emitted_watermark(self) -> int:
        return self._sent

    def process(self, batch: Batch) -> Iterable[Batch]:
        *columns, side, watermark = batch.columns
        if watermark[0].is_valid:
            self._sent = watermark[0].as_py()
            self.advance(self._sent)
        elif side[0].as_py() == self.side:
            yield Batch(columns, batch.kinds, len(batch))

    def on_watermark(self, watermark: int) -> int | None:
        # Forward only the end; the steps have their own watermarks.
        return watermark if watermark == MAX_WATERMARK else None

    def runtime_snapshot(self) -> Any:
        return self._sent

    def restore(self, snapshot: Any) -> None:
        self._sent = snapshot


def _record(step: Step, kinds: list[pa.DataType]) -> Batch:
    if isinstance(step, int):
        return Batch([*(pa.nulls(1, k) for k in kinds), pa.array([0]), pa.array([step])], None, 1)
    side, batch = step
    numbers = pa.array(np.full(len(batch), side))
    return Batch([*batch.columns, numbers, pa.nulls(len(batch), pa.int64())], batch.kinds, len(batch))


def add(
    env: StreamExecutionEnvironment,
    name: str,
    make: Callable[[], Operator],
    kinds: list[pa.DataType],
    steps: list[Step],
) -> CollectSink:
    """Add an operator that receives the steps of a transcript to a program; return the sink of its output."""
    program, operator, sink = builder_of(env).program, make(), CollectSink()
    records = [_record(s, kinds) for s in steps]
    source = program.add(f"steps of {name}", ScanOperator(TestingSource(records)), parallelism=1)
    sides = range(max(operator.inputs, 1))
    played = [program.add(f"input {i} of {name}", _Played(i), [UpstreamEdge(source)], parallelism=1) for i in sides]
    ends = [UpstreamEdge(p, GlobalPartitioner(), input_index=i) for i, p in enumerate(played)]
    tried = program.add(name, operator, ends, parallelism=1)
    out = program.add(
        f"{name}: out", TableSinkOperator(sink), [UpstreamEdge(tried, GlobalPartitioner())], parallelism=1
    )
    builder_of(env).add_sink(out)
    return sink
