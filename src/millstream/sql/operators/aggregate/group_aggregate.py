"""Group aggregates: one result row per key, or several rows of a table aggregate's user function.

The changes equal those of Flink's row-by-row operator: the first row of a key inserts, later rows update unless the
result is unchanged, and retracting the last row deletes the result. The computation is vectorized: rows are sorted by
key, running sums go over each key's rows, and the results are put back into order of arrival. A table aggregate emits
its rows in full on every input row. In batch mode, each key has one row at the end of input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, Batch
from millstream.sql.columns.index import first_rows
from millstream.sql.columns.keyed_columns import FreshColumns, KeyedColumns, StateColumn
from millstream.sql.columns.numpy_arrays import Ints, Mask, plain
from millstream.sql.expressions import AggregateCall
from millstream.sql.functions.function import OpenedTableAggregate
from millstream.sql.operators.aggregate.accumulators import differing
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED, AggregateHandler, signs_of
from millstream.sql.operators.aggregate.segments import Running, Segments
from millstream.sql.operators.base import BATCH_ROWS, KeyedBatchOperator, split_batches
from millstream.sql.operators.row_kinds import Changelog
from millstream.sql.operators.spilling import SpillingOperator

# The number of rows of a key, if rows can be retracted.
_ROWS = "rows"


class GroupAggregateOperator(KeyedBatchOperator):
    """Emits keys, then aggregates; without aggregates, the distinct keys."""

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
        """Create the operator.

        Args:
            keys: the columns to group by.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
            retracts: whether the input may retract rows.
            pairs: whether an update is emitted as -U and +U, not as +U alone.
            mini_batch: whether a batch emits at most one change per key.
            final_only: whether only the final results are emitted.
            ttl: state TTL in milliseconds; 0 for none.
        """
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.calls = tuple(calls)
        self.aggregates = AggregateHandler(calls, kinds, retracts)
        self.retracts = retracts
        self.pairs = pairs
        self.mini_batch = mini_batch
        self.final_only = final_only
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.keys]
        state_columns = [StateColumn(_ROWS, np.int64)] if self.retracts else []
        state_columns += [StateColumn(TOUCHED, np.int64)] if self.ttl else []
        state_columns += self.aggregates.state_columns
        self._state: KeyedColumns = self.state_table("groups", KeyedColumns(kinds, state_columns))
        self.aggregates.open(kinds, self.state_table)
        self._scratch = np.empty(0, np.int64)

    def process(self, batch: Batch) -> Iterable[Batch]:
        keys = [batch.columns[k] for k in self.keys]
        state = self._state
        self._clear_up()
        first_new = state.bound
        key_ids, _ = state.find_or_add(keys, len(batch))
        segments = Segments.of(key_ids, first_new, state.bound, signs_of(batch))
        unknown = self._unknown(segments, first_new) if self.retracts else None
        if unknown is not None:
            return self.process(batch.filter(~unknown)) if not unknown.all() else ()
        if self.ttl:
            state.column(TOUCHED)[key_ids] = self.setup.clock()
        if self.mini_batch or self.final_only:
            return self._folded(batch, keys, key_ids, first_new)
        rows: Ints | None = None
        if self.retracts:
            rows, segments = self._count(segments)
        running = self.aggregates.run(batch, keys, segments, state)
        state.changed(segments.key_ids)
        out = self._changes(batch, keys, segments, rows, running)
        self._discard(segments.key_ids)
        return (out,)

    def _clear_up(self) -> None:
        """Discard expired keys."""
        self._state.compact()
        if self.ttl:
            now = self.setup.clock()
            self._state.expire(TOUCHED, now - self.ttl)
            self.aggregates.expire(now, self.ttl)

    def _discard(self, key_ids: Ints) -> None:
        """Discard keys without rows."""
        if self.retracts:
            empty = key_ids[self._state.column(_ROWS)[key_ids] <= 0]
            self._state.remove(np.unique(empty))

    def _unknown(self, segments: Segments, first_new: int) -> Mask | None:
        """Return a mask of rows that retract a row that does not exist, or None if there are none."""
        if segments.signs is None:
            return None
        in_order = segments.signs
        begins = segments.begins(self._state.column(_ROWS), 0)
        running = segments.sums(in_order, begins)
        if running.min() >= 0:
            return None
        unknown = np.zeros(segments.rows, np.bool_)
        for segment in np.unique(segments.of_row[running < 0]).tolist():
            left = int(begins[segment])
            for position in range(int(segments.starts[segment]), int(segments.ends[segment]) + 1):
                if left + in_order[position] < 0:
                    unknown[segments.order[position]] = True
                else:
                    left += int(in_order[position])
        # Keys that had only such rows do not exist.
        self._state.remove(np.arange(first_new, self._state.bound))
        return unknown

    def _count(self, segments: Segments) -> tuple[Ints, Segments]:
        """Count the rows of each key; after a key's last row is retracted, a new segment starts empty."""
        column = self._state.column(_ROWS)
        signs = np.ones(segments.rows, np.int64) if segments.signs is None else segments.signs
        running = segments.sums(signs, segments.begins(column, 0))
        segments.leave(column, running)
        return running, segments.split_after(running == 0) if segments.signs is not None else segments

    def _changes(
        self, batch: Batch, keys: list[pa.Array], segments: Segments, rows: Ints | None, running: list[Running]
    ) -> Batch:
        before, after = segments.before, np.arange(segments.rows)
        existed = np.ones(segments.rows, np.bool_)
        existed[segments.starts] = ~segments.fresh
        exists = np.ones(segments.rows, np.bool_) if rows is None else rows > 0
        differs = np.full(segments.rows, bool(self.ttl))
        for one in running if not self.ttl else ():
            differs |= one.differs(before, after)
        changes = Changelog.of(existed, exists, differs, self.pairs)
        # Back to order of arrival.
        changes = changes.in_order(_inverse(segments.order))
        value_rows = changes.chosen(before[changes.order], after[changes.order])
        positions = pa.array(changes.chosen(changes.positions, changes.positions))
        return Batch(
            [*(k.take(positions) for k in keys), *(r.take(value_rows) for r in running)], changes.kinds, len(positions)
        )

    def _folded(self, batch: Batch, keys: list[pa.Array], key_ids: Ints, first_new: int) -> Iterable[Batch]:
        """Process a batch of which only the final results per key are emitted."""
        state = self._state
        # Keys in order of their first row.
        if len(self._scratch) < state.bound:
            self._scratch = np.empty(2 * state.bound, np.int64)
        rows = first_rows(key_ids, self._scratch)
        distinct = key_ids.take(rows)
        before = [] if self.final_only else self.aggregates.results(state, distinct)
        self._add_up(batch, keys, key_ids)
        state.changed(distinct)
        out: Iterable[Batch] = ()
        if not self.final_only:
            out = (self._changes_of_keys(keys, distinct, rows, first_new, before),)
        self._discard(distinct)
        return out

    def _add_up(self, batch: Batch, keys: list[pa.Array], key_ids: Ints) -> None:
        """Process rows whose key ids are known."""
        if self.retracts:
            signs = signs_of(batch)
            np.add.at(self._state.column(_ROWS), key_ids, np.ones(len(key_ids), np.int64) if signs is None else signs)
        self.aggregates.fold(batch, keys, key_ids, self._state)

    def _changes_of_keys(
        self, keys: list[pa.Array], key_ids: Ints, rows: Ints, first_new: int, before: list[pa.Array]
    ) -> Batch:
        state = self._state
        results = self.aggregates.results(state, key_ids)
        exists = state.column(_ROWS)[key_ids] > 0 if self.retracts else np.ones(len(key_ids), np.bool_)
        differs = np.full(len(key_ids), bool(self.ttl))
        for old, new in zip(before, results, strict=True):
            differs |= differing(old, new)
        changes = Changelog.of(key_ids < first_new, exists, differs, self.pairs)
        value_rows = pa.array(changes.chosen(np.arange(len(key_ids)), np.arange(len(key_ids)) + len(key_ids)))
        positions = pa.array(changes.chosen(rows, rows))
        both = [pa.concat_arrays([old, new]) for old, new in zip(before, results, strict=True)]
        return Batch(
            [*(k.take(positions) for k in keys), *(r.take(value_rows) for r in both)], changes.kinds, len(positions)
        )

    def finish(self) -> None:
        """Emit the final results in batch mode."""
        if self.final_only:
            if not self.keys:
                # A global aggregate has a result without input.
                self._state.find_or_add([], 1)
            key_ids = self._state.key_ids()
            columns = self._state.keys_at(key_ids) + self.aggregates.results(self._state, key_ids)
            self.emit(split_batches(columns, len(key_ids)))


class GlobalGroupAggregateOperator(GroupAggregateOperator):
    """The second phase; merges the output of a `LocalGroupAggregateOperator` with the same arguments."""

    def process(self, batch: Batch) -> Iterable[Batch]:
        keys = list(batch.columns[: len(self.keys)])
        state = self._state
        self._clear_up()
        first_new = state.bound
        key_ids, _ = state.find_or_add(keys, len(batch))
        if self.ttl:
            state.column(TOUCHED)[key_ids] = self.setup.clock()
        return self._folded(batch, keys, key_ids, first_new)

    def _add_up(self, batch: Batch, keys: list[pa.Array], key_ids: Ints) -> None:
        columns = list(batch.columns[len(self.keys) :])
        if self.retracts:
            np.add.at(self._state.column(_ROWS), key_ids, plain(columns.pop(0)))
        self.aggregates.merge(columns, keys, key_ids, self._state)


def _inverse(order: Ints) -> Ints:
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    return positions


_ACCUMULATOR = "accumulator"


class TableAggregateOperator(KeyedBatchOperator):
    """Emits keys, then the function's columns."""

    emits_later = True

    def __init__(
        self,
        keys: Sequence[int],
        call: AggregateCall,
        kinds: Sequence[pa.DataType],
        *,
        deletes_first: bool = True,
        final_only: bool = False,
        ttl: int = 0,
    ) -> None:
        """Create the operator.

        Args:
            keys: the columns to group by.
            call: the function.
            kinds: the Arrow types of the input's columns.
            deletes_first: whether a group's rows are deleted before the new ones are emitted.
            final_only: whether only the final results are emitted.
            ttl: state TTL in milliseconds; 0 for none.
        """
        self.keys = tuple(keys)
        self.calls = (call,)
        self.kinds = list(kinds)
        self.deletes_first = deletes_first
        self.final_only = final_only
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        state_columns = [
            StateColumn(_ROWS, np.int64),
            StateColumn(TOUCHED, np.int64),
            StateColumn(_ACCUMULATOR, object, lambda: None),
        ]
        columns = KeyedColumns([self.kinds[k] for k in self.keys], state_columns)
        self._state: KeyedColumns = self.state_table("groups", columns)

    def process(self, batch: Batch) -> Iterable[Batch]:
        state, (call,) = self._state, self.calls
        function: OpenedTableAggregate = call.user.opened
        state.compact()
        if self.ttl:
            state.expire(TOUCHED, self.setup.clock() - self.ttl)
        keys = [batch.columns[k] for k in self.keys]
        key_ids, _ = state.find_or_add(keys, len(batch))
        rows = function.rows([batch.columns[a] for a in call.arguments], len(batch))
        signs = signs_of(batch)
        weights = np.ones(len(batch), np.int64) if signs is None else signs
        counts, accumulators = state.column(_ROWS), state.column(_ACCUMULATOR)
        positions: list[int] = []
        kinds: list[int] = []
        results: list[tuple[Value, ...]] = []

        def emit_results(position: int, kind: int, rows: list[tuple[Value, ...]]) -> None:
            positions.extend([position] * len(rows))
            kinds.extend([kind] * len(rows))
            results.extend(rows)

        for position, (key_id, row, weight) in enumerate(zip(key_ids.tolist(), rows, weights.tolist(), strict=True)):
            is_first = not counts[key_id]
            if is_first:
                if weight < 0:
                    # A group without rows ignores retractions.
                    continue
                accumulators[key_id] = function.begin()
            elif not self.final_only and self.deletes_first:
                emit_results(position, DELETE, function.value(accumulators[key_id]))
            step = function.add if weight > 0 else function.retract
            accumulators[key_id] = step(accumulators[key_id], row)
            counts[key_id] += weight
            if counts[key_id] and not self.final_only:
                emit_results(position, INSERT, function.value(accumulators[key_id]))
        distinct = np.unique(key_ids)
        state.column(TOUCHED)[distinct] = self.setup.clock()
        state.changed(distinct)
        state.remove(distinct[counts[distinct] == 0])
        taken = pa.array(np.array(positions, np.int64))
        row_kinds = np.array(kinds, np.int8)
        columns = [*(k.take(taken) for k in keys), *function.columns(results)]
        return (Batch(columns, row_kinds if row_kinds.any() else None, len(positions)),)

    def finish(self) -> None:
        """Emit the final results in batch mode."""
        if not self.final_only:
            return
        function: OpenedTableAggregate = self.calls[0].user.opened
        key_ids = self._state.key_ids()
        results = [function.value(accumulator) for accumulator in self._state.column(_ACCUMULATOR)[key_ids]]
        positions = np.repeat(key_ids, [len(rows) for rows in results])
        columns = [*self._state.keys_at(positions), *function.columns([row for rows in results for row in rows])]
        self.emit(split_batches(columns, len(positions)))


class BatchGroupAggregateOperator(SpillingOperator, GroupAggregateOperator):
    """Emits keys, then aggregates, of append-only input; without aggregates, the distinct keys."""

    def __init__(self, keys: Sequence[int], calls: Sequence[AggregateCall], kinds: Sequence[pa.DataType]) -> None:
        """Create the operator.

        Args:
            keys: the columns to group by.
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
        """
        GroupAggregateOperator.__init__(self, keys, calls, kinds, final_only=True)

    def prepare(self, setup: OperatorSetup) -> None:
        self.may_overflow(setup, [self._input()])
        super().prepare(setup)

    def _input(self) -> tuple[list[pa.DataType], Sequence[int]]:
        """Return the types of the input columns, and which of them are the key."""
        return self.kinds, self.keys

    def process(self, batch: Batch) -> Iterable[Batch]:
        if self.overflow.must_spill(0, batch):
            return ()
        output = super().process(batch)
        self.overflow.grew()
        return output

    def finishing(self) -> Iterator[None]:
        if not self.keys and not self.overflow.is_full:
            # A global aggregate has a result without input.
            self._state.find_or_add([], 1)
        for _ in self.overflow.bins(self._later):
            key_ids = self._state.key_ids()
            for start in range(0, len(key_ids), BATCH_ROWS):
                part = key_ids[start : start + BATCH_ROWS]
                columns = self._state.keys_at(part) + self.aggregates.results(self._state, part)
                self.emit([Batch(columns, None, len(part))])
                yield

    def _later(self, index: int, batch: Batch) -> None:
        super().process(batch)


class BatchGlobalGroupAggregateOperator(BatchGroupAggregateOperator, GlobalGroupAggregateOperator):
    """The second phase; merges the output of a `LocalGroupAggregateOperator` with the same arguments."""

    def _input(self) -> tuple[list[pa.DataType], Sequence[int]]:
        no_key_ids = np.zeros(0, np.int64)
        partials = self.aggregates.partials(FreshColumns(self.aggregates.state_columns, 0), no_key_ids)
        return [*(self.kinds[k] for k in self.keys), *(column.type for column in partials)], range(len(self.keys))
