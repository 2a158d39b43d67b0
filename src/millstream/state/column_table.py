"""A table of state whose rows an operator has as columns in memory.

The operator keeps them in the form that it works with (`LiveColumns`); here is only what they look like in files: for
each key group what was set and removed, as Arrow. With every key goes its hash, so that they can be parted by vectors
for any parallelism.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged
from millstream.state.array_storage import Arrays
from millstream.state.kinds import COLUMNS
from millstream.state.table import BY_GROUP, StateTable
from millstream.state.vector_key_groups import groups_of

# The column with the hashes of keys.
HASH = "hash"
# So many rows are in a piece of a table at most: the texts of one have room for two gigabytes.
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
    return to_ipc(change.rows), None if change.gone is None else to_ipc(change.gone)


def _read(rows: bytes, gone: bytes | None) -> RowChange:
    return RowChange(from_ipc(rows), None if gone is None else from_ipc(gone))


@tagged("changed-rows", write=_written, read=_read)
class RowChange:
    """Keys that are removed, then keys that are set.

    Attributes:
        rows: a column of hashes, the columns of the key, and those of what it has.
        gone: the hashes and keys that are removed; None for none.
    """

    __slots__ = ("gone", "rows")

    def __init__(self, rows: pa.RecordBatch, gone: pa.RecordBatch | None = None) -> None:
        self.rows = rows
        self.gone = gone

    def __len__(self) -> int:
        """Return how many keys it says something of."""
        return int(self.rows.num_rows) + (0 if self.gone is None else int(self.gone.num_rows))

    def part(self, groups: range, max_parallelism: int) -> RowChange:
        """Return what it says of keys in some key groups."""
        gone = None if self.gone is None else _part(self.gone, groups, max_parallelism)
        return RowChange(_part(self.rows, groups, max_parallelism), gone)

    def __repr__(self) -> str:
        gone = 0 if self.gone is None else self.gone.num_rows
        return f"<{self.rows.num_rows} keys with {', '.join(self.rows.schema.names[1:])}; {gone} removed>"


def _part(batch: pa.RecordBatch, groups: range, max_parallelism: int) -> pa.RecordBatch:
    found = groups_of(batch.column(0).to_numpy(), max_parallelism)
    mine = (found >= groups.start) & (found < groups.stop)
    return batch if mine.all() else batch.filter(pa.array(mine))


def check_columns(change: RowChange, wanted: Sequence[tuple[str, pa.DataType | None]]) -> None:
    """Refuse what a file says where the operator has other columns now; None is any type."""
    found = list(zip(change.rows.schema.names, change.rows.schema.types, strict=True))[1:]
    fits = len(found) == len(wanted) and all(
        name == other and (kind is None or kind == other_kind)
        for (name, kind), (other, other_kind) in zip(wanted, found, strict=True)
    )
    if not fits:
        had, has = (", ".join(f"{n} {t or ''}".rstrip() for n, t in columns) for columns in (found, wanted))
        raise InvalidProgramError(
            f"The query has changed: this operator's state was kept as ({had}), and is ({has}) now. Start it without "
            "that state, or give the query another name for its operators."
        )


class LiveColumns(Protocol):
    """What an operator keeps as columns."""

    def live_in(self, arrays: Arrays) -> None:
        """Have arrays made there from now on; nothing is kept yet."""

    @property
    def file_bytes(self) -> int:
        """About how many bytes its rows take in a file, where that is known; it may be fewer."""
        ...

    def clear(self) -> None:
        """Forget everything."""

    def load(self, change: RowChange) -> None:
        """Take what a file says of some keys; it is no change."""

    def everything(self) -> list[RowChange]:
        """Return all keys, in pieces of which each has other keys."""

    def changes(self) -> list[RowChange]:
        """Return what has changed since this was last asked: what is removed first, then what is set, in pieces."""


class ColumnTable(StateTable):
    """The rows of a table that is kept as columns, which are not held here.

    Rows are addressed by key group: in files of savepoints, and in all files of versions before. In others a row has
    keys of all groups, as they have come, since to put them in the order of their groups costs more than to write them.
    """

    __slots__ = ("_live",)

    def __init__(self, name: str, live: LiveColumns) -> None:
        super().__init__(name, COLUMNS, BY_GROUP, {})
        self._live = live

    def collect(self) -> None:
        if found := self._live.changes():
            # One after the other: a key may be in several of them.
            self.overlay[0] = (*self.overlay.get(0, ()), *found)

    def rows(self) -> Iterator[tuple[Any, Any]]:
        yield from enumerate((change,) for change in self._live.everything())

    def apply(self, delta: dict[Any, Any]) -> None:
        # Key groups know nothing of each other: what is first in each is loaded at once, then what is second.
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
        # What it says is in the columns already.
        self.overlay.clear()


def in_pieces(rows: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut numbers of rows so that no piece is too large to be put together."""
    for start in range(0, len(rows), PIECE_ROWS):
        yield rows[start : start + PIECE_ROWS]


def by_group(changes: Sequence[RowChange], max_parallelism: int) -> dict[int, tuple[RowChange, ...]]:
    """Return what changes set, by key group."""
    found: dict[int, tuple[RowChange, ...]] = {}
    for rows in _joined([change.rows for change in changes]):
        groups = groups_of(rows.column(0).to_numpy(), max_parallelism)
        order = np.argsort(groups, kind="stable")
        rows, groups = rows.take(pa.array(order)), groups[order]
        for group in np.flatnonzero(np.bincount(groups)).tolist():
            found[group] = (*found.get(group, ()), RowChange(_of_group(rows, groups, group)))
    return found


def _together(changes: list[RowChange]) -> list[RowChange]:
    """Return what changes of different key groups say as few changes."""
    first = changes[0].rows.schema
    if len(changes) < 2 or any(c.rows.schema != first for c in changes):
        return changes
    gone = [c.gone for c in changes if c.gone is not None and c.gone.num_rows]
    if any(g.schema != gone[0].schema for g in gone):
        return changes
    found = [RowChange(rows) for rows in _joined([c.rows for c in changes])]
    # What is removed comes before what is set.
    return [RowChange(changes[0].rows.slice(0, 0), g) for g in _joined(gone)] + found


def _joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return rows in as few batches as have room for their texts."""
    return pa.Table.from_batches(batches).combine_chunks().to_batches() if batches else []


def _of_group(batch: pa.RecordBatch, groups: NDArray[np.int64], group: int) -> pa.RecordBatch:
    start, end = np.searchsorted(groups, [group, group + 1])
    return batch.slice(int(start), int(end - start))
