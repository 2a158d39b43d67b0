"""What a subtask has processed in this epoch: where it fails, the state of a key before the record can be found again.

State is changed in place, and to note what it was before each record would slow every job. So where an epoch begins
with all state in the base, which nothing changes until the epoch has ended, the base and the key's earlier records of
the epoch say what the record found. They are in the blocks that the epoch has in memory anyway; here is only the order
in which these were processed, a few words for each block.
"""

from __future__ import annotations

from typing import Any

from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.runtime.blocks import Layout
from millstream.operators.runtime.partitioners import KeyPartitioner
from millstream.operators.runtime.record_writer import Edge
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.windows.panes import PaneOperator
from millstream.state.key_groups import hashable
from millstream.state.keyed import KeyedState

# A record as `operators.failures.Input` has it: input, value, timestamp, key, whether records have timestamps.
Passing = tuple[int, Any, int | None, Any, bool]


class EpochInputLog:
    """The order in which blocks and watermarks were processed, of a vertex whose first operator has keyed state."""

    def __init__(self, vertex: Vertex, batch: bool) -> None:
        first = vertex.head.operator
        # Panes and sessions are changed when the user's function has returned.
        takes = first.keyed and not first.takes_batches and not isinstance(first, PaneOperator)
        edges = all(isinstance(edge.partitioner, KeyPartitioner) for edge in vertex.in_edges)
        self.is_on = takes and edges and not batch and not vertex.is_source
        # How far the block in hand was processed when the loop was last entered.
        self.at = 0
        # How far time had come when the epoch began.
        self.watermark = MIN_WATERMARK
        self._is_exact = False
        self._log: list[int | tuple[Edge, Layout, Any, int, int]] = []
        self._in_hand: tuple[Edge, Layout, Any, int] | None = None

    def begin(self, state: KeyedState | None, watermark: int) -> None:
        """An epoch begins."""
        if self.is_on:
            self._log.clear()
            self._in_hand = None
            self._is_exact = state is not None and state.is_in_base
            self.watermark = watermark

    def take(self, edge: Edge, layout: Layout, body: Any, at: int) -> None:
        """Records of a block come now, from one on."""
        self._in_hand = edge, layout, body, at
        # What came over channels that are no more may have no key.
        self._is_exact = self._is_exact and isinstance(edge.partitioner, KeyPartitioner)

    def took(self, end: int) -> None:
        """They were processed up to another."""
        if self._in_hand is not None:
            self._log.append((*self._in_hand, end))
            self._in_hand = None

    def advance(self, watermark: int) -> None:
        """Time goes on."""
        self._log.append(watermark)

    def before(self, key: Any, items: int) -> list[int | Passing] | None:
        """Return a key's records of this epoch before the one in hand, and the watermarks among them.

        Args:
            key: the key.
            items: how many items of the block in hand the loop has taken since it was last entered; 0 between blocks.

        Returns:
            None where state has changed since it was all in the base.
        """
        if not self._is_exact:
            return None
        log = list(self._log)
        if self._in_hand is not None:
            edge, layout, body, at = self._in_hand
            # The last one taken is the one in hand.
            log.append((edge, layout, body, at, self.at + items // layout.decode(body).width - 1))
        found: list[int | Passing] = []
        for one in log:
            found += [one] if isinstance(one, int) else _of_key(key, *one)
        return found


def _of_key(key: Any, edge: Edge, layout: Layout, body: Any, at: int, end: int) -> list[Passing]:
    """Return the records of a key in a part of a block."""
    assert isinstance(edge.partitioner, KeyPartitioner)
    select = edge.partitioner.select
    keys, values, stamps = layout.decode(body).part(at, end).columns()
    if not layout.has_key:
        keys = [hashable(select(value)) for value in values]
    timed = layout.has_timestamp
    return [(edge.input_index, v, t, k, timed) for k, v, t in zip(keys, values, stamps, strict=True) if k == key]
