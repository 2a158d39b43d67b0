"""Group aggregate: one row for each key, changed by every row that comes.

The changes are those that Flink's operator makes row by row: the first row of a key inserts, every other one updates
unless the result stays the same, and when the last row is taken back the result is deleted. They are computed by
vectors: rows are sorted by key, sums run over each key's rows, and what they come to is put back in order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.columns.keyed import Kept, KeyedColumns
from millstream.sql.columns.keys import Grouped, grouped
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregates import Aggregates, signs_of
from millstream.sql.operators.base import KeyedBatchOperator, pieces
from millstream.sql.operators.running import Running
from millstream.sql.operators.segments import Ints, Segments

# How many rows a key has, where rows can be taken back.
_ROWS = "rows"


class GroupAggregateOperator(KeyedBatchOperator):
    """Keys, then aggregates; without aggregates, the distinct keys."""

    emits_later = True

    def __init__(
        self,
        keys: Sequence[int],
        calls: Sequence[AggregateCall],
        kinds: Sequence[pa.DataType],
        *,
        retracts: bool = False,
        pairs: bool = True,
        mini_batch: bool = False,
        final_only: bool = False,
        ttl: int = 0,
    ) -> None:
        """Make one.

        Args:
            keys: the columns to group by.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
            retracts: whether the input may take rows back.
            pairs: whether an update is -U and +U, not +U alone.
            mini_batch: whether a batch makes at most one change for each key.
            final_only: whether only what is there at the end is emitted.
            ttl: how long a key lives that is not changed, in milliseconds; 0 for ever.
        """
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.aggregates = Aggregates(calls, kinds, retracts)
        self.retracts = retracts
        self.pairs = pairs
        self.mini_batch = mini_batch
        self.final_only = final_only
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.keys]
        kept = [*([Kept(_ROWS, np.int64)] if self.retracts else []), *self.aggregates.kept]
        self._state: KeyedColumns = self.keeps("groups", KeyedColumns(kinds, kept, self.max_parallelism))
        self.aggregates.open(kinds, self.max_parallelism, self.keeps)

    def process(self, batch: Batch) -> Iterable[Batch]:
        keys = [batch.columns[k] for k in self.keys]
        state = self._state
        state.compact()
        by_key = grouped(keys, len(batch))
        first = pa.array(by_key.first)
        slots, new = state.find([k.take(first) for k in keys], by_key.count)
        segments = Segments.of(by_key, slots, new, signs_of(batch))
        rows: Ints | None = None
        if self.retracts:
            unknown = self._unknown(segments, by_key)
            if unknown is not None:
                known = batch.filter(~unknown)
                state.remove(slots[new])
                return self.process(known) if len(known) else ()
            rows, segments = self._count(segments)
        running = self.aggregates.run(batch, keys, segments, state)
        state.changed(slots)
        out = () if self.final_only else (self._changes(batch, keys, segments, rows, running),)
        if rows is not None:
            state.remove(slots[state.column(_ROWS)[slots] == 0])
        return out

    def _unknown(self, segments: Segments, by_key: Grouped) -> NDArray[np.bool_] | None:
        """Return which rows take back something that is not there; None when there is none of them."""
        if segments.signs is None:
            return None
        begins = segments.begins(self._state.column(_ROWS), 0)
        running = segments.sums(segments.signs, begins)
        if running.min() >= 0:
            return None
        unknown = np.zeros(segments.rows, np.bool_)
        for segment in np.unique(segments.of_row[running < 0]).tolist():
            left = int(begins[segment])
            for place in range(int(segments.starts[segment]), int(segments.ends[segment]) + 1):
                sign = int(segments.signs[place])
                if left + sign < 0:
                    unknown[segments.order[place]] = True
                else:
                    left += sign
        return unknown

    def _count(self, segments: Segments) -> tuple[Ints, Segments]:
        """Count the rows of each key; where there are none left, what follows begins with nothing."""
        column = self._state.column(_ROWS)
        signs = np.ones(segments.rows, np.int64) if segments.signs is None else segments.signs
        running = segments.sums(signs, segments.begins(column, 0))
        segments.leave(column, running)
        return running, segments.cut_behind(running == 0) if segments.signs is not None else segments

    def _changes(
        self, batch: Batch, keys: list[pa.Array], segments: Segments, rows: Ints | None, running: list[Running]
    ) -> Batch:
        if self.mini_batch:
            before, after, there_before, there_after = self._whole(segments, rows)
        else:
            before, after = segments.before, np.arange(segments.rows)
            there_before = ~segments.is_start | ~segments.fresh[segments.of_row]
            there_after = np.ones(segments.rows, np.bool_) if rows is None else rows > 0
        differs = self._differs(segments, running, before, after)
        update = there_before & there_after & differs
        # What is taken back, then what is new, for each of those that say anything.
        old = (update & self.pairs) | (there_before & ~there_after)
        fresh = update | (~there_before & there_after)
        arrival = segments.order[after]
        order = np.argsort(arrival) if self.mini_batch else _inverse(arrival)
        old, fresh = old[order], fresh[order]
        before, after, arrival = before[order], after[order], arrival[order]
        sizes = old.astype(np.int64) + fresh
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        places, source, kinds = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int8)
        at_old, at_fresh = (ends - sizes)[old], (ends - 1)[fresh]
        places[at_old], places[at_fresh] = before[old], after[fresh]
        source[at_old], source[at_fresh] = arrival[old], arrival[fresh]
        kinds[at_old] = np.where(update[order][old], UPDATE_BEFORE, DELETE)
        kinds[at_fresh] = np.where(update[order][fresh], UPDATE_AFTER, INSERT)
        at = pa.array(source)
        columns = [k.take(at) for k in keys] + [r.take(places) for r in running]
        return Batch(columns, kinds if kinds.any() else None, total)

    def _differs(self, segments: Segments, running: list[Running], before: Ints, after: Ints) -> NDArray[np.bool_]:
        if self.ttl:
            # Who keeps what for a time must hear that it is still so.
            return np.ones(len(after), np.bool_)
        differs = np.zeros(len(after), np.bool_)
        for one in running:
            differs |= one.differs(before, after)
        return differs

    def _whole(self, segments: Segments, rows: Ints | None) -> tuple[Ints, Ints, NDArray[np.bool_], NDArray[np.bool_]]:
        """Return for each key where its result is before the batch and behind it, and whether it is there."""
        ends = np.flatnonzero(segments.last)
        starts = np.append(0, ends[:-1] + 1)
        before, after = segments.rows + starts, segments.ends[ends]
        there_after = np.ones(len(ends), np.bool_) if rows is None else rows[after] > 0
        return before, after, ~segments.fresh[starts], there_after

    def finish(self) -> None:
        """In BATCH: emit what is there."""
        if self.final_only:
            if not self.keys:
                # Of nothing there is a result, too.
                self._state.find([], 1)
            slots = self._state.slots()
            columns = self._state.keys_at(slots) + self.aggregates.results(self._state, slots)
            self.emit(pieces(columns, len(slots)))


def _inverse(order: Ints) -> Ints:
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places
