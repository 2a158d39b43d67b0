"""Input of keyed operators in BATCH: retained until all has arrived, then processed key by key in timestamp order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from millstream.common.aliases import Key, Value
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.runtime.blocks import Block
from millstream.operators.runtime.record_writer import Edge
from millstream.state.keyed import KeyedState
from millstream.state.kinds import LIST
from millstream.state.table import BY_NAMESPACE

_TABLE = "_batch_input"

# The retained fields of a record: timestamp, edge and value.
_Row = tuple[int | None, int, Value]


class BatchInput:
    """The input of a subtask, retained in its state, which survives the process."""

    def __init__(self, state: KeyedState, edges: list[Edge]) -> None:
        self._state = state
        self._edges = {e.id: e for e in edges}

    def add(self, edge: Edge, block: Block, epoch: int) -> None:
        """Add records. Rows are keyed by key and epoch, so that each is written once."""
        overlay = self._state.table(_TABLE, LIST, BY_NAMESPACE).overlay
        for key, value, time in block.records():
            row = overlay.get((key, epoch))
            if row is None:
                row = overlay[(key, epoch)] = []
            row.append((time, edge.id, value))

    def by_key(self) -> Iterator[Iterator[tuple[Edge, Block]]]:
        """Yield the records of each key; consecutive records of one edge form one block."""
        by_key: dict[Key, list[_Row]] = {}
        for (key, _), rows in self._state.table(_TABLE, LIST, BY_NAMESPACE).rows():
            by_key.setdefault(key, []).extend(rows)
        for key, rows in by_key.items():
            rows.sort(key=lambda r: MIN_WATERMARK if r[0] is None else r[0])
            yield self._blocks(key, rows)

    def _blocks(self, key: Key, rows: list[_Row]) -> Iterator[tuple[Edge, Block]]:
        for number, records in groupby(rows, itemgetter(1)):
            edge = self._edges[number]
            yield edge, edge.layout.block_of((key, value, time) for time, _, value in records)
