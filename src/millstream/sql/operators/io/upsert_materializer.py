"""SinkUpsertMaterializer and ON CONFLICT: one row per primary key if that is not the query's upsert key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, Batch
from millstream.sql.columns.keyed_columns import KeyedColumns, StateColumn
from millstream.sql.columns.numpy_arrays import from_python, python_values
from millstream.sql.errors import TableException
from millstream.sql.operators.aggregate.aggregate_handler import TOUCHED
from millstream.sql.operators.base import KeyedBatchOperator, split_batches

_Row = tuple[Value, ...]


class MaterializeOperator(KeyedBatchOperator):
    """Stores the rows of each primary key in order of arrival, and writes the last."""

    def __init__(self, keys: Sequence[int], kinds: Sequence[pa.DataType], ttl: int = 0) -> None:
        """Create the operator.

        Args:
            keys: the primary key columns.
            kinds: the Arrow types of the columns.
            ttl: state TTL in milliseconds; 0 for none.
        """
        self.keys = tuple(keys)
        self.kinds = list(kinds)
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.keys]
        columns = KeyedColumns(kinds, [StateColumn("rows", object, list), StateColumn(TOUCHED, np.int64)])
        self._state: KeyedColumns = self.state_table("keys", columns)

    def process(self, batch: Batch) -> Iterable[Batch]:
        state = self._state
        state.compact()
        if self.ttl:
            state.expire(TOUCHED, self.setup.clock() - self.ttl)
        keys = [batch.columns[k] for k in self.keys]
        of_rows, _ = state.find_or_add(keys, len(batch))
        key_ids = np.unique(of_rows)
        lists = state.column("rows")
        rows = list(zip(*map(python_values, batch.columns), strict=True))
        changes: list[tuple[int, _Row]] = []
        for row, kind, key_id in zip(rows, batch.all_kinds().tolist(), of_rows.tolist(), strict=True):
            self._take(lists[key_id], row, kind in (INSERT, UPDATE_AFTER), changes)
        state.column(TOUCHED)[key_ids] = self.setup.clock()
        state.changed(key_ids)
        empty = np.fromiter((not lists[s] for s in key_ids.tolist()), np.bool_, len(key_ids))
        state.remove(key_ids[empty])
        kinds = np.fromiter((c[0] for c in changes), np.int8, len(changes))
        columns = [from_python([c[1][i] for c in changes], kind) for i, kind in enumerate(self.kinds)]
        return (Batch(columns, kinds if kinds.any() else None, len(changes)),)

    @staticmethod
    def _take(stored: list[_Row], row: _Row, adds: bool, changes: list[tuple[int, _Row]]) -> None:
        if adds:
            changes.append((UPDATE_AFTER if stored else INSERT, row))
            stored.append(row)
        elif row in stored:
            position = stored.index(row)
            was_last = position == len(stored) - 1
            del stored[position]
            if not stored:
                changes.append((DELETE, row))
            elif was_last:
                changes.append((UPDATE_AFTER, stored[-1]))


class ConflictOperator(KeyedBatchOperator):
    """Buffers changes until the watermark advances, so that their order does not matter, then writes one row.

    As in Flink, opposite changes of one row between two watermarks cancel out first.
    """

    emits_later = True

    def __init__(
        self,
        keys: Sequence[int],
        names: Sequence[str],
        upsert_key: Sequence[int],
        kinds: Sequence[pa.DataType],
        fails: bool,
        ttl: int = 0,
    ) -> None:
        """Create the operator.

        Args:
            keys: the primary key columns.
            names: the names of all columns.
            upsert_key: the columns that identify the input's rows; empty if all do.
            kinds: the Arrow types of the columns.
            fails: whether a second row of a primary key is an error; else it is dropped.
            ttl: state TTL in milliseconds; 0 for none.
        """
        self.keys = tuple(keys)
        self.names = tuple(names)
        self.compared = tuple(upsert_key) or tuple(range(len(kinds)))
        self.replaces = bool(upsert_key)
        self.kinds = list(kinds)
        self.fails = fails
        self.ttl = ttl

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        kinds = [self.kinds[k] for k in self.keys]
        # Pending changes, as (adds, row); and the written row, if any.
        self._pending: KeyedColumns = self.state_table(
            "pending", KeyedColumns(kinds, [StateColumn("changes", object, list)])
        )
        written = KeyedColumns(kinds, [StateColumn("rows", object, list), StateColumn(TOUCHED, np.int64)])
        self._written: KeyedColumns = self.state_table("written", written)

    def process(self, batch: Batch) -> Iterable[Batch]:
        pending = self._pending
        key_ids, _ = pending.find_or_add([batch.columns[k] for k in self.keys], len(batch))
        changes = pending.column("changes")
        rows = zip(*map(python_values, batch.columns), strict=True)
        for row, kind, key_id in zip(rows, batch.all_kinds().tolist(), key_ids.tolist(), strict=True):
            _add_or_cancel(changes[key_id], kind in (INSERT, UPDATE_AFTER), row)
        pending.changed(np.unique(key_ids))
        return ()

    def on_watermark(self, watermark: int) -> int | None:
        if watermark > self.watermark and len(self._pending):
            self._write()
        self.watermark = watermark
        return watermark

    def _write(self) -> None:
        """Process all pending changes."""
        now = self.setup.clock()
        pending, written = self._pending, self._written
        written.compact()
        if self.ttl:
            written.expire(TOUCHED, now - self.ttl)
        due = pending.key_ids()
        key_ids, _ = written.find_or_add(pending.keys_at(due), len(due))
        changes, rows = pending.column("changes"), written.column("rows")
        out: list[tuple[int, _Row]] = []
        for one, key_id in zip(due.tolist(), key_ids.tolist(), strict=True):
            rows[key_id] = self._resolved(rows[key_id], changes[one], out)
        written.column(TOUCHED)[key_ids] = now
        written.changed(key_ids)
        written.remove(key_ids[np.fromiter((not rows[s] for s in key_ids.tolist()), np.bool_, len(key_ids))])
        pending.remove(due)
        pending.compact()
        kinds = np.fromiter((kind for kind, _ in out), np.int8, len(out))
        columns = [from_python([row[i] for _, row in out], kind) for i, kind in enumerate(self.kinds)]
        self.emit(split_batches(columns, len(out), kinds if kinds.any() else None))

    def _resolved(
        self, before: list[_Row], changes: list[tuple[bool, _Row]], out: list[tuple[int, _Row]]
    ) -> list[_Row]:
        """Return the row that exists after changes, as a list of one or none; append written changes to `out`."""
        rows = list(before)
        for adds, row in changes:
            position = self._position_of(rows, row)
            if not adds:
                if position is not None:
                    del rows[position]
            elif position is not None and self.replaces:
                rows[position] = row
            else:
                rows.append(row)
        if len(rows) > 1:
            if self.fails:
                raise TableException(self._conflict(rows[0]))
            rows = before or rows[:1]
        if rows != before:
            out.append((DELETE, before[0]) if not rows else (UPDATE_AFTER if before else INSERT, rows[0]))
        return rows

    def _position_of(self, rows: list[_Row], row: _Row) -> int | None:
        """Return the position of the row with the same upsert key."""
        expected = [row[c] for c in self.compared]
        return next((i for i, one in enumerate(rows) if [one[c] for c in self.compared] == expected), None)

    def _conflict(self, row: _Row) -> str:
        key = ", ".join(f"{self.names[k]}={'null' if row[k] is None else row[k]}" for k in self.keys)
        return (
            "Primary key constraint violation: multiple distinct records with the same primary key detected. "
            f"Conflicting key: [{key}]. Use ON CONFLICT DO NOTHING to keep the first record."
        )


def _add_or_cancel(changes: list[tuple[bool, _Row]], adds: bool, row: _Row) -> None:
    """Add a change, or remove its opposite."""
    opposite = (not adds, row)
    if opposite in changes:
        changes.remove(opposite)
    else:
        changes.append((adds, row))
