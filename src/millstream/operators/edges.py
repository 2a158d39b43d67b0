"""The sending end of an edge: buckets of records on their way to the next vertex's subtasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.operators.blocks import END_OF_INPUT, IDLE, WATERMARK, Layout
from millstream.operators.codegen import CodeWriter, Var
from millstream.operators.partitioners import Partitioner, Place
from millstream.operators.values import detached

# A bucket is sent when its block has about this size, so that the memory of a sender is bounded; and after so few
# records that they are still in the processor's cache when they are written out.
BLOCK_BYTES = 1 << 20
_FIRST_BLOCK_RECORDS = 256
_MOST_BLOCK_RECORDS = 1 << 11


@dataclass(frozen=True)
class Edge:
    """A connection between two vertices of the job graph; its layout says what it carries of a record.

    Attributes:
        type_info: the type that the records have been made to fit, None where that is not known.
    """

    id: int
    source: int
    target: int
    input_index: int
    partitioner: Partitioner
    layout: Layout
    type_info: TypeInformation | None = None


class EdgeWriter:
    """Collects what one subtask sends over one edge."""

    def __init__(self, edge: Edge, targets: range, place: Place) -> None:
        self.edge = edge
        self.records_out = 0
        self.bytes_out = 0
        self._place = place
        # The targets each bucket goes to: one each, or all for one bucket.
        self._targets = [list(targets)] if edge.partitioner.broadcasts else [[t] for t in targets]
        self._buckets = [edge.layout.new_block() for _ in self._targets]
        self._block_records = _FIRST_BLOCK_RECORDS

    def code(self, w: CodeWriter, value: Var, operator: Any) -> None:
        """Write how a record gets into its bucket."""
        value = detached(w, value)
        appends = [b.append for b in self._buckets]
        append, key = self.edge.partitioner.code(w, value.name, operator, appends, self._place)
        self.edge.layout.append_code(w, append, key, value)

    def watermark(self, watermark: int) -> None:
        self._control(WATERMARK, watermark)

    def idle(self) -> None:
        self._control(IDLE, 0)

    def end(self) -> None:
        self._control(END_OF_INPUT, 0)

    def _control(self, kind: int, value: int) -> None:
        for bucket in self._buckets:
            bucket.add_control(kind, value)

    def full_blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the blocks that should not wait for the end of the epoch."""
        for i in self.edge.layout.full(self._buckets, self._block_records):
            yield from self._take(i)

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """Yield all there is, as (target subtask, block)."""
        for i, bucket in enumerate(self._buckets):
            if not bucket.is_empty:
                yield from self._take(i)

    def _take(self, index: int) -> Iterator[tuple[int, bytes]]:
        bucket, targets = self._buckets[index], self._targets[index]
        records, encoded = len(bucket), bucket.encode()
        self.records_out += records * len(targets)
        self.bytes_out += len(encoded) * len(targets)
        if records >= self._block_records:
            fitting = records * BLOCK_BYTES // len(encoded)
            self._block_records = min(max(fitting, 1), 8 * self._block_records, _MOST_BLOCK_RECORDS)
        # The loop holds on to the very bucket, so it is emptied, not replaced.
        bucket.clear()
        for target in targets:
            yield target, encoded
