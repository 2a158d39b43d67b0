"""Vectorized OVER frames: for rows sorted by key, the range of rows in each row's frame.

A frame is a range of positions from `low` to `high`, both inclusive. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.columns.numpy_arrays import Ints, Mask, NumpyColumn, valid_of
from millstream.sql.columns.row_order import sorted_rows
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.accumulators import VARIANCES, WITH_INTS

# Aggregates computed from the frame's edges or extremes, without running state.
BY_FRAME = frozenset(["MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"])


def as_over(call: AggregateCall, kinds: Sequence[pa.DataType]) -> AggregateCall:
    """Return an aggregate as OVER computes it, for columns of some types."""
    if call.function in VARIANCES and pa.types.is_integer(kinds[call.arguments[0]]):
        return replace(call, function=WITH_INTS + call.function)
    return call


def starts_of(groups: Ints) -> Ints:
    """Return the first position of each row's group; rows are sorted by group."""
    begins = np.append(True, groups[1:] != groups[:-1]) if len(groups) else np.zeros(0, np.bool_)
    return np.maximum.accumulate(np.where(begins, np.arange(len(groups)), 0))


def ends_of(groups: Ints) -> Ints:
    """Return the last position of each row's group; rows are sorted by group."""
    count = len(groups)
    ends = np.append(groups[1:] != groups[:-1], True) if count else np.zeros(0, np.bool_)
    return np.minimum.accumulate(np.where(ends, np.arange(count), count)[::-1])[::-1]


def places_before(keys: Ints, values: NumpyColumn, of_keys: Ints, of_values: NumpyColumn, equal: bool) -> Ints:
    """Return the number of rows before each given key and value.

    Args:
        keys, values: of the rows, sorted by key, then value.
        of_keys, of_values: the searched keys and values.
        equal: whether equal rows count as before.
    """
    count, query_count = len(keys), len(of_keys)
    is_row = np.concatenate([np.ones(count, np.int8), np.zeros(query_count, np.int8)])
    tie_order = 1 - is_row if equal else is_row
    order = np.lexsort((tie_order, np.concatenate([values, of_values]), np.concatenate([keys, of_keys])))
    before = np.cumsum(is_row[order])
    result = np.empty(count + query_count, np.int64)
    result[order] = before
    return result[count:]


@fast_dataclass
class Frames:
    """Frames of new rows among rows sorted by key.

    Attributes:
        low, high: the frame of each new row.
        events: rows in the order in which running aggregates process them, `~row` for a retraction.
        shown: the event after which each new row's aggregates are emitted.
    """

    low: Ints
    high: Ints
    events: Ints
    shown: Ints

    @staticmethod
    def sliding(keys: Ints, new: Ints, low: Ints, high: Ints) -> Frames:
        """Return frames that only move forward, so that running sums apply.

        Args:
            keys: of all rows.
            new: positions of new rows; the sums of a key hold all rows before its first new one.
            low: the start of each frame.
            high: the end of each frame, not decreasing within a key.
        """
        last = np.append(high[1:] != high[:-1], True) if len(new) else np.zeros(0, np.bool_)
        # One step per distinct frame: first retract the rows that leave, then add the new ones.
        step_low, step_high, step_key = low[last], high[last], keys[new[last]]
        first = np.append(True, step_key[1:] != step_key[:-1]) if len(step_key) else last
        before_low = np.append(0, step_low[:-1])
        before_high = np.append(-1, step_high[:-1])
        before_low[first] = starts_of(keys)[new[last][first]]
        firsts_new = new[np.append(True, keys[new[1:]] != keys[new[:-1]])] if len(new) else new
        before_high[first] = firsts_new - 1
        leaving, entering = step_low - before_low, step_high - before_high
        sizes = leaving + entering
        ends = np.cumsum(sizes)
        step = np.repeat(np.arange(len(sizes)), sizes)
        number = np.arange(len(step)) - (ends - sizes)[step]
        leaves = number < leaving[step]
        events = np.where(leaves, ~(before_low[step] + number), before_high[step] + 1 + number - leaving[step])
        shown = (ends - 1)[np.cumsum(last) - last]
        return Frames(low, high, events, shown)


def unbounded(keys: Ints, high: Ints) -> Frames:
    """Return frames without a lower bound."""
    positions = np.arange(len(keys))
    return Frames(starts_of(keys), high, positions, high)


# --- aggregates of the frame alone


def by_frame(call: AggregateCall, columns: list[pa.Array], counted: Mask | None, frames: Frames) -> pa.Array:
    """Return an aggregate of frames.

    Args:
        call: MIN, MAX, FIRST_VALUE or LAST_VALUE.
        columns: its arguments, of all rows.
        counted: mask of the rows that count; None for all.
        frames: the frames.
    """
    values = columns[0]
    valid = valid_of(values)
    counts_row = np.ones(len(values), np.bool_) if valid is None else valid
    if counted is not None:
        counts_row = counts_row & counted
    if call.function in ("MIN", "MAX"):
        positions = _extremes(values, counts_row, frames.low, frames.high, call.function == "MIN")
    elif call.function == "FIRST_VALUE":
        positions = _next_true(counts_row)[frames.low]
        positions = np.where(positions <= frames.high, positions, -1)
    else:
        positions = _last_true(counts_row)[frames.high]
        positions = np.where(positions >= frames.low, positions, -1)
    return values.take(pa.array(positions, mask=positions < 0))


def shifted(values: pa.Array, keys: Ints, rows: Ints, by: int, default: pa.Array | None) -> pa.Array:
    """Return the values `by` rows before (after, if negative) each row in its key, else a default."""
    positions = rows - by
    inside = (positions >= 0) & (positions < len(keys))
    inside[inside] = keys[positions[inside]] == keys[rows[inside]]
    result = values.take(pa.array(np.where(inside, positions, 0), mask=~inside))
    if default is None or inside.all():
        return result
    both = pa.concat_arrays([result, default.take(pa.array(rows)).cast(result.type)])
    indexes = np.arange(len(rows))
    return both.take(pa.array(np.where(inside, indexes, indexes + len(rows))))


def is_true(column: pa.Array) -> Mask:
    """Return which values are true; null is not."""
    return column.fill_null(False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _next_true(mask: Mask) -> Ints:
    """Return the next true position at or after each position, or the length if there is none."""
    count = len(mask)
    return np.minimum.accumulate(np.where(mask, np.arange(count), count)[::-1])[::-1]


def _last_true(mask: Mask) -> Ints:
    """Return the last true position at or before each position, or -1."""
    return np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1))


def _extremes(values: pa.Array, mask: Mask, low: Ints, high: Ints, is_min: bool) -> Ints:
    """Return the position of the smallest or greatest value of each frame, or -1."""
    count = len(values)
    order = sorted_rows([values], [(0, False, True)], count)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    identity = count if is_min else -1
    extreme = np.minimum if is_min else np.maximum
    level = np.where(mask, rank, identity)
    width = np.maximum(high - low + 1, 1)
    # Sparse table: extremes of 2^k values from each position; a frame is covered by two of them.
    power = np.floor(np.log2(width)).astype(np.int64)
    best = np.full(len(low), identity, np.int64)
    for p in range(int(power.max(initial=-1)) + 1):
        of_power = np.flatnonzero(power == p)
        best[of_power] = extreme(level[low[of_power]], level[high[of_power] - (1 << p) + 1])
        half = 1 << p
        if half < len(level):
            level = np.append(extreme(level[:-half], level[half:]), level[-half:])
    result = np.full(len(low), -1, np.int64)
    some = best != identity
    result[some] = order[best[some]]
    return result
