"""Window table functions: each row once per window that it is in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from millstream.sql.columns.batch import Batch
from millstream.sql.operators.base import BatchOperator
from millstream.sql.operators.window.window_aggregate import WindowTimes, property_column
from millstream.sql.operators.window.windowing import Windowing


class WindowTableOperator(BatchOperator):
    """Adds window_start, window_end and window_time."""

    def __init__(self, windowing: Windowing, times: WindowTimes, kinds: Sequence[pa.DataType]) -> None:
        """Create the operator.

        Args:
            windowing: the windows.
            times: the times of rows.
            kinds: the Arrow types of the three columns.
        """
        self.windowing = windowing
        self.times = times
        self.kinds = list(kinds)

    def process(self, batch: Batch) -> Iterable[Batch]:
        rows, ends = self.windowing.all_ends(self.times.of(batch, self.setup.clock()))
        batch = batch if self.windowing.has_one_window else batch.take(rows)
        starts = self.windowing.starts(ends)
        time = "rowtime" if self.times.is_event_time else "proctime"
        names = ["start", "end", time]
        columns = [property_column(n, k, starts, ends, self.times) for n, k in zip(names, self.kinds, strict=True)]
        return (batch.with_columns([*batch.columns, *columns]),)
