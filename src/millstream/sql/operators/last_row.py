"""One row of each key: the last that has come, or the first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.columns.keyed import Kept, KeyedColumns
from millstream.sql.columns.keys import Grouped, grouped
from millstream.sql.columns.numbers import plain
from millstream.sql.columns.rows import KeyedRows, equal_values
from millstream.sql.operators.aggregates import signs_of
from millstream.sql.operators.base import KeyedBatchOperator, pieces
from millstream.sql.operators.segments import Ints, Segments


class LastRowOperator(KeyedBatchOperator):
    """Keeps the last row of each key, and says what it was before.

    Of upserts it makes all changes (ChangelogNormalize); of inserts, the last row of each key (Deduplicate).
    """

    emits_later = True

    def __init__(
        self,
        keys: Sequence[int],
        kinds: Sequence[pa.DataType],
        *,
        pairs: bool = True,
        says_equal: bool = False,
        rowtime: int | None = None,
        final_only: bool = False,
    ) -> None:
        """Make one.

        Args:
            keys: the columns of the key.
            kinds: the Arrow types of the columns.
            pairs: whether an update is -U and +U, not +U alone.
            says_equal: whether a row that is equal to the one before is an update, too.
            rowtime: the column by which a row is the last, not arrival; None for that.
            final_only: whether only what is there at the end is emitted.
        """
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.pairs = pairs
        self.says_equal = says_equal
        self.rowtime = rowtime
        self.final_only = final_only

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._rows: KeyedRows = self.keeps("rows", KeyedRows(self.kinds, self.keys, self.max_parallelism))

    def process(self, batch: Batch) -> Iterator[Batch]:
        rows = self._rows
        rows.compact()
        key_columns = [batch.columns[k] for k in self.keys]
        by_key = grouped(key_columns, len(batch))
        keys = rows.find(key_columns, len(batch), by_key, add=True)
        slots = keys[by_key.first]
        known = np.full(by_key.count, -1, np.int64)
        places, found = rows.pairs(slots)
        known[places] = found
        if self.rowtime is not None:
            newest = self._newest(batch, by_key, known)
            if not newest.all():
                batch = batch.filter(newest)
                if len(batch):
                    yield from self.process(batch)
                return
        segments = Segments.of(by_key, np.arange(by_key.count), known < 0, signs_of(batch))
        if not self.final_only:
            yield self._changes(batch, segments, known)
        last = segments.order[segments.ends]
        rows.remove(found)
        stays = last if segments.signs is None else last[segments.signs[segments.ends] > 0]
        stays = np.sort(stays)
        rows.add(keys[stays], batch.take(stays).columns)

    def _newest(self, batch: Batch, by_key: Grouped, known: Ints) -> np.ndarray:
        """Tell which rows are not older than all of their key before them."""
        assert self.rowtime is not None
        segments = Segments.of(by_key, np.arange(by_key.count), known < 0, None)
        times = plain(batch.columns[self.rowtime]).astype(np.int64)[segments.order]
        least = np.iinfo(np.int64).min
        begins = np.full(by_key.count, least, np.int64)
        has = known >= 0
        begins[has] = plain(self._rows.take(self.rowtime, known[has]))
        running = np.concatenate([segments.scan(np.maximum, times, begins), begins])
        newest = np.empty(len(batch), np.bool_)
        newest[segments.order] = times >= running[segments.before]
        return newest

    def _changes(self, batch: Batch, segments: Segments, known: Ints) -> Batch:
        signs = np.ones(segments.rows, np.int64) if segments.signs is None else segments.signs
        there_after = signs > 0
        there_before = np.concatenate([there_after, known >= 0])[segments.before]
        # The rows of the batch, and behind them those that keys had before it.
        had = pa.array(known, mask=known < 0) if (known < 0).any() else pa.array(known)
        columns = [pa.concat_arrays([c, self._rows.take(i, had)]) for i, c in enumerate(batch.columns)]
        row_at = np.concatenate([segments.order, len(batch) + np.arange(segments.count)])
        before, after = row_at[segments.before], segments.order
        update = there_before & there_after
        if not self.says_equal:
            at, other = pa.array(after), pa.array(before)
            differs = np.zeros(segments.rows, np.bool_)
            for column in columns:
                differs |= ~equal_values(column.take(at), column.take(other))
            update &= differs
        old = (update & self.pairs) | (there_before & ~there_after)
        new = update | (~there_before & there_after)
        order = np.argsort(after)
        old, new, before, after, update = old[order], new[order], before[order], after[order], update[order]
        sizes = old.astype(np.int64) + new
        ends = np.cumsum(sizes)
        total = int(ends[-1]) if len(ends) else 0
        source, kinds = np.empty(total, np.int64), np.empty(total, np.int8)
        at_old, at_new = (ends - sizes)[old], (ends - 1)[new]
        source[at_old], source[at_new] = before[old], after[new]
        kinds[at_old] = np.where(update[old], UPDATE_BEFORE, DELETE)
        kinds[at_new] = np.where(update[new], UPDATE_AFTER, INSERT)
        at = pa.array(source)
        return Batch([c.take(at) for c in columns], kinds if kinds.any() else None, total)

    def finish(self) -> None:
        """In BATCH: emit what is there."""
        if self.final_only:
            rows = self._rows.all_rows()
            self.emit(pieces([self._rows.take(i, rows) for i in range(len(self.kinds))], len(rows)))


class FirstRowOperator(KeyedBatchOperator):
    """The first row of each key, by arrival."""

    def __init__(self, keys: Sequence[int], kinds: Sequence[pa.DataType]) -> None:
        self.keys = tuple(keys)
        self.kinds = list(kinds)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.keys]
        self._seen: KeyedColumns = self.keeps("keys", KeyedColumns(kinds, [], self.max_parallelism))

    def process(self, batch: Batch) -> Iterable[Batch]:
        columns = [batch.columns[k] for k in self.keys]
        by_key = grouped(columns, len(batch))
        first = pa.array(by_key.first)
        _, new = self._seen.find([c.take(first) for c in columns], by_key.count)
        return (batch.take(np.sort(by_key.first[new])),)


class EarliestRowOperator(KeyedBatchOperator):
    """The first row of each key by rowtime, when the watermark has passed it."""

    emits_later = True

    def __init__(self, keys: Sequence[int], kinds: Sequence[pa.DataType], rowtime: int) -> None:
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.rowtime = rowtime

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._rows: KeyedRows = self.keeps("rows", KeyedRows(self.kinds, self.keys, self.max_parallelism))
        kinds = [self.kinds[k] for k in self.keys]
        done = KeyedColumns(kinds, [Kept("time", np.int64)], self.max_parallelism)
        self._done: KeyedColumns = self.keeps("done", done)

    def process(self, batch: Batch) -> Iterable[Batch]:
        times = plain(batch.columns[self.rowtime])
        batch = batch.filter(times > self.watermark)
        if not len(batch):
            return ()
        columns = [batch.columns[k] for k in self.keys]
        by_key = grouped(columns, len(batch))
        first = pa.array(by_key.first)
        distinct = [c.take(first) for c in columns]
        _, fresh = self._done.find(distinct, by_key.count, add=False)
        keys = self._rows.find(columns, len(batch), by_key, add=True)
        times = plain(batch.columns[self.rowtime]).astype(np.int64)
        # The earliest of each key in the batch, of equal ones the first.
        order = np.lexsort((np.arange(len(batch)), times, by_key.codes))
        starts = np.cumsum(by_key.sizes) - by_key.sizes
        earliest = order[starts]
        places, rows = self._rows.pairs(keys[by_key.first])
        kept = np.full(by_key.count, np.iinfo(np.int64).max)
        kept[places] = plain(self._rows.take(self.rowtime, rows))
        comes = fresh & (times[earliest] < kept)
        self._rows.remove(rows[comes[places]])
        added = np.sort(earliest[comes])
        self._rows.add(keys[added], batch.take(added).columns)
        return ()

    def on_watermark(self, watermark: int) -> int | None:
        rows = self._rows.all_rows()
        if len(rows):
            times = plain(self._rows.take(self.rowtime, rows))
            due = rows[times <= watermark]
            due = due[np.argsort(times[times <= watermark], kind="stable")]
            columns = [self._rows.take(i, due) for i in range(len(self.kinds))]
            self.emit(pieces(columns, len(due)))
            keys = [columns[k] for k in self.keys]
            self._done.find(keys, len(due))
            self._rows.remove(due)
        self.watermark = watermark
        return watermark
