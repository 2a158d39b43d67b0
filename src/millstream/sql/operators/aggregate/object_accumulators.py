"""Row-by-row accumulators of aggregates without a vectorized form; state is one Python object per key."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.aliases import Value
from millstream.operators.base import OperatorSetup
from millstream.sql.columns.index import KeyIds
from millstream.sql.columns.keyed_columns import Columns, StateColumn
from millstream.sql.columns.numpy_arrays import Ints, NumpyColumn, Valid, from_python, python_values
from millstream.sql.errors import TableException
from millstream.sql.expressions import AggregateCall
from millstream.sql.functions.function import OpenedAggregate
from millstream.sql.functions.json_path import quoted
from millstream.sql.operators.aggregate.accumulators import Accumulator, Counted
from millstream.sql.operators.aggregate.first_last import FirstOrLastEver
from millstream.sql.operators.aggregate.segments import Running, RunningNumbers, RunningObjects, Segments
from millstream.sql.operators.query_context import Session

_TEXT = pa.string()


class ObjectAccumulator(Accumulator):
    """An accumulator that processes rows one by one."""

    @property
    def state_columns(self) -> list[StateColumn]:
        return [StateColumn(self.name, object, self.begin)]

    def begin(self) -> Value:
        """Return the initial state of a key: plain data."""
        raise NotImplementedError

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        """Add a row; return the new state."""
        raise NotImplementedError

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        """Retract a row; return the new state."""
        raise NotImplementedError

    def value(self, accumulator: Value) -> Value:
        """Return the result, which must not change afterwards."""
        raise NotImplementedError

    def merge_values(self, accumulator: Value, other: Value) -> Value:
        """Merge a partial result into a key's state, if the aggregate supports it."""
        raise NotImplementedError

    def merge_key_ids(self, key_ids: KeyIds, others: Sequence[Value], state: Columns) -> None:
        column = state.column(self.name)
        for key_id, other in zip(key_ids.tolist(), others[0], strict=True):
            column[key_id] = self.merge_values(column[key_id], other)

    def run(self, segments: Segments, arguments: Sequence[pa.Array], counted: Counted, state: Columns) -> Running:
        column = state.column(self.name)
        rows, weights = self._rows(segments.rows, segments.signs, arguments, counted)
        after: list[Value] = [None] * segments.rows
        begins: list[Value] = []
        last = segments.last.tolist()
        for i, (start, end, key_id, fresh) in enumerate(
            zip(
                segments.starts.tolist(),
                segments.ends.tolist(),
                segments.key_ids.tolist(),
                segments.fresh.tolist(),
                strict=True,
            )
        ):
            accumulator = self.begin() if fresh else column[key_id]
            begins.append(None if fresh else self.value(accumulator))
            for row in range(start, end + 1):
                if weights[row] > 0:
                    accumulator = self.add(accumulator, rows[row])
                elif weights[row] < 0:
                    accumulator = self.retract(accumulator, rows[row])
                after[row] = self.value(accumulator)
            if last[i]:
                column[key_id] = accumulator
        return RunningObjects(after + begins, self._column)

    def fold(
        self, key_ids: KeyIds, signs: Ints | None, arguments: Sequence[pa.Array], counted: Counted, state: Columns
    ) -> None:
        column = state.column(self.name)
        for values, sign, key_id in zip(
            *self._rows(len(key_ids), signs, arguments, counted), key_ids.tolist(), strict=True
        ):
            if sign > 0:
                column[key_id] = self.add(column[key_id], values)
            elif sign < 0:
                column[key_id] = self.retract(column[key_id], values)

    def _rows(
        self, count: int, signs: Ints | None, arguments: Sequence[pa.Array], counted: Counted
    ) -> tuple[list[tuple[Value, ...]], list[int]]:
        """Return the values and weights of rows."""
        weights: NumpyColumn = np.ones(count, np.int64) if signs is None else signs
        if counted is not None:
            weights = counted if counted.dtype != np.bool_ else np.where(counted, weights, 0)
        return self._values(arguments, count), weights.tolist()

    def _values(self, arguments: Sequence[pa.Array], count: int) -> list[tuple[Value, ...]]:
        """Return the arguments of rows."""
        return list(zip(*map(python_values, arguments), strict=True))

    def _column(self, values: list[Value]) -> pa.Array:
        return from_python(values, self.result)

    def results(self, state: Columns, key_ids: KeyIds) -> pa.Array:
        return self._column([self.value(accumulator) for accumulator in state.column(self.name)[key_ids]])


class ExtremeOfMany(ObjectAccumulator):
    """MIN and MAX with retractions or of non-numeric values: a count per value."""

    def begin(self) -> Value:
        # Count per value, negative if retracted before it was added; the values with positive counts, sorted.
        return [{}, []]

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        (value,) = values
        if value is not None:
            counts, ordered = accumulator
            count = counts[value] = counts.get(value, 0) + 1
            if count == 1:
                insort(ordered, value)
            elif not count:
                del counts[value]
        return accumulator

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        (value,) = values
        if value is not None:
            counts, ordered = accumulator
            count = counts[value] = counts.get(value, 0) - 1
            if not count:
                del counts[value]
                del ordered[bisect_left(ordered, value)]
        return accumulator

    def merge_values(self, accumulator: Value, other: Value) -> Value:
        for value, count in other[0].items():
            for _ in range(abs(count)):
                accumulator = self.add(accumulator, (value,)) if count > 0 else self.retract(accumulator, (value,))
        return accumulator

    def value(self, accumulator: Value) -> Value:
        ordered = accumulator[1]
        return ordered[0 if self.call.function == "MIN" else -1] if ordered else None


class ExtremeOfAny(ObjectAccumulator):
    """MIN and MAX of non-numeric values on append-only input."""

    def begin(self) -> Value:
        return None

    def run(self, segments: Segments, arguments: Sequence[pa.Array], counted: Counted, state: Columns) -> Running:
        (argument,) = arguments
        if not pa.types.is_string(argument.type):
            return super().run(segments, arguments, counted, state)
        # Texts, with those in state, are ranked in byte order.
        column = state.column(self.name)
        stored = pa.array(
            [None if f else v for f, v in zip(segments.fresh, column[segments.key_ids], strict=True)], _TEXT
        )
        encoded = pa.concat_arrays([argument, stored]).dictionary_encode()
        texts = encoded.dictionary
        order = pc.array_sort_indices(texts).to_numpy()
        rank = np.empty(len(texts), np.int64)
        rank[order] = np.arange(len(texts))
        is_min = self.call.function == "MIN"
        identity = len(texts) if is_min else -1
        ranks = np.append(rank, identity)[encoded.indices.fill_null(len(texts)).to_numpy()]
        numbers, begins = ranks[: segments.rows], ranks[segments.rows :]
        if counted is not None:
            numbers = np.where(counted.astype(np.bool_), numbers, identity)
        running = segments.scan(np.minimum if is_min else np.maximum, numbers, begins)
        in_order = texts.take(pa.array(order))

        def shown(values: NumpyColumn, valid: Valid) -> pa.Array:
            return in_order.take(pa.array(values, mask=values == identity))

        last = segments.last
        column[segments.key_ids[last]] = np.array(shown(running[segments.ends[last]], None).to_pylist(), object)
        return RunningNumbers(running, begins, None, None, shown)

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        (value,) = values
        if value is None or accumulator is None:
            return accumulator if value is None else value
        return min(accumulator, value) if self.call.function == "MIN" else max(accumulator, value)

    def merge_values(self, accumulator: Value, other: Value) -> Value:
        return self.add(accumulator, (other,))

    def value(self, accumulator: Value) -> Value:
        return accumulator


class FirstOrLast(ObjectAccumulator):
    """FIRST_VALUE and LAST_VALUE of non-null values, in order of arrival or of a second column."""

    def begin(self) -> Value:
        return []

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if values[0] is not None:
            accumulator.append(values[0])
        return accumulator

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if values[0] is not None and values[0] in accumulator:
            accumulator.remove(values[0])
        return accumulator

    def value(self, accumulator: Value) -> Value:
        if not accumulator:
            return None
        return accumulator[0] if self.call.function == "FIRST_VALUE" else accumulator[-1]


class SingleValue(ObjectAccumulator):
    """SINGLE_VALUE: the value of a scalar subquery's only row."""

    def begin(self) -> Value:
        return []

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if accumulator:
            raise TableException(
                "SingleValueAggFunction received more than one element: a scalar subquery returned several rows. "
                "Select one of them with an aggregate or a condition on a key."
            )
        return [values[0]]

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        return []

    def value(self, accumulator: Value) -> Value:
        return accumulator[0] if accumulator else None


class Listed(ObjectAccumulator):
    """LISTAGG of non-null values, with the separator of the last row."""

    def begin(self) -> Value:
        # The separator, and the values.
        return [",", []]

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if values[0] is not None:
            accumulator[0] = values[1] if len(values) > 1 else ","
            accumulator[1].append(values[0])
        return accumulator

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if values[0] is not None and values[0] in accumulator[1]:
            accumulator[1].remove(values[0])
        return accumulator

    def value(self, accumulator: Value) -> Value:
        return accumulator[0].join(accumulator[1]) if accumulator[1] else None


class ArrayOf(ObjectAccumulator):
    """ARRAY_AGG: values including nulls, in order of arrival."""

    def begin(self) -> Value:
        return []

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if values[0] is not None or not self._ignores_nulls:
            accumulator.append(values[0])
        return accumulator

    @property
    def _ignores_nulls(self) -> bool:
        return "IGNORE NULLS" in self.call.options

    def merge_values(self, accumulator: Value, other: Value) -> Value:
        return accumulator + other

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if values[0] in accumulator:
            accumulator.remove(values[0])
        return accumulator

    def value(self, accumulator: Value) -> Value:
        return list(accumulator) if accumulator else None


class Collect(ObjectAccumulator):
    """COLLECT: a multiset of non-null values."""

    def begin(self) -> Value:
        return {}

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if values[0] is not None:
            accumulator[values[0]] = accumulator.get(values[0], 0) + 1
        return accumulator

    def merge_values(self, accumulator: Value, other: Value) -> Value:
        for value, count in other.items():
            accumulator[value] = accumulator.get(value, 0) + count
        return accumulator

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if values[0] in accumulator:
            accumulator[values[0]] -= 1
            if not accumulator[values[0]]:
                del accumulator[values[0]]
        return accumulator

    def value(self, accumulator: Value) -> Value:
        return list(accumulator.items())


class Percentile(ObjectAccumulator):
    """PERCENTILE of a value, with one or several fractions and an optional frequency."""

    def begin(self) -> Value:
        # Count per value, negative if retracted before it was added; the values with positive counts, sorted; the
        # total count; and the constant fraction.
        return [{}, [], 0, None]

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        return self._counted(accumulator, values, 1)

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        return self._counted(accumulator, values, -1)

    def _counted(self, accumulator: Value, values: tuple[Value, ...], sign: int) -> Value:
        value, share, times = values if len(values) == 3 else (*values, 1)
        if value is None or times is None or times <= 0:
            return accumulator
        counts, ordered, total, _ = accumulator
        value = float(value) if not isinstance(value, float) else value
        before = counts.get(value, 0)
        after = before + sign * int(times)
        if before <= 0 < after:
            insort(ordered, value)
        elif after <= 0 < before:
            del ordered[bisect_left(ordered, value)]
        if after:
            counts[value] = after
        else:
            del counts[value]
        accumulator[2] = total + max(after, 0) - max(before, 0)
        accumulator[3] = share
        return accumulator

    def value(self, accumulator: Value) -> Value:
        counts, ordered, total, share = accumulator
        if not total or share is None:
            return None
        if isinstance(share, list):
            return [self._interpolated(counts, ordered, total, s) for s in share]
        return self._interpolated(counts, ordered, total, share)

    def _interpolated(self, counts: dict[float, int], ordered: list[float], total: int, share: float) -> float:
        if not 0 <= share <= 1:
            raise TableException(f"Percentage of PERCENTILE should be between [0.0, 1.0], but was '{share}'.")
        rank = (total - 1) * share
        low, high = floor(rank), ceil(rank)
        if total == len(ordered):
            below, above = ordered[low], ordered[high]
        else:
            below, above = self._counting(counts, ordered, low), self._counting(counts, ordered, high)
        return below if low == high or below == above else below + (above - below) * (rank - low)

    @staticmethod
    def _counting(counts: dict[float, int], ordered: list[float], rank: int) -> float:
        """Return the value at a rank, where each value occurs as often as its count."""
        for value in ordered:
            rank -= counts[value]
            if rank < 0:
                return value
        return ordered[-1]


def _keeps_nulls(call: AggregateCall, otherwise: bool) -> bool:
    """Return whether NULL ON NULL applies; `otherwise` is the default."""
    return "NULL" in call.options or (otherwise and "ABSENT" not in call.options)


class JsonArray(ObjectAccumulator):
    """JSON_ARRAYAGG: values in order of arrival."""

    def begin(self) -> Value:
        return []

    def _shown(self, values: tuple[Value, ...]) -> str | None:
        (value,) = values
        return "null" if value is None and _keeps_nulls(self.call, False) else value

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        shown = self._shown(values)
        if shown is not None:
            accumulator.append(shown)
        return accumulator

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        shown = self._shown(values)
        if shown in accumulator:
            accumulator.remove(shown)
        return accumulator

    def value(self, accumulator: Value) -> Value:
        return f"[{','.join(accumulator)}]"


class JsonObject(ObjectAccumulator):
    """JSON_OBJECTAGG: one member per key, sorted by name."""

    def begin(self) -> Value:
        return {}

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        key, value = values
        if key is None:
            raise TableException("A key of JSON_OBJECTAGG is null: exclude such rows with FILTER or WHERE.")
        if key in accumulator:
            raise TableException(
                f"Key '{key}' is already present. Duplicate keys are not allowed in JSON_OBJECTAGG. Please ensure that "
                "keys are unique."
            )
        if value is not None or _keeps_nulls(self.call, True):
            accumulator[key] = "null" if value is None else value
        return accumulator

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        accumulator.pop(values[0], None)
        return accumulator

    def value(self, accumulator: Value) -> Value:
        return "{" + ",".join(f"{quoted(key)}:{accumulator[key]}" for key in sorted(accumulator)) + "}"


def object_accumulator(call: AggregateCall, name: str, retracts: bool) -> Accumulator:
    """Return the row-by-row accumulator of an aggregate."""
    function = call.function.upper()
    if function in ("MIN", "MAX"):
        return (ExtremeOfMany if retracts else ExtremeOfAny)(call, name)
    if function in ("FIRST_VALUE", "LAST_VALUE"):
        return FirstOrLast(call, name) if retracts or len(call.arguments) > 1 else FirstOrLastEver(call, name)
    simple: dict[str, type[ObjectAccumulator]] = {
        "ARRAY_AGG": ArrayOf,
        "COLLECT": Collect,
        "JSON_ARRAYAGG": JsonArray,
        "JSON_OBJECTAGG": JsonObject,
        "LISTAGG": Listed,
        "PERCENTILE": Percentile,
        "SINGLE_VALUE": SingleValue,
    }
    if function not in simple:
        raise TableException(f"The aggregate {call.function} cannot be computed over a stream of rows.")
    return simple[function](call, name)


class SessionAggregate:
    """A user-defined aggregate function that an operator opens and closes with its subtask."""

    def __init__(self, call: AggregateCall, session: Session) -> None:
        self._call = call
        self._session = session
        self._opened: OpenedAggregate | None = None

    @property
    def opened(self) -> OpenedAggregate:
        """The function, after the subtask has opened it."""
        assert self._opened is not None
        return self._opened

    @property
    def is_open(self) -> bool:
        """Whether the subtask has opened the function."""
        return self._opened is not None

    def open(self, setup: OperatorSetup) -> None:
        """Open the function."""
        call = self._call
        context = self._session.context(setup)
        self._opened = call.user.opened(call.function, call.argument_types, call.type, context)

    def close(self) -> None:
        """Close the function."""
        if self._opened is not None:
            self._opened.close()


def in_session(calls: Sequence[AggregateCall], session: Session) -> tuple[AggregateCall, ...]:
    """Return aggregate calls whose user-defined functions an operator can open."""
    return tuple(c if c.user is None else replace(c, user=SessionAggregate(c, session)) for c in calls)


class UserAccumulator(ObjectAccumulator):
    """Wraps the user's accumulator."""

    @property
    def _function(self) -> OpenedAggregate:
        opened: OpenedAggregate = self.call.user.opened
        return opened

    def begin(self) -> Value:
        # State is restored before the function is opened.
        return self._function.begin() if self.call.user.is_open else None

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        return self._function.add(accumulator, values)

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        return self._function.retract(accumulator, values)

    def value(self, accumulator: Value) -> Value:
        return self._function.value(accumulator)

    def _values(self, arguments: Sequence[pa.Array], count: int) -> list[tuple[Value, ...]]:
        return self._function.rows(arguments, count)

    def _column(self, values: list[Value]) -> pa.Array:
        return self._function.column(values)
