"""Base classes of SQL operators: records are batches, state is columns. Also the partitioner of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from functools import cached_property
from random import Random
from typing import TypeVar

import numpy as np
import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import Downstream, Operator, OperatorSetup
from millstream.operators.codegen.code_writer import CodeWriter, Key, Var
from millstream.operators.runtime.blocks import Block
from millstream.operators.runtime.partitioners import Append, Partitioner, PartitionerContext
from millstream.sql.columns.batch import Batch, Kinds
from millstream.sql.columns.keys import hashes, stable_order
from millstream.sql.columns.numpy_arrays import Ints
from millstream.sql.columns.spillable_rows import RowLayout, SpillableRows
from millstream.sql.expressions import AggregateCall
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.operators.query_context import Session
from millstream.state.column_table import ColumnTable, LiveColumns
from millstream.state.kinds import COLUMNS
from millstream.state.spill_file import SpillFile
from millstream.state.vector_key_groups import groups_of

C = TypeVar("C", bound=LiveColumns)

# Rows per batch when an operator emits buffered rows.
BATCH_ROWS = 1 << 14


class BatchOperator(Operator):
    """An operator that takes and emits batches.

    Subclasses implement `process`, or `process_left` and `process_right` if they have two inputs. Output outside the
    processing loop (timers, watermarks) goes through `emit`.
    """

    identity = "sql"

    takes_batches = True
    emits_batches = True
    drops_timestamps = True

    def code(self, w: CodeWriter, input_index: int, value: Var, key: Key | None, downstream: Downstream) -> None:
        name = "process" if self.inputs < 2 else ("process_left", "process_right")[input_index]
        out = w.var("b")
        text = f"for {out} in {w.bind(getattr(self, name), name)}({value.name}):"
        with w.block(text, self, value.name), w.block(f"if len({out}):"):
            downstream(Var(out, None, detached=True))

    def process(self, batch: Batch) -> Iterable[Batch]:
        """Return the output of a batch."""
        raise NotImplementedError

    def process_left(self, batch: Batch) -> Iterable[Batch]:
        """Return the output of a batch of the first input."""
        raise NotImplementedError

    def process_right(self, batch: Batch) -> Iterable[Batch]:
        """Return the output of a batch of the second input."""
        raise NotImplementedError

    def emit(self, batches: Iterable[Batch]) -> None:
        """Emit batches outside the processing loop."""
        self.setup.emit([b for b in batches if len(b)])


class EvaluatingOperator(BatchOperator):
    """An operator with expressions; it closes the user functions in them."""

    session: Session

    @cached_property
    def context(self) -> EvaluationContext:
        """The context in which its expressions are evaluated."""
        return self.session.context(self.setup, self._current_watermark)

    def _current_watermark(self) -> int | None:
        # As in Flink, CURRENT_WATERMARK is null before the first watermark.
        return self.watermark if self.watermark > MIN_WATERMARK else None

    def close(self) -> None:
        self.context.close()
        super().close()


class KeyedBatchOperator(BatchOperator):
    """An operator with keyed state in columns."""

    keyed = True
    # Its aggregate calls; user-defined ones are opened and closed with the operator.
    calls: Sequence[AggregateCall] = ()
    # Spill files, deleted on close.
    _files: Sequence[SpillFile] = ()

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        if setup.state is not None:
            setup.state.when_taken_over(self._refuse_unread)

    def _refuse_unread(self) -> None:
        """Refuse state tables of another version that this one does not read, since they would be lost."""
        assert self.setup.state is not None
        for name, table in self.setup.state.tables.items():
            if table.kind is COLUMNS and not isinstance(table, ColumnTable) and any(True for _ in table.rows()):
                raise InvalidProgramError(
                    f"This operator's state has a table {name!r}, written by another version of millstream, that this "
                    "one does not read. Start the query without that state, or with the version that wrote it."
                )

    def open(self) -> None:
        super().open()
        for call in self.calls:
            if call.user is not None:
                call.user.open(self.setup)

    def close(self) -> None:
        for file in self._files:
            file.clear()
        for call in self.calls:
            if call.user is not None:
                call.user.close()
        super().close()

    @property
    def uses_key(self) -> bool:
        # The key is in the columns.
        return False

    def rows_until(self, first: int, *states: Sized) -> Iterator[tuple[str, int, int]]:
        """Yield the number of rows pending for event time, if the earliest timestamp can be reached."""
        if MIN_WATERMARK < first < MAX_WATERMARK:
            yield "rows", sum(map(len, states)), first

    def state_table(self, name: str, columns: C) -> C:
        """Register columns as a state table; return them."""
        assert self.setup.state is not None
        self.setup.state.columns(name, columns)
        return columns

    def spillable_rows(
        self, name: str, kinds: Sequence[pa.DataType], keys: Sequence[int], layout: RowLayout
    ) -> SpillableRows:
        """Register rows buffered until the end of input as a state table; return them."""
        spillable = SpillableRows(kinds, keys, layout, self.spill_file(), self.setup.budget)
        self.state_table(name, spillable)
        return spillable

    def spill_file(self) -> SpillFile:
        """Return a new spill file; its size is reported in Flink's spill metrics."""
        file, metrics = SpillFile(self.setup.spill_directory), self.setup.context.get_metrics_group()
        self._files = [*self._files, file]
        metrics.gauge("spillInBytes", lambda: sum(f.written for f in self._files))
        metrics.gauge("numSpillFiles", lambda: sum(f.files for f in self._files))
        return file


class StepwiseFinishOperator(KeyedBatchOperator):
    """An operator that emits its results in steps at the end of input."""

    emits_later = True

    def finishing(self) -> Iterator[None]:
        raise NotImplementedError

    def finish(self) -> None:
        for _ in self.finishing():
            pass


class ColumnKeyPartitioner(Partitioner):
    """Sends rows to the subtask that owns the key group of their key columns."""

    name = "HASH"
    by_key = True
    splits = True

    def __init__(self, keys: tuple[int, ...]) -> None:
        self.keys = keys

    def _groups(self, batch: Batch, max_parallelism: int) -> Ints:
        return groups_of(hashes([batch.columns[k] for k in self.keys], len(batch)), max_parallelism)

    def sender(self, appends: list[Append], target: PartitionerContext) -> Callable[[Batch], None]:
        if len(appends) == 1:
            return appends[0]
        parallelism, max_parallelism = target.next_parallelism, target.next_max_parallelism

        def send(batch: Batch) -> None:
            owners = self._groups(batch, max_parallelism) * parallelism // max_parallelism
            ends = np.cumsum(np.bincount(owners, minlength=parallelism))
            whole = batch
            if ends[owners[0]] - (ends[owners[0] - 1] if owners[0] else 0) < len(batch):
                whole = batch.take(stable_order(owners, parallelism))
            start = 0
            for owner, end in enumerate(ends.tolist()):
                if end > start:
                    appends[owner](whole.slice(start, end))
                start = end

        return send

    def some_keys(self, block: Block, random: Random) -> list[tuple[Value, ...]]:
        keys: list[tuple[Value, ...]] = []
        for batch in block.columns()[1]:
            if self.keys and len(batch):
                row = random.randrange(len(batch))
                keys.append(tuple(batch.columns[k][row].as_py() for k in self.keys))
        return keys

    def own_part(self, batch: Batch, groups: range, max_parallelism: int) -> Batch:
        groups_of_rows = self._groups(batch, max_parallelism)
        return batch.filter((groups_of_rows >= groups.start) & (groups_of_rows < groups.stop))


def split_batches(columns: Sequence[pa.Array], rows: int, kinds: Kinds | None = None) -> Iterator[Batch]:
    """Yield rows in batches of at most `BATCH_ROWS`."""
    whole = Batch(columns, kinds, rows)
    for start in range(0, rows, BATCH_ROWS):
        yield whole.slice(start, min(start + BATCH_ROWS, rows))
