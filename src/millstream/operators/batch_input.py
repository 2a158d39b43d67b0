"""In BATCH, keyed operators get their input key by key, each in the order of time: it waits here until all has come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.edges import Edge
from millstream.state.keyed import KeyedState
from millstream.state.kinds import LIST
from millstream.state.table import BY_NAMESPACE

_TABLE = "_batch_input"


class BatchInput:
    """Records of a subtask's input, kept in its state, which survives the process."""

    def __init__(self, state: KeyedState, edges: list[Edge]) -> None:
        self._state = state
        self._timestamped = {e.id: e.timestamped for e in edges}

    def add(self, edge: Edge, records: list[Any], epoch: int) -> None:
        """Keep records. Rows are by key and epoch, so that each is written once."""
        overlay, stride = self._state.table(_TABLE, LIST, BY_NAMESPACE).overlay, edge.stride
        keys, values = records[::stride], records[1::stride]
        times = records[2::stride] if edge.timestamped else [None] * len(keys)
        for key, value, time in zip(keys, values, times, strict=True):
            row = overlay.get((key, epoch))
            if row is None:
                row = overlay[(key, epoch)] = []
            row.append((time, edge.id, value))

    def by_key(self) -> Iterator[Iterator[tuple[int, list[Any]]]]:
        """Yield for each key its records, each with its edge and as that edge's loop takes it."""
        by_key: dict[Any, list[tuple[int | None, int, Any]]] = {}
        for (key, _), rows in self._state.table(_TABLE, LIST, BY_NAMESPACE).rows():
            by_key.setdefault(key, []).extend(rows)
        for key, rows in by_key.items():
            rows.sort(key=lambda r: MIN_WATERMARK if r[0] is None else r[0])
            yield self._records(key, rows)

    def _records(self, key: Any, rows: list[tuple[int | None, int, Any]]) -> Iterator[tuple[int, list[Any]]]:
        timestamped = self._timestamped
        for time, edge, value in rows:
            yield edge, [key, value, time] if timestamped[edge] else [key, value]
