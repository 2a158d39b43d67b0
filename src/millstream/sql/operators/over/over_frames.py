"""Frames of OVER by vectors: rows in order of their keys, and for each of some rows the rows around it that count.

A frame is a range of places, from `low` up to and with `high`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.fast_dataclass import record
from millstream.sql.columns.numpy_arrays import valid_of
from millstream.sql.columns.row_order import sorted_rows
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.accumulators import VARIANCES, WITH_INTS

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

# What is told of a frame by its edges or its extremes: no sums need to be kept for it.
BY_FRAME = frozenset(["MIN", "MAX", "FIRST_VALUE", "LAST_VALUE"])


def as_over(call: AggregateCall, kinds: Sequence[pa.DataType]) -> AggregateCall:
    """Return an aggregate as it is computed in OVER, of columns of some types."""
    if call.function in VARIANCES and pa.types.is_integer(kinds[call.arguments[0]]):
        return replace(call, function=WITH_INTS + call.function)
    return call


def starts_of(groups: Ints) -> Ints:
    """Return for each row, of rows in order of their groups, where its group begins."""
    begins = np.append(True, groups[1:] != groups[:-1]) if len(groups) else np.zeros(0, np.bool_)
    return np.maximum.accumulate(np.where(begins, np.arange(len(groups)), 0))


def ends_of(groups: Ints) -> Ints:
    """Return for each row, of rows in order of their groups, the last of its group."""
    count = len(groups)
    ends = np.append(groups[1:] != groups[:-1], True) if count else np.zeros(0, np.bool_)
    return np.minimum.accumulate(np.where(ends, np.arange(count), count)[::-1])[::-1]


def places_before(keys: Ints, values: NDArray[Any], of_keys: Ints, of_values: NDArray[Any], equal: bool) -> Ints:
    """Return how many rows stand before each of some keys with values.

    Args:
        keys, values: of the rows, which are in order of key, then value.
        of_keys, of_values: what is looked for.
        equal: whether rows that are equal to it stand before it, too.
    """
    count, asked = len(keys), len(of_keys)
    is_row = np.concatenate([np.ones(count, np.int8), np.zeros(asked, np.int8)])
    turn = 1 - is_row if equal else is_row
    order = np.lexsort((turn, np.concatenate([values, of_values]), np.concatenate([keys, of_keys])))
    before = np.cumsum(is_row[order])
    found = np.empty(count + asked, np.int64)
    found[order] = before
    return found[count:]


@record
class Frames:
    """Frames of the new rows among rows that are in order of key.

    Attributes:
        low, high: of each new row.
        events: the rows in the order in which running aggregates take them, `~row` where one is taken back.
        shown: of each new row, the event after which its aggregates are what it is emitted with.
    """

    low: Ints
    high: Ints
    events: Ints
    shown: Ints

    @staticmethod
    def sliding(keys: Ints, new: Ints, low: Ints, high: Ints) -> Frames:
        """Return frames that move on with the rows, so that sums can be kept.

        Args:
            keys: of all rows.
            new: the places of new rows; all before the first new one of a key are in its sums.
            low: where the frame of each begins.
            high: where it ends: all up to there are new or were before, none of it stands behind a later frame's.
        """
        last = np.append(high[1:] != high[:-1], True) if len(new) else np.zeros(0, np.bool_)
        # One step of the sums for all rows with the same frame: what falls out of it goes first, then come new ones.
        step_low, step_high, step_key = low[last], high[last], keys[new[last]]
        first = np.append(True, step_key[1:] != step_key[:-1]) if len(step_key) else last
        before_low = np.append(0, step_low[:-1])
        before_high = np.append(-1, step_high[:-1])
        before_low[first] = starts_of(keys)[new[last][first]]
        firsts_new = new[np.append(True, keys[new[1:]] != keys[new[:-1]])] if len(new) else new
        before_high[first] = firsts_new - 1
        gone, come = step_low - before_low, step_high - before_high
        sizes = gone + come
        ends = np.cumsum(sizes)
        step = np.repeat(np.arange(len(sizes)), sizes)
        number = np.arange(len(step)) - (ends - sizes)[step]
        goes = number < gone[step]
        events = np.where(goes, ~(before_low[step] + number), before_high[step] + 1 + number - gone[step])
        shown = (ends - 1)[np.cumsum(last) - last]
        return Frames(low, high, events, shown)


def unbounded(keys: Ints, high: Ints) -> Frames:
    """Return frames of new rows alone that begin with all that came before."""
    places = np.arange(len(keys))
    return Frames(starts_of(keys), high, places, high)


# --- what is told by the frame alone


def by_frame(call: AggregateCall, columns: list[pa.Array], counted: Mask | None, frames: Frames) -> pa.Array:
    """Return an aggregate of frames.

    Args:
        call: MIN, MAX, FIRST_VALUE or LAST_VALUE.
        columns: its arguments, of all rows.
        counted: which rows count; None for all.
        frames: the frames.
    """
    values = columns[0]
    valid = valid_of(values)
    there = np.ones(len(values), np.bool_) if valid is None else valid
    if counted is not None:
        there = there & counted
    if call.function in ("MIN", "MAX"):
        at = _extremes(values, there, frames.low, frames.high, call.function == "MIN")
    elif call.function == "FIRST_VALUE":
        at = _next_true(there)[frames.low]
        at = np.where(at <= frames.high, at, -1)
    else:
        at = _last_true(there)[frames.high]
        at = np.where(at >= frames.low, at, -1)
    return values.take(pa.array(at, mask=at < 0))


def shifted(values: pa.Array, keys: Ints, rows: Ints, by: int, default: pa.Array | None) -> pa.Array:
    """Return the values so many rows before (or behind, if negative) others of the same key, else a default."""
    at = rows - by
    inside = (at >= 0) & (at < len(keys))
    inside[inside] = keys[at[inside]] == keys[rows[inside]]
    found = values.take(pa.array(np.where(inside, at, 0), mask=~inside))
    if default is None or inside.all():
        return found
    both = pa.concat_arrays([found, default.take(pa.array(rows)).cast(found.type)])
    places = np.arange(len(rows))
    return both.take(pa.array(np.where(inside, places, places + len(rows))))


def is_true(column: pa.Array) -> Mask:
    """Tell which values are true; null is not."""
    return column.fill_null(False).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _next_true(there: Mask) -> Ints:
    """Return for each place the next one from it on that is true; a number behind all if there is none."""
    count = len(there)
    return np.minimum.accumulate(np.where(there, np.arange(count), count)[::-1])[::-1]


def _last_true(there: Mask) -> Ints:
    """Return for each place the last one up to it that is true; -1 if there is none."""
    return np.maximum.accumulate(np.where(there, np.arange(len(there)), -1))


def _extremes(values: pa.Array, there: Mask, low: Ints, high: Ints, least: bool) -> Ints:
    """Return the place of the least or greatest value of each frame; -1 if there is none."""
    count = len(values)
    order = sorted_rows([values], [(0, False, True)], count)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    nothing = count if least else -1
    pick = np.minimum if least else np.maximum
    level = np.where(there, rank, nothing)
    width = np.maximum(high - low + 1, 1)
    # Of each power of two, the extremes of so many values from each place on: a frame is two of them.
    power = np.floor(np.log2(width)).astype(np.int64)
    best = np.full(len(low), nothing, np.int64)
    for p in range(int(power.max(initial=-1)) + 1):
        mine = np.flatnonzero(power == p)
        best[mine] = pick(level[low[mine]], level[high[mine] - (1 << p) + 1])
        half = 1 << p
        if half < len(level):
            level = np.append(pick(level[:-half], level[half:]), level[-half:])
    found = np.full(len(low), -1, np.int64)
    some = best != nothing
    found[some] = order[best[some]]
    return found
