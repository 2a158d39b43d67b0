"""A source of existing rows, as batches: behind `from_elements`, `from_pandas` and others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from millstream.connectors.base import Source, SourceReader, SplitAssignment, SplitEnumerator
from millstream.connectors.intervals import IntervalEnumerator, IntervalPosition, IntervalRange, IntervalReader
from millstream.sql.columns.batch import Batch
from millstream.sql.connector_contract import TableSource
from millstream.sql.expressions import Expression
from millstream.sql.schema import INSERTS, Changes

# Rows per batch by default.
BATCH_ROWS = 1 << 14


def split_batch(batch: Batch, rows: int = BATCH_ROWS) -> list[Batch]:
    """Divide a batch into batches of at most `rows` rows."""
    return [batch.slice(i, min(i + rows, len(batch))) for i in range(0, len(batch), rows)]


class _Enumerator(IntervalEnumerator):
    """Assigns batches by number; the budget counts rows."""

    def __init__(self, batches: Sequence[Batch], parallelism: int, restored: IntervalPosition | None) -> None:
        super().__init__(0, len(batches), parallelism, restored)
        self._rows = max(map(len, batches), default=1) or 1

    def poll(self, budget: int, now: float) -> SplitAssignment:
        return super().poll(max(budget // self._rows, 1), now)


class _Reader(IntervalReader):
    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches

    def read(self, split_range: IntervalRange) -> Iterator[Collection[Batch]]:
        _, start, end, _ = split_range
        for number in range(start, end):
            yield [self._batches[number]]


class BatchesSource(Source[Batch]):
    """Reads batches in order; each is a record."""

    name = "Values"

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = list(batches)

    @property
    def is_bounded(self) -> bool:
        return True

    def create_enumerator(self, parallelism: int, restored: IntervalPosition | None = None) -> SplitEnumerator:
        return _Enumerator(self._batches, parallelism, restored)

    def create_reader(self, subtask: int, parallelism: int) -> SourceReader:
        return _Reader(self._batches)


class RowsTable(TableSource):
    """Reads rows of the program.

    Args:
        names: the names of the batches' columns.
        batches: the rows.
        changes: the possible row kinds.
        subtasks: the parallelism.
    """

    def __init__(
        self,
        names: Sequence[str],
        batches: Sequence[Batch],
        changes: frozenset[Changes] = INSERTS,
        subtasks: int = 1,
    ) -> None:
        self._names = list(names)
        self._batches = list(batches)
        self.changes = changes
        self._subtasks = subtasks

    def source(
        self, columns: Sequence[str], filters: Sequence[Expression] = (), limit: int | None = None
    ) -> Source[Batch]:
        indexes = [self._names.index(c) for c in columns]
        return BatchesSource([b.with_columns([b.columns[i] for i in indexes]) for b in self._batches])

    def parallelism(self) -> int | None:
        return self._subtasks
