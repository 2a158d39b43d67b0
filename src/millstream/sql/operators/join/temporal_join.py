"""Event-time temporal joins: each left row joins the right version valid at its time.

Left rows are pending until the watermark of both sides passes them. A version is valid until the next one; a delete
leaves none. Once the watermark passes a version, older ones are discarded: a late row does not match them. (Flink
discards them when the key's next timer fires, so a late row may match a leftover version.)

With a state TTL, the versions of a key expire if neither side has a row for the key in that time; pending rows, and
the versions that they may match, are retained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.numpy_arrays import Ints, plain
from millstream.sql.errors import null_rowtime
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import condition
from millstream.sql.operators.base import EvaluatingOperator, KeyedBatchOperator, split_batches
from millstream.sql.operators.join.pairing import can_match
from millstream.sql.operators.join.regular_join import JoinSide
from millstream.sql.operators.over.over_frames import places_before
from millstream.sql.operators.query_context import Session

# Obsolete versions are removed when there are this many rows, then when the number has doubled.
_TRIM_ROWS = 1 << 12


class TemporalJoinOperator(EvaluatingOperator, KeyedBatchOperator):
    """Joins rows with versions."""

    inputs = 2
    emits_later = True

    def __init__(
        self,
        left: JoinSide,
        right: JoinSide,
        times: tuple[int, int],
        is_outer: bool,
        null_safe: Sequence[bool],
        condition: Expression | None,
        session: Session,
        ttl: int = 0,
    ) -> None:
        """Create the operator.

        Args:
            left, right: the inputs; the right key has one row at a time.
            times: the rowtime columns of both sides.
            is_outer: whether left rows without a version are emitted.
            null_safe: for each pair of keys whether nulls are equal.
            condition: a further condition on the columns of both; None for none.
            session: the session settings.
            ttl: state TTL of versions in milliseconds; 0 for none.
        """
        self.ttl = ttl
        self.left = left
        self.right = right
        self.times = times
        self.is_outer = is_outer
        self.null_safe = tuple(null_safe)
        self.condition = condition
        self.session = session

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        # The mark is the time. Pending rows have a row-kind column, versions one that marks deletes.
        kinds = [*self.left.kinds, pa.int8()]
        self._pending: KeyedRows = self.state_table("left", KeyedRows(kinds, self.left.keys))
        kinds = [*self.right.kinds, pa.bool_()]
        clock = setup.clock if self.ttl else None
        versions = KeyedRows(kinds, self.right.keys, clock=clock)
        self._versions: KeyedRows = self.state_table("right", versions)
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK
        self._trim_at = _TRIM_ROWS

    def open(self) -> None:
        self._holds = None if self.condition is None else condition(self.condition, self.context)

    def _times_of(self, batch: Batch, side: int) -> Ints:
        column = batch.columns[self.times[side]]
        if column.null_count:
            raise null_rowtime()
        return plain(column.cast(pa.timestamp("ms", column.type.tz), safe=False)).astype(np.int64)

    def process_left(self, batch: Batch) -> Iterable[Batch]:
        times = self._times_of(batch, 0)
        if self.ttl:
            self._expire()
            self._extend_ttl([batch.columns[k] for k in self.left.keys], len(batch))
        self._pending.compact()
        keys = self._pending.find_or_add([batch.columns[k] for k in self.left.keys], len(batch))
        self._pending.add(keys, [*batch.columns, pa.array(batch.all_kinds())], times)
        self._next = min(self._next, int(times.min()))
        return ()

    def process_right(self, batch: Batch) -> Iterable[Batch]:
        row_kinds = batch.all_kinds()
        batch = batch.filter(row_kinds != UPDATE_BEFORE)
        if len(batch):
            columns = [batch.columns[k] for k in self.right.keys]
            if self.ttl:
                self._expire()
                self._extend_ttl(columns, len(batch))
            self._versions.compact()
            keys = self._versions.find_or_add(columns, len(batch))
            is_row = pa.array(batch.all_kinds() != DELETE)
            self._versions.add(keys, [*batch.columns, is_row], self._times_of(batch, 1))
        return ()

    def _extend_ttl(self, columns: list[pa.Array], rows: int) -> None:
        """Extend the TTL of keys' versions."""
        keys = np.unique(self._versions.find(columns, rows))
        self._versions.changed(self._versions.pairs(keys[keys >= 0])[1])

    def _expire(self) -> None:
        expired = self._versions.expired(self.setup.clock() - self.ttl)
        rows = self._pending.all_rows() if len(expired) else expired
        if len(rows):
            versions_of = self._versions.find([self._pending.take(k, rows) for k in self.left.keys], len(rows))
            expired = expired[~np.isin(self._versions.keys_of(expired), versions_of)]
        self._versions.remove(expired)

    # --- time

    def _schedule_timer(self) -> None:
        rows = self._pending.all_rows()
        self._next = int(self._pending.marks[rows].min()) if len(rows) else MAX_WATERMARK
        self._trim_at = max(_TRIM_ROWS, 2 * len(self._versions))

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        return self.rows_until(self._next, self._pending)

    def on_watermark(self, watermark: int) -> int | None:
        if watermark >= self._next:
            self.emit(self._due(watermark))
            rows = self._pending.all_rows()
            self._next = int(self._pending.marks[rows].min()) if len(rows) else MAX_WATERMARK
        self.watermark = watermark
        if len(self._versions) > self._trim_at:
            self._discard()
            self._trim_at = max(_TRIM_ROWS, 2 * len(self._versions))
        return watermark

    def _due(self, watermark: int) -> Iterator[Batch]:
        rows = self._pending.all_rows()
        rows = rows[self._pending.marks[rows] <= watermark]
        width = len(self.left.kinds)
        batch = Batch([self._pending.take(i, rows) for i in range(width)], None, len(rows))
        kinds = self._pending.take(width, rows).to_numpy(zero_copy_only=False).astype(np.int8)
        if self.ttl:
            self._expire()
            self._extend_ttl([batch.columns[k] for k in self.left.keys], len(rows))
        versions = self._version_of(batch, self._pending.marks[rows])
        self._pending.remove(rows)
        right = [self._versions.take(i, pa.array(versions, mask=versions < 0)) for i in range(len(self.right.kinds))]
        has_version = versions >= 0
        if self._holds is not None and has_version.any():
            has_version &= self._holds(Batch([*batch.columns, *right], None, len(rows)))
        if not self.is_outer:
            out = Batch([*batch.columns, *right], kinds, len(rows)).filter(has_version)
        else:
            positions = pa.array(np.arange(len(rows)), mask=~has_version)
            out = Batch([*batch.columns, *(c.take(positions) for c in right)], kinds, len(rows))
        row_kinds = out.all_kinds()
        yield from split_batches(list(out.columns), len(out), row_kinds if row_kinds.any() else None)

    def _version_of(self, batch: Batch, times: Ints) -> Ints:
        """Return the versions valid at the given times, or -1."""
        columns = [batch.columns[k] for k in self.left.keys]
        keys = self._versions.find(columns, len(batch))
        keys = np.where(can_match(columns, self.null_safe, len(batch)), keys, -1)
        result = np.full(len(batch), -1, np.int64)
        distinct, which = np.unique(keys, return_inverse=True)
        batch_rows, versions = self._versions.pairs(distinct)
        if not len(versions):
            return result
        version_times = self._versions.marks[versions]
        order = np.lexsort((version_times, batch_rows))
        batch_rows, versions, version_times = batch_rows[order], versions[order], version_times[order]
        last = places_before(batch_rows, version_times, which, times, equal=True) - 1
        is_valid = (last >= 0) & (batch_rows[np.maximum(last, 0)] == which)
        # The version is obsolete: the watermark passed its successor before the row arrived.
        following = np.minimum(last + 1, len(versions) - 1)
        is_obsolete = (
            (following > last) & (batch_rows[following] == which) & (version_times[following] <= self.watermark)
        )
        is_valid &= ~is_obsolete
        is_row = self._versions.take(len(self.right.kinds), versions).to_numpy(zero_copy_only=False)
        is_valid[is_valid] = is_row[last[is_valid]]
        result[is_valid] = versions[last[is_valid]]
        return result

    def _discard(self) -> None:
        """Discard versions whose successor the watermark has passed."""
        rows = self._versions.all_rows()
        keys, times = self._versions.keys_of(rows), self._versions.marks[rows]
        order = np.lexsort((times, keys))
        rows, keys, times = rows[order], keys[order], times[order]
        is_obsolete = np.append((keys[1:] == keys[:-1]) & (times[1:] <= self.watermark), False)
        self._versions.remove(rows[is_obsolete])
