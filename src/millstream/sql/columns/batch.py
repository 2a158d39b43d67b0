"""A batch: rows of a changelog as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.tags import tagged
from millstream.sql.columns.numpy_arrays import Mask, NumpyColumn

# Row kinds, with Flink's numbers; `common.types.RowKind` has the same.
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)

Kinds = NDArray[np.int8]
# Maximum rows in a batch's repr.
_SHOWN = 3


@tagged(
    "batch",
    write=lambda batch: (batch.to_ipc(), len(batch.columns), batch.kinds is not None),
    read=lambda body, width, has_kinds: Batch.from_ipc(body, width, has_kinds),
)
class Batch:
    """Some rows of a changelog, in order.

    Immutable. Records between SQL operators are batches.

    Attributes:
        columns: one array per column, all of one length.
        kinds: the row kinds; None if all rows are inserts.
    """

    __slots__ = ("_rows", "columns", "kinds")

    # Not copied before it is sent.
    never_changes: ClassVar[bool] = True

    def __init__(self, columns: Sequence[pa.Array], kinds: Kinds | None = None, rows: int | None = None) -> None:
        self.columns = tuple(columns)
        self.kinds = kinds
        # A batch without columns still has a number of rows.
        self._rows = rows if rows is not None else len(self.columns[0])

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._rows

    def __repr__(self) -> str:
        shown = [c.slice(0, _SHOWN).to_pylist() for c in self.columns]
        rows = ", ".join(map(repr, zip(*shown, strict=True)))
        return f"a batch of {self._rows} rows: {rows}{', ...' if self._rows > _SHOWN else ''}"

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        return int(sum(c.nbytes for c in self.columns)) + self._rows

    def all_kinds(self) -> Kinds:
        """Return the row kinds, also if all are inserts."""
        return np.zeros(self._rows, np.int8) if self.kinds is None else self.kinds

    def with_columns(self, columns: Sequence[pa.Array]) -> Batch:
        """Return the same rows with other columns."""
        return Batch(columns, self.kinds, self._rows)

    def take(self, rows: NumpyColumn) -> Batch:
        """Return the rows at positions, in that order."""
        positions = pa.array(rows)
        return Batch(
            [c.take(positions) for c in self.columns], None if self.kinds is None else self.kinds[rows], len(rows)
        )

    def filter(self, keep: Mask) -> Batch:
        """Return the rows for which `keep` is true."""
        if keep.all():
            return self
        mask = pa.array(keep)
        kinds = None if self.kinds is None else self.kinds[keep]
        return Batch([c.filter(mask) for c in self.columns], kinds, int(keep.sum()))

    def slice(self, start: int, stop: int) -> Batch:
        """Return the rows from `start` up to `stop`, without copying."""
        kinds = None if self.kinds is None else self.kinds[start:stop]
        return Batch([c.slice(start, stop - start) for c in self.columns], kinds, stop - start)

    @staticmethod
    def concatenated(batches: Iterable[Batch]) -> Batch:
        """Return the rows of all batches, at least one."""
        many = list(batches)
        if len(many) == 1:
            return many[0]
        kinds = None
        if any(b.kinds is not None for b in many):
            kinds = np.concatenate([b.all_kinds() for b in many])
        columns = [pa.concat_arrays(arrays) for arrays in zip(*(b.columns for b in many), strict=True)]
        return Batch(columns, kinds, sum(map(len, many)))

    def to_ipc(self) -> bytes:
        """Return an Arrow stream of one record batch: `pickle` would write the whole parent of a slice."""
        columns = list(self.columns)
        if self.kinds is not None:
            columns.append(pa.array(self.kinds))
        if not columns:
            columns.append(pa.nulls(self._rows))
        batch = pa.RecordBatch.from_arrays(columns, [str(i) for i in range(len(columns))])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @staticmethod
    def from_ipc(body: bytes | memoryview, width: int, has_kinds: bool) -> Batch:
        """Read the output of `to_ipc` for a batch of `width` columns."""
        with pa.ipc.open_stream(body) as reader:
            read = reader.read_next_batch()
        kinds = read.column(width).to_numpy() if has_kinds else None
        return Batch(read.columns[:width], kinds, read.num_rows)
