"""Record writers, which partition records into blocks for the subtasks of the next vertex, and channels from them.

`EdgeWriter.code` writes the last lines of a loop: the partitioner's, which choose the target's block, and the layout's,
which append the record to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millstream.common.errors import RecordTooLargeError
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.inferred_types import ANYTHING, InferredType, either, within
from millstream.common.typeinfo import TypeInformation
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.codegen.code_writer import CodeWriter, Var
from millstream.operators.codegen.object_reuse import detached
from millstream.operators.runtime.blocks import END_OF_INPUT, IDLE, WATERMARK, Block, Layout, Pieces
from millstream.operators.runtime.partitioners import Partitioner, PartitionerContext

# A block is sent at about this size, which bounds a sender's memory, and after few enough records that they are
# still in the processor's cache when they are encoded.
BLOCK_BYTES = 1 << 20
# Upper bound of a block.
MAX_BLOCK_BYTES = 256 << 20
_FIRST_BLOCK_RECORDS = 256
_MAX_BLOCK_RECORDS = 1 << 11


@fast_dataclass
class Edge:
    """An edge of the job graph; its layout defines which parts of a record it transports.

    Attributes:
        type_info: the type that the records conform to, None if unknown.
    """

    id: int
    source: int
    target: int
    input_index: int
    partitioner: Partitioner
    layout: Layout
    type_info: TypeInformation | None = None


def _known(w: CodeWriter, value: Var) -> tuple[InferredType, int | None]:
    """Return the inferred type of a record, and which of its members is its timestamp."""
    members, origin = w.members(value.name) or (), w.origin(value.timestamp)
    inferred_type = value.inferred_type if value.condition is None else ANYTHING
    return inferred_type, members.index(origin) if origin in members else None


class EdgeWriter:
    """Collects the records that one subtask sends over one edge."""

    def __init__(self, edge: Edge, targets: range, context: PartitionerContext) -> None:
        self.edge = edge
        self.records_out = 0
        self.bytes_out = 0
        self._context = context
        # The targets of each bucket: one each, or all targets for the one bucket of a broadcast.
        self._targets = [list(targets)] if edge.partitioner.broadcasts else [[t] for t in targets]
        self._layout = edge.layout
        self._buckets: list[Block] = []
        self._block_records = _FIRST_BLOCK_RECORDS
        # The inferred type of all records sent, and the member that is their timestamp; None before the first.
        self._known: tuple[InferredType, int | None] | None = None
        self.choose_layout()

    def learn(self, w: CodeWriter, value: Var) -> None:
        """Include a record's type in the layout decision; `code` is called for the same record later."""
        known = _known(w, value)
        if self._known is not None:
            inferred_type, timestamp = self._known
            known = either(inferred_type, known[0]), timestamp if timestamp == known[1] else None
        self._known = known

    def choose_layout(self) -> None:
        """Choose the block layout from the types learnt."""
        if self._known is not None:
            self._layout = replace(self.edge.layout, pieces=Pieces.of(*self._known))
        self._buckets = [self._layout.new_block() for _ in self._targets]

    def code(self, w: CodeWriter, value: Var, operator: object) -> None:
        """Write the lines that append a record to its bucket."""
        self._check(w, value)
        value = detached(w, value)
        appends = [b.append for b in self._buckets]
        if self.edge.partitioner.splits:
            send = self.edge.partitioner.sender(appends, self._context)
            w.line(f"{w.bind(send, 'send')}({value.name})", operator, value.name)
            return
        inferred_type = value.inferred_type if value.condition is None else ANYTHING
        append, key = self.edge.partitioner.code(w, value.name, operator, appends, self._context, inferred_type)
        self._layout.append_code(w, append, key, value)

    def _check(self, w: CodeWriter, value: Var) -> None:
        """Assert that a record fits the layout."""
        pieces = self._layout.pieces
        if pieces is not None:
            inferred_type, timestamp = _known(w, value)
            fits = within(inferred_type, pieces.inferred_type(ANYTHING)) and pieces.timestamp in (None, timestamp)
            assert fits, f"A record of type {inferred_type} does not fit the layout {pieces}."

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
        """Yield the blocks that are full."""
        for i in self._layout.full(self._buckets, self._block_records):
            yield from self._take(i)

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """Yield all blocks, as (target subtask, block)."""
        for i, bucket in enumerate(self._buckets):
            if not bucket.is_empty:
                yield from self._take(i)

    def _take(self, index: int) -> Iterator[tuple[int, bytes]]:
        bucket, targets = self._buckets[index], self._targets[index]
        records, written = len(bucket), list(_written(bucket))
        size = sum(map(len, written))
        self.records_out += self._layout.count(bucket, 0, records) * len(targets)
        self.bytes_out += size * len(targets)
        if records >= self._block_records:
            max_records = records * BLOCK_BYTES // size
            self._block_records = min(max(max_records, 1), 8 * self._block_records, _MAX_BLOCK_RECORDS)
        # The generated loop references this very bucket, so it is cleared, not replaced.
        bucket.clear()
        for target in targets:
            for encoded in written:
                yield target, encoded


def _written(block: Block) -> Iterator[bytes]:
    """Encode a block, in halves if it is too large: each passes through memory, also the JVM's, as a whole."""
    encoded = block.encode()
    if len(encoded) <= MAX_BLOCK_BYTES:
        yield encoded
    elif len(block) > 1:
        del encoded
        for half in block.halves():
            yield from _written(half)
    else:
        _, value, _ = next(block.records())
        raise RecordTooLargeError(
            f"A record ({type(value).__name__}) takes {len(encoded) / 2**20:,.0f} MB, and {MAX_BLOCK_BYTES >> 20:,} "
            "MB is the maximum between two subtasks: send a reference (a path, a key) instead, or use the record in "
            "the chain that creates it."
        )


class Channel:
    """The progress of one sender: its watermark, whether it is idle, whether it has ended."""

    __slots__ = ("edge", "ended", "idle", "number", "watermark")

    def __init__(self, edge: Edge, number: int) -> None:
        self.edge = edge
        self.number = number
        self.watermark = MIN_WATERMARK
        self.idle = False
        self.ended = False
