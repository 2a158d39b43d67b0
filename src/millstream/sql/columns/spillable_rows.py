"""Append-only rows buffered until the end of input: in memory, and beyond a budget on disk in Arrow's format.

An arrangement decides their layout on disk. Rows for a join or an aggregate are in bins by the hash of their key, so
that a key's rows are in one bin; rows to be sorted are in sorted runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.operators.runtime.budget import Budget
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keys import hashes, stable_order
from millstream.sql.columns.numpy_arrays import Ints
from millstream.sql.columns.row_order import Order, sorted_rows
from millstream.state.array_storage import Arrays
from millstream.state.column_table import HASH, RowChange, check_columns
from millstream.state.spill_file import FileExtent, SpillFile

BINS = 64
# Maximum bytes of rows arranged at once, since that takes as much memory again.
SPILL_CHUNK_BYTES = 32 << 20
# Rows of a run read at once: there may be many runs.
_RUN_ROWS = 1 << 12
# Differs from the multiplier of key groups, or all rows of a subtask would be in few bins.
_MULTIPLIER = np.uint32(0x85EBCA6B)


class RowLayout(Protocol):
    """The layout of rows on disk."""

    def split(self, rows: Batch) -> Iterator[tuple[int, Batch]]:
        """Yield rows in parts, each with the number of its bin or run."""


def bins_of(key_hashes: NDArray[np.uint32]) -> Ints:
    """Return the bins of keys by their hashes."""
    mixed = (key_hashes ^ (key_hashes >> np.uint32(15))) * _MULTIPLIER
    return (mixed >> np.uint32(32 - BINS.bit_length() + 1)).astype(np.int64)


class HashBins:
    """Bins by the hash of some columns."""

    def __init__(self, keys: Sequence[int]) -> None:
        self._keys = tuple(keys)

    def split(self, rows: Batch) -> Iterator[tuple[int, Batch]]:
        yield from split_by_bin(rows, bins_of(hashes([rows.columns[k] for k in self._keys], len(rows))))


def split_by_bin(rows: Batch, bins: Ints) -> Iterator[tuple[int, Batch]]:
    """Yield rows by bin."""
    whole = rows.take(stable_order(bins, BINS))
    ends = np.cumsum(np.bincount(bins, minlength=BINS)).tolist()
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            yield number, whole.slice(start, end)


class SortedRuns:
    """Sorted runs."""

    def __init__(self, order: Order) -> None:
        self._order = tuple(order)
        self._next = 0

    def split(self, rows: Batch) -> Iterator[tuple[int, Batch]]:
        order, run = sorted_rows(rows.columns, self._order, len(rows)), self._next
        self._next += 1
        for start in range(0, len(rows), _RUN_ROWS):
            yield run, rows.take(order[start : start + _RUN_ROWS])


class SpillableRows:
    """Append-only rows, read at the end of input; implements `LiveColumns`."""

    def __init__(
        self,
        kinds: Sequence[pa.DataType],
        keys: Sequence[int],
        layout: RowLayout,
        file: SpillFile,
        budget: Budget,
    ) -> None:
        """Create it without rows.

        Args:
            kinds: the Arrow types of the columns.
            keys: the columns that decide the owning subtask of a row.
            layout: the layout on disk.
            file: the spill file.
            budget: the memory budget.
        """
        self._kinds = list(kinds)
        self._keys = tuple(keys)
        self._layout = layout
        self._file = file
        self._account = budget.account(self.spill)
        # Extents on disk, by bin or run.
        self.extents: dict[int, list[FileExtent]] = {}
        self.rows = 0
        self.clear()

    def clear(self) -> None:
        """Discard all rows."""
        self._parts: list[Batch] = []
        # The number of checkpointed rows, and extents on disk that are not checkpointed.
        self._saved = 0
        self._unsaved: list[FileExtent] = []
        self.extents = {}
        self.rows = 0
        self._file.clear()
        self._account.used = 0

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.rows

    @property
    def size(self) -> int:
        """The size of the rows in memory, in bytes."""
        return self._account.used

    @property
    def file_bytes(self) -> int:
        return self.size + sum(map(self.size_of, self.extents))

    @property
    def is_on_disk(self) -> bool:
        """Whether some rows are on disk."""
        return bool(self.extents)

    def add(self, batch: Batch) -> None:
        """Add inserted rows."""
        self._parts.append(batch if batch.kinds is None else Batch(batch.columns, None, len(batch)))
        self.rows += len(batch)
        self._account.set_used(self._account.used + batch.nbytes)

    def in_memory(self) -> list[Batch]:
        """Return the rows in memory."""
        return self._parts

    def of(self, number: int) -> Iterator[Batch]:
        """Yield the rows of a bin or run, from disk."""
        for extent in self.extents.get(number, ()):
            yield self._read(extent)

    def by_bin(self) -> Iterator[Iterable[Batch]]:
        """Yield the rows of each bin, or all at once if they are in memory; then discard them."""
        if self.is_on_disk:
            self.spill()
            for number in sorted(self.extents):
                yield self.of(number)
        elif len(self):
            yield self.in_memory()
        self.clear()

    def size_of(self, number: int) -> int:
        """Return the size of a bin or run in bytes."""
        return sum(size for _, size in self.extents.get(number, ()))

    def _read(self, extent: FileExtent) -> Batch:
        return Batch.from_ipc(self._file.read(extent), len(self._kinds), False)

    def spill(self) -> None:
        """Move all rows to disk."""
        self._write(self._parts[: self._saved])
        self._unsaved += self._write(self._parts[self._saved :])
        self._parts, self._saved = [], 0
        self._account.set_used(0)

    def _write(self, parts: list[Batch]) -> list[FileExtent]:
        written: list[FileExtent] = []
        for chunk in in_chunks(parts, SPILL_CHUNK_BYTES):
            for number, rows in self._layout.split(chunk):
                written.append(self._file.write(rows.to_ipc()))
                self.extents.setdefault(number, []).append(written[-1])
        return written

    def retain(self, choose: Callable[[Batch], Ints]) -> None:
        """Discard the rows in memory except the chosen ones, which are given in order."""
        if not self._parts:
            return
        saved = sum(map(len, self._parts[: self._saved]))
        whole = Batch.concatenated(self._parts)
        chosen = choose(whole)
        first = int(np.searchsorted(chosen, saved))
        parts = [whole.take(rows) for rows in (chosen[:first], chosen[first:])]
        self._parts = [part for part in parts if len(part)]
        self._saved = int(bool(first))
        self.rows += len(chosen) - len(whole)
        self._account.set_used(sum(part.nbytes for part in self._parts))

    # --- checkpoints

    def live_in(self, arrays: Arrays) -> None:
        """Do nothing: many rows are spilled anyway."""

    def _change(self, batch: Batch) -> RowChange:
        key_hashes = pa.array(hashes([batch.columns[k] for k in self._keys], len(batch)))
        names = [HASH, *(f"c{i}" for i in range(len(self._kinds)))]
        return RowChange(pa.record_batch([key_hashes, *batch.columns], names))

    def all_changes(self) -> list[RowChange]:
        on_disk = (self._read(extent) for extents in self.extents.values() for extent in extents)
        return [self._change(batch) for batch in in_chunks([*on_disk, *self._parts], SPILL_CHUNK_BYTES)]

    def changes(self) -> list[RowChange]:
        new = [*(self._read(extent) for extent in self._unsaved), *self._parts[self._saved :]]
        self._unsaved, self._saved = [], len(self._parts)
        return [self._change(batch) for batch in in_chunks(new, SPILL_CHUNK_BYTES)]

    def load(self, change: RowChange) -> None:
        check_columns(change, [(f"c{i}", kind) for i, kind in enumerate(self._kinds)])
        if not change.rows.num_rows:
            return
        self._parts.insert(self._saved, Batch(change.rows.columns[1:], None, change.rows.num_rows))
        self._saved += 1
        self.rows += change.rows.num_rows
        self._account.set_used(self._account.used + self._parts[self._saved - 1].nbytes)


def in_chunks(batches: Iterable[Batch], max_bytes: int) -> Iterator[Batch]:
    """Yield rows in large batches of about `max_bytes`."""
    some: list[Batch] = []
    size = 0
    for batch in batches:
        if some and size + batch.nbytes > max_bytes:
            yield Batch.concatenated(some)
            some, size = [], 0
        some.append(batch)
        size += batch.nbytes
    if some:
        yield Batch.concatenated(some)
