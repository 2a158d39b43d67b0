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
# Maximum rows processed at once.
_AT_ONCE = 1 << 18


def streamed(over: OverSpec) -> OverSpec:
    """Return an OVER as Flink runs it on streams: all ranks count the rows of the frame."""
    calls = tuple(AggregateCall("COUNT", (), c.type) if c.function in _COUNTS else c for c in over.calls)
    return replace(over, calls=calls)


def with_counts(over: OverSpec) -> OverSpec:
    """Return an OVER with the counts that Flink compares in addition to its results.

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

    A batch is processed as a whole: the aggregates of the rows around each added or removed row are computed with it
    and without it, vectorized. Rows whose results differ are emitted.
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
        positions, stored = rows.pairs(distinct)
        if self.ttl:
            # A partition expires as a whole.
            rows.changed(stored)
        adds = np.isin(batch.all_kinds(), (INSERT, UPDATE_AFTER))
        # A removed row is deleted, even if another replaces it.
        kinds = np.where(adds, batch.all_kinds(), DELETE).astype(np.int64)
        added = np.flatnonzero(adds)
        new = batch.take(added).columns
        numbers = np.concatenate([stored, rows.add(keys[added], new)])
        # All rows that exist before or during the batch.
        all_rows = Batch(
            [pa.concat_arrays([o, n]) for o, n in zip(rows.batch(stored).columns, new, strict=True)], None, len(numbers)
        )
        of_key = np.concatenate([distinct[positions], keys[added]])
        changed_rows = _changed_rows(all_rows, len(stored), batch, adds)
        rows.remove(numbers[changed_rows[~adds & (changed_rows >= 0)]])
        exists = changed_rows >= 0
        changes = _Changes(all_rows, of_key, len(stored), self._compared, len(self.calls))
        yield from changes.emitted(changed_rows[exists], kinds[exists])


def _changed_rows(all_rows: Batch, before: int, batch: Batch, adds: Mask) -> Ints:
    """Return the row that each change adds or removes; a retraction removes the last equal row, -1 if there is none.

    Args:
        all_rows: all rows: the stored ones, then those of the batch.
        before: the number of stored rows.
        batch: the changes.
        adds: which changes add rows.
    """
    result = np.full(len(batch), -1, np.int64)
    result[adds] = np.arange(before, len(all_rows))
    retractions = np.flatnonzero(~adds)
    if not len(retractions):
        return result
    removed = batch.take(retractions)
    columns = [pa.concat_arrays([a, b]) for a, b in zip(all_rows.columns, removed.columns, strict=True)]
    codes = grouped(columns, len(all_rows) + len(retractions)).codes
    removed_codes = codes[len(all_rows) :]
    # The existing rows equal to each retracted one, the last one last.
    equal: dict[int, list[int]] = {code: [] for code in removed_codes.tolist()}
    for row in np.flatnonzero(np.isin(codes[:before], removed_codes)).tolist():
        equal[int(codes[row])].append(row)
    of_change = np.empty(len(batch), np.int64)
    of_change[adds], of_change[retractions] = codes[before : len(all_rows)], removed_codes
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
        all_rows: all rows: the stored ones, then the added ones.
        keys: the partition of each row.
        before: the number of stored rows.
        over: the OVER, with columns that are only compared after the aggregates.
        shown: the number of aggregates.
    """

    def __init__(self, all_rows: Batch, keys: Ints, before: int, over: OverSpec, shown: int) -> None:
        by_key = [pa.array(keys), *all_rows.columns]
        order = sorted_rows(by_key, [(0, False, True), *((c + 1, d, n) for c, d, n in over.order)], len(all_rows))
        self._rows, self._keys, self._over, self._shown = all_rows.take(order), keys[order], over, shown
        self._positions = np.empty(len(order), np.int64)
        self._positions[order] = np.arange(len(order))
        self._before = np.sort(self._positions[:before])

    def emitted(self, changed_rows: Ints, kinds: Ints) -> Iterator[Batch]:
        """Yield the output of each change, in order; `changed_rows` is the row that each adds or removes."""
        for affected in affected_ranges(
            self._before, self._keys, self._positions[changed_rows], kinds != DELETE, self._over
        ):
            yield self._results(affected, kinds[affected.first : affected.last])

    def _results(self, affected: AffectedRows, kinds: Ints) -> Batch:
        rows, is_changed_row, change = affected.rows, affected.is_changed_row, affected.change
        neighbours = ~is_changed_row
        layout = np.concatenate([rows, rows[neighbours]])
        keys = np.concatenate([change, change[neighbours] + len(kinds)])
        requested = np.flatnonzero(np.concatenate([affected.affected, affected.affected[neighbours]]))
        results = Partitions(self._rows.take(layout), keys, self._over).results(requested)
        # Results with the row precede those without it; the row itself has only the former.
        output_rows = np.flatnonzero(affected.affected)
        rows, is_changed_row, change = rows[output_rows], is_changed_row[output_rows], change[output_rows]
        with_row = np.arange(len(output_rows))
        without_row = np.where(is_changed_row, 0, len(output_rows) + np.cumsum(~is_changed_row) - 1)
        is_added = (kinds != DELETE)[change]
        differs = np.zeros(len(output_rows), np.bool_)
        for column in results:
            pairs = (
                column.take(pa.array(with_row[~is_changed_row])),
                column.take(pa.array(without_row[~is_changed_row])),
            )
            differs[~is_changed_row] |= ~equal_values(*pairs)
        positions = np.repeat(with_row, np.where(is_changed_row, 1, differs * 2))
        is_second = np.append(False, positions[1:] == positions[:-1])
        row_kinds = np.where(
            is_changed_row[positions], kinds[change[positions]], np.where(is_second, UPDATE_AFTER, UPDATE_BEFORE)
        )
        includes_row = is_changed_row[positions] | (is_added[positions] == is_second)
        result_positions = pa.array(np.where(includes_row, with_row[positions], without_row[positions]))
        columns = [
            *self._rows.take(rows[positions]).columns,
            *(column.take(result_positions) for column in results[: self._shown]),
        ]
        return Batch(columns, row_kinds.astype(np.int8) if row_kinds.any() else None, len(positions))


@fast_dataclass
class AffectedRows:
    """Changes, each with the affected rows and the rows of their frames, in order.

    Attributes:
        first, last: the range of changes, `last` exclusive.
        rows: the rows, by change.
        change: the change that each row belongs to, from 0.
        is_changed_row: whether a row is the added or removed one.
        affected: the changed row and those whose results it may change; the others are only in their frames.
    """

    first: int
    last: int
    rows: Ints
    change: Ints
    is_changed_row: Mask
    affected: Mask


@fast_dataclass
class _AffectedDistance:
    """How far from the changed row results change, and how far the frames of those rows reach; None for unlimited.

    Attributes:
        before, after: the number of affected rows before and after the changed one.
        around: the number of rows in their frames before and after it.
    """

    before: int | None
    after: int | None
    around: int | None

    @staticmethod
    def of(over: OverSpec) -> _AffectedDistance:
        if not over.rows or any(c.function in OF_PARTITION for c in over.calls):
            return _AffectedDistance(None, None, None)
        # A row is in the frames of later rows that look back to it, and of earlier ones that look ahead.
        after = None if over.start is None else max(-over.start, 0)
        before = None if over.end is None else max(over.end, 0)
        return _AffectedDistance(before, after, None if before is None or after is None else before + after)

    def ranges(self, position: int, count: int) -> tuple[int, int, int, int]:
        """Return the ranges of needed and of affected rows for a change at a position of `count` rows."""
        low = 0 if self.around is None else max(position - self.around, 0)
        high = count if self.around is None else min(position + self.around + 1, count)
        first = 0 if self.before is None else max(position - self.before, 0)
        last = count if self.after is None else min(position + self.after + 1, count)
        return low, high, first, last


def affected_ranges(before: Ints, keys: Ints, changed: Ints, adds: Mask, over: OverSpec) -> Iterator[AffectedRows]:
    """Yield changes with the rows around them at the time of the change.

    Args:
        before: the stored rows, ascending: rows are numbered in order, by partition.
        keys: the partition of each row.
        changed: the row that each change adds or removes.
        adds: which changes add rows.
        over: the OVER.
    """
    distance = _AffectedDistance.of(over)
    by_partition: dict[int, list[int]] = {}
    starts = np.flatnonzero(np.append(True, keys[before][1:] != keys[before][:-1])) if len(before) else before
    for rows in np.split(before, starts[1:]) if len(before) else ():
        by_partition[int(keys[rows[0]])] = rows.tolist()
    layout, extents, first = list[int](), list[tuple[int, int, int, int]](), 0
    for number, (row, key, is_added) in enumerate(
        zip(changed.tolist(), keys[changed].tolist(), adds.tolist(), strict=True), 1
    ):
        partition_rows = by_partition.setdefault(key, [])
        position = bisect_left(partition_rows, row)
        if is_added:
            partition_rows.insert(position, row)
        low, high, requested, end = distance.ranges(position, len(partition_rows))
        layout += partition_rows[low:high]
        extents.append((high - low, position - low, requested - low, end - low))
        if not is_added:
            del partition_rows[position]
        if len(layout) >= _AT_ONCE or number == len(changed):
            yield _affected(first, number, layout, extents)
            layout, extents, first = [], [], number


def _affected(first: int, last: int, layout: list[int], extents: list[tuple[int, int, int, int]]) -> AffectedRows:
    sizes, changed_positions, requested, ends = np.array(extents, np.int64).T
    change = np.repeat(np.arange(len(sizes)), sizes)
    position = np.arange(len(change)) - (np.cumsum(sizes) - sizes)[change]
    is_affected = (position >= requested[change]) & (position < ends[change])
    return AffectedRows(
        first, last, np.array(layout, np.int64), change, position == changed_positions[change], is_affected
    )
