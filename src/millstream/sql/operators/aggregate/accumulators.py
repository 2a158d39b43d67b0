"""Vectorized accumulators: one call processes the rows of all keys; state is numeric columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.index import KeyIds
from millstream.sql.columns.keyed_columns import Columns, StateColumn, read, written
from millstream.sql.columns.numpy_arrays import (
    Ints,
    Mask,
    NumpyColumn,
    Valid,
    decimals,
    from_numpy,
    is_number_like,
    plain,
    unscaled,
    valid_of,
)
from millstream.sql.expressions import AggregateCall
from millstream.sql.operators.aggregate.segments import Running, RunningNumbers, Segments

# Mask of the rows that count for an aggregate, in segment order; None for all.
Counted = Mask | None


def both(one: Valid, other: Valid) -> Valid:
    """Return where both are valid; None means everywhere."""
    if one is None or other is None:
        return one if other is None else other
    return one & other


class Accumulator:
    """The accumulator of one aggregate call: its state columns and how rows change them."""

    # Whether `combined` can merge the state of several key ids.
    combines = False

    @property
    def is_exact(self) -> bool:
        """Whether the result does not depend on how rows are grouped into partial results; false for float sums."""
        return True

    def __init__(self, call: AggregateCall, name: str) -> None:
        self.call = call
        self.name = name
        self.result = arrow_type(call.type)

    @property
    def state_columns(self) -> list[StateColumn]:
        """The state columns."""
        raise NotImplementedError

    def run(self, segments: Segments, arguments: Sequence[pa.Array], counted: Counted, state: Columns) -> Running:
        """Process rows; return the results after each row, and store the final ones.

        Args:
            segments: the rows by key.
            arguments: the aggregate's columns, in segment order.
            counted: mask of the rows that count; None for all.
            state: the state columns.
        """
        raise NotImplementedError

    def fold(
        self,
        key_ids: KeyIds,
        signs: Ints | None,
        arguments: Sequence[pa.Array],
        counted: Counted,
        state: Columns,
    ) -> None:
        """Process rows in order of arrival, without intermediate results.

        Args:
            key_ids: the key id of each row.
            signs: 1 or -1 for each row; None if all are added.
            arguments: the aggregate's columns.
            counted: as for `run`.
            state: the state columns.
        """
        raise NotImplementedError

    def results(self, state: Columns, key_ids: KeyIds) -> pa.Array:
        """Return the results of key ids."""
        raise NotImplementedError

    def combined(self, state: Columns, key_ids: KeyIds, starts: Ints) -> pa.Array:
        """Return the merged results of runs of key ids; each run ends where the next starts."""
        raise NotImplementedError

    # --- two-phase aggregation

    def partials(self, state: Columns, key_ids: KeyIds) -> list[pa.Array]:
        """Return the partial results of key ids, for `merge` in the second phase."""
        return [written(k, state.column(k.name)[key_ids]) for k in self.state_columns]

    def merge(self, key_ids: KeyIds, partials: Sequence[pa.Array], state: Columns) -> None:
        """Merge partial results into key ids; a key id may occur several times."""
        others = [read(spec, column) for spec, column in zip(self.state_columns, partials, strict=True)]
        self.merge_key_ids(key_ids, others, state)

    def merge_key_ids(self, key_ids: KeyIds, others: Sequence[NumpyColumn], state: Columns) -> None:
        """Merge state columns of other key ids."""
        for spec, values in zip(self.state_columns, others, strict=True):
            np.add.at(state.column(spec.name), key_ids, values)


def _weights(rows: int, signs: Ints | None, valid: Valid, counted: NumpyColumn | None) -> Ints:
    """Return the weight of each row: 1, -1 if it is retracted, or 0 if it does not count."""
    if counted is not None and counted.dtype != np.bool_:
        weights = counted.astype(np.int64)
    elif signs is not None:
        weights = signs if counted is None else np.where(counted, signs, 0)
    else:
        weights = np.ones(rows, np.int64) if counted is None else counted.astype(np.int64)
    return weights if valid is None else np.where(valid, weights, 0)


class Count(Accumulator):
    """COUNT of rows, or of rows without null arguments."""

    combines = True

    @property
    def state_columns(self) -> list[StateColumn]:
        return [StateColumn(self.name, np.int64)]

    def run(self, segments: Segments, arguments: Sequence[pa.Array], counted: Counted, state: Columns) -> Running:
        column = state.column(self.name)
        begins = segments.begins(column, 0)
        running = segments.sums(_weights(segments.rows, segments.signs, self._valid(arguments), counted), begins)
        segments.leave(column, running)
        return RunningNumbers(running, begins, None, None, self._column)

    @staticmethod
    def _valid(arguments: Sequence[pa.Array]) -> Valid:
        valid: Valid = None
        for argument in arguments:
            valid = both(valid, valid_of(argument))
        return valid

    def fold(
        self,
        key_ids: KeyIds,
        signs: Ints | None,
        arguments: Sequence[pa.Array],
        counted: Counted,
        state: Columns,
    ) -> None:
        np.add.at(state.column(self.name), key_ids, _weights(len(key_ids), signs, self._valid(arguments), counted))

    def _column(self, values: NumpyColumn, valid: Valid) -> pa.Array:
        return from_numpy(values, valid, self.result)

    def results(self, state: Columns, key_ids: KeyIds) -> pa.Array:
        return self._column(state.column(self.name)[key_ids], None)

    def combined(self, state: Columns, key_ids: KeyIds, starts: Ints) -> pa.Array:
        return self._column(np.add.reduceat(state.column(self.name)[key_ids], starts), None)


class Summing(Accumulator):
    """An aggregate computed from sums and the number of summed values.

    Attributes:
        sums: names of the sum columns.
        dtype: the type of the sums.
    """

    dtype: type[np.generic] | type[object] = np.int64
    combines = True

    @property
    def is_exact(self) -> bool:
        return bool(np.dtype(self.dtype).kind != "f")

    def numbers(self, argument: pa.Array) -> list[NumpyColumn]:
        """Return the values to sum."""
        raise NotImplementedError

    def value(self, sums: list[NumpyColumn], count: Ints) -> pa.Array:
        """Return the result for sums over `count` values."""
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        return [f"{self.name}.sum"]

    @property
    def state_columns(self) -> list[StateColumn]:
        return [*(StateColumn(name, self.dtype) for name in self.names), StateColumn(f"{self.name}.count", np.int64)]

    def run(self, segments: Segments, arguments: Sequence[pa.Array], counted: Counted, state: Columns) -> Running:
        (argument,) = arguments
        weights = _weights(segments.rows, segments.signs, valid_of(argument), counted)
        plus_only = segments.signs is None and counted is None and argument.null_count == 0
        sums, begins = [], []
        for name, numbers in zip(self.names, self.numbers(argument), strict=True):
            column = state.column(name)
            begin = segments.begins(column, 0)
            deltas = numbers if plus_only else _weighted(numbers, weights)
            running = segments.sums(deltas.astype(self.dtype, copy=False), begin)
            segments.leave(column, running)
            sums.append(running)
            begins.append(begin)
        column = state.column(f"{self.name}.count")
        begin = segments.begins(column, 0)
        count = segments.sums(weights, begin)
        segments.leave(column, count)
        return _RunningSums(self.value, sums, begins, count, begin)

    def fold(
        self,
        key_ids: KeyIds,
        signs: Ints | None,
        arguments: Sequence[pa.Array],
        counted: Counted,
        state: Columns,
    ) -> None:
        (argument,) = arguments
        weights = _weights(len(key_ids), signs, valid_of(argument), counted)
        plus_only = signs is None and counted is None and argument.null_count == 0
        for name, numbers in zip(self.names, self.numbers(argument), strict=True):
            deltas = numbers if plus_only else _weighted(numbers, weights)
            np.add.at(state.column(name), key_ids, deltas.astype(self.dtype, copy=False))
        np.add.at(state.column(f"{self.name}.count"), key_ids, weights)

    def results(self, state: Columns, key_ids: KeyIds) -> pa.Array:
        return self.value([state.column(n)[key_ids] for n in self.names], state.column(f"{self.name}.count")[key_ids])

    def combined(self, state: Columns, key_ids: KeyIds, starts: Ints) -> pa.Array:
        sums = [np.add.reduceat(state.column(n)[key_ids], starts) for n in self.names]
        return self.value(sums, np.add.reduceat(state.column(f"{self.name}.count")[key_ids], starts))


def _weighted(numbers: NumpyColumn, weights: Ints) -> NumpyColumn:
    if numbers.dtype.kind == "f":
        # 0 * infinity is NaN.
        return np.where(weights == 0, 0.0, numbers * weights)
    return numbers * weights


class _RunningSums:
    """Sums after each row; results are computed only for requested rows."""

    def __init__(
        self,
        value: Callable[[list[NumpyColumn], Ints], pa.Array],
        sums: list[NumpyColumn],
        begins: list[NumpyColumn],
        count: Ints,
        count_begins: Ints,
    ) -> None:
        self._value = value
        self._sums = [np.concatenate([s, b]) for s, b in zip(sums, begins, strict=True)]
        self._count = np.concatenate([count, count_begins])

    def differs(self, before: Ints, after: Ints) -> Mask:
        # Different sums can give the same result, an average for example.
        return differing(self.take(before), self.take(after))

    def take(self, positions: Ints) -> pa.Array:
        return self._value([s[positions] for s in self._sums], self._count[positions])


def differing(then: pa.Array, now: pa.Array) -> Mask:
    """Return where values differ; nulls are equal."""
    if is_number_like(now.type):
        differs = plain(now) != plain(then)
    else:
        differs = pc.not_equal(now, then).fill_null(False).to_numpy(zero_copy_only=False)
    if now.null_count or then.null_count:
        one, other = pc.is_valid(now).to_numpy(zero_copy_only=False), pc.is_valid(then).to_numpy(zero_copy_only=False)
        differs = (one != other) | (one & other & differs)
    return differs  # type: ignore[no-any-return]


class SumOfNumbers(Summing):
    """SUM of integers, which wraps around in its type, and of floats."""

    def __init__(self, call: AggregateCall, name: str, argument: pa.DataType) -> None:
        super().__init__(call, name)
        self.dtype = np.float64 if pa.types.is_floating(argument) else np.int64
        if self.result == pa.float32():
            self.dtype = np.float32

    def numbers(self, argument: pa.Array) -> list[NumpyColumn]:
        return [plain(argument)]

    def value(self, sums: list[NumpyColumn], count: Ints) -> pa.Array:
        return from_numpy(sums[0], count > 0, self.result)


class SumOrZero(SumOfNumbers):
    """SUM that is 0 without input; sums the counts of the first phase."""

    def value(self, sums: list[NumpyColumn], count: Ints) -> pa.Array:
        return from_numpy(sums[0], None, self.result)


class SumOfDecimals(Summing):
    """SUM of decimals; null on overflow of the precision."""

    dtype = object

    def numbers(self, argument: pa.Array) -> list[NumpyColumn]:
        return [unscaled(argument).astype(object)]

    def value(self, sums: list[NumpyColumn], count: Ints) -> pa.Array:
        return decimals(sums[0], count > 0, self.result)


class SumOrZeroOfDecimals(SumOfDecimals):
    """SUM of decimals that is 0 without input."""

    def value(self, sums: list[NumpyColumn], count: Ints) -> pa.Array:
        return decimals(sums[0], np.ones(len(count), np.bool_), self.result)


class Average(Summing):
    """AVG of integers, truncated towards zero, and of floats."""

    def __init__(self, call: AggregateCall, name: str, argument: pa.DataType) -> None:
        super().__init__(call, name)
        self.dtype = np.float64 if pa.types.is_floating(argument) else np.int64

    def numbers(self, argument: pa.Array) -> list[NumpyColumn]:
        return [plain(argument)]

    def value(self, sums: list[NumpyColumn], count: Ints) -> pa.Array:
        (total,) = sums
        by = np.where(count == 0, 1, count)
        if total.dtype.kind == "f":
            average = total / by
        else:
            average = np.sign(total) * (np.abs(total) // by)
        return from_numpy(average, count > 0, self.result)


class AverageOfDecimals(Summing):
    """AVG of decimals, rounded half up."""

    dtype = object

    def __init__(self, call: AggregateCall, name: str, argument: pa.DataType) -> None:
        super().__init__(call, name)
        self._scale = 10 ** (self.result.scale - argument.scale) if pa.types.is_decimal(self.result) else 1

    def numbers(self, argument: pa.Array) -> list[NumpyColumn]:
        return [unscaled(argument).astype(object)]

    def value(self, sums: list[NumpyColumn], count: Ints) -> pa.Array:
        (total,), scale = sums, self._scale
        digits = np.empty(len(total), object)
        for i, (t, c) in enumerate(zip(total.tolist(), count.tolist(), strict=True)):
            whole, rest = divmod(abs(t) * scale, c or 1)
            whole += 2 * rest >= (c or 1)
            digits[i] = -whole if t < 0 else whole
        return decimals(digits, count > 0, self.result)


class Variance(Summing):
    """VAR_POP, VAR_SAMP, STDDEV_POP, STDDEV_SAMP, from the sums of values and of their squares."""

    dtype: type[np.generic] | type[object] = np.float64

    def __init__(self, call: AggregateCall, name: str, argument: pa.DataType) -> None:
        super().__init__(call, name)
        self._sample = call.function in ("VAR_SAMP", "VARIANCE", "STDDEV_SAMP", "STDDEV")
        self._root = call.function.startswith("STDDEV")

    @property
    def names(self) -> list[str]:
        return [f"{self.name}.sum", f"{self.name}.squares"]

    def numbers(self, argument: pa.Array) -> list[NumpyColumn]:
        values = argument.cast(pa.float64()) if pa.types.is_decimal(argument.type) else argument
        numbers = plain(values).astype(np.float64)
        return [numbers, numbers * numbers]

    def value(self, sums: list[NumpyColumn], count: Ints) -> pa.Array:
        total, squares = sums
        by = count - 1 if self._sample else count
        valid = by > 0
        n = np.where(count > 0, count, 1)
        variance = (squares - total * total / n) / np.where(valid, by, 1)
        if self._root:
            variance = np.sqrt(np.maximum(variance, 0.0))
        if pa.types.is_decimal(self.result):
            return pa.array(variance, mask=~valid).cast(self.result, safe=False)
        return from_numpy(variance, valid, self.result)


class Extreme(Accumulator):
    """MIN and MAX of numbers and times on append-only input."""

    combines = True

    def __init__(self, call: AggregateCall, name: str, argument: pa.DataType) -> None:
        super().__init__(call, name)
        self._is_min = call.function == "MIN"
        self._dtype = np.float64 if pa.types.is_floating(argument) else np.int64
        # NaN is greater than any number: MIN is NaN only if there is no other value.
        self._add: np.ufunc = np.fmin if self._is_min else np.maximum
        if self._dtype is np.float64:
            self._identity: float = np.nan if self._is_min else -np.inf
        else:
            self._identity = np.iinfo(np.int64).max if self._is_min else np.iinfo(np.int64).min

    @property
    def state_columns(self) -> list[StateColumn]:
        return [
            StateColumn(f"{self.name}.value", self._dtype, self._identity),
            StateColumn(f"{self.name}.is", np.bool_, False),
        ]

    def run(self, segments: Segments, arguments: Sequence[pa.Array], counted: Counted, state: Columns) -> Running:
        (argument,) = arguments
        valid = both(valid_of(argument), None if counted is None else counted.astype(np.bool_))
        numbers = plain(argument).astype(self._dtype, copy=False)
        if valid is not None:
            numbers = np.where(valid, numbers, self._identity)
        column, seen = state.column(f"{self.name}.value"), state.column(f"{self.name}.is")
        begins, seen_begins = segments.begins(column, self._identity), segments.begins(seen, False)
        running = segments.scan(self._add, numbers, begins)
        segments.leave(column, running)
        if valid is None:
            exists = np.ones(segments.rows, np.bool_)
        else:
            exists = segments.sums(valid.astype(np.int64), seen_begins.astype(np.int64)) > 0
        segments.leave(seen, exists)
        return RunningNumbers(running, begins, exists, seen_begins, self._column)

    def fold(
        self,
        key_ids: KeyIds,
        signs: Ints | None,
        arguments: Sequence[pa.Array],
        counted: Counted,
        state: Columns,
    ) -> None:
        (argument,) = arguments
        valid = both(valid_of(argument), None if counted is None else counted.astype(np.bool_))
        numbers = plain(argument).astype(self._dtype, copy=False)
        if valid is not None:
            key_ids, numbers = key_ids[valid], numbers[valid]
        self._add.at(state.column(f"{self.name}.value"), key_ids, numbers)
        state.column(f"{self.name}.is")[key_ids] = True

    def merge_key_ids(self, key_ids: KeyIds, others: Sequence[NumpyColumn], state: Columns) -> None:
        values, has = others
        self._add.at(state.column(f"{self.name}.value"), key_ids, values)
        state.column(f"{self.name}.is")[key_ids[has]] = True

    def _column(self, values: NumpyColumn, valid: Valid) -> pa.Array:
        if valid is not None and not valid.all():
            values = np.where(valid, values, 0)
        return from_numpy(values, valid, self.result)

    def results(self, state: Columns, key_ids: KeyIds) -> pa.Array:
        return self._column(state.column(f"{self.name}.value")[key_ids], state.column(f"{self.name}.is")[key_ids])

    def combined(self, state: Columns, key_ids: KeyIds, starts: Ints) -> pa.Array:
        values = self._add.reduceat(state.column(f"{self.name}.value")[key_ids], starts)
        return self._column(values, np.logical_or.reduceat(state.column(f"{self.name}.is")[key_ids], starts))


class VarianceOfInts(Variance):
    """The same with integer arithmetic, as Flink does in OVER: sums wrap around and quotients are truncated."""

    dtype = np.int64

    def __init__(self, call: AggregateCall, name: str, argument: pa.DataType) -> None:
        super().__init__(replace(call, function=call.function.removeprefix(WITH_INTS)), name, argument)
        self._wraps = argument.to_pandas_dtype()

    def numbers(self, argument: pa.Array) -> list[NumpyColumn]:
        values = plain(argument).astype(np.int64)
        return [values, self._wrapped(values * values)]

    def _wrapped(self, values: Ints) -> Ints:
        return values.astype(self._wraps).astype(np.int64)

    def value(self, sums: list[NumpyColumn], count: Ints) -> pa.Array:
        total, squares = map(self._wrapped, sums)
        by = count - 1 if self._sample else count
        valid = by > 0
        mean_square = _quotient(self._wrapped(total * total), np.where(count > 0, count, 1))
        variance: NumpyColumn = _quotient(squares - mean_square, np.where(valid, by, 1))
        if self._root:
            variance = np.sqrt(np.maximum(variance, 0)).astype(np.int64)
        return from_numpy(variance, valid, self.result)


def _quotient(a: Ints, b: Ints) -> Ints:
    """Return quotients truncated towards zero."""
    return np.sign(a) * (np.abs(a) // b)


# Prefix of the name of a variance computed with integers.
WITH_INTS = "INTS OF "
VARIANCES = frozenset(["VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"])


def vector_accumulator(
    call: AggregateCall, name: str, arguments: Sequence[pa.DataType], retracts: bool
) -> Accumulator | None:
    """Return the vectorized accumulator of an aggregate, or None if it has none.

    Args:
        call: the aggregate.
        name: the prefix of its state columns.
        arguments: the types of its columns.
        retracts: whether the input may retract rows.
    """
    function = call.function.upper()
    if call.user is not None:
        return None
    if function == "COUNT":
        return Count(call, name)
    if len(arguments) != 1:
        return None
    (argument,) = arguments
    if function in VARIANCES:
        return Variance(call, name, argument)
    if function.startswith(WITH_INTS):
        return VarianceOfInts(call, name, argument)
    if pa.types.is_decimal(argument):
        if function == "AVG":
            return AverageOfDecimals(call, name, argument)
        sums = {"SUM": SumOfDecimals, "$SUM0": SumOrZeroOfDecimals}
        return sums[function](call, name) if function in sums else None
    if not is_number_like(argument):
        return None
    if function in ("SUM", "$SUM0", "SUM0", "AVG"):
        if function == "AVG":
            return Average(call, name, argument)
        return (SumOfNumbers if function == "SUM" else SumOrZero)(call, name, argument)
    if function in ("MIN", "MAX") and not retracts and not pa.types.is_boolean(argument):
        return Extreme(call, name, argument)
    return None
