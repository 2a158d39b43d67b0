"""Deduplication: the last or the first row of each key; changelog normalization."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.keyed_rows import KeyedRows, equal_values
from millstream.sql.columns.numpy_arrays import Ints, Mask, plain
from millstream.sql.columns.row_order import Order, sorted_rows
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import condition
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED, signs_of
from millstream.sql.operators.aggregate.segments import Segments
from millstream.sql.operators.base import EvaluatingOperator, KeyedBatchOperator, split_batches
from millstream.sql.operators.query_context import Session
from millstream.sql.operators.row_kinds import Changelog


class LastRowOperator(KeyedBatchOperator):
    """Stores the last row of each key and emits the change from the previous one.

    Turns upserts into a full changelog (ChangelogNormalize), or inserts into the last row of each key (Deduplicate).
    """

    emits_later = True

    def __init__(
        self,
        keys: Sequence[int],
        kinds: Sequence[pa.DataType],
        *,
        pairs: bool = True,
        emits_equal: bool = False,
        rowtime: int | None = None,
        final_only: bool = False,
        ttl: int = 0,
        ignores_update_before: bool = False,
    ) -> None:
        """Create the operator.

        Args:
            keys: the key columns.
            kinds: the Arrow types of the columns.
            pairs: whether an update is emitted as -U and +U, not as +U alone.
            emits_equal: whether a row equal to the previous one is an update, too.
            rowtime: the column that decides which row is last; None for order of arrival.
            final_only: whether only the final result is emitted.
            ttl: state TTL in milliseconds; 0 for none.
            ignores_update_before: whether -U rows are dropped, since the previous row is in state.
        """
        self.ttl = ttl
        self.ignores_update_before = ignores_update_before
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.pairs = pairs
        self.emits_equal = emits_equal
        self.rowtime = rowtime
        self.final_only = final_only

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        clock = setup.clock if self.ttl else None
        rows = KeyedRows(self.kinds, self.keys, clock=clock, marked=False)
        self._rows: KeyedRows = self.state_table("rows", rows)

    def process(self, batch: Batch) -> Iterator[Batch]:
        if self.ignores_update_before:
            batch = self.without_update_before(batch)
            if not len(batch):
                return
        rows = self._rows
        if self.ttl:
            rows.expire(self.setup.clock() - self.ttl)
        rows.compact()
        key_columns = [batch.columns[k] for k in self.keys]
        keys = rows.find_or_add(key_columns, len(batch))
        segments = Segments.of(keys, rows.key_bound, rows.key_bound, signs_of(batch))
        known = np.full(segments.count, -1, np.int64)
        positions, stored = rows.pairs(segments.key_ids)
        known[positions] = stored
        replacing = self._replacing(batch, segments, known)
        if replacing is not None and not replacing.all():
            batch = batch.filter(replacing)
            if len(batch):
                yield from self.process(batch)
            return
        if not self.final_only:
            yield self._changes(batch, segments, known)
        last_rows = segments.order[segments.ends]
        rows.remove(stored)
        added = last_rows if segments.signs is None else last_rows[segments.signs[segments.ends] > 0]
        added = np.sort(added)
        rows.add(keys[added], batch.take(added).columns)

    @staticmethod
    def without_update_before(batch: Batch) -> Batch:
        """Return the rows that are not -U."""
        return batch if batch.kinds is None else batch.filter(batch.kinds != UPDATE_BEFORE)

    def _replacing(self, batch: Batch, segments: Segments, known: Ints) -> Mask | None:
        """Return which rows replace the previous one, those that are not older; None for all."""
        if self.rowtime is None:
            return None
        times = plain(batch.columns[self.rowtime]).astype(np.int64)[segments.order]
        min_time = np.iinfo(np.int64).min
        begins = np.full(segments.count, min_time, np.int64)
        has_previous = known >= 0
        begins[has_previous] = plain(self._rows.take(self.rowtime, known[has_previous]))
        running = np.concatenate([segments.scan(np.maximum, times, begins), begins])
        newest = np.empty(len(batch), np.bool_)
        newest[segments.order] = times >= running[segments.before]
        return newest

    def _changes(self, batch: Batch, segments: Segments, known: Ints) -> Batch:
        signs = np.ones(segments.rows, np.int64) if segments.signs is None else segments.signs
        exists = signs > 0
        existed = np.concatenate([exists, known >= 0])[segments.before]
        # The batch's rows, followed by the stored rows of keys.
        stored_rows = pa.array(known, mask=known < 0) if (known < 0).any() else pa.array(known)
        stored_columns = self._rows.batch(stored_rows).columns
        columns = [pa.concat_arrays(both) for both in zip(batch.columns, stored_columns, strict=True)]
        row_at = np.concatenate([segments.order, len(batch) + np.arange(segments.count)])
        before, after = row_at[segments.before], segments.order
        differs = np.full(segments.rows, self.emits_equal)
        if not self.emits_equal:
            positions, other = pa.array(after), pa.array(before)
            for column in columns:
                differs |= ~equal_values(column.take(positions), column.take(other))
        changes = Changelog.of(existed, exists, differs, self.pairs).in_order(np.argsort(after))
        positions = pa.array(changes.chosen(before[changes.order], after[changes.order]))
        return Batch([c.take(positions) for c in columns], changes.kinds, len(positions))

    def finish(self) -> None:
        """Emit the final result in batch mode."""
        if self.final_only:
            rows = self._rows.all_rows()
            self.emit(split_batches(self._rows.batch(rows).columns, len(rows)))


class TopOneOperator(LastRowOperator):
    """Stores the first row of each key in an order; ties keep the earlier row."""

    def __init__(
        self,
        keys: Sequence[int],
        order: Order,
        kinds: Sequence[pa.DataType],
        *,
        unique: Sequence[int] | None = None,
        pairs: bool = True,
        final_only: bool = False,
        ttl: int = 0,
    ) -> None:
        """Create the operator.

        Args:
            keys: the key columns.
            order: (column, descending, nulls first).
            unique: the columns by which a row updates another, for upserts that never move down in the order; None for
                append-only input.
            kinds, pairs, final_only, ttl: see `LastRowOperator`.
        """
        super().__init__(keys, kinds, pairs=pairs, emits_equal=True, final_only=final_only, ttl=ttl)
        self.order = tuple(order)
        self.unique = None if unique is None else tuple(unique)

    def _replacing(self, batch: Batch, segments: Segments, known: Ints) -> Mask | None:
        with_first = np.flatnonzero(known >= 0)
        columns = list(batch.columns)
        for column in {c for c, _, _ in self.order} | set(self.unique or ()):
            columns[column] = pa.concat_arrays([columns[column], self._rows.take(column, known[with_first])])
        all_ranks = _ranks_in(columns, self.order, len(batch) + len(with_first))
        begins = np.full(segments.count, np.iinfo(np.int64).max)
        begins[with_first] = all_ranks[len(batch) :]
        ranks = all_ranks[: len(batch)][segments.order]
        best_ranks = np.concatenate([segments.scan(np.minimum, ranks, begins), begins])[segments.before]
        replaces = ranks < best_ranks
        if self.unique is not None:
            first = np.full(segments.count, -1, np.int64)
            first[with_first] = len(batch) + np.arange(len(with_first))
            replaces |= (ranks == best_ranks) & self._updates_first(columns, segments, replaces, first)
        result = np.empty(len(batch), np.bool_)
        result[segments.order] = replaces
        return result

    def _updates_first(self, columns: Sequence[pa.Array], segments: Segments, better: Mask, first: Ints) -> Mask:
        """Return which rows have the unique key of the row that is first when they arrive.

        Args:
            columns: those of the batch, followed by those of the stored first rows.
            segments: the rows by key; the result is in their order.
            better: which rows become first by the order.
            first: the position of each segment's stored first row in the columns; -1 for none.
        """
        # The position of the first row after each row: the latest row that became first.
        since = segments.scan(np.maximum, np.where(better, np.arange(segments.rows), -1), np.full(segments.count, -1))
        shown = np.where(since >= 0, segments.order[since], first[segments.of_row])
        shown = np.concatenate([shown, first])[segments.before]
        same = shown >= 0
        positions, other = pa.array(segments.order), pa.array(np.maximum(shown, 0))
        for column in self.unique or ():
            same &= equal_values(columns[column].take(positions), columns[column].take(other))
        return same


def _ranks_in(columns: Sequence[pa.Array], order: Order, rows: int) -> Ints:
    """Return numbers that sort like the rows, and are equal for ties."""
    in_order = sorted_rows(columns, order, rows)
    differs = np.zeros(max(rows - 1, 0), np.bool_)
    for column, _, _ in order:
        values = columns[column].take(pa.array(in_order))
        differs |= ~equal_values(values.slice(1), values.slice(0, max(rows - 1, 0)))
    ranks = np.empty(rows, np.int64)
    ranks[in_order] = np.cumsum(np.append(0, differs))[:rows]
    return ranks


# The time when the row of a key was emitted.
_EMITTED_AT = "time"


class FirstRowOperator(KeyedBatchOperator):
    """Emits the first row of each key, by arrival."""

    def __init__(self, keys: Sequence[int], kinds: Sequence[pa.DataType], ttl: int = 0) -> None:
        """Create the operator.

        Args:
            keys: the key columns.
            kinds: the Arrow types of the columns.
            ttl: state TTL in milliseconds; 0 for none.
        """
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.keys]
        state_columns = [StateColumn(TOUCHED, np.int64)] if self.ttl else []
        self._seen: KeyedColumns = self.state_table("keys", KeyedColumns(kinds, state_columns))

    def process(self, batch: Batch) -> Iterable[Batch]:
        if self.ttl:
            self._seen.compact()
            self._seen.expire(TOUCHED, self.setup.clock() - self.ttl)
        _, new = self._seen.find_or_add([batch.columns[k] for k in self.keys], len(batch))
        if self.ttl and len(new):
            # Duplicates do not extend the TTL.
            self._seen.column(TOUCHED)[-len(new) :] = self.setup.clock()
        return (batch.take(new),)


class EarliestRowOperator(KeyedBatchOperator):
    """Emits the first row of each key by rowtime, when the watermark has passed it."""

    emits_later = True

    def __init__(self, keys: Sequence[int], kinds: Sequence[pa.DataType], rowtime: int, ttl: int = 0) -> None:
        """Create the operator.

        Args:
            keys: the key columns.
            kinds: the Arrow types of the columns.
            rowtime: the rowtime column.
            ttl: TTL in milliseconds of emitted keys; 0 for none.
        """
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.rowtime = rowtime
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._rows: KeyedRows = self.state_table("rows", KeyedRows(self.kinds, self.keys))
        kinds = [self.kinds[k] for k in self.keys]
        done = KeyedColumns(kinds, [StateColumn(_EMITTED_AT, np.int64)])
        self._done: KeyedColumns = self.state_table("done", done)

    def process(self, batch: Batch) -> Iterable[Batch]:
        times = plain(batch.columns[self.rowtime])
        # A row at the watermark is not late: the next watermark emits it.
        batch = batch.filter(times >= self.watermark)
        if not len(batch):
            return ()
        if self.ttl:
            self._done.compact()
            self._done.expire(_EMITTED_AT, self.setup.clock() - self.ttl)
        columns = [batch.columns[k] for k in self.keys]
        times = plain(batch.columns[self.rowtime]).astype(np.int64)
        is_new = self._done.find(columns, len(batch)) < 0
        keys = self._rows.find_or_add(columns, len(batch))
        # The earliest row of each key in the batch; ties keep the earlier row.
        order = np.lexsort((times, keys))
        in_order = keys[order]
        earliest = order[np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))]
        positions, rows = self._rows.pairs(keys[earliest])
        stored_times = np.full(len(earliest), np.iinfo(np.int64).max)
        stored_times[positions] = plain(self._rows.take(self.rowtime, rows))
        is_earlier = is_new[earliest] & (times[earliest] < stored_times)
        self._rows.remove(rows[is_earlier[positions]])
        added = np.sort(earliest[is_earlier])
        self._rows.add(keys[added], batch.take(added).columns)
        return ()

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        rows = self._rows.all_rows()
        return self.rows_until(int(plain(self._rows.take(self.rowtime, rows)).min()), self._rows) if len(rows) else ()

    def on_watermark(self, watermark: int) -> int | None:
        rows = self._rows.all_rows()
        if len(rows):
            times = plain(self._rows.take(self.rowtime, rows))
            due = rows[times <= watermark]
            due = due[np.argsort(times[times <= watermark], kind="stable")]
            columns = self._rows.batch(due).columns
            self.emit(split_batches(columns, len(due)))
            keys = [columns[k] for k in self.keys]
            emitted, _ = self._done.find_or_add(keys, len(due))
            self._done.column(_EMITTED_AT)[emitted] = self.setup.clock()
            self._rows.remove(due)
        self.watermark = watermark
        return watermark


class FilteredLastRowOperator(EvaluatingOperator, LastRowOperator):
    """Stores the last row of each key that passes a condition; a row that fails it deletes its key's row."""

    def __init__(
        self,
        keys: Sequence[int],
        kinds: Sequence[pa.DataType],
        passes: Expression,
        session: Session,
        *,
        pairs: bool = True,
        emits_equal: bool = False,
        ttl: int = 0,
        ignores_update_before: bool = False,
    ) -> None:
        """Create the operator.

        Args:
            passes: the condition.
            session: the session settings.
            keys, kinds, pairs, emits_equal, ttl, ignores_update_before: see `LastRowOperator`.
        """
        super().__init__(
            keys, kinds, pairs=pairs, emits_equal=emits_equal, ttl=ttl, ignores_update_before=ignores_update_before
        )
        self.passes = passes
        self.session = session

    def open(self) -> None:
        super().open()
        self._passes = condition(self.passes, self.context)

    def process(self, batch: Batch) -> Iterator[Batch]:
        if self.ignores_update_before:
            batch = self.without_update_before(batch)
        if len(batch):
            kinds = np.where(self._passes(batch), batch.all_kinds(), np.int8(DELETE)).astype(np.int8)
            yield from super().process(Batch(batch.columns, kinds if kinds.any() else None, len(batch)))
