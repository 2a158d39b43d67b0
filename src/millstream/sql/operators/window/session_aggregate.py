"""Session windows with mergeable aggregates: state is accumulators, not rows.

Rows of a batch within a gap of each other are aggregated first, then merged with the sessions in state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_columns import FreshColumns, written
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.numpy_arrays import Ints, Mask, plain
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.aggregate_handler import AggregateHandler
from millstream.sql.operators.base import split_batches
from millstream.sql.operators.window.count_session_windows import SessionWindowOperator
from millstream.sql.operators.window.window_aggregate import WindowTimes, property_column
from millstream.sql.operators.window.windowing import Times


def can_merge(calls: Sequence[AggregateCall], kinds: Sequence[pa.DataType]) -> bool:
    """Return whether the aggregates do not depend on the order in which rows are merged."""
    aggregates = AggregateHandler(calls, kinds, False)
    return aggregates.combine and aggregates.is_exact


@fast_dataclass
class _Sessions:
    """Some sessions.

    Attributes:
        keys: the number of each session's key.
        starts, ends: the time of the first row, and of the last row plus the gap.
        arrivals: the position at which the first row arrived.
        partials: the state columns of the aggregates.
    """

    keys: Ints
    starts: Times
    ends: Times
    arrivals: Ints
    partials: list[pa.Array]

    def __len__(self) -> int:
        return len(self.keys)


class MergedSessionOperator(SessionWindowOperator):
    """Sessions by key, on append-only input and with aggregates that `can_merge`."""

    table_name = "sessions"

    def __init__(
        self,
        gap: int,
        times: WindowTimes,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        properties: Sequence[tuple[str, pa.DataType]],
        batch: bool = False,
    ) -> None:
        """Create the operator; see `SessionWindowOperator`."""
        super().__init__(gap, times, keys, keys, calls, kinds, properties, batch)
        self.aggregates = AggregateHandler(calls, kinds, False)

    def _row_table(self) -> KeyedRows:
        width = len(self.keys)
        partials = [written(k, np.empty(0, k.dtype)).type for k in self.aggregates.state_columns]
        # The key, the start and the first arrival; the end is the mark.
        kinds = [*(self.kinds[k] for k in self.keys), pa.int64(), pa.int64(), *partials]
        return KeyedRows(kinds, range(width))

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._next_arrival = 0

    def process(self, batch: Batch) -> Iterable[Batch]:
        self._rows.compact()
        times = self.times.of(batch, self.setup.clock())
        keys = self._keys_of(batch)
        if self.times.is_event_time and not self.batch:
            in_time = self._in_time(times, keys)
            if not in_time.all():
                self._late.inc(int((~in_time).sum()))
                batch, times, keys = batch.filter(in_time), times[in_time], keys[in_time]
        if len(batch):
            self._merge(self._of_batch(batch, times, keys), [batch.columns[k] for k in self.keys], keys)
        return ()

    def _in_time(self, times: Times, keys: Ints) -> Mask:
        in_time = self.times.triggers(times + self.gap) > self.watermark
        for row in np.flatnonzero(~in_time).tolist():
            _, stored = self._rows.pairs(keys[row : row + 1])
            starts, ends, time = plain(self._rows.take(len(self.keys), stored)), self._rows.marks[stored], times[row]
            others = times[:row][in_time[:row] & (keys[:row] == keys[row])]
            in_time[row] = bool(((ends >= time) & (starts <= time + self.gap)).any()) or bool(
                (np.abs(others - time) <= self.gap).any()
            )
        return in_time

    def _of_batch(self, batch: Batch, times: Times, keys: Ints) -> _Sessions:
        """Return the sessions of a batch's rows."""
        order = np.lexsort((times, keys))
        in_order, by_key = times[order], keys[order]
        begins = np.append(True, (by_key[1:] != by_key[:-1]) | (np.diff(in_order) > self.gap))
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(order)) - 1
        session = np.empty(len(order), np.int64)
        session[order] = np.cumsum(begins) - 1
        state = FreshColumns(self.aggregates.state_columns, len(first))
        self.aggregates.fold_unfiltered(batch, session, state)
        arrivals = np.minimum.reduceat(order, first) + self._next_arrival
        self._next_arrival += len(batch)
        partials = self.aggregates.partials(state, np.arange(len(first)))
        return _Sessions(by_key[first], in_order[first], in_order[last] + self.gap, arrivals, partials)

    def _merge(self, new: _Sessions, key_columns: list[pa.Array], keys: Ints) -> None:
        """Merge sessions with those in state."""
        touched, first = np.unique(keys, return_index=True)
        _, rows = self._rows.pairs(touched)
        stored = self._sessions_at(rows)
        groups = _grouped(stored, new)
        # Sessions in state without new rows are unchanged.
        changes = np.zeros(int(groups.max()) + 1, np.bool_)
        changes[groups[len(stored) :]] = True
        changed = changes[groups]
        self._rows.remove(rows[changed[: len(stored)]])
        merged = self._concat(stored, new, changed, groups)
        # A row of the batch that has the key.
        positions = pa.array(first[np.searchsorted(touched, merged.keys)])
        columns = [c.take(positions) for c in key_columns]
        columns += [pa.array(merged.starts), pa.array(merged.arrivals), *merged.partials]
        self._rows.add(merged.keys, columns, merged.ends)
        self._next = min(self._next, int(self.times.triggers(merged.ends).min()))

    def _concat(self, stored: _Sessions, new: _Sessions, changed: Mask, groups: Ints) -> _Sessions:
        """Merge sessions of both, by group."""
        changed_positions = np.flatnonzero(changed)
        groups, group = np.unique(groups[changed_positions], return_inverse=True)
        keys, starts, ends, arrivals = (
            np.concatenate(both)[changed_positions]
            for both in zip(*((s.keys, s.starts, s.ends, s.arrivals) for s in (stored, new)), strict=True)
        )
        order = np.argsort(group, kind="stable")
        first = np.searchsorted(group[order], np.arange(len(groups)))
        state = FreshColumns(self.aggregates.state_columns, len(groups))
        positions = pa.array(changed_positions)
        partials = [pa.concat_arrays(both).take(positions) for both in zip(stored.partials, new.partials, strict=True)]
        self.aggregates.merge(partials, (), group, state)
        return _Sessions(
            keys[order][first],
            np.minimum.reduceat(starts[order], first),
            np.maximum.reduceat(ends[order], first),
            np.minimum.reduceat(arrivals[order], first),
            self.aggregates.partials(state, np.arange(len(groups))),
        )

    def _sessions_at(self, rows: Ints) -> _Sessions:
        width, table = len(self.keys), self._rows
        partials = [table.take(width + 2 + i, rows) for i in range(len(self.aggregates.state_columns))]
        starts, arrivals = (plain(table.take(width + i, rows)) for i in (0, 1))
        return _Sessions(table.keys_of(rows), starts, table.marks[rows], arrivals, partials)

    # --- end of sessions

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        if self.times.is_event_time and MIN_WATERMARK < self._next < MAX_WATERMARK:
            yield "windows", len(self._rows), self._next

    def _schedule_timer(self) -> None:
        rows = self._rows.all_rows()
        self._next = int(self.times.triggers(self._rows.marks[rows]).min()) if len(rows) else MAX_WATERMARK
        arrivals = plain(self._rows.take(len(self.keys) + 1, rows))
        self._next_arrival = max(self._next_arrival, int(arrivals.max(initial=-1)) + 1)

    def _fire(self, time: int) -> None:
        rows = self._rows.all_rows()
        rows = rows[self.times.triggers(self._rows.marks[rows]) <= time]
        if len(rows):
            due = self._sessions_at(rows)
            # By session end, then by arrival.
            order = np.lexsort((due.arrivals, due.ends))
            positions, every = pa.array(order), np.arange(len(rows))
            state = FreshColumns(self.aggregates.state_columns, len(rows))
            self.aggregates.merge([p.take(positions) for p in due.partials], (), every, state)
            columns = [self._rows.take(i, rows[order]) for i in range(len(self.keys))]
            columns += self.aggregates.results(state, every)
            starts, ends = due.starts[order], due.ends[order]
            columns += [property_column(n, k, starts, ends, self.times) for n, k in self.properties]
            self.emit(split_batches(columns, len(rows)))
            self._rows.remove(rows)
        self._schedule_timer()


def _grouped(stored: _Sessions, new: _Sessions) -> Ints:
    """Return the group of each session: overlapping sessions of a key share one."""
    keys, starts, ends = (
        np.concatenate(both) for both in zip(*((s.keys, s.starts, s.ends) for s in (stored, new)), strict=True)
    )
    order = np.lexsort((starts, keys))
    by_key, begin = keys[order], starts[order]
    # The latest end of earlier sessions of the key. Ends are ranked, so that an offset per key separates keys.
    distinct_ends, rank = np.unique(ends[order], return_inverse=True)
    key_rank = np.cumsum(np.append(0, by_key[1:] != by_key[:-1])) * len(distinct_ends)
    reach = distinct_ends[np.maximum.accumulate(key_rank + rank) - key_rank]
    starts_group = np.append(True, (by_key[1:] != by_key[:-1]) | (begin[1:] > reach[:-1]))
    groups = np.empty(len(order), np.int64)
    groups[order] = np.cumsum(starts_group) - 1
    return groups
