"""Sort-merge joins in batch mode: both sides are sorted by the hash of their keys and read in parallel.

Rows that do not fit into memory are on disk in sorted runs, merged while they are read, so memory is bounded however
large and skewed the inputs are. Sorting is by hash because keys of every type have one; among equal hashes the keys
themselves are compared. The rows of a hash with too many rows (a hot key) are spilled once more and read again for
each part of the other side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keys import hashes
from millstream.sql.columns.spillable_rows import SLAB_BYTES, SortedRuns, SpillableRows
from millstream.sql.operators.batch.batch_join import BatchJoinOperator
from millstream.sql.operators.batch.batch_sort import in_order
from millstream.sql.operators.join.regular_join import JoinSide
from millstream.state.spill_file import FileExtent, SpillFile

# Minimum bytes of a side's rows in memory before the complete keys among them are joined.
_IN_HAND_BYTES = 8 << 20
_BEHIND_ALL = 1 << 32


class SortMergeJoinOperator(BatchJoinOperator):
    """Joins two append-only inputs with keys."""

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._aside = self.spill_file()

    def waits(self, name: str, side: JoinSide) -> SpillableRows:
        # The hash is the last column.
        return self.spillable_rows(name, (*side.kinds, pa.uint32()), side.keys, SortedRuns(_by_last(side)))

    def add(self, side: int, batch: Batch) -> None:
        key_hashes = pa.array(hashes(self.keys_of(side, batch), len(batch)))
        self.rows[side].add(Batch([*batch.columns, key_hashes], None, len(batch)))

    def finishing(self) -> Iterator[None]:
        left, right = (_Hand(in_order(rows, _by_last(side))) for rows, side in zip(self.rows, self.sides, strict=True))
        for first, second in self._rounds(left, right):
            yield from self.met(first.read, second.read, first.size < second.size)
            self._aside.clear()
        for rows in self.rows:
            rows.clear()

    def _rounds(self, left: _Hand, right: _Hand) -> Iterator[tuple[_Aside, _Aside]]:
        """Yield rows of both sides, in groups of complete keys."""
        hands = (left, right)
        while left.fill() | right.fill():
            # There may be more rows with the last loaded hash.
            bound = min((hand.last for hand in hands if not hand.is_read), default=_BEHIND_ALL)
            is_large = all(hand.first >= bound for hand in hands)
            taken = [hand.all_of(bound) if is_large else hand.before(bound) for hand in hands]
            first, second = (
                _Aside(self._aside, len(side.kinds), rows) for side, rows in zip(self.sides, taken, strict=True)
            )
            yield first, second


def _by_last(side: JoinSide) -> list[tuple[int, bool, bool]]:
    return [(len(side.kinds), False, False)]


class _Hand:
    """Rows sorted by their last column, some of them loaded."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        # Never empty.
        self._rows: Batch | None = None
        self.is_read = False

    def fill(self) -> bool:
        """Load rows until there are enough; return whether there are any."""
        parts = [] if self._rows is None else [self._rows]
        size = sum(part.nbytes for part in parts)
        while not self.is_read and size < _IN_HAND_BYTES:
            more = next(self._batches, None)
            if more is None:
                self.is_read = True
            elif len(more):
                parts.append(more)
                size += more.nbytes
        self._rows = Batch.concatenated(parts) if parts else None
        return self._rows is not None

    @property
    def first(self) -> int:
        """The smallest loaded hash."""
        return _BEHIND_ALL if self._rows is None else self._rows.columns[-1][0].as_py()

    @property
    def last(self) -> int:
        """The greatest loaded hash."""
        assert self._rows is not None
        return self._rows.columns[-1][len(self._rows) - 1].as_py()  # type: ignore[no-any-return]

    def before(self, bound: int) -> Iterator[Batch]:
        """Yield the loaded rows with a smaller hash."""
        yield from self._until(bound, "left")

    def all_of(self, bound: int) -> Iterator[Batch]:
        """Yield all rows with the smallest hash, loaded or not."""
        while self.fill():
            yield from self._until(bound, "right")
            if self._rows is not None:
                return

    def _until(self, bound: int, side: Literal["left", "right"]) -> Iterator[Batch]:
        """Remove and yield loaded rows, without their hash."""
        rows = self._rows
        if rows is None:
            return
        count = int(np.searchsorted(rows.columns[-1].to_numpy(), bound, side))
        self._rows = rows.slice(count, len(rows)) if count < len(rows) else None
        if count:
            yield Batch([column.slice(0, count) for column in rows.columns[:-1]], None, count)


class _Aside:
    """Rows that can be read repeatedly, from disk if there are many.

    Attributes:
        size: their size in bytes.
    """

    def __init__(self, file: SpillFile, width: int, batches: Iterable[Batch]) -> None:
        self._file = file
        self._width = width
        self._places: list[FileExtent] = []
        self._parts: list[Batch] = []
        self._in_memory = self.size = 0
        for batch in batches:
            self._add(batch)

    def _add(self, batch: Batch) -> None:
        self._parts.append(batch)
        self._in_memory += batch.nbytes
        self.size += batch.nbytes
        if self._in_memory > SLAB_BYTES:
            self._places += [self._file.write(part.to_ipc()) for part in self._parts]
            self._parts, self._in_memory = [], 0

    def read(self) -> Iterator[Batch]:
        """Yield the rows."""
        for extent in self._places:
            yield Batch.from_ipc(self._file.read(extent), self._width, False)
        yield from self._parts
