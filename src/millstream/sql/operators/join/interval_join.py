"""Interval joins: append-only joins of rows whose times are within bounds of each other.

A row is retained until no partner can arrive any more, and then, as in Flink, for half the width of the interval, so
that late rows may match. Unmatched rows of an outer side are emitted when they are discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.keyed_rows import KeyedRows
from millstream.sql.columns.numpy_arrays import Ints, plain
from millstream.sql.errors import null_rowtime
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import condition
from millstream.sql.operators.base import BATCH_ROWS, EvaluatingOperator, KeyedBatchOperator
from millstream.sql.operators.join.pairing import can_match
from millstream.sql.operators.join.regular_join import JoinSide
from millstream.sql.operators.query_context import Session
from millstream.sql.plan.specs import JoinKind

_LEFT, _RIGHT = 0, 1
_EMITTED = 1


class IntervalJoinOperator(EvaluatingOperator, KeyedBatchOperator):
    """Joins two inputs within time bounds."""

    inputs = 2
    emits_later = True

    def __init__(
        self,
        kind: JoinKind,
        left: JoinSide,
        right: JoinSide,
        times: tuple[int, int] | None,
        lower: int,
        upper: int,
        null_safe: Sequence[bool],
        condition: Expression | None,
        session: Session,
    ) -> None:
        """Create the operator.

        Args:
            kind: the kind of join.
            left, right: the inputs.
            times: the rowtime columns of both sides; None for processing time.
            lower, upper: the right time is at least left time + lower, at most left time + upper, in milliseconds.
            null_safe: for each pair of keys whether nulls are equal.
            condition: a further condition on the columns of both; None for none.
            session: the session settings.
        """
        self.kind = kind
        self.sides = (left, right)
        self.times = times
        # Bounds of the other side's time relative to a row's.
        self.bounds = ((lower, upper), (-upper, -lower))
        self.null_safe = tuple(null_safe)
        self.condition = condition
        self.session = session
        full = kind is JoinKind.FULL
        self.outer = (kind is JoinKind.LEFT or full, kind is JoinKind.RIGHT or full)
        self.slack = max(upper - lower, 0) // 2

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        # The time follows a row's columns; the mark is whether it has matched.
        self._rows: list[KeyedRows] = [
            self.state_table(name, KeyedRows([*side.kinds, pa.int64()], side.keys))
            for name, side in zip(("left", "right"), self.sides, strict=True)
        ]
        assert setup.state is not None
        setup.state.when_loaded(self._schedule_timer)
        self._next = MAX_WATERMARK

    def open(self) -> None:
        self._holds = None if self.condition is None else condition(self.condition, self.context)

    def starved_inputs(self) -> Iterable[tuple[int, int]]:
        counts = [len(rows) for rows in self._rows]
        for side in (_LEFT, _RIGHT):
            # Unmatched rows of an outer side also depend on time.
            if counts[1 - side] and not counts[side] and not self.outer[1 - side]:
                yield side, counts[1 - side]

    def event_time_backlog(self) -> Iterable[tuple[str, int, int]]:
        if self.times is not None and any(self.outer):
            outer_rows = [rows for rows, outer in zip(self._rows, self.outer, strict=True) if outer]
            yield from self.rows_until(self._next, *outer_rows)

    # --- rows

    def process_left(self, batch: Batch) -> Iterable[Batch]:
        return self._process(batch, _LEFT)

    def process_right(self, batch: Batch) -> Iterable[Batch]:
        return self._process(batch, _RIGHT)

    def _process(self, batch: Batch, side: int) -> Iterator[Batch]:
        other = self._rows[1 - side]
        times = self._times_of(batch, side)
        keys = [batch.columns[k] for k in self.sides[side].keys]
        has_key = can_match(keys, self.null_safe, len(batch))
        batch_rows, rows = other.pairs(np.where(has_key, other.find(keys, len(batch)), -1))
        if len(batch_rows):
            other_times = plain(other.take(len(self.sides[1 - side].kinds), rows))
            low, high = self.bounds[side]
            distance = other_times - times[batch_rows]
            in_bounds = (distance >= low) & (distance <= high)
            batch_rows, rows = batch_rows[in_bounds], rows[in_bounds]
        pairs = [self._paired(batch, side, batch_rows, rows, start) for start in range(0, len(batch_rows), BATCH_ROWS)]
        if self._holds is not None and pairs:
            masks = [self._holds(part) for part in pairs]
            pairs = [part.filter(keep) for part, keep in zip(pairs, masks, strict=True)]
            keep = np.concatenate(masks)
            batch_rows, rows = batch_rows[keep], rows[keep]
        yield from pairs
        if self.outer[1 - side] and len(rows):
            new = np.unique(rows[other.marks[rows] != _EMITTED])
            other.marks[new] = _EMITTED
            other.changed(new)
        yield from self._retain(batch, side, times, np.bincount(batch_rows, minlength=len(batch)) > 0)

    def _times_of(self, batch: Batch, side: int) -> Ints:
        if self.times is None:
            return np.full(len(batch), self.setup.clock(), np.int64)
        column = batch.columns[self.times[side]]
        if column.null_count:
            raise null_rowtime()
        return plain(column.cast(pa.timestamp("ms", column.type.tz), safe=False)).astype(np.int64)

    def _now(self) -> int:
        return self.setup.clock() if self.times is None else self.watermark

    def _paired(self, batch: Batch, side: int, batch_rows: Ints, rows: Ints, start: int) -> Batch:
        positions, other_rows = pa.array(batch_rows[start : start + BATCH_ROWS]), rows[start : start + BATCH_ROWS]
        own_columns = [c.take(positions) for c in batch.columns]
        other_columns = self._rows[1 - side].take_all(range(len(self.sides[1 - side].kinds)), other_rows)
        return Batch(
            [*own_columns, *other_columns] if side == _LEFT else [*other_columns, *own_columns], None, len(positions)
        )

    def _retain(self, batch: Batch, side: int, times: Ints, has_matched: np.ndarray) -> Iterator[Batch]:
        """Retain rows that may still match; yield unmatched ones that cannot."""
        own_rows, expected = self._rows[side], times + self.bounds[side][1] > self._now()
        if self.outer[side] and not expected.all():
            yield self._padded(batch.filter(~expected & ~has_matched).columns, side)
        if not expected.any():
            return
        own_rows.compact()
        retained = batch.filter(expected)
        keys = own_rows.find_or_add([retained.columns[k] for k in self.sides[side].keys], len(retained))
        columns = [*retained.columns, pa.array(times[expected])]
        own_rows.add(keys, columns, np.where(has_matched[expected], _EMITTED, 0))
        self._next = min(self._next, int(times[expected].min()) + self._retention(side))

    def _padded(self, columns: Sequence[pa.Array], side: int) -> Batch:
        """Return rows padded with nulls for the other side."""
        rows = len(columns[0]) if columns else 0
        nulls = [pa.nulls(rows, kind) for kind in self.sides[1 - side].kinds]
        return Batch([*columns, *nulls] if side == _LEFT else [*nulls, *columns], None, rows)

    # --- time

    def _retention(self, side: int) -> int:
        """Return how long after its own time a row is retained."""
        return self.bounds[side][1] + self.slack + 1

    def _schedule_timer(self) -> None:
        self._next = MAX_WATERMARK
        for side, rows in enumerate(self._rows):
            stored = rows.all_rows()
            if len(stored):
                first = int(plain(rows.take(len(self.sides[side].kinds), stored)).min())
                self._next = min(self._next, first + self._retention(side))

    def _discard(self, time: int) -> None:
        for side, rows in enumerate(self._rows):
            stored = rows.all_rows()
            if not len(stored):
                continue
            expired = stored[plain(rows.take(len(self.sides[side].kinds), stored)) + self._retention(side) <= time]
            unmatched = expired[rows.marks[expired] != _EMITTED]
            if self.outer[side] and len(unmatched):
                self.emit([self._padded(rows.take_all(range(len(self.sides[side].kinds)), unmatched), side)])
            rows.remove(expired)
        self._schedule_timer()

    def on_watermark(self, watermark: int) -> int | None:
        if self.times is None:
            return watermark
        if watermark >= self._next:
            self._discard(watermark)
        self.watermark = watermark
        # The watermark is held back for pairs with an older row and for discarded unmatched rows.
        delay = max(self.bounds[_LEFT][1], self.bounds[_RIGHT][1], 0) + self.slack
        if watermark in (MAX_WATERMARK, MIN_WATERMARK):
            return watermark
        return max(watermark - delay, MIN_WATERMARK)

    @property
    def follows_clock(self) -> bool:
        return self.times is None

    def on_processing_time(self) -> None:
        if self.times is None and self.setup.clock() >= self._next:
            self._discard(self.setup.clock())

    def next_wake(self) -> int | None:
        return self._next if self.times is None and self._next < MAX_WATERMARK else None
