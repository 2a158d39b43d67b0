"""A state table whose rows an operator holds as columns in memory.

The operator holds them in the form that it works with (`LiveColumns`). This module defines their form in files: the
keys that were set and removed in each key group, as Arrow. Each key is stored with its hash, so that keys are assigned
to subtasks by vectorized code, for any parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged
from millstream.state.array_storage import Arrays
from millstream.state.kinds import COLUMNS
from millstream.state.table import BY_GROUP, StateTable
from millstream.state.vector_key_groups import groups_of

# The column with the hashes of keys.
HASH = "hash"
# Maximum rows of a piece of a table: the strings of a column of one may take two gigabytes.
PIECE_ROWS = 1 << 18


def to_ipc(batch: pa.RecordBatch) -> bytes:
    """Write rows as an Arrow stream of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def from_ipc(body: bytes) -> pa.RecordBatch:
    """Read what `to_ipc` wrote."""
    with pa.ipc.open_stream(body) as reader:
        return reader.read_next_batch()


def _written(change: RowChange) -> tuple[bytes, bytes | None]:
    return to_ipc(change.rows), None if change.removed is None else to_ipc(change.removed)


def _read(rows: bytes, removed: bytes | None) -> RowChange:
    return RowChange(from_ipc(rows), None if removed is None else from_ipc(removed))


@tagged("changed-rows", write=_written, read=_read)
class RowChange:
    """Keys that are removed, then keys that are set.

    Attributes:
        rows: the keys that are set: a column of hashes, the columns of the key, and the columns of its state.
        removed: the hashes and keys that are removed; None for none.
    """

    __slots__ = ("removed", "rows")

    def __init__(self, rows: pa.RecordBatch, removed: pa.RecordBatch | None = None) -> None:
        self.rows = rows
        self.removed = removed

    def __len__(self) -> int:
        """Return the number of keys that are set or removed."""
        return int(self.rows.num_rows) + (0 if self.removed is None else int(self.removed.num_rows))

    def part(self, groups: range, max_parallelism: int) -> RowChange:
        """Return the changes of keys in some key groups."""
        removed = None if self.removed is None else _part(self.removed, groups, max_parallelism)
        return RowChange(_part(self.rows, groups, max_parallelism), removed)

    def __repr__(self) -> str:
        removed = 0 if self.removed is None else self.removed.num_rows
        return f"<{self.rows.num_rows} keys with {', '.join(self.rows.schema.names[1:])}; {removed} removed>"


def _part(batch: pa.RecordBatch, groups: range, max_parallelism: int) -> pa.RecordBatch:
    groups_of_rows = groups_of(batch.column(0).to_numpy(), max_parallelism)
    own_part = (groups_of_rows >= groups.start) & (groups_of_rows < groups.stop)
    return batch if own_part.all() else batch.filter(pa.array(own_part))


def check_columns(change: RowChange, expected: Sequence[tuple[str, pa.DataType | None]]) -> None:
    """Raise an error if the columns of a file are not the operator's; None is any type."""
    stored = list(zip(change.rows.schema.names, change.rows.schema.types, strict=True))[1:]
    fits = len(stored) == len(expected) and all(
        name == other and (kind is None or kind == other_kind)
        for (name, kind), (other, other_kind) in zip(expected, stored, strict=True)
    )
    if not fits:
        had, has = (", ".join(f"{n} {t or ''}".rstrip() for n, t in columns) for columns in (stored, expected))
        raise InvalidProgramError(
            f"The query has changed: this operator's state has the columns ({had}), and the query needs ({has}). Start "
            "it without that state, or give the query another name for its operators."
        )


class LiveColumns(Protocol):
    """The columns of an operator."""

    def live_in(self, arrays: Arrays) -> None:
        """Create arrays there from now on; called before there are any."""

    @property
    def file_bytes(self) -> int:
        """A lower estimate of the bytes that the rows take in a file; 0 if unknown."""
        ...

    def clear(self) -> None:
        """Remove all rows."""

    def load(self, change: RowChange) -> None:
        """Apply keys of a file, without recording them as changes."""

    def all_changes(self) -> list[RowChange]:
        """Return all keys in disjoint pieces."""

    def changes(self) -> list[RowChange]:
        """Return the changes since the last call in pieces, removed keys first."""


class ColumnTable(StateTable):
    """A table whose rows an operator holds as columns.

    In savepoints, and in all files of earlier versions, a row holds the keys of a key group. In other files a row holds
    keys of all groups, in the order of their arrival, because sorting them by group costs more than writing them.
    """

    __slots__ = ("_live",)

    def __init__(self, name: str, live: LiveColumns) -> None:
        super().__init__(name, COLUMNS, BY_GROUP, {})
        self._live = live

    def collect(self) -> None:
        if changes := self._live.changes():
            # In order: a key may be in several of them.
            self.overlay[0] = (*self.overlay.get(0, ()), *changes)

    def rows(self) -> Iterator[tuple[int, Value]]:
        yield from enumerate((change,) for change in self._live.all_changes())

    def apply(self, delta: dict[int, Value]) -> None:
        # Key groups are independent: the first changes of all are loaded together, then the second.
        for changes in zip_longest(*delta.values()):
            for change in _together([c for c in changes if c is not None]):
                self._live.load(change)

    @property
    def known_bytes(self) -> int:
        return self._live.file_bytes

    def clear(self) -> None:
        self.overlay.clear()
        self._live.clear()

    def advance(self) -> None:
        # The columns have the changes already.
        self.overlay.clear()


def in_pieces(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Split row numbers so that no piece is too large for one Arrow array."""
    for start in range(0, len(rows), PIECE_ROWS):
        yield rows[start : start + PIECE_ROWS]


def by_group(changes: Sequence[RowChange], max_parallelism: int) -> dict[int, tuple[RowChange, ...]]:
    """Return the keys that changes set, by key group."""
    changes_by_group: dict[int, tuple[RowChange, ...]] = {}
    for rows in _joined([change.rows for change in changes]):
        groups = groups_of(rows.column(0).to_numpy(), max_parallelism)
        order = np.argsort(groups, kind="stable")
        rows, groups = rows.take(pa.array(order)), groups[order]
        for group in np.flatnonzero(np.bincount(groups)).tolist():
            changes_by_group[group] = (*changes_by_group.get(group, ()), RowChange(_of_group(rows, groups, group)))
    return changes_by_group


def _together(changes: list[RowChange]) -> list[RowChange]:
    """Merge changes of different key groups into few."""
    first = changes[0].rows.schema
    if len(changes) < 2 or any(c.rows.schema != first for c in changes):
        return changes
    removed = [c.removed for c in changes if c.removed is not None and c.removed.num_rows]
    if any(g.schema != removed[0].schema for g in removed):
        return changes
    joined = [RowChange(rows) for rows in _joined([c.rows for c in changes])]
    # Removed keys come before those that are set.
    return [RowChange(changes[0].rows.slice(0, 0), g) for g in _joined(removed)] + joined


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return rows in as few batches as their strings fit into."""
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []


def _of_group(batch: pa.RecordBatch, groups: NDArray[np.int64], group: int) -> pa.RecordBatch:
    start, end = np.searchsorted(groups, [group, group + 1])
    return batch.slice(int(start), int(end - start))
