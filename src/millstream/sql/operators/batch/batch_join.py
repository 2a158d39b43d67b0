"""Joins in batch mode: hash joins at the end of both inputs, and sort-merge joins.

Hash joins: rows that do not fit into memory are on disk, in bins by the hash of their key; the bins are joined in turn.
If the probe side of a bin does not fit into memory (a hot key, or no key), the other side is read again for each part
of it.

Sort-merge joins: both sides are sorted by the hash of their keys and read in parallel. Rows that do not fit into memory
are on disk in sorted runs, merged while they are read, so memory is bounded however large and skewed the inputs are.
Sorting is by hash because keys of every type have one; among equal hashes the keys themselves are compared. The rows of
a hash with too many rows (a hot key) are spilled once more and read again for each part of the other side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keys import hashes
from millstream.sql.columns.numpy_arrays import Ints, Mask
from millstream.sql.columns.spillable_rows import (
    BINS,
    SPILL_CHUNK_BYTES,
    HashBins,
    SortedRuns,
    SpillableRows,
    in_chunks,
)
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import condition
from millstream.sql.operators.base import EvaluatingOperator, StepwiseFinishOperator
from millstream.sql.operators.batch.batch_sort import in_order
from millstream.sql.operators.join.pairing import Matches, can_match, side_by_side
from millstream.sql.operators.join.regular_join import JoinSide
from millstream.sql.operators.query_context import Session
from millstream.sql.plan.specs import JoinKind
from millstream.state.spill_file import FileExtent, SpillFile

_LEFT, _RIGHT = 0, 1
# Maximum pairs processed and emitted at once.
_AT_ONCE = 1 << 16
# Maximum bytes of rows that probe at once.
_CHUNK_BYTES = 4 * SPILL_CHUNK_BYTES
# Reads rows; may be called repeatedly.
Read = Callable[[], Iterable[Batch]]


class BatchJoinOperator(EvaluatingOperator, StepwiseFinishOperator):
    """Joins two append-only inputs."""

    inputs = 2

    def __init__(
        self,
        kind: JoinKind,
        left: JoinSide,
        right: JoinSide,
        null_safe: Sequence[bool],
        condition: Expression | None,
        session: Session,
    ) -> None:
        """Create the operator.

        Args:
            kind: the kind of join.
            left, right: the inputs.
            null_safe: for each pair of keys whether nulls are equal.
            condition: a further condition on the columns of both; None for none.
            session: the session settings.
        """
        self.kind = kind
        self.sides = (left, right)
        self.null_safe = tuple(null_safe) or (False,) * len(left.keys)
        self.condition = condition
        self.session = session

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self.rows = [self.row_buffer(name, side) for name, side in zip(("left", "right"), self.sides, strict=True)]

    def row_buffer(self, name: str, side: JoinSide) -> SpillableRows:
        """Return the buffer for the rows of a side."""
        return self.spillable_rows(name, side.kinds, side.keys, HashBins(side.keys))

    def open(self) -> None:
        self._holds = None if self.condition is None else condition(self.condition, self.context)

    def process_left(self, batch: Batch) -> Iterable[Batch]:
        return self._buffer(batch, _LEFT, self.kind in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI))

    def process_right(self, batch: Batch) -> Iterable[Batch]:
        return self._buffer(batch, _RIGHT, self.kind in (JoinKind.RIGHT, JoinKind.FULL))

    def _buffer(self, batch: Batch, side: int, is_outer: bool) -> Iterable[Batch]:
        if not is_outer:
            # A row that can never match is not buffered.
            columns = [batch.columns[k] for k in self.sides[side].keys]
            batch = batch.filter(can_match(columns, self.null_safe, len(batch)))
        if len(batch):
            self.add(side, batch)
        return ()

    def add(self, side: int, batch: Batch) -> None:
        """Buffer rows of a side."""
        self.rows[side].add(batch)

    # --- end of input

    def finishing(self) -> Iterator[None]:
        left, right = self.rows
        if left.is_on_disk or right.is_on_disk:
            for rows in (left, right):
                rows.spill()
            for number in range(BINS):
                yield from self.join_rows(
                    self._reads(left, number), self._reads(right, number), self._builds_left(number)
                )
        else:
            builds_left = left.size < right.size
            yield from self.join_rows(left.in_memory, right.in_memory, builds_left)
        left.clear()
        right.clear()

    def _reads(self, rows: SpillableRows, number: int) -> Read:
        return lambda: rows.of(number)

    def _builds_left(self, number: int) -> bool:
        left, right = (rows.size_of(number) for rows in self.rows)
        return left < right

    def join_rows(self, left: Read, right: Read, left_is_smaller: bool) -> Iterator[None]:
        """Emit the join of rows, in steps."""
        if self.kind is JoinKind.RIGHT or (self.kind is JoinKind.INNER and left_is_smaller):
            join = ProbeBuildJoin(self, _RIGHT, right, left)
        else:
            join = ProbeBuildJoin(self, _LEFT, left, right)
        for batch in join.results():
            self.emit([batch])
            yield

    def pairs(self, probe_side: int, probe: Batch, probe_rows: Ints, build: Batch, build_rows: Ints) -> Batch:
        """Return pairs of rows with the left columns first, whichever side probes."""
        if probe_side == _LEFT:
            return side_by_side(probe, probe_rows, build, build_rows)
        return side_by_side(build, build_rows, probe, probe_rows)

    def keys_of(self, side: int, rows: Batch) -> list[pa.Array]:
        """Return the key columns of rows of a side."""
        return [rows.columns[k] for k in self.sides[side].keys]

    def fulfilling(self, pairs: Batch) -> Mask | None:
        """Return which pairs fulfil the condition; None for all."""
        return None if self._holds is None else self._holds(pairs)


class ProbeBuildJoin:
    """Joins probe rows of one side with rows of the other, in parts of both."""

    def __init__(self, join: BatchJoinOperator, probe_side: int, probe: Read, build: Read) -> None:
        self._join = join
        self._kind = join.kind
        self._probe_side = probe_side
        self._probe = probe
        self._build = build
        self._is_semi = join.kind in (JoinKind.SEMI, JoinKind.ANTI)
        self._is_outer = join.kind in (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)
        # Which rows have matched, for each part of the probe side.
        self._probe_matched: list[Mask] = []

    def results(self) -> Iterator[Batch]:
        """Yield the joined rows."""
        chunks = in_chunks(self._build(), _CHUNK_BYTES)
        build: Batch | None = next(chunks, self._no_rows(1 - self._probe_side))
        while build is not None:
            following = next(chunks, None)
            build_matched = np.zeros(len(build), np.bool_)
            for number, probe in enumerate(in_chunks(self._probe(), SPILL_CHUNK_BYTES)):
                if number == len(self._probe_matched):
                    self._probe_matched.append(np.zeros(len(probe), np.bool_))
                yield from self._join_part(probe, self._probe_matched[number], build, build_matched)
                if following is None:
                    yield from self._finish_probe(probe, self._probe_matched[number])
            if self._kind is JoinKind.FULL:
                yield from self._in_parts(np.flatnonzero(~build_matched), partial(self._unmatched_build, build))
            build = following

    def _finish_probe(self, probe: Batch, probe_matched: Mask) -> Iterator[Batch]:
        """Yield the output for probe rows that have seen all rows of the other side."""
        if self._is_semi:
            yield from self._in_parts(np.flatnonzero(probe_matched != (self._kind is JoinKind.ANTI)), probe.take)
        elif self._is_outer:
            yield from self._in_parts(np.flatnonzero(~probe_matched), partial(self._unmatched_probe, probe))

    def _join_part(self, probe: Batch, probe_matched: Mask, build: Batch, build_matched: Mask) -> Iterator[Batch]:
        join, probe_side = self._join, self._probe_side
        keys = join.keys_of(probe_side, probe), join.keys_of(1 - probe_side, build)
        matches = Matches(*keys, join.null_safe, (len(probe), len(build)))
        if self._is_semi and join.condition is None:
            probe_matched |= matches.match_counts > 0
            return
        for probe_rows, build_rows in matches.pairs(_AT_ONCE):
            pairs = join.pairs(probe_side, probe, probe_rows, build, build_rows)
            holds = join.fulfilling(pairs)
            if holds is not None and not holds.all():
                pairs, probe_rows, build_rows = pairs.filter(holds), probe_rows[holds], build_rows[holds]
            probe_matched[probe_rows] = True
            build_matched[build_rows] = True
            if len(pairs) and not self._is_semi:
                yield pairs

    def _in_parts(self, rows: Ints, batch_of: Callable[[Ints], Batch]) -> Iterator[Batch]:
        for start in range(0, len(rows), _AT_ONCE):
            yield batch_of(rows[start : start + _AT_ONCE])

    def _unmatched_probe(self, probe: Batch, rows: Ints) -> Batch:
        """Return unmatched probe rows."""
        return self._join.pairs(
            self._probe_side, probe, rows, self._no_rows(1 - self._probe_side), np.full(len(rows), -1)
        )

    def _unmatched_build(self, build: Batch, rows: Ints) -> Batch:
        """Return unmatched rows of the other side."""
        return self._join.pairs(self._probe_side, self._no_rows(self._probe_side), np.full(len(rows), -1), build, rows)

    def _no_rows(self, side: int) -> Batch:
        return Batch([pa.array([], kind) for kind in self._join.sides[side].kinds], None, 0)


# Minimum bytes of a side's rows in memory before the complete keys among them are joined.
_MIN_LOADED_BYTES = 8 << 20
_AFTER_ALL_HASHES = 1 << 32


class SortMergeJoinOperator(BatchJoinOperator):
    """Joins two append-only inputs with keys."""

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        self._spill_file = self.spill_file()

    def row_buffer(self, name: str, side: JoinSide) -> SpillableRows:
        # The hash is the last column.
        return self.spillable_rows(name, (*side.kinds, pa.uint32()), side.keys, SortedRuns(_by_last(side)))

    def add(self, side: int, batch: Batch) -> None:
        key_hashes = pa.array(hashes(self.keys_of(side, batch), len(batch)))
        self.rows[side].add(Batch([*batch.columns, key_hashes], None, len(batch)))

    def finishing(self) -> Iterator[None]:
        left, right = (
            _SortedInput(in_order(rows, _by_last(side))) for rows, side in zip(self.rows, self.sides, strict=True)
        )
        for first, second in self._rounds(left, right):
            yield from self.join_rows(first.read, second.read, first.size < second.size)
            self._spill_file.clear()
        for rows in self.rows:
            rows.clear()

    def _rounds(self, left: _SortedInput, right: _SortedInput) -> Iterator[tuple[_SpillableGroup, _SpillableGroup]]:
        """Yield rows of both sides, in groups of complete keys."""
        both = (left, right)
        while left.fill() | right.fill():
            # There may be more rows with the last loaded hash.
            bound = min((rows.last for rows in both if not rows.is_read), default=_AFTER_ALL_HASHES)
            is_large = all(rows.first >= bound for rows in both)
            taken = [rows.all_of(bound) if is_large else rows.before(bound) for rows in both]
            first, second = (
                _SpillableGroup(self._spill_file, len(side.kinds), rows)
                for side, rows in zip(self.sides, taken, strict=True)
            )
            yield first, second


def _by_last(side: JoinSide) -> list[tuple[int, bool, bool]]:
    return [(len(side.kinds), False, False)]


class _SortedInput:
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
        while not self.is_read and size < _MIN_LOADED_BYTES:
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
        return _AFTER_ALL_HASHES if self._rows is None else self._rows.columns[-1][0].as_py()

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


class _SpillableGroup:
    """Rows that can be read repeatedly, from disk if there are many.

    Attributes:
        size: their size in bytes.
    """

    def __init__(self, file: SpillFile, width: int, batches: Iterable[Batch]) -> None:
        self._file = file
        self._width = width
        self._extents: list[FileExtent] = []
        self._parts: list[Batch] = []
        self._in_memory = self.size = 0
        for batch in batches:
            self._add(batch)

    def _add(self, batch: Batch) -> None:
        self._parts.append(batch)
        self._in_memory += batch.nbytes
        self.size += batch.nbytes
        if self._in_memory > SPILL_CHUNK_BYTES:
            self._extents += [self._file.write(part.to_ipc()) for part in self._parts]
            self._parts, self._in_memory = [], 0

    def read(self) -> Iterator[Batch]:
        """Yield the rows."""
        for extent in self._extents:
            yield Batch.from_ipc(self._file.read(extent), self._width, False)
        yield from self._parts
