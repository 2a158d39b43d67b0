"""Top-N and deduplication within windows, emitted when a window ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_rows import Ints
from millstream.sql.columns.keys import grouped
from millstream.sql.columns.row_order import Order, sorted_rows
from millstream.sql.operators.base import split_batches
from millstream.sql.operators.over.over_frames import starts_of
from millstream.sql.operators.window.buffered_window import BufferedInput, WindowRowsOperator
from millstream.sql.operators.window.window_aggregate import WindowTimes

# Rows that cannot reach the last rank are removed when there are this many rows, then when the number has doubled.
_MANY = 1 << 14


class WindowRankOperator(WindowRowsOperator):
    """Emits a range of ranks of each partition, of which the window is a part."""

    def __init__(
        self,
        times: WindowTimes,
        end: int,
        partition: Sequence[int],
        order: Order,
        kinds: Sequence[pa.DataType],
        first: int,
        last: int,
        shows_rank: bool,
        last_wins: bool = False,
    ) -> None:
        """Create the operator.

        Args:
            times: when windows end.
            end: the window-end column.
            partition: the columns to partition by.
            order: (column, descending, nulls first).
            kinds: the Arrow types of the input's columns.
            first, last: the ranks, from 1.
            shows_rank: whether the rank is the last column.
            last_wins: whether ties prefer the later row.
        """
        super().__init__(times, [BufferedInput(kinds, partition, end)])
        self.partition = tuple(partition)
        self.order = tuple(order)
        self.first = first
        self.last = last
        self.shows_rank = shows_rank
        self.last_wins = last_wins

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._enough = _MANY

    def process(self, batch: Batch) -> Iterable[Batch]:
        self._keep(batch, 0)
        rows = self._rows[0]
        if len(rows) > self._enough:
            there = rows.all_rows()
            columns = [rows.take(i, there) for i in range(len(self.kept[0].kinds))]
            order, places = self._placed(columns, rows.marks[there])
            rows.remove(there[order[places > self.last]])
            self._enough = max(_MANY, 2 * len(rows))
        return ()

    def _placed(self, columns: list[pa.Array], triggers: Ints) -> tuple[Ints, Ints]:
        """Return rows sorted by window, partition and order, and their ranks."""
        count = len(triggers)
        partition = grouped([columns[k] for k in self.partition], count).codes
        came = np.arange(count)
        levels = [pa.array(triggers), pa.array(partition), *columns, pa.array(came)]
        wanted = [(0, False, True), (1, False, True), *((c + 2, d, n) for c, d, n in self.order)]
        order = sorted_rows(levels, [*wanted, (len(levels) - 1, self.last_wins, True)], count)
        in_order = partition[order]
        return order, np.arange(count) - starts_of(in_order) + 1

    def _fire(self, time: int) -> None:
        batch, triggers = self._due(0, time)
        order, places = self._placed(list(batch.columns), triggers)
        shown = (places >= self.first) & (places <= self.last)
        at = pa.array(order[shown])
        columns = [c.take(at) for c in batch.columns]
        if self.shows_rank:
            columns.append(pa.array(places[shown]))
        self.emit(split_batches(columns, len(at)))
