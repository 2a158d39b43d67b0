"""The order in which a subtask has processed its input in this epoch: a failure report reconstructs a key's state.

State is changed in place, and saving it before each record would slow down every job. If an epoch begins with all state
in the base, which does not change until the epoch has ended, the base and the key's earlier records of the epoch
determine the state before the failed record. The epoch holds the blocks with these records in memory anyway; this log
adds their order, a few words per block.
"""

from __future__ import annotations

from millstream.common.aliases import Key, Value
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.runtime.blocks import Layout
from millstream.operators.runtime.partitioners import KeyPartitioner
from millstream.operators.runtime.record_writer import Edge
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.windows.panes import PaneOperator
from millstream.state.key_groups import hashable
from millstream.state.keyed import KeyedState

# A record as in `operators.failures.Input`: input, value, timestamp, key, whether records have timestamps.
LoggedRecord = tuple[int, Value, int | None, Key, bool]

# A part of an encoded block: edge, layout, block, first record, end.
_Part = tuple[Edge, Layout, bytes | memoryview, int, int]


class EpochInputLog:
    """The order in which blocks and watermarks were processed, for a vertex whose first operator has keyed state.

    Attributes:
        is_on: whether the subtask logs its input.
        offset: the offset in the current block at which the loop was last entered.
        watermark: the watermark at the start of the epoch.
    """

    def __init__(self, vertex: Vertex, batch: bool) -> None:
        first = vertex.head.operator
        # Panes and sessions change their state after the user's function has returned.
        has_records = first.keyed and not first.takes_batches and not isinstance(first, PaneOperator)
        by_key = all(isinstance(edge.partitioner, KeyPartitioner) for edge in vertex.in_edges)
        self.is_on = has_records and by_key and not batch and not vertex.is_source
        self.offset = 0
        self.watermark = MIN_WATERMARK
        self._is_exact = False
        self._log: list[int | _Part] = []
        # The current block, from the first record processed.
        self._current: tuple[Edge, Layout, bytes | memoryview, int] | None = None

    def begin(self, state: KeyedState | None, watermark: int) -> None:
        """Start an epoch."""
        if self.is_on:
            self._log.clear()
            self._current = None
            self._is_exact = state is not None and state.is_in_base
            self.watermark = watermark

    def begin_block(self, edge: Edge, layout: Layout, body: bytes | memoryview, start: int) -> None:
        """Record that the records of a block are processed from an offset on."""
        self._current = edge, layout, body, start
        # Recovered input may have no key.
        self._is_exact = self._is_exact and isinstance(edge.partitioner, KeyPartitioner)

    def end_block(self, end: int) -> None:
        """Record that the records of the current block were processed up to an offset."""
        if self._current is not None:
            self._log.append((*self._current, end))
            self._current = None

    def add_watermark(self, watermark: int) -> None:
        """Record a watermark."""
        self._log.append(watermark)

    def before(self, key: Key, items: int) -> list[int | LoggedRecord] | None:
        """Return a key's records of this epoch before the current one, and the watermarks among them.

        Args:
            key: the key.
            items: the number of items of the current block that the loop has read since it was last entered; 0 between
                blocks.

        Returns:
            None if the epoch did not begin with all state in the base.
        """
        if not self._is_exact:
            return None
        log = list(self._log)
        if self._current is not None:
            edge, layout, body, start = self._current
            # The last item read is the current record.
            log.append((edge, layout, body, start, self.offset + items // layout.decode(body).width - 1))
        entries: list[int | LoggedRecord] = []
        for entry in log:
            entries += [entry] if isinstance(entry, int) else _records_of_key(key, *entry)
        return entries


def _records_of_key(
    key: Key, edge: Edge, layout: Layout, body: bytes | memoryview, start: int, end: int
) -> list[LoggedRecord]:
    assert isinstance(edge.partitioner, KeyPartitioner)
    select = edge.partitioner.select
    keys, values, timestamps = layout.decode(body).part(start, end).columns()
    if not layout.has_key:
        keys = [hashable(select(value)) for value in values]
    timestamped = layout.has_timestamp
    return [
        (edge.input_index, v, t, k, timestamped) for k, v, t in zip(keys, values, timestamps, strict=True) if k == key
    ]
