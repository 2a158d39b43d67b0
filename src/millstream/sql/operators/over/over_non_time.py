"""OVER ordered by a non-time column: a new row updates the results of the rows around it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch
from millstream.sql.columns.keyed_rows import KeyedRows, equal_values
from millstream.sql.columns.keys import grouped
from millstream.sql.columns.numpy_arrays import Ints, Mask
from millstream.sql.columns.row_order import sorted_rows
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.accumulators import VARIANCES
from millstream.sql.operators.base import KeyedBatchOperator
from millstream.sql.operators.over.over_batch import OF_PARTITION, Partitions
from millstream.sql.plan.specs import OverSpec
from millstream.sql.types import DataTypes

_COUNTS = frozenset(["ROW_NUMBER", "RANK", "DENSE_RANK"])
# Flink computes these from a sum and a count, and compares those.
_OF_SUMS = VARIANCES | {"SUM", "AVG"}
# Maximum rows laid out at once.
_AT_ONCE = 1 << 18


def streamed(over: OverSpec) -> OverSpec:
    """Return an OVER as Flink runs it on streams: all ranks count the rows of the frame."""
    calls = tuple(AggregateCall("COUNT", (), c.type) if c.function in _COUNTS else c for c in over.calls)
    return replace(over, calls=calls)


def with_counts(over: OverSpec) -> OverSpec:
    """Return an OVER with the counts that Flink compares beside its results.

    An update with the same result is emitted if a count differs, since Flink compares accumulators.
    """
    summed = (c for c in over.calls if c.function in _OF_SUMS and c.user is None)
    counts = [
        AggregateCall("COUNT", c.arguments[:1], DataTypes.BIGINT(False), c.distinct, condition=c.condition)
        for c in summed
    ]
    return replace(over, calls=(*over.calls, *dict.fromkeys(counts)))


class ColumnOverOperator(KeyedBatchOperator):
    """Emits the input's columns, then the aggregates over each row's frame.

    A batch is processed as a whole: the rows around each added or removed row are laid out with it and without it, and
    the aggregates of all are computed in vectors. Rows whose results differ are emitted.
    """

    def __init__(self, over: OverSpec, kinds: Sequence[pa.DataType], ttl: int = 0) -> None:
        """Create the operator.

        Args:
            over: the partition, order, frame and aggregates.
            kinds: the Arrow types of the input's columns.
            ttl: state TTL of a partition in milliseconds; 0 for none.
        """
        self.over = over
        self.ttl = ttl
        self.calls = over.calls
        self.kinds = list(kinds)
        self._compared = with_counts(over)

    def prepare(self, setup: OperatorSetup) -> None:
        super().prepare(setup)
        clock = setup.clock if self.ttl else None
        rows = KeyedRows(self.kinds, self.over.partition, clock=clock)
        self._rows: KeyedRows = self.state_table("rows", rows)

    def process(self, batch: Batch) -> Iterator[Batch]:
        rows = self._rows
        if self.ttl:
            rows.expire(self.setup.clock() - self.ttl)
        rows.compact()
        keys = rows.find_or_add([batch.columns[k] for k in self.over.partition], len(batch))
        distinct = np.unique(keys)
        places, there = rows.pairs(distinct)
        if self.ttl:
            # A partition expires as a whole.
            rows.changed(there)
        adds = np.isin(batch.all_kinds(), (INSERT, UPDATE_AFTER))
        # A removed row is deleted, even if another replaces it.
        kinds = np.where(adds, batch.all_kinds(), DELETE).astype(np.int64)
        added = np.flatnonzero(adds)
        new = batch.take(added).columns
        numbers = np.concatenate([there, rows.add(keys[added], new)])
        # All rows that exist before or during the batch.
        every = Batch(
            [pa.concat_arrays([o, n]) for o, n in zip(rows.batch(there).columns, new, strict=True)], None, len(numbers)
        )
        of_key = np.concatenate([distinct[places], keys[added]])
        touched = _touched(every, len(there), batch, adds)
        rows.remove(numbers[touched[~adds & (touched >= 0)]])
        known = touched >= 0
        changes = _Changes(every, of_key, len(there), self._compared, len(self.calls))
        yield from changes.emitted(touched[known], kinds[known])


def _touched(every: Batch, before: int, batch: Batch, adds: Mask) -> Ints:
    """Return the row that each change is about; a retraction takes the last equal row, -1 if there is none.

    Args:
        every: all rows: the stored ones, then those of the batch.
        before: the number of stored rows.
        batch: the changes.
        adds: which changes add rows.
    """
    result = np.full(len(batch), -1, np.int64)
    result[adds] = np.arange(before, len(every))
    goes = np.flatnonzero(~adds)
    if not len(goes):
        return result
    removed = batch.take(goes)
    columns = [pa.concat_arrays([a, b]) for a, b in zip(every.columns, removed.columns, strict=True)]
    codes = grouped(columns, len(every) + len(goes)).codes
    removed_codes = codes[len(every) :]
    # The existing rows equal to each retracted one, the last one last.
    equal: dict[int, list[int]] = {code: [] for code in removed_codes.tolist()}
    for row in np.flatnonzero(np.isin(codes[:before], removed_codes)).tolist():
        equal[int(codes[row])].append(row)
    of_change = np.empty(len(batch), np.int64)
    of_change[adds], of_change[goes] = codes[before : len(every)], removed_codes
    for change in np.flatnonzero(np.isin(of_change, removed_codes)).tolist():
        rows = equal[int(of_change[change])]
        if adds[change]:
            rows.append(int(result[change]))
        elif rows:
            result[change] = rows.pop()
    return result


class _Changes:
    """The effect of consecutive changes on the rows around them.

    Args:
        every: all rows: the stored ones, then the added ones.
        keys: the partition of each row.
        before: the number of stored rows.
        over: the OVER, with columns that are only compared after the aggregates.
        shown: the number of aggregates.
    """

    def __init__(self, every: Batch, keys: Ints, before: int, over: OverSpec, shown: int) -> None:
        by_key = [pa.array(keys), *every.columns]
        order = sorted_rows(by_key, [(0, False, True), *((c + 1, d, n) for c, d, n in over.order)], len(every))
        self._rows, self._keys, self._over, self._shown = every.take(order), keys[order], over, shown
        self._positions = np.empty(len(order), np.int64)
        self._positions[order] = np.arange(len(order))
        self._before = np.sort(self._positions[:before])

    def emitted(self, touched: Ints, kinds: Ints) -> Iterator[Batch]:
        """Yield the output of each change, in order; `touched` is the row that each is about."""
        for one in affected_ranges(self._before, self._keys, self._positions[touched], kinds != DELETE, self._over):
            yield self._results(one, kinds[one.first : one.last])

    def _results(self, around: Surrounded, kinds: Ints) -> Batch:
        rows, is_it, change = around.rows, around.is_it, around.change
        beside = ~is_it
        layout = np.concatenate([rows, rows[beside]])
        keys = np.concatenate([change, change[beside] + len(kinds)])
        requested = np.flatnonzero(np.concatenate([around.affected, around.affected[beside]]))
        results = Partitions(self._rows.take(layout), keys, self._over).results(requested)
        # Results with the row precede those without it; the row itself has only the former.
        mine = np.flatnonzero(around.affected)
        rows, is_it, change = rows[mine], is_it[mine], change[mine]
        with_it = np.arange(len(mine))
        without = np.where(is_it, 0, len(mine) + np.cumsum(~is_it) - 1)
        comes = (kinds != DELETE)[change]
        differs = np.zeros(len(mine), np.bool_)
        for column in results:
            pairs = column.take(pa.array(with_it[~is_it])), column.take(pa.array(without[~is_it]))
            differs[~is_it] |= ~equal_values(*pairs)
        positions = np.repeat(with_it, np.where(is_it, 1, differs * 2))
        second = np.append(False, positions[1:] == positions[:-1])
        row_kinds = np.where(is_it[positions], kinds[change[positions]], np.where(second, UPDATE_AFTER, UPDATE_BEFORE))
        has_it = is_it[positions] | (comes[positions] == second)
        shown = pa.array(np.where(has_it, with_it[positions], without[positions]))
        columns = [
            *self._rows.take(rows[positions]).columns,
            *(column.take(shown) for column in results[: self._shown]),
        ]
        return Batch(columns, row_kinds.astype(np.int8) if row_kinds.any() else None, len(positions))


@fast_dataclass
class Surrounded:
    """Changes, each with the affected rows and the rows of their frames, in order.

    Attributes:
        first, last: the range of changes, `last` exclusive.
        rows: the rows, by change.
        change: the change that each row is laid out for, from 0.
        is_it: whether a row is the added or removed one.
        affected: the changed row and those whose results it may change; the others are only in their frames.
    """

    first: int
    last: int
    rows: Ints
    change: Ints
    is_it: Mask
    affected: Mask


@fast_dataclass
class _Reach:
    """The distance at which a change affects results, and the extent of the frames there; None for unlimited.

    Attributes:
        before, behind: the number of affected rows before and after the changed one.
        around: the number of rows in their frames before and after it.
    """

    before: int | None
    behind: int | None
    around: int | None

    @staticmethod
    def of(over: OverSpec) -> _Reach:
        if not over.rows or any(c.function in OF_PARTITION for c in over.calls):
            return _Reach(None, None, None)
        # A row is in the frames of later rows that look back to it, and of earlier ones that look ahead.
        behind = None if over.start is None else max(-over.start, 0)
        before = None if over.end is None else max(over.end, 0)
        return _Reach(before, behind, None if before is None or behind is None else before + behind)

    def ranges(self, position: int, count: int) -> tuple[int, int, int, int]:
        """Return the ranges, of `count` rows around a position, that are laid out and that are affected."""
        low = 0 if self.around is None else max(position - self.around, 0)
        high = count if self.around is None else min(position + self.around + 1, count)
        first = 0 if self.before is None else max(position - self.before, 0)
        last = count if self.behind is None else min(position + self.behind + 1, count)
        return low, high, first, last


def affected_ranges(before: Ints, keys: Ints, changed: Ints, adds: Mask, over: OverSpec) -> Iterator[Surrounded]:
    """Yield changes with the rows around them at the time of the change.

    Args:
        before: the stored rows, ascending: rows are numbered in order, by partition.
        keys: the partition of each row.
        changed: the row that each change is about.
        adds: which changes add rows.
        over: the OVER.
    """
    reach = _Reach.of(over)
    there: dict[int, list[int]] = {}
    starts = np.flatnonzero(np.append(True, keys[before][1:] != keys[before][:-1])) if len(before) else before
    for rows in np.split(before, starts[1:]) if len(before) else ():
        there[int(keys[rows[0]])] = rows.tolist()
    laid, about, first = list[int](), list[tuple[int, int, int, int]](), 0
    for number, (row, key, comes) in enumerate(
        zip(changed.tolist(), keys[changed].tolist(), adds.tolist(), strict=True), 1
    ):
        mine = there.setdefault(key, [])
        position = bisect_left(mine, row)
        if comes:
            mine.insert(position, row)
        low, high, requested, end = reach.ranges(position, len(mine))
        laid += mine[low:high]
        about.append((high - low, position - low, requested - low, end - low))
        if not comes:
            del mine[position]
        if len(laid) >= _AT_ONCE or number == len(changed):
            yield _surrounded(first, number, laid, about)
            laid, about, first = [], [], number


def _surrounded(first: int, last: int, laid: list[int], about: list[tuple[int, int, int, int]]) -> Surrounded:
    sizes, places, requested, ends = np.array(about, np.int64).T
    change = np.repeat(np.arange(len(sizes)), sizes)
    position = np.arange(len(change)) - (np.cumsum(sizes) - sizes)[change]
    is_affected = (position >= requested[change]) & (position < ends[change])
    return Surrounded(first, last, np.array(laid, np.int64), change, position == places[change], is_affected)
