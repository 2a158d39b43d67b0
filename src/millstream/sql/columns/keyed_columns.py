"""Keyed state in columns: each key has an id, which is its index in the value columns.

`TtlIndex` finds the keys that may have expired.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.columns.append_buffer import GrowingArray, GrowingColumn
from millstream.sql.columns.index import KeyIds, index_for
from millstream.sql.columns.keys import hashes
from millstream.sql.columns.numpy_arrays import Ints, Mask, NumpyColumn
from millstream.state.array_storage import IN_MEMORY, Arrays
from millstream.state.column_table import HASH, RowChange, check_columns, in_pieces

# Times are binned by this many bits, about a second.
_BITS = 10


class TtlIndex:
    """Entry numbers in bins by their update time, or an earlier one.

    Updates are not reported: when a bin is due, entries updated since then move to another bin. So an entry that is
    updated all the time is examined once per TTL.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Discard everything, after entries were renumbered."""
        self._bins: dict[int, list[Ints]] = {}
        self._times: list[int] = []
        self._added_count = 0
        # The rest of bins that were partly due, by time, and their times.
        self._next, self._next_times = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def expired(self, last: int, updated_at: Ints, live: Mask) -> Ints:
        """Remove and return the live entries last updated at or before a time, in order.

        Args:
            last: the time.
            updated_at: the update time of each entry; new entries are at the end, and no time decreases.
            live: whether each entry exists; removed ones do not return.
        """
        self.add(np.arange(self._added_count, len(updated_at)), updated_at)
        self._added_count = len(updated_at)
        due: list[Ints] = []
        while self._times and self._times[0] <= last >> _BITS:
            due += self._bins.pop(heappop(self._times))
        if due:
            entries = np.concatenate([self._next, *due])
            times = updated_at[entries]
            order = np.argsort(times, kind="stable")
            self._next, self._next_times = entries[order], times[order]
        count = int(np.searchsorted(self._next_times, last, "right"))
        entries = self._next[:count]
        self._next, self._next_times = self._next[count:], self._next_times[count:]
        entries = entries[live[entries]]
        expired = updated_at[entries] <= last
        self.add(entries[~expired], updated_at)
        return np.sort(entries[expired])

    def add(self, numbers: Ints, updated_at: Ints) -> None:
        """Add entries, or add returned ones again."""
        if not len(numbers):
            return
        times = updated_at[numbers] >> _BITS
        if (times == times[0]).all():
            self._add_bin(int(times[0]), numbers)
            return
        order = np.argsort(times, kind="stable")
        times, numbers = times[order], numbers[order]
        starts = np.flatnonzero(np.append(True, times[1:] != times[:-1]))
        for time, numbers_of_bin in zip(times[starts].tolist(), np.split(numbers, starts[1:]), strict=True):
            self._add_bin(time, numbers_of_bin)

    def _add_bin(self, time: int, numbers: Ints) -> None:
        if time not in self._bins:
            self._bins[time] = []
            heappush(self._times, time)
        self._bins[time].append(numbers)


# Key ids are compacted when the free ones outnumber the used ones and this number.
_MIN_COMPACTED = 1 << 12
_ORDER = "order"
# Approximate bytes per key in a checkpoint besides the key: its hash and its order.
_KEY_OVERHEAD = 12
# First byte of an integer among serialized objects, and its size; a pickle never begins so.
_INT, _INT_BYTES = 0, 9
# Objects sampled to estimate the size of the others, and the memory per byte of their pickles.
_SAMPLE, _IN_MEMORY = 16, 3


@fast_dataclass
class StateColumn:
    """A value column: its name in checkpoints, its numpy type, and its initial value."""

    name: str
    dtype: DTypeLike
    start: Value = 0


class Columns(Protocol):
    """Value columns by name, indexed by key id."""

    def column(self, name: str) -> NumpyColumn:
        """Return a column, to be read and changed in place."""


class FreshColumns:
    """Temporary columns for new keys."""

    def __init__(self, columns: Sequence[StateColumn], count: int) -> None:
        self._columns = {k.name: filled(k, count) for k in columns}

    def column(self, name: str) -> NumpyColumn:
        """Return a column, to be read and changed in place."""
        return self._columns[name]


class KeyedColumns:
    """Keys, each with an id that is its index in the value columns; implements `LiveColumns`.

    Key ids are numbered in order of arrival, and valid until the next `compact`. Call `changed` after changing value
    columns in place.
    """

    def __init__(self, kinds: Sequence[pa.DataType], columns: Sequence[StateColumn], owners: int | None = None) -> None:
        """Create it without keys.

        Args:
            kinds: the Arrow types of the key columns.
            columns: the value columns.
            owners: the number of leading key columns that decide the owning subtask; None for all.
        """
        self._kinds = list(kinds)
        self._specs = list(columns)
        self._owners = len(kinds) if owners is None else owners
        # Called after key ids were renumbered, with the old numbers of the remaining ones.
        self.when_compacted: Callable[[KeyIds], None] = lambda remaining: None
        self._arrays: Arrays = IN_MEMORY
        self.clear()

    def live_in(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self.clear()

    def clear(self) -> None:
        self._index = index_for(self._kinds, self._arrays)
        self._keys = [GrowingColumn(kind, self._arrays) for kind in self._kinds]
        self._hashes = GrowingArray(np.uint32, self._arrays)
        self._columns = {k.name: GrowingArray(k.dtype, self._arrays) for k in self._specs}
        self._live = GrowingArray(np.bool_, self._arrays)
        self._removed_count = 0
        # For each time column by which keys expire.
        self._expiring: dict[str, TtlIndex] = {}
        # Numbers in order of arrival; None while key ids are in that order.
        self._order: GrowingArray | None = None
        self._next_order = 0
        # Key ids changed since the last checkpoint, those in checkpoints, and removed keys that checkpoints have.
        self._changed = GrowingArray(np.bool_, self._arrays)
        self._checkpointed = GrowingArray(np.bool_, self._arrays)
        self._removed: list[tuple[NDArray[np.uint32], list[pa.Array]]] = []

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._live) - self._removed_count

    @property
    def bound(self) -> int:
        """The number of the next key id."""
        return len(self._live)

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes; objects are estimated from a sample of their pickles."""
        flags = (self._hashes, self._live, self._changed, self._checkpointed, *self._columns.values())
        size = self._index.nbytes + sum(c.nbytes for c in flags) + sum(c.nbytes for c in self._keys)
        objects = [c.values for c in self._columns.values() if c.values.dtype == object]
        return size + sum(map(_estimated_bytes, objects))

    @property
    def file_bytes(self) -> int:
        # Objects are not measured.
        per_key = _KEY_OVERHEAD + sum(c.values.itemsize for c in self._columns.values() if c.values.dtype != object)
        return len(self) * per_key + sum(c.nbytes for c in self._keys) * len(self) // max(self.bound, 1)

    def column(self, name: str) -> NumpyColumn:
        """Return a value column; valid until keys are added."""
        return self._columns[name].values

    def find(self, keys: Sequence[pa.Array], rows: int) -> KeyIds:
        """Return the key ids of keys; -1 for missing keys."""
        return self._index.find(keys, rows)

    def find_or_add(self, keys: Sequence[pa.Array], rows: int) -> tuple[KeyIds, KeyIds]:
        """Return the key ids of keys, and the rows that added keys: those have the last key ids, in order."""
        key_ids, new = self._index.find_or_add(keys, rows)
        if len(new):
            added = pa.array(new)
            self._append(keys if len(new) == rows else [k.take(added) for k in keys], len(new))
        return key_ids, new

    def _append(self, keys: Sequence[pa.Array], count: int) -> None:
        for column, key in zip(self._keys, keys, strict=True):
            column.extend(key)
        self._hashes.extend(hashes(keys[: self._owners], count))
        for spec in self._specs:
            self._columns[spec.name].extend(filled(spec, count))
        if self._order is not None:
            self._order.extend(np.arange(self._next_order, self._next_order + count))
            self._next_order += count
        self._live.extend(np.ones(count, np.bool_))
        self._changed.extend(np.ones(count, np.bool_))
        self._checkpointed.extend(np.zeros(count, np.bool_))

    def changed(self, key_ids: KeyIds) -> None:
        """Mark the values of key ids as changed."""
        self._changed.values[key_ids] = True

    def remove(self, key_ids: KeyIds) -> None:
        """Remove the keys of distinct key ids."""
        if not len(key_ids):
            return
        keys = self.keys_at(key_ids)
        self._index.remove(key_ids, keys)
        self._live.values[key_ids] = False
        self._changed.values[key_ids] = False
        self._removed_count += len(key_ids)
        checkpointed = self._checkpointed.values[key_ids]
        if checkpointed.any():
            mask = pa.array(checkpointed)
            self._removed.append((self._hashes.values[key_ids[checkpointed]], [k.filter(mask) for k in keys]))

    def expire(self, name: str, last: int) -> None:
        """Remove the keys last updated at or before a time, by a time column."""
        self.remove(self.expired(name, last))

    def expired(self, name: str, last: int) -> KeyIds:
        """Return the key ids last updated at or before a time, for removal; times of the column only grow."""
        return self._expiring.setdefault(name, TtlIndex()).expired(last, self.column(name), self._live.values)

    def keys_at(self, key_ids: KeyIds) -> list[pa.Array]:
        """Return the keys of key ids."""
        return [column.take(key_ids) for column in self._keys]

    def key_ids(self) -> KeyIds:
        """Return all used key ids, in order of the keys' arrival."""
        key_ids = np.flatnonzero(self._live.values)
        return key_ids if self._order is None else key_ids[np.argsort(self._order.values[key_ids], kind="stable")]

    def _arrival(self, key_ids: KeyIds) -> Ints:
        """Return numbers in the order of the keys' arrival."""
        return key_ids.astype(np.int64) if self._order is None else self._order.values[key_ids]

    def compact(self) -> None:
        """Renumber key ids if many are free."""
        if self._removed_count < _MIN_COMPACTED or self._removed_count < len(self):
            return
        remaining = self.key_ids()
        keys = self.keys_at(remaining)
        self._index = index_for(self._kinds, self._arrays)
        self._index.find_or_add(keys, len(remaining))
        for column, key in zip(self._keys, keys, strict=True):
            column.replace(key)
        order = self._arrival(remaining)
        self._order = GrowingArray(np.int64, self._arrays)
        self._order.extend(order)
        self._next_order = int(order.max(initial=-1)) + 1
        for array in (self._hashes, self._live, self._changed, self._checkpointed, *self._columns.values()):
            array.replace(array.values[remaining].copy())
        self._removed_count = 0
        self._expiring.clear()
        self.when_compacted(remaining)

    # --- checkpoints

    def load(self, change: RowChange) -> None:
        keys = [(f"k{i}", kind) for i, kind in enumerate(self._kinds)]
        check_columns(change, [(_ORDER, pa.int64()), *keys, *((k.name, None) for k in self._specs)])
        if change.removed is not None and change.removed.num_rows:
            key_ids = self.find(change.removed.columns[2:], change.removed.num_rows)
            self._checkpointed.values[key_ids[key_ids >= 0]] = False
            self.remove(key_ids[key_ids >= 0])
        width = len(self._kinds)
        key_ids, _ = self.find_or_add(change.rows.columns[2 : 2 + width], change.rows.num_rows)
        for spec, column in zip(self._specs, change.rows.columns[2 + width :], strict=True):
            self._columns[spec.name].values[key_ids] = read(spec, column)
        if self._order is None:
            self._order = GrowingArray(np.int64, self._arrays)
            self._order.extend(np.arange(self.bound))
        order = change.rows.column(1).to_numpy()
        self._order.values[key_ids] = order
        self._next_order = max(self._next_order, len(self._order), int(order.max(initial=-1)) + 1)
        self._changed.values[key_ids] = False
        self._checkpointed.values[key_ids] = True

    def all_changes(self) -> list[RowChange]:
        return [RowChange(self._rows(key_ids)) for key_ids in in_pieces(self.key_ids())]

    def changes(self) -> list[RowChange]:
        key_ids = np.flatnonzero(self._changed.values)
        self._changed.values[key_ids] = False
        self._checkpointed.values[key_ids] = True
        changes = [RowChange(self._rows(piece)) for piece in in_pieces(key_ids)]
        return [RowChange(self._rows(key_ids[:0]), self._take_removed()), *changes] if self._removed else changes

    def _take_removed(self) -> pa.RecordBatch:
        removed_hashes = np.concatenate([h for h, _ in self._removed])
        keys = [pa.concat_arrays(parts) for parts in zip(*(k for _, k in self._removed), strict=True)]
        self._removed.clear()
        names = [HASH, _ORDER, *(f"k{i}" for i in range(len(keys)))]
        return pa.record_batch([pa.array(removed_hashes), pa.nulls(len(removed_hashes), pa.int64()), *keys], names)

    def _rows(self, key_ids: KeyIds) -> pa.RecordBatch:
        columns = [pa.array(self._hashes.values[key_ids]), pa.array(self._arrival(key_ids)), *self.keys_at(key_ids)]
        columns += [written(k, self._columns[k.name].values[key_ids]) for k in self._specs]
        names = [HASH, _ORDER, *(f"k{i}" for i in range(len(self._kinds))), *(k.name for k in self._specs)]
        return pa.record_batch(columns, names)


def _estimated_bytes(values: NumpyColumn) -> int:
    """Return the approximate size of objects in bytes."""
    sample = values[:: max(len(values) // _SAMPLE, 1)]
    return len(values) * _IN_MEMORY * len(pickle.dumps(list(sample), 5)) // max(len(sample), 1)


def filled(spec: StateColumn, count: int) -> NumpyColumn:
    """Return a column of initial values."""
    values = np.empty(count, spec.dtype)
    if callable(spec.start):
        values[:] = [spec.start() for _ in range(count)]
    else:
        values[:] = spec.start
    return values


def written(spec: StateColumn, values: NumpyColumn) -> pa.Array:
    """Return values as an Arrow column: objects pickled, except integers, mostly sums of decimals."""
    if values.dtype != object:
        return pa.array(values)
    ints = _as_ints(values)
    if ints is None:
        return pa.array([pickle.dumps(v, 5) for v in values], pa.binary())
    body = np.empty((len(ints), _INT_BYTES), np.uint8)
    body[:, 0] = _INT
    body[:, 1:] = ints.astype("<i8").view(np.uint8).reshape(-1, _INT_BYTES - 1)
    edges = np.arange(0, body.size + 1, _INT_BYTES, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ints), [None, pa.py_buffer(edges), pa.py_buffer(body)])


def _as_ints(values: NumpyColumn) -> Ints | None:
    """Return objects as 64-bit integers, or None if some are not."""
    if set(map(type, values)) != {int}:
        return None
    try:
        return values.astype(np.int64)
    except OverflowError:
        return None


def read(spec: StateColumn, column: pa.Array) -> NumpyColumn:
    """Return the values that `written` serialized."""
    if np.dtype(spec.dtype) != object:
        return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    ints = _ints_of(column)
    if ints is not None:
        return ints.astype(object)
    values = np.empty(len(column), object)
    for i, body in enumerate(column.to_pylist()):
        values[i] = int.from_bytes(body[1:], "little", signed=True) if body[0] == _INT else pickle.loads(body)
    return values


def _ints_of(column: pa.Array) -> Ints | None:
    """Return a column that was written as integers, or None if it has other values."""
    _, positions, body = column.buffers()
    edges = np.frombuffer(positions, np.int32)[column.offset : column.offset + len(column) + 1]
    if not len(column) or body is None or (np.diff(edges) != _INT_BYTES).any():
        return None
    rows = np.frombuffer(body, np.uint8)[edges[0] : edges[-1]].reshape(-1, _INT_BYTES)
    if (rows[:, 0] != _INT).any():
        return None
    return np.ascontiguousarray(rows[:, 1:]).view("<i8").ravel()
