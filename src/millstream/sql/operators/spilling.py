"""State that outgrows memory, in BATCH: what there is goes to disk, and what comes from then on waits there beside it.

Both lie in bins by the hash of the key. When all has come, bin after bin is taken up again: first what was kept, as it
would be from a checkpoint, then the rows that came later, in the order in which they came. So every key has seen just
what it would have seen in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.operators.base import OperatorSetup
from millstream.operators.runtime.budget import Budget
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.spillable_rows import BINS, HashBins, SpillableRows, bins_of, parted
from millstream.sql.operators.base import StepwiseFinishOperator
from millstream.state.array_storage import Arrays
from millstream.state.column_table import LiveColumns, RowChange, from_ipc, to_ipc
from millstream.state.spill_file import Place, SpillFile

Ints = NDArray[np.int64]

# What the tables are called in which rows wait, with a number behind it.
_WAITING = "waiting"


class SizedColumns(LiveColumns, Protocol):
    """What an operator keeps, and how large it is."""

    @property
    def nbytes(self) -> int:
        """About how many bytes it takes."""
        ...


class Overflow:
    """The tables of an operator, and the rows that came when these had become too large."""

    def __init__(self, budget: Budget, rows: Sequence[SpillableRows]) -> None:
        """Make it.

        Args:
            budget: how much may be kept.
            rows: where rows of each input wait.
        """
        self._account = budget.account(self.spill)
        self.rows = list(rows)
        self.tables: list[OverflowTable] = []
        # While bins are taken up nothing goes back to disk.
        self._is_over = False

    @property
    def is_full(self) -> bool:
        """Whether rows must wait that come now."""
        return any(table.is_on_disk for table in self.tables) or any(len(rows) for rows in self.rows)

    def must_spill(self, place: int, batch: Batch) -> bool:
        """Have rows of an input wait if they must; tell whether they do."""
        if self.is_full:
            self.rows[place].add(batch)
            return True
        return False

    def loaded(self) -> None:
        """The tables were read anew."""
        self._is_over = False
        self.grew()

    def grew(self) -> None:
        """The tables have taken rows."""
        if not self._is_over:
            self._account.keeps(sum(table.live.nbytes for table in self.tables))

    def spill(self) -> None:
        """Put the tables on disk."""
        if self._is_over:
            return
        for table in self.tables:
            table.spill()
        self._account.keeps(0)

    def bins(self, take: Callable[[int, Batch], None]) -> Iterator[None]:
        """Bring the tables to their end bin after bin: a step begins when those of one are as they shall be.

        Args:
            take: has a batch of an input processed.
        """
        if not self.is_full:
            self._is_over = True
            yield
        else:
            self.spill()
            self._is_over = True
            for rows in self.rows:
                rows.spill()
            for number in range(BINS):
                for table in self.tables:
                    table.take_up(number)
                for place, rows in enumerate(self.rows):
                    for batch in rows.of(number):
                        take(place, batch)
                yield
                for table in self.tables:
                    table.live.clear()
        self.clear()

    def clear(self) -> None:
        """All was taken."""
        for table in self.tables:
            table.clear()
        for rows in self.rows:
            rows.clear()
        self._account.used = 0


class OverflowTable:
    """Columns that are in memory or, all of them, on disk; follows `LiveColumns`."""

    def __init__(self, live: SizedColumns, file: SpillFile) -> None:
        self.live = live
        self._file = file
        self._places: dict[int, list[Place]] = {}
        # What had changed when it was put on disk, that files of the state have not.
        self._unsaved: list[Place] = []

    @property
    def is_on_disk(self) -> bool:
        """Whether it is on disk."""
        return bool(self._places)

    def spill(self) -> None:
        """Put all on disk."""
        self._unsaved += [self._write(change.rows) for change in self.live.changes()]
        for rows in (change.rows for change in self.live.everything()):
            whole = Batch(rows.columns, None, rows.num_rows)
            for number, part in parted(whole, bins_of(rows.column(0).to_numpy())):
                place = self._write(pa.RecordBatch.from_arrays(list(part.columns), schema=rows.schema))
                self._places.setdefault(number, []).append(place)
        self.live.clear()

    def take_up(self, number: int) -> None:
        """Have in memory what a bin has."""
        for place in self._places.get(number, ()):
            self.live.load(RowChange(self._read(place)))

    def _write(self, rows: pa.RecordBatch) -> Place:
        return self._file.write(to_ipc(rows))

    def _read(self, place: Place) -> pa.RecordBatch:
        return from_ipc(self._file.read(place))

    # --- files of the state

    def live_in(self, arrays: Arrays) -> None:
        self.live.live_in(arrays)

    @property
    def file_bytes(self) -> int:
        return self.live.file_bytes + sum(size for places in self._places.values() for _, size in places)

    def clear(self) -> None:
        self.live.clear()
        self._places, self._unsaved = {}, []
        self._file.clear()

    def load(self, change: RowChange) -> None:
        self.live.load(change)

    def everything(self) -> list[RowChange]:
        if not self._places:
            return self.live.everything()
        return [RowChange(self._read(place)) for places in self._places.values() for place in places]

    def changes(self) -> list[RowChange]:
        if not self._unsaved:
            return self.live.changes()
        places, self._unsaved = self._unsaved, []
        return [RowChange(self._read(place)) for place in places]


class SpillingOperator(StepwiseFinishOperator):
    """An operator whose tables may be put on disk."""

    overflow: Overflow

    def may_overflow(self, setup: OperatorSetup, inputs: Sequence[tuple[Sequence[pa.DataType], Sequence[int]]]) -> None:
        """Have tables that are kept from here on put on disk when they are too large.

        Args:
            setup: what the operator was handed.
            inputs: of each input the types of its columns, and which of them are the key.
        """
        self.setup = setup
        waiting = [
            self.spillable_rows(f"{_WAITING}{i}", kinds, keys, HashBins(keys)) for i, (kinds, keys) in enumerate(inputs)
        ]
        self.overflow = Overflow(setup.budget, waiting)
        assert setup.state is not None
        setup.state.when_loaded(self.overflow.loaded)

    def state_table(self, name: str, columns: Any) -> Any:
        if name.startswith(_WAITING):
            return super().state_table(name, columns)
        table = OverflowTable(columns, self.spill_file())
        self.overflow.tables.append(table)
        super().state_table(name, table)
        return columns
