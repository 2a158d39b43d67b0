"""The accumulators of all aggregate calls of a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.sql.columns.batch import Batch
from millstream.sql.columns.index import KeyIds
from millstream.sql.columns.keyed_columns import Columns, KeyedColumns, StateColumn
from millstream.sql.columns.keys import grouped, stable_order
from millstream.sql.columns.numpy_arrays import Ints, Mask, NumpyColumn, plain
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.accumulators import Accumulator, vector_accumulator
from millstream.sql.operators.aggregate.object_accumulators import UserAccumulator, object_accumulator
from millstream.sql.operators.aggregate.segments import Running, Segments

# The time of a key's last update, for state TTL.
TOUCHED = "updated_at"

CreateTable = Callable[[str, KeyedColumns], KeyedColumns]
# The argument columns, and the filter column; None for all rows.
_DistinctKey = tuple[tuple[int, ...], int | None]


class AggregateHandler:
    """Accumulators side by side, over the same keys.

    DISTINCT values have state tables of their own: (key, value) with a count per filter of the aggregates over the same
    columns. Only rows that add a new value or remove the last copy of one count for the aggregate.
    """

    def __init__(self, calls: Sequence[AggregateCall], kinds: Sequence[pa.DataType], retracts: bool) -> None:
        """Create the accumulators.

        Args:
            calls: the aggregates.
            kinds: the Arrow types of the input's columns.
            retracts: whether the input may retract rows.
        """
        self.calls = list(calls)
        self._kinds = list(kinds)
        self.accumulators: list[Accumulator] = []
        for i, call in enumerate(calls):
            arguments = [kinds[a] for a in call.arguments]
            name = f"a{i}"
            accumulator = vector_accumulator(call, name, arguments, retracts)
            if accumulator is None and call.user is not None:
                accumulator = UserAccumulator(call, name)
            self.accumulators.append(accumulator or object_accumulator(call, name, retracts))

    @property
    def state_columns(self) -> list[StateColumn]:
        """The state columns of all accumulators."""
        return [k for a in self.accumulators for k in a.state_columns]

    @property
    def combine(self) -> bool:
        """Whether the state of several key ids can be merged."""
        return all(a.combines and not c.distinct for a, c in zip(self.accumulators, self.calls, strict=True))

    def open(self, keys: Sequence[pa.DataType], create_table: CreateTable, owners: int | None = None) -> None:
        """Create the state tables of distinct values, for keys of some types."""
        self._now = 0
        # Filters and state table by argument columns.
        self._conditions: dict[tuple[int, ...], list[int | None]] = {}
        for call in self.calls:
            conditions = self._conditions.setdefault(call.arguments, []) if call.distinct else [call.condition]
            if call.condition not in conditions:
                conditions.append(call.condition)
        self._distinct: dict[tuple[int, ...], KeyedColumns] = {}
        for arguments, conditions in self._conditions.items():
            kinds = [*keys, *(self._kinds[a] for a in arguments)]
            leading = len(keys) if owners is None else owners
            counts = [StateColumn(_times(i), np.int64) for i in range(len(conditions))]
            table = KeyedColumns(kinds, [*counts, StateColumn(TOUCHED, np.int64)], leading)
            self._distinct[arguments] = create_table(f"distinct{len(self._distinct)}", table)

    def run(self, batch: Batch, keys: Sequence[pa.Array], segments: Segments, state: KeyedColumns) -> list[Running]:
        """Process a batch divided into segments; return each accumulator's results after each row."""
        order = pa.array(segments.order)
        sorted_columns: dict[int, pa.Array] = {}

        def column(index: int) -> pa.Array:
            if index not in sorted_columns:
                sorted_columns[index] = batch.columns[index].take(order)
            return sorted_columns[index]

        distinct_changes: dict[_DistinctKey, Ints] = {}
        results = []
        for call, accumulator in zip(self.calls, self.accumulators, strict=True):
            counted: NumpyColumn | None = None
            if call.distinct:
                counted = self._distinct_counted(call, batch, keys, distinct_changes)[segments.order]
            elif call.condition is not None:
                counted = _is_true(column(call.condition))
            arguments = [column(a) for a in call.arguments]
            results.append(accumulator.run(segments, arguments, counted, state))
        return results

    def fold(self, batch: Batch, keys: Sequence[pa.Array], key_ids: KeyIds, state: Columns) -> None:
        """Process a batch without results after each row."""
        signs = signs_of(batch)
        distinct_changes: dict[_DistinctKey, Ints] = {}
        for call, accumulator in zip(self.calls, self.accumulators, strict=True):
            counted: NumpyColumn | None = None
            if call.distinct:
                counted = self._distinct_counted(call, batch, keys, distinct_changes)
            elif call.condition is not None:
                counted = _is_true(batch.columns[call.condition])
            accumulator.fold(key_ids, signs, [batch.columns[a] for a in call.arguments], counted, state)

    def _distinct_counted(
        self,
        call: AggregateCall,
        batch: Batch,
        keys: Sequence[pa.Array],
        cached: dict[_DistinctKey, Ints],
    ) -> Ints:
        """Return 1 for rows that add a distinct value, -1 for rows that remove one, else 0; once for equal columns."""
        if _distinct_key(call) not in cached:
            cached |= self._distinct_changes(call.arguments, batch, keys)
        return cached[_distinct_key(call)]

    def _distinct_changes(
        self, arguments: tuple[int, ...], batch: Batch, keys: Sequence[pa.Array]
    ) -> Iterator[tuple[_DistinctKey, Ints]]:
        """Yield the added and removed values of each filter."""
        conditions = self._conditions[arguments]
        masks = [None if c is None else _is_true(batch.columns[c]) for c in conditions]
        columns, rows = [*keys, *(batch.columns[a] for a in arguments)], np.arange(len(batch))
        filtered = [m for m in masks if m is not None]
        if len(filtered) == len(masks):
            # Values that pass no filter are not stored.
            rows = np.flatnonzero(np.logical_or.reduce(filtered))
            taken = pa.array(rows)
            columns = [c.take(taken) for c in columns]
        segments = self._segments(arguments, columns, len(rows))
        positions, signs = rows[segments.order], signs_of(batch)
        weights = np.ones(len(rows), np.int64) if signs is None else signs[positions]
        for i, (condition, mask) in enumerate(zip(conditions, masks, strict=True)):
            out = np.zeros(len(batch), np.int64)
            counted = weights if mask is None else np.where(mask[positions], weights, 0)
            out[positions] = self._counted(arguments, i, segments, counted)
            yield (arguments, condition), out
        if signs is not None:
            self._discard_empty(arguments, segments)

    def _segments(self, arguments: tuple[int, ...], columns: Sequence[pa.Array], count: int) -> Segments:
        """Return rows by value; new values are added."""
        table = self._distinct[arguments]
        table.compact()
        first_new = table.bound
        key_ids, _ = table.find_or_add(columns, count)
        segments = Segments.of(key_ids, first_new, table.bound, None)
        table.column(TOUCHED)[segments.key_ids] = self._now
        table.changed(segments.key_ids)
        return segments

    def _counted(self, arguments: tuple[int, ...], condition: int, segments: Segments, weights: Ints) -> Ints:
        """Add to the counts of values for a filter; return which values it adds and which it removes."""
        times = self._distinct[arguments].column(_times(condition))
        after = segments.sums(weights, segments.begins(times, 0))
        segments.leave(times, after)
        before = after - weights
        return ((before <= 0) & (after > 0)).astype(np.int64) - ((before > 0) & (after <= 0))

    def _discard_empty(self, arguments: tuple[int, ...], segments: Segments) -> None:
        """Discard values whose counts are 0 for all filters."""
        table = self._distinct[arguments]
        exists = np.zeros(segments.count, np.bool_)
        for i in range(len(self._conditions[arguments])):
            exists |= table.column(_times(i))[segments.key_ids] != 0
        table.remove(segments.key_ids[~exists])

    # --- two-phase aggregation

    @property
    def is_exact(self) -> bool:
        """Whether pre-aggregation gives the same results."""
        return all(a.is_exact or c.distinct for a, c in zip(self.accumulators, self.calls, strict=True))

    def fold_unfiltered(self, batch: Batch, key_ids: KeyIds, state: Columns) -> None:
        """Process a batch, except for aggregates over distinct values."""
        signs = signs_of(batch)
        for call, accumulator in zip(self.calls, self.accumulators, strict=True):
            if not call.distinct:
                counted = None if call.condition is None else _is_true(batch.columns[call.condition])
                accumulator.fold(key_ids, signs, [batch.columns[a] for a in call.arguments], counted, state)

    def partials(self, state: Columns, key_ids: KeyIds) -> list[pa.Array]:
        """Return partial results for `merge`, except of aggregates over distinct values."""
        results: list[pa.Array] = []
        for call, accumulator in zip(self.calls, self.accumulators, strict=True):
            results += [] if call.distinct else accumulator.partials(state, key_ids)
        return results

    def distinct_lists(self, batch: Batch, key_ids: KeyIds, count: int) -> list[pa.Array]:
        """Return the distinct values of each key id: columns for `merge`, after those of `partials`."""
        signs = signs_of(batch)
        return [_listed(call, batch, key_ids, count, signs) for call in self._distinct_calls.values()]

    @property
    def _distinct_calls(self) -> dict[_DistinctKey, AggregateCall]:
        """The first call of each group over the same distinct values."""
        return {_distinct_key(call): call for call in reversed(self.calls) if call.distinct}

    def merge(self, columns: Sequence[pa.Array], keys: Sequence[pa.Array], key_ids: KeyIds, state: Columns) -> None:
        """Merge output of `partials` and `distinct_lists` into key ids; a key id may occur several times."""
        taken = 0
        for call, accumulator in zip(self.calls, self.accumulators, strict=True):
            if not call.distinct:
                width = len(accumulator.state_columns)
                accumulator.merge(key_ids, columns[taken : taken + width], state)
                taken += width
        for distinct_key, column in zip(self._distinct_calls, columns[taken:], strict=True):
            owners = column.value_parent_indices()
            *values, added_copies = column.flatten().flatten()
            arguments, condition = distinct_key
            segments = self._segments(arguments, [*(k.take(owners) for k in keys), *values], len(owners))
            weights = added_copies.to_numpy()[segments.order]
            changes: NumpyColumn = np.empty(len(owners), np.int64)
            condition_index = self._conditions[arguments].index(condition)
            changes[segments.order] = self._counted(arguments, condition_index, segments, weights)
            self._discard_empty(arguments, segments)
            target_key_ids = key_ids[owners.to_numpy()]
            for call, accumulator in zip(self.calls, self.accumulators, strict=True):
                if call.distinct and _distinct_key(call) == distinct_key:
                    accumulator.fold(target_key_ids, None, values, changes, state)

    def expire(self, now: int, ttl: int) -> None:
        """Discard distinct values whose TTL has expired; later updates are stamped `now`."""
        self._now = now
        for table in self._distinct.values():
            table.expire(TOUCHED, now - ttl)

    def discard(self, column: int, has_ended: Callable[[Ints], Mask]) -> None:
        """Discard distinct values of ended keys, by an integer column of the key."""
        for table in self._distinct.values():
            key_ids = table.key_ids()
            table.remove(key_ids[has_ended(plain(table.keys_at(key_ids)[column]))])

    def results(self, state: Columns, key_ids: KeyIds) -> list[pa.Array]:
        """Return the results of all aggregates for key ids."""
        return [a.results(state, key_ids) for a in self.accumulators]


def _counted_rows(call: AggregateCall, batch: Batch) -> Ints:
    """Return the rows that count for an aggregate."""
    return np.arange(len(batch)) if call.condition is None else np.flatnonzero(_is_true(batch.columns[call.condition]))


def _listed(call: AggregateCall, batch: Batch, key_ids: KeyIds, count: int, signs: Ints | None) -> pa.Array:
    """Return for each key id a list of its distinct values with their counts."""
    rows = _counted_rows(call, batch)
    counted = pa.array(rows)
    values = [batch.columns[a].take(counted) for a in call.arguments]
    by_value = grouped([pa.array(key_ids[rows]), *values], len(rows))
    times = np.zeros(by_value.count, np.int64)
    np.add.at(times, by_value.codes, np.ones(len(rows), np.int64) if signs is None else signs[rows])
    of_value = key_ids[rows][by_value.first]
    order = stable_order(of_value, count)
    taken = pa.array(by_value.first[order])
    members = [*(v.take(taken) for v in values), pa.array(times[order])]
    entries = pa.StructArray.from_arrays(members, [str(i) for i in range(len(members))])
    ends = np.append(0, np.cumsum(np.bincount(of_value, minlength=count)))
    return pa.LargeListArray.from_arrays(pa.array(ends), entries)


def _distinct_key(call: AggregateCall) -> _DistinctKey:
    return call.arguments, call.condition


def _times(condition: int) -> str:
    """Return the name of the column with the counts for a filter."""
    return f"times{condition or ''}"


def _is_true(column: pa.Array) -> Mask:
    return column.fill_null(False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


_SIGNS = np.array([1, -1, 1, -1], np.int64)


def signs_of(batch: Batch) -> Ints | None:
    """Return 1 for added and -1 for retracted rows; None if all are added."""
    if batch.kinds is None:
        return None
    signs = _SIGNS[batch.kinds]
    return signs if (signs < 0).any() else None
