"""State of batch jobs that spills to disk when it outgrows memory; later rows are buffered on disk separately.

Both are partitioned into bins by the hash of the key. At the end of input the bins are processed in turn: first the
spilled state is loaded, as from a checkpoint, then the buffered rows in order of arrival. Every key thus sees the same
rows in the same order as in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, cast

import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.operators.runtime.budget import Budget
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.spillable_rows import BINS, HashBins, SpillableRows, bins_of, split_by_bin
from millstream.sql.operators.base import C, StepwiseFinishOperator
from millstream.state.array_storage import Arrays
from millstream.state.column_table import LiveColumns, RowChange, from_ipc, to_ipc
from millstream.state.spill_file import FileExtent, SpillFile

# Prefix of the names of the tables with buffered rows.
_PENDING = "waiting"


class SizedColumns(LiveColumns, Protocol):
    """State columns that know their size."""

    @property
    def nbytes(self) -> int:
        """The approximate size in bytes."""
        ...


class Overflow:
    """The state tables of an operator, and the rows that arrived after the tables were spilled."""

    def __init__(self, budget: Budget, rows: Sequence[SpillableRows]) -> None:
        """Create an empty one.

        Args:
            budget: the memory budget.
            rows: the buffered rows of each input.
        """
        self._account = budget.account(self.spill)
        self.rows = list(rows)
        self.tables: list[OverflowTable] = []
        # True while bins are processed: nothing is spilled again.
        self._is_draining = False

    @property
    def is_full(self) -> bool:
        """Whether new rows must be buffered."""
        return any(table.is_on_disk for table in self.tables) or any(len(rows) for rows in self.rows)

    def must_spill(self, index: int, batch: Batch) -> bool:
        """Buffer rows of an input if the state is on disk; return whether they were buffered."""
        if self.is_full:
            self.rows[index].add(batch)
            return True
        return False

    def loaded(self) -> None:
        """Account for tables that were restored."""
        self._is_draining = False
        self.grew()

    def grew(self) -> None:
        """Account for rows added to the tables."""
        if not self._is_draining:
            self._account.set_used(sum(table.live.nbytes for table in self.tables))

    def spill(self) -> None:
        """Move the tables to disk."""
        if self._is_draining:
            return
        for table in self.tables:
            table.spill()
        self._account.set_used(0)

    def bins(self, take: Callable[[int, Batch], None]) -> Iterator[None]:
        """Complete the tables bin by bin; each step begins when the tables hold the complete state of a bin.

        Args:
            take: processes a batch of an input.
        """
        if not self.is_full:
            self._is_draining = True
            yield
        else:
            self.spill()
            self._is_draining = True
            for rows in self.rows:
                rows.spill()
            for number in range(BINS):
                for table in self.tables:
                    table.load_bin(number)
                for index, rows in enumerate(self.rows):
                    for batch in rows.of(number):
                        take(index, batch)
                yield
                for table in self.tables:
                    table.live.clear()
        self.clear()

    def clear(self) -> None:
        """Discard everything after the last bin."""
        for table in self.tables:
            table.clear()
        for rows in self.rows:
            rows.clear()
        self._account.used = 0


class OverflowTable:
    """State columns that are entirely in memory or entirely on disk; implements `LiveColumns`."""

    def __init__(self, live: SizedColumns, file: SpillFile) -> None:
        self.live = live
        self._file = file
        self._extents: dict[int, list[FileExtent]] = {}
        # Changes that were not yet checkpointed when the columns were spilled.
        self._unsaved: list[FileExtent] = []

    @property
    def is_on_disk(self) -> bool:
        """Whether the columns are on disk."""
        return bool(self._extents)

    def spill(self) -> None:
        """Move all columns to disk."""
        self._unsaved += [self._write(change.rows) for change in self.live.changes()]
        for rows in (change.rows for change in self.live.all_changes()):
            whole = Batch(rows.columns, None, rows.num_rows)
            for number, part in split_by_bin(whole, bins_of(rows.column(0).to_numpy())):
                extent = self._write(pa.RecordBatch.from_arrays(list(part.columns), schema=rows.schema))
                self._extents.setdefault(number, []).append(extent)
        self.live.clear()

    def load_bin(self, number: int) -> None:
        """Load the state of a bin into memory."""
        for extent in self._extents.get(number, ()):
            self.live.load(RowChange(self._read(extent)))

    def _write(self, rows: pa.RecordBatch) -> FileExtent:
        return self._file.write(to_ipc(rows))

    def _read(self, extent: FileExtent) -> pa.RecordBatch:
        return from_ipc(self._file.read(extent))

    # --- checkpoints

    def live_in(self, arrays: Arrays) -> None:
        self.live.live_in(arrays)

    @property
    def file_bytes(self) -> int:
        return self.live.file_bytes + sum(size for extents in self._extents.values() for _, size in extents)

    def clear(self) -> None:
        self.live.clear()
        self._extents, self._unsaved = {}, []
        self._file.clear()

    def load(self, change: RowChange) -> None:
        self.live.load(change)

    def all_changes(self) -> list[RowChange]:
        if not self._extents:
            return self.live.all_changes()
        return [RowChange(self._read(extent)) for extents in self._extents.values() for extent in extents]

    def changes(self) -> list[RowChange]:
        if not self._unsaved:
            return self.live.changes()
        extents, self._unsaved = self._unsaved, []
        return [RowChange(self._read(extent)) for extent in extents]


class SpillingOperator(StepwiseFinishOperator):
    """An operator whose state tables may be spilled."""

    overflow: Overflow

    def may_overflow(self, setup: OperatorSetup, inputs: Sequence[tuple[Sequence[pa.DataType], Sequence[int]]]) -> None:
        """Allow state tables registered from now on to be spilled.

        Args:
            setup: the operator's setup.
            inputs: for each input its column types and key columns.
        """
        self.setup = setup
        pending = [
            self.spillable_rows(f"{_PENDING}{i}", kinds, keys, HashBins(keys)) for i, (kinds, keys) in enumerate(inputs)
        ]
        self.overflow = Overflow(setup.budget, pending)
        assert setup.state is not None
        setup.state.when_loaded(self.overflow.loaded)

    def state_table(self, name: str, columns: C) -> C:
        if name.startswith(_PENDING):
            return super().state_table(name, columns)
        # Spilling operators only register columns that know their size.
        table = OverflowTable(cast("SizedColumns", columns), self.spill_file())
        self.overflow.tables.append(table)
        super().state_table(name, table)
        return columns
