"""Keyed state of rows in columns: each key has a list of rows, in order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql.columns.append_buffer import GrowingArray, GrowingColumn, take_all
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.index import index_for
from millstream.sql.columns.keyed_columns import TtlIndex
from millstream.sql.columns.keys import hashes, stable_order
from millstream.sql.columns.numpy_arrays import Ints, Mask
from millstream.state.array_storage import IN_MEMORY, Arrays
from millstream.state.column_table import HASH, RowChange, check_columns, in_pieces

# Row numbers; in an Arrow array, null for no row.
Rows: TypeAlias = "Ints | pa.Array"

# Removed rows are compacted when they outnumber the others and this number.
_MIN_COMPACTED = 1 << 12
# Keys with more rows than this have an array of rows, not a linked list.
_MAX_LINKED = 24
_NONE = -1
# Approximate bytes per row in a checkpoint besides its columns: key hash, number, order.
_ROW_OVERHEAD = 20


class KeyedRows:
    """Rows by key; implements `LiveColumns`.

    A row is identified by its number, valid until the next `compact`. The rows of a key form a linked list; a key with
    many rows has an array of them.
    """

    def __init__(
        self,
        kinds: Sequence[pa.DataType],
        keys: Sequence[int],
        owners: int | None = None,
        clock: Callable[[], int] | None = None,
        marked: bool = True,
    ) -> None:
        """Create it without rows.

        Args:
            kinds: the Arrow types of the columns.
            keys: the key columns.
            owners: the number of leading key columns that decide the owning subtask; None for all.
            clock: returns the update time of rows with a TTL; None without TTL.
            marked: whether rows have marks.
        """
        self._clock = clock
        self._marked = marked
        self._kinds = list(kinds)
        self.keys = tuple(keys)
        self._owners = len(self.keys) if owners is None else owners
        self._arrays: Arrays = IN_MEMORY
        self.clear()

    def live_in(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self.clear()

    def _longs(self) -> GrowingArray:
        return GrowingArray(np.int64, self._arrays)

    def _flags(self) -> GrowingArray:
        return GrowingArray(np.bool_, self._arrays)

    def clear(self) -> None:
        self._index = index_for([self._kinds[k] for k in self.keys], self._arrays)
        # Per key: its hash, its first and last row, the length of its list, and the number of rows it ever had.
        self._hashes = GrowingArray(np.uint32, self._arrays)
        self._head, self._tail = self._longs(), self._longs()
        self._length, self._total = self._longs(), self._longs()
        self._row_arrays: dict[int, GrowingArray] = {}
        # Per row: its columns, its key, its number among all rows of its key, also removed ones, the next row, a mark
        # for the owner's use, and whether it exists, has changed since the last checkpoint, and is in checkpoints.
        self._columns = [GrowingColumn(kind, self._arrays) for kind in self._kinds]
        self._key, self._number, self._next = self._longs(), self._longs(), self._longs()
        self._mark, self._updated_at = self._longs(), self._longs()
        self._live, self._changed, self._checkpointed = self._flags(), self._flags(), self._flags()
        self._removed_count = 0
        self._expiring = TtlIndex()
        # Numbers in order of arrival; None while row numbers are in that order.
        self._order: GrowingArray | None = None
        self._next_order = 0
        # Removed rows that checkpoints have: by number, and from before the last `compact`.
        self._removed: list[Ints] = []
        self._removed_before: pa.RecordBatch | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._live) - self._removed_count

    @property
    def file_bytes(self) -> int:
        size = sum(column.nbytes for column in self._columns) * len(self) // max(self.bound, 1)
        return size + len(self) * _ROW_OVERHEAD

    @property
    def bound(self) -> int:
        """The number of the next row."""
        return len(self._live)

    @property
    def marks(self) -> Ints:
        """A number per row for the owner's use; call `changed` after changing it in place."""
        return self._mark.values

    def keys_of(self, rows: Ints) -> Ints:
        """Return the key numbers of rows."""
        return self._key.values[rows]

    def numbers_of(self, rows: Ints) -> Ints:
        """Return the numbers of rows among all that their keys ever had, from 0."""
        return self._number.values[rows]

    def changed(self, rows: Ints) -> None:
        """Mark the marks of rows as changed."""
        self._changed.values[rows] = True
        if self._clock is not None:
            self._updated_at.values[rows] = self._clock()

    def expired(self, last: int) -> Ints:
        """Return the rows last updated at or before a time; the caller may leave them."""
        rows = self._take_expired(last)
        self._expiring.add(rows, self._updated_at.values)
        return rows

    def _take_expired(self, last: int) -> Ints:
        return self._expiring.expired(last, self._updated_at.values, self._live.values)

    def expire(self, last: int) -> None:
        """Remove the rows last updated at or before a time."""
        self.remove(self._take_expired(last))

    def all_rows(self) -> Ints:
        """Return all rows, in order of arrival."""
        rows = np.flatnonzero(self._live.values)
        return rows if self._order is None else rows[np.argsort(self._order.values[rows], kind="stable")]

    def _arrival(self, rows: Ints) -> Ints:
        """Return numbers in order of the rows' arrival."""
        return rows if self._order is None else self._order.values[rows]

    def take(self, column: int, rows: Rows) -> pa.Array:
        """Return the values of a column in rows; null for a null row."""
        return self._columns[column].take(rows)

    def take_all(self, columns: Iterable[int], rows: Rows) -> list[pa.Array]:
        """Return the values of columns in rows; nulls for a null row."""
        return take_all([self._columns[i] for i in columns], rows)

    def batch(self, rows: Rows) -> Batch:
        """Return some rows."""
        return Batch(take_all(self._columns, rows), None, len(rows))

    # --- keys

    def find(self, columns: Sequence[pa.Array], rows: int) -> Ints:
        """Return the key numbers of key columns; -1 for missing keys."""
        return self._index.find(columns, rows)

    def find_or_add(self, columns: Sequence[pa.Array], rows: int) -> Ints:
        """Return the key numbers of key columns; new keys are added."""
        numbers, new = self._index.find_or_add(columns, rows)
        if len(new):
            added = pa.array(new)
            self._hashes.extend(hashes([c.take(added) for c in columns[: self._owners]], len(new)))
            for array, value in ((self._head, _NONE), (self._tail, _NONE), (self._length, 0), (self._total, 0)):
                array.extend(np.full(len(new), value, np.int64))
        return numbers

    @property
    def key_bound(self) -> int:
        """The number of the next key."""
        return len(self._length)

    def max_pairs(self, keys: Ints) -> int:
        """Return an upper bound of the number of rows of keys."""
        return int(np.where(keys < 0, 0, self._length.values[keys]).sum()) if len(self._length) else 0

    def pairs(self, keys: Ints) -> tuple[Ints, Ints]:
        """Return all rows of keys, as (position in `keys`, row), in order; key -1 has none."""
        if not len(self._length):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        length = np.where(keys < 0, 0, self._length.values[keys])
        ends = np.cumsum(length)
        positions = np.repeat(np.arange(len(keys)), length)
        rows = np.empty(len(positions), np.int64)
        starts = ends - length
        few = np.flatnonzero((length > 0) & (length <= _MAX_LINKED))
        row, offsets = self._head.values[keys[few]], starts[few]
        while len(row):
            rows[offsets] = row
            row = self._next.values[row]
            has_next = row >= 0
            row, offsets = row[has_next], offsets[has_next] + 1
        for i in np.flatnonzero(length > _MAX_LINKED).tolist():
            rows[starts[i] : ends[i]] = self._rows_of(int(keys[i])).values
        live = self._live.values[rows]
        if len(rows) > _MAX_LINKED and not live.all():
            self._shorten(np.unique(keys[np.flatnonzero(length > _MAX_LINKED)]))
        return (positions, rows) if live.all() else (positions[live], rows[live])

    def _shorten(self, keys: Ints) -> None:
        """Drop removed rows from the arrays of keys where they are the majority."""
        for key in keys.tolist():
            rows = self._rows_of(key).values
            remaining = rows[self._live.values[rows]]
            if 2 * len(remaining) > len(rows):
                continue
            self._row_arrays.pop(key)
            self._length.values[key] = len(remaining)
            self._head.values[key], self._tail.values[key] = (
                (remaining[0], remaining[-1]) if len(remaining) else (_NONE, _NONE)
            )
            if len(remaining):
                self._next.values[remaining[:-1]] = remaining[1:]
                self._next.values[remaining[-1]] = _NONE

    def _rows_of(self, key: int) -> GrowingArray:
        """Return the array of rows of a key with many."""
        rows = self._row_arrays.get(key)
        if rows is None:
            rows = self._row_arrays[key] = self._longs()
            numbers, row = [], int(self._head.values[key])
            while row >= 0:
                numbers.append(row)
                row = int(self._next.values[row])
            rows.extend(np.array(numbers, np.int64))
        return rows

    # --- rows

    def add(self, keys: Ints, columns: Sequence[pa.Array], marks: Ints | None = None) -> Ints:
        """Add rows with key numbers; return their row numbers."""
        count = len(keys)
        start = len(self._live)
        rows = np.arange(start, start + count)
        for column, values in zip(self._columns, columns, strict=True):
            column.extend(values)
        if self._marked:
            self._mark.extend(np.zeros(count, np.int64) if marks is None else marks)
        if self._clock is not None:
            self._updated_at.extend(np.full(count, self._clock(), np.int64))
        self._key.extend(keys)
        self._next.extend(np.full(count, _NONE, np.int64))
        if self._order is not None:
            self._order.extend(np.arange(self._next_order, self._next_order + count))
            self._next_order += count
        self._live.extend(np.ones(count, np.bool_))
        self._changed.extend(np.ones(count, np.bool_))
        self._checkpointed.extend(np.zeros(count, np.bool_))
        if self._are_first(keys):
            self._link_first(keys, rows)
        else:
            self._link(keys, rows)
        return rows

    def _are_first(self, keys: Ints) -> bool:
        """Return whether keys are the last ones added, in order, and have had no rows: each is new and occurs once."""
        if not len(keys) or int(keys[-1]) - int(keys[0]) != len(keys) - 1 or (keys[1:] <= keys[:-1]).any():
            return False
        return not self._total.values[keys[0] : keys[-1] + 1].any()

    def _link_first(self, keys: Ints, rows: Ints) -> None:
        span = slice(int(keys[0]), int(keys[-1]) + 1)
        self._number.extend(np.zeros(len(keys), np.int64))
        self._head.values[span] = self._tail.values[span] = rows
        self._length.values[span] = self._total.values[span] = 1

    def _link(self, keys: Ints, rows: Ints) -> None:
        """Append rows to the lists of their keys."""
        count = len(keys)
        order = stable_order(keys, len(self._length))
        by_key, in_order = keys[order], rows[order]
        starts = np.flatnonzero(np.append(True, by_key[1:] != by_key[:-1])) if count else np.zeros(0, np.int64)
        sizes = np.diff(starts, append=count)
        owners = by_key[starts]
        number = np.empty(count, np.int64)
        number[order] = np.arange(count) - np.repeat(starts, sizes) + np.repeat(self._total.values[owners], sizes)
        self._number.extend(number)
        # Each row but the last of a key links to the next; the previous tail links to the first.
        inner = np.ones(count, np.bool_)
        inner[starts] = False
        self._next.values[in_order[:-1][inner[1:]]] = in_order[1:][inner[1:]]
        tails, firsts = self._tail.values[owners], in_order[starts]
        has_tail = tails >= 0
        self._next.values[tails[has_tail]] = firsts[has_tail]
        self._head.values[owners[~has_tail]] = firsts[~has_tail]
        self._tail.values[owners] = in_order[starts + sizes - 1]
        self._length.values[owners] += sizes
        self._total.values[owners] += sizes
        if self._row_arrays:
            for i in np.flatnonzero(self._length.values[owners] > _MAX_LINKED).tolist():
                rows_of_key = self._row_arrays.get(int(owners[i]))
                if rows_of_key is not None:
                    rows_of_key.extend(in_order[starts[i] : starts[i] + sizes[i]])

    def remove(self, rows: Ints) -> None:
        """Remove distinct rows."""
        self._live.values[rows] = False
        self._changed.values[rows] = False
        self._removed_count += len(rows)
        checkpointed_rows = rows[self._checkpointed.values[rows]]
        if len(checkpointed_rows):
            self._removed.append(checkpointed_rows)

    def equal_rows(self, keys: Ints, columns: Sequence[pa.Array]) -> Ints:
        """Return for each given row an equal stored one, each a different one; -1 if there is none."""
        equals = np.full(len(keys), _NONE, np.int64)
        positions, rows = self.pairs(keys)
        if not len(positions):
            return equals
        equal = np.ones(len(positions), np.bool_)
        requests, stored_rows = pa.array(positions), pa.array(rows)
        others = [i for i in range(len(columns)) if i not in self.keys]
        for i, stored in zip(others, self.take_all(others, stored_rows), strict=True):
            equal &= equal_values(columns[i].take(requests), stored)
        positions, rows = positions[equal], rows[equal]
        if not len(positions):
            return equals
        starts = np.flatnonzero(np.append(True, positions[1:] != positions[:-1]))
        sizes = np.diff(starts, append=len(positions))
        # Equal rows have the same candidates: the n-th row takes the n-th candidate.
        rank = _rank(rows[starts])
        found = rank < sizes
        equals[positions[starts[found]]] = rows[starts[found] + rank[found]]
        return equals

    def compact(self) -> None:
        """Renumber rows if many are removed."""
        if self._removed_count < _MIN_COMPACTED or self._removed_count < len(self):
            return
        removed = self._removed_batch()
        live = self.all_rows()
        columns = take_all(self._columns, live)
        changed, checkpointed = (array.values[live].copy() for array in (self._changed, self._checkpointed))
        marks, updated_at = (_ints(_optional_values(array, live)) for array in (self._mark, self._updated_at))
        order = self._arrival(live)
        number, totals, keys = self._number.values[live], self._total.values.copy(), self._key.values[live]
        self.clear()
        numbers = self.find_or_add([columns[k] for k in self.keys], len(live))
        self.add(numbers, columns, marks)
        self._number.replace(number)
        self._order = self._longs()
        self._order.extend(order)
        self._next_order = int(order.max(initial=-1)) + 1
        self._total.values[numbers] = totals[keys]
        if self._clock is not None:
            self._updated_at.replace(updated_at)
        self._changed.replace(changed)
        self._checkpointed.replace(checkpointed)
        self._removed_before = removed

    # --- checkpoints

    def _removed_batch(self) -> pa.RecordBatch | None:
        """Return the keys and numbers of removed rows that checkpoints have."""
        batches = [] if self._removed_before is None else [self._removed_before]
        self._removed_before = None
        if self._removed:
            rows = np.concatenate(self._removed)
            self._removed.clear()
            batches.append(self._identities(rows))
        if not batches:
            return None
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0] if len(batches) > 1 else batches[0]

    def _identities(self, rows: Ints) -> pa.RecordBatch:
        columns = [pa.array(self._hashes.values[self._key.values[rows]])]
        columns += self.take_all(self.keys, rows)
        columns.append(pa.array(self._number.values[rows]))
        return pa.record_batch(columns, [HASH, *(f"k{i}" for i in range(len(self.keys))), "number"])

    def _rows(self, rows: Ints) -> pa.RecordBatch:
        columns = [pa.array(self._hashes.values[self._key.values[rows]])]
        columns += [pa.array(self._number.values[rows]), _optional_values(self._mark, rows)]
        columns += [pa.array(self._arrival(rows)), _optional_values(self._updated_at, rows)]
        first, stop = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        if self._order is None and stop - first == len(rows):
            # Rows are sorted. Most changed rows are new and consecutive.
            columns += [column.range(first, stop) for column in self._columns]
        else:
            columns += take_all(self._columns, rows)
        names = [HASH, "number", "mark", "order", "updated_at", *(f"c{i}" for i in range(len(self._columns)))]
        return pa.record_batch(columns, names)

    def all_changes(self) -> list[RowChange]:
        return [RowChange(self._rows(rows)) for rows in in_pieces(self.all_rows())]

    def changes(self) -> list[RowChange]:
        rows, removed = np.flatnonzero(self._changed.values), self._removed_batch()
        self._changed.values[rows] = False
        self._checkpointed.values[rows] = True
        changes = [RowChange(self._rows(piece)) for piece in in_pieces(rows)]
        return changes if removed is None else [RowChange(self._rows(rows[:0]), removed), *changes]

    def load(self, change: RowChange) -> None:
        # Missing marks and times are nulls, which take no bytes.
        state_columns = [("number", pa.int64()), ("mark", None), ("order", pa.int64()), ("updated_at", None)]
        check_columns(change, [*state_columns, *((f"c{i}", kind) for i, kind in enumerate(self._kinds))])
        if change.removed is not None and change.removed.num_rows:
            columns = change.removed.columns[1:-1]
            self._drop(self._numbered(columns, change.removed.num_rows, change.removed.columns[-1]))
        count = change.rows.num_rows
        if not count:
            return
        columns = change.rows.columns[5:]
        number, mark, order, updated_at = (_ints(change.rows.column(i)) for i in range(1, 5))
        # An existing row has only a new mark: it is removed and added again in its position.
        key_columns = [columns[k] for k in self.keys]
        existing = self._numbered(key_columns, count, change.rows.column(1))
        old = existing >= 0
        if self._marked:
            self._mark.values[existing[old]] = mark[old]
        if self._clock is not None:
            self._updated_at.values[existing[old]] = updated_at[old]
        new = np.flatnonzero(~old)
        if len(new) < count:
            added = pa.array(new)
            columns, key_columns = [c.take(added) for c in columns], [c.take(added) for c in key_columns]
        keys = self.find_or_add(key_columns, len(new))
        rows = self.add(keys, columns, mark[new])
        self._number.values[rows] = number[new]
        if self._clock is not None:
            self._updated_at.values[rows] = updated_at[new]
        if self._order is None:
            self._order = self._longs()
            self._order.extend(np.arange(len(self._live)))
        self._order.values[rows] = order[new]
        self._next_order = max(self._next_order, len(self._order), int(order.max()) + 1)
        np.maximum.at(self._total.values, keys, number[new] + 1)
        self._changed.values[rows] = False
        self._checkpointed.values[rows] = True

    def _numbered(self, key_columns: Sequence[pa.Array], count: int, numbers: pa.Array) -> Ints:
        """Return the rows with keys and numbers; -1 for missing ones."""
        result = np.full(count, _NONE, np.int64)
        keys = self.find(key_columns, count)
        positions, rows = self.pairs(keys)
        same = self._number.values[rows] == numbers.to_numpy()[positions]
        result[positions[same]] = rows[same]
        return result

    def _drop(self, rows: Ints) -> None:
        rows = rows[rows >= 0]
        self._checkpointed.values[rows] = False
        self.remove(rows)


def _optional_values(column: GrowingArray, rows: Ints) -> pa.Array:
    """Return the values of rows in an optional column; nulls if it is missing."""
    return pa.array(column.values[rows]) if len(column) else pa.nulls(len(rows))


def _ints(column: pa.Array) -> Ints:
    """Return the values that `_optional_values` wrote."""
    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    return column.to_numpy()  # type: ignore[no-any-return]


def equal_values(one: pa.Array, other: pa.Array) -> Mask:
    """Return which values are equal; nulls are equal."""
    if pa.types.is_nested(one.type):
        return np.fromiter(
            (a == b for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)), np.bool_, len(one)
        )
    if pa.types.is_null(one.type):
        return np.ones(len(one), np.bool_)
    equal = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        equal = pc.or_kleene(equal, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    if equal.null_count:
        both = pc.and_(pc.is_null(one), pc.is_null(other))
        equal = pc.fill_null(equal, False)
        return pc.or_(equal, both).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    return equal.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _rank(values: Ints) -> Ints:
    """Return for each value the number of equal ones before it."""
    order = np.argsort(values, kind="stable")
    in_order = values[order]
    starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))
    sizes = np.diff(starts, append=len(values))
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values)) - np.repeat(starts, sizes)
    return rank
