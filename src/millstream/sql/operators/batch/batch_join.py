"""Hash joins in batch mode, at the end of both inputs.

Rows that do not fit into memory are on disk, in bins by the hash of their key; the bins are joined in turn. If the
probe side of a bin does not fit into memory (a hot key, or no key), the other side is read again for each part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.numpy_arrays import Ints, Mask
from millstream.sql.columns.spillable_rows import BINS, SLAB_BYTES, HashBins, SpillableRows, slabs
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import condition
from millstream.sql.operators.base import EvaluatingOperator, StepwiseFinishOperator
from millstream.sql.operators.join.pairing import Matches, can_match, side_by_side
from millstream.sql.operators.join.regular_join import JoinSide
from millstream.sql.operators.query_context import Session
from millstream.sql.plan.specs import JoinKind

_LEFT, _RIGHT = 0, 1
# Maximum pairs processed and emitted at once.
_AT_ONCE = 1 << 16
# Maximum bytes of rows that probe at once.
_CHUNK_BYTES = 4 * SLAB_BYTES
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
        self.rows = [self.waits(name, side) for name, side in zip(("left", "right"), self.sides, strict=True)]

    def waits(self, name: str, side: JoinSide) -> SpillableRows:
        """Return the buffer for the rows of a side."""
        return self.spillable_rows(name, side.kinds, side.keys, HashBins(side.keys))

    def open(self) -> None:
        self._holds = None if self.condition is None else condition(self.condition, self.context)

    def process_left(self, batch: Batch) -> Iterable[Batch]:
        return self._wait(batch, _LEFT, self.kind in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI))

    def process_right(self, batch: Batch) -> Iterable[Batch]:
        return self._wait(batch, _RIGHT, self.kind in (JoinKind.RIGHT, JoinKind.FULL))

    def _wait(self, batch: Batch, side: int, is_outer: bool) -> Iterable[Batch]:
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
                yield from self.met(self._reads(left, number), self._reads(right, number), self._builds_left(number))
        else:
            builds_left = left.size < right.size
            yield from self.met(left.in_memory, right.in_memory, builds_left)
        left.clear()
        right.clear()

    def _reads(self, rows: SpillableRows, number: int) -> Read:
        return lambda: rows.of(number)

    def _builds_left(self, number: int) -> bool:
        left, right = (rows.size_of(number) for rows in self.rows)
        return left < right

    def met(self, left: Read, right: Read, left_is_smaller: bool) -> Iterator[None]:
        """Emit the join of rows, in steps."""
        if self.kind is JoinKind.RIGHT or (self.kind is JoinKind.INNER and left_is_smaller):
            meeting = Meeting(self, _RIGHT, right, left)
        else:
            meeting = Meeting(self, _LEFT, left, right)
        for batch in meeting.results():
            self.emit([batch])
            yield

    def pairs(self, asking: int, mine: Batch, places: Ints, theirs: Batch, rows: Ints) -> Batch:
        """Return pairs of rows with the left columns first, whichever side probes."""
        if asking == _LEFT:
            return side_by_side(mine, places, theirs, rows)
        return side_by_side(theirs, rows, mine, places)

    def keys_of(self, side: int, rows: Batch) -> list[pa.Array]:
        """Return the key columns of rows of a side."""
        return [rows.columns[k] for k in self.sides[side].keys]

    def holding(self, pairs: Batch) -> Mask | None:
        """Return which pairs fulfil the condition; None for all."""
        return None if self._holds is None else self._holds(pairs)


class Meeting:
    """Joins probe rows of one side with rows of the other, in parts of both."""

    def __init__(self, join: BatchJoinOperator, asking: int, mine: Read, theirs: Read) -> None:
        self._join = join
        self._kind = join.kind
        self._asking = asking
        self._mine = mine
        self._theirs = theirs
        self._is_semi = join.kind in (JoinKind.SEMI, JoinKind.ANTI)
        self._is_outer = join.kind in (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL)
        # Which rows have matched, for each part of the probe side.
        self._had: list[Mask] = []

    def results(self) -> Iterator[Batch]:
        """Yield the joined rows."""
        chunks = slabs(self._theirs(), _CHUNK_BYTES)
        theirs: Batch | None = next(chunks, self._no_rows(1 - self._asking))
        while theirs is not None:
            following = next(chunks, None)
            met = np.zeros(len(theirs), np.bool_)
            for number, mine in enumerate(slabs(self._mine(), SLAB_BYTES)):
                if number == len(self._had):
                    self._had.append(np.zeros(len(mine), np.bool_))
                yield from self._part(mine, self._had[number], theirs, met)
                if following is None:
                    yield from self._over(mine, self._had[number])
            if self._kind is JoinKind.FULL:
                yield from self._alone(np.flatnonzero(~met), partial(self._behind, theirs))
            theirs = following

    def _over(self, mine: Batch, had: Mask) -> Iterator[Batch]:
        """Yield the output for probe rows that have seen all rows of the other side."""
        if self._is_semi:
            yield from self._alone(np.flatnonzero(had != (self._kind is JoinKind.ANTI)), mine.take)
        elif self._is_outer:
            yield from self._alone(np.flatnonzero(~had), partial(self._before, mine))

    def _part(self, mine: Batch, had: Mask, theirs: Batch, met: Mask) -> Iterator[Batch]:
        join, asking = self._join, self._asking
        keys = join.keys_of(asking, mine), join.keys_of(1 - asking, theirs)
        matches = Matches(*keys, join.null_safe, (len(mine), len(theirs)))
        if self._is_semi and join.condition is None:
            had |= matches.many > 0
            return
        for places, rows in matches.pairs(_AT_ONCE):
            pairs = join.pairs(asking, mine, places, theirs, rows)
            holds = join.holding(pairs)
            if holds is not None and not holds.all():
                pairs, places, rows = pairs.filter(holds), places[holds], rows[holds]
            had[places] = True
            met[rows] = True
            if len(pairs) and not self._is_semi:
                yield pairs

    def _alone(self, rows: Ints, padded: Callable[[Ints], Batch]) -> Iterator[Batch]:
        for start in range(0, len(rows), _AT_ONCE):
            yield padded(rows[start : start + _AT_ONCE])

    def _before(self, mine: Batch, rows: Ints) -> Batch:
        """Return unmatched probe rows."""
        return self._join.pairs(self._asking, mine, rows, self._no_rows(1 - self._asking), np.full(len(rows), -1))

    def _behind(self, theirs: Batch, rows: Ints) -> Batch:
        """Return unmatched rows of the other side."""
        return self._join.pairs(self._asking, self._no_rows(self._asking), np.full(len(rows), -1), theirs, rows)

    def _no_rows(self, side: int) -> Batch:
        return Batch([pa.array([], kind) for kind in self._join.sides[side].kinds], None, 0)
