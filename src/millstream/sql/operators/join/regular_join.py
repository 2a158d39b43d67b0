"""Regular joins: both sides are state, and every row joins the other side's rows.

Changes and their order equal those of Flink's operators. While a batch of one side is processed, the other side's state
changes only in the number of matches of its rows, which is counted in vectors too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, Batch, Kinds
from millstream.sql.columns.keyed_rows import KeyedRows, Rows
from millstream.sql.columns.numpy_arrays import Ints, Mask, valid_of
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import narrow_condition
from millstream.sql.operators.base import BATCH_ROWS, EvaluatingOperator, KeyedBatchOperator
from millstream.sql.operators.query_context import Session
from millstream.sql.plan.specs import JoinKind

_LEFT, _RIGHT = 0, 1
# Approximate pairs per output batch.
_BATCH_PAIRS = 1 << 16
# Maximum pairs processed at once.
_MAX_PAIRS = 1 << 20
_SIGNS = np.array([1, -1, 1, -1], np.int64)


@fast_dataclass
class JoinSide:
    """One input of a join.

    Attributes:
        kinds: the Arrow types of its columns.
        keys: the join key columns.
        unique: whether a key has at most one row, which a new one replaces.
        ttl: state TTL in milliseconds; None for the join's.
    """

    kinds: tuple[pa.DataType, ...]
    keys: tuple[int, ...]
    unique: bool = False
    ttl: int | None = None


class JoinOperator(EvaluatingOperator, KeyedBatchOperator):
    """Joins two inputs."""

    inputs = 2
    emits_later = True

    def __init__(
        self,
        kind: JoinKind,
        left: JoinSide,
        right: JoinSide,
        null_safe: Sequence[bool],
        condition: Expression | None,
        session: Session,
        final_only: bool = False,
        ttl: int = 0,
    ) -> None:
        """Create the operator.

        Args:
            kind: the kind of join.
            left, right: the inputs.
            null_safe: for each pair of keys whether nulls are equal.
            condition: a further condition on the columns of both; None for none.
            session: the session settings.
            final_only: whether only the final result is emitted.
            ttl: state TTL in milliseconds of sides without their own; 0 for none.
        """
        self.ttls = tuple(ttl if side.ttl is None else side.ttl for side in (left, right))
        self.kind = kind
        self.sides = (left, right)
        self.null_safe = tuple(null_safe) or (False,) * len(left.keys)
        self.condition = condition
        self.session = session
        self.final_only = final_only
        self.is_semi = kind in (JoinKind.SEMI, JoinKind.ANTI)
        full = kind is JoinKind.FULL
        # Sides whose unmatched rows are emitted; in a semi join, sides whose matches are counted.
        self.outer = (kind is JoinKind.LEFT or full or self.is_semi, kind is JoinKind.RIGHT or full)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        clocks = [setup.clock if ttl else None for ttl in self.ttls]
        self._rows: list[KeyedRows] = [
            self.state_table(name, KeyedRows(side.kinds, side.keys, clock=clock, marked=outer))
            for name, side, outer, clock in zip(("left", "right"), self.sides, self.outer, clocks, strict=True)
        ]

    def open(self) -> None:
        # The columns of both sides that the condition reads, and the compiled condition.
        self._condition = None if self.condition is None else narrow_condition(self.condition, self.context)

    def starved_inputs(self) -> Iterable[tuple[int, int]]:
        counts = [len(rows) for rows in self._rows]
        for side, rows in ((_LEFT, counts[_RIGHT]), (_RIGHT, counts[_LEFT])):
            # Unmatched rows that are emitted anyway need not wait for the other side.
            is_needed = not self.outer[1 - side] or (self.kind is JoinKind.SEMI and side == _RIGHT)
            if rows and not counts[side] and is_needed:
                yield side, rows

    def process_left(self, batch: Batch) -> Iterable[Batch]:
        return self._process(batch, _LEFT)

    def process_right(self, batch: Batch) -> Iterable[Batch]:
        return self._process(batch, _RIGHT)

    def _process(self, batch: Batch, side: int) -> Iterator[Batch]:
        other = self._rows[1 - side]
        for rows_of_side, ttl in zip(self._rows, self.ttls, strict=True):
            if ttl:
                rows_of_side.expire(self.setup.clock() - ttl)
            rows_of_side.compact()
        key_columns = [batch.columns[k] for k in self.sides[side].keys]
        can_match = self._can_match(key_columns, len(batch))
        signs = _SIGNS[batch.all_kinds()]
        if self.final_only:
            self._update_state(batch, side, can_match, signs, None)
            return
        keys = np.where(can_match, other.find(key_columns, len(batch)), -1)
        if len(batch) > 1 and other.max_pairs(keys) > _MAX_PAIRS:
            middle = len(batch) // 2
            for part in (batch.slice(0, middle), batch.slice(middle, len(batch))):
                yield from self._process(part, side)
            return
        batch_rows, rows = self._matches(batch, side, keys)
        self._update_state(batch, side, can_match, signs, np.bincount(batch_rows, minlength=len(batch)))
        if self.is_semi:
            yield from self._semi(batch, side, signs, batch_rows, rows)
        else:
            yield from self._joined(batch, side, signs, batch_rows, rows)

    def _can_match(self, key_columns: list[pa.Array], rows: int) -> Mask:
        """Return which rows can match: those without null in their key."""
        has_key = np.ones(rows, np.bool_)
        for column, null_safe in zip(key_columns, self.null_safe, strict=True):
            valid = None if null_safe else valid_of(column)
            if valid is not None:
                has_key &= valid
        return has_key

    def _matches(self, batch: Batch, side: int, keys: Ints) -> tuple[Ints, Ints]:
        """Return the matching pairs of batch rows and rows of the other side."""
        batch_rows, rows = self._rows[1 - side].pairs(keys)
        if self._condition is None or not len(batch_rows):
            return batch_rows, rows
        needed, test = self._condition
        keep = [test(part) for part in self._paired(batch, side, batch_rows, rows, columns=needed)]
        holds = np.concatenate(keep)
        return batch_rows[holds], rows[holds]

    def _paired(
        self,
        batch: Batch,
        side: int,
        batch_rows: Rows,
        rows: Rows,
        kinds: Kinds | None = None,
        columns: Sequence[int] | None = None,
    ) -> Iterator[Batch]:
        """Yield pairs as batches with all or some columns; a null position gives nulls."""
        width = len(self.sides[_LEFT].kinds)
        chosen = range(width + len(self.sides[_RIGHT].kinds)) if columns is None else columns
        columns_by_side = [c for c in chosen if c < width], [c - width for c in chosen if c >= width]
        for start in range(0, len(batch_rows), _BATCH_PAIRS):
            part = slice(start, start + _BATCH_PAIRS)
            positions, other_rows = pa.array(batch_rows[part]), pa.array(rows[part])
            own_columns = [batch.columns[i].take(positions) for i in columns_by_side[side]]
            other_columns = self._rows[1 - side].take_all(columns_by_side[1 - side], other_rows)
            row_kinds = None if kinds is None else kinds[part]
            yield Batch(
                [*own_columns, *other_columns] if side == _LEFT else [*other_columns, *own_columns],
                row_kinds,
                len(positions),
            )

    # --- state

    def _update_state(self, batch: Batch, side: int, can_match: Mask, signs: Ints, partners: Ints | None) -> None:
        """Add the batch's rows to the state, and remove retracted ones."""
        own_rows, unique = self._rows[side], self.sides[side].unique
        if not can_match.all() and not self.final_only:
            # A row that can never match is not stored.
            batch, signs = batch.filter(can_match), signs[can_match]
            partners = None if partners is None else partners[can_match]
        if not len(batch):
            return
        keys = own_rows.find_or_add([batch.columns[k] for k in self.sides[side].keys], len(batch))
        if unique:
            self._replace(batch, side, keys, signs, partners)
            return
        added = np.flatnonzero(signs > 0)
        if len(added) == len(batch):
            own_rows.add(keys, batch.columns, partners)
            return
        new = batch.take(added)
        own_rows.add(keys[added], new.columns, None if partners is None else partners[added])
        taken = np.flatnonzero(signs < 0)
        removed = own_rows.equal_rows(keys[taken], batch.take(taken).columns)
        own_rows.remove(removed[removed >= 0])

    def _replace(self, batch: Batch, side: int, keys: Ints, signs: Ints, partners: Ints | None) -> None:
        """Store the last row of each key, or none if it is retracted."""
        own_rows = self._rows[side]
        distinct, first_of_reversed = np.unique(keys[::-1], return_index=True)
        last = len(keys) - 1 - first_of_reversed
        _, before = own_rows.pairs(distinct)
        own_rows.remove(before)
        stays = np.sort(last[signs[last] > 0])
        own_rows.add(keys[stays], batch.take(stays).columns, None if partners is None else partners[stays])

    # --- output

    def _joined(self, batch: Batch, side: int, signs: Ints, batch_rows: Ints, rows: Ints) -> Iterator[Batch]:
        own_outer, other_outer = self.outer[side], self.outer[1 - side]
        row_kinds = batch.all_kinds()
        if not own_outer and not other_outer:
            yield from self._paired(
                batch, side, batch_rows, rows, None if batch.kinds is None else row_kinds[batch_rows]
            )
            return
        kinds = row_kinds[batch_rows]
        if own_outer:
            kinds = np.where(signs[batch_rows] > 0, INSERT, DELETE)
        elif other_outer:
            kinds = np.where(signs[batch_rows] > 0, INSERT, kinds)
        # For each row: output before its pairs, its pairs, output after them.
        parts = [(batch_rows * 3 + 1, batch_rows, rows, kinds)]
        if own_outer:
            unmatched = np.flatnonzero(np.bincount(batch_rows, minlength=len(batch)) == 0)
            no_match = np.full(len(unmatched), -1)
            parts.append((unmatched * 3 + 1, unmatched, no_match, np.where(signs[unmatched] > 0, INSERT, DELETE)))
        if other_outer:
            first_matches, last_matches = self._count_matches(side, signs, batch_rows, rows)
            for changed, offset, kind in ((first_matches, 0, DELETE), (last_matches, 2, INSERT)):
                no_match = np.full(len(changed), -1)
                parts.append((batch_rows[changed] * 3 + offset, no_match, rows[changed], np.full(len(changed), kind)))
        order_of, positions, row, row_kinds = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(order_of, kind="stable")
        yield from self._paired(
            batch, side, _nullable(positions[order]), _nullable(row[order]), row_kinds[order].astype(np.int8)
        )

    def _count_matches(self, side: int, signs: Ints, batch_rows: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Update match counts of the other side's rows; return the pairs that add a first or remove a last match."""
        other = self._rows[1 - side]
        order = np.argsort(rows, kind="stable")
        in_order, weights = rows[order], signs[batch_rows[order]]
        starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1])) if len(rows) else rows
        sizes = np.diff(starts, append=len(rows))
        total = np.cumsum(weights)
        begins = other.marks[in_order[starts]] - total[starts] + weights[starts]
        after = total + np.repeat(begins, sizes)
        if len(rows):
            other.marks[in_order[starts]] = after[starts + sizes - 1]
            other.changed(in_order[starts])
        first_matches = np.sort(order[(weights > 0) & (after == 1)])
        last_matches = np.sort(order[(weights < 0) & (after == 0)])
        return first_matches, last_matches

    def _semi(self, batch: Batch, side: int, signs: Ints, batch_rows: Ints, rows: Ints) -> Iterator[Batch]:
        is_anti = self.kind is JoinKind.ANTI
        if side == _LEFT:
            has_match = np.bincount(batch_rows, minlength=len(batch)) > 0
            yield batch.filter(has_match != is_anti)
            return
        first_matches, last_matches = self._count_matches(side, signs, batch_rows, rows)
        changed_pairs = np.sort(np.concatenate([first_matches, last_matches]))
        if not len(changed_pairs):
            return
        left = self._rows[_LEFT]
        changed = rows[changed_pairs]
        kinds = batch.all_kinds()[batch_rows[changed_pairs]]
        if is_anti:
            kinds = np.where(signs[batch_rows[changed_pairs]] > 0, DELETE, INSERT).astype(np.int8)
        yield Batch(left.batch(changed).columns, kinds, len(changed))

    # --- end of input

    def finish(self) -> None:
        """Emit the final result in batch mode."""
        if self.final_only:
            self.emit(self._final())

    def _final(self) -> Iterator[Batch]:
        left, right = self._rows
        has_matched = np.zeros(right.bound, np.bool_)
        left_rows = left.all_rows()
        for start in range(0, len(left_rows), BATCH_ROWS):
            rows = left_rows[start : start + BATCH_ROWS]
            batch = left.batch(rows)
            key_columns = [batch.columns[k] for k in self.sides[_LEFT].keys]
            keys = np.where(self._can_match(key_columns, len(batch)), right.find(key_columns, len(batch)), -1)
            batch_rows, right_rows = self._matches(batch, _LEFT, keys)
            has_matched[right_rows] = True
            has_match = np.bincount(batch_rows, minlength=len(batch)) > 0
            if self.is_semi:
                yield batch.filter(has_match != (self.kind is JoinKind.ANTI))
                continue
            if self.outer[_LEFT]:
                unmatched = np.flatnonzero(~has_match)
                order = np.argsort(np.concatenate([batch_rows, unmatched]), kind="stable")
                batch_rows = np.concatenate([batch_rows, unmatched])[order]
                right_rows = _nullable(np.concatenate([right_rows, np.full(len(unmatched), -1)])[order])
            yield from self._paired(batch, _LEFT, batch_rows, right_rows)
        if self.outer[_RIGHT] and not self.is_semi:
            rows = right.all_rows()
            yield from self._without_left(rows[~has_matched[rows]])

    def _without_left(self, rows: Ints) -> Iterator[Batch]:
        for start in range(0, len(rows), BATCH_ROWS):
            part = rows[start : start + BATCH_ROWS]
            nulls = [pa.nulls(len(part), kind) for kind in self.sides[_LEFT].kinds]
            yield Batch([*nulls, *self._rows[_RIGHT].batch(part).columns], None, len(part))


def _nullable(rows: Ints) -> pa.Array:
    """Return positions as an Arrow array, null for -1."""
    missing = rows < 0
    return pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
