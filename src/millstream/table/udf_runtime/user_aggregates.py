"""Calls of user-defined aggregate functions: row by row with an accumulator, or on pandas with all rows at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.types import Row
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.value_conversion import to_column
from millstream.sql.errors import TableException
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.types import DataType, RowType
from millstream.table.udf_runtime.user_calls import UserCallable, result_column

if TYPE_CHECKING:
    import pandas

    from millstream.table.udf import UserDefinedAggregateFunctionWrapper

# Immutable types, which need no copy.
_PLAIN = (int, float, str, bytes, bool, type(None))


class AggregateCall(UserCallable):
    """An AggregateFunction in a subtask."""

    def __init__(
        self,
        function: UserDefinedAggregateFunctionWrapper,
        types: Sequence[DataType],
        result: DataType,
        context: EvaluationContext,
    ) -> None:
        super().__init__(function, types, context)
        self._result = result

    @staticmethod
    def _called(user: Value) -> Callable[..., Value]:
        accumulate: Callable[..., Value] = user.accumulate
        return accumulate

    def begin(self) -> Value:
        """Return a new accumulator."""
        return self._user.create_accumulator()

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        """Add a row; return the accumulator."""
        return self._step(self._user.accumulate, accumulator, values)

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        """Retract a row; return the accumulator."""
        return self._step(self._user.retract, accumulator, values)

    def _step(self, call: Callable[..., None], accumulator: Value, values: tuple[Value, ...]) -> Value:
        try:
            call(accumulator, *values)
        except Exception as e:
            e.add_note(f"in the aggregate function {self.name}, for the row ({', '.join(map(repr, values))})")
            raise
        return accumulator

    def value(self, accumulator: Value) -> Value:
        """Return the result, independent of later changes of the accumulator."""
        result = self._user.get_value(accumulator)
        return result if isinstance(result, _PLAIN) else deepcopy(result)

    def rows(self, columns: Sequence[pa.Array], count: int) -> list[tuple[Value, ...]]:
        """Return the arguments of rows."""
        values = self._python(columns)
        return list(zip(*values, strict=True)) if values else [()] * count

    def column(self, values: list[Value]) -> pa.Array:
        """Return results as a column."""
        return result_column(self.name, values, self._result, self._zone)


class PandasAggregateCall(AggregateCall):
    """A pandas aggregate function in a subtask: buffers rows and passes them together."""

    @staticmethod
    def _called(user: Value) -> Callable[..., Value]:
        accumulate: Callable[..., Value] = user.accumulate if hasattr(user, "accumulate") else user
        return accumulate

    def begin(self) -> Value:
        return []

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        accumulator.append(values)
        return accumulator

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        if values in accumulator:
            accumulator.remove(values)
        return accumulator

    def value(self, accumulator: Value) -> Value:
        columns = zip(*accumulator, strict=True) if accumulator else [()] * len(self._types)
        arguments = self._pandas([to_column(list(c), t, self._zone) for c, t in zip(columns, self._types, strict=True)])
        try:
            result = self._whole(arguments)
        except Exception as e:
            e.add_note(f"in the pandas aggregate function {self.name}, for {len(accumulator)} rows")
            raise
        return _of_pandas(result)

    def _whole(self, arguments: list[pandas.Series | pandas.DataFrame]) -> Value:
        if self._is_function_object:
            accumulator = self._user.create_accumulator()
            self._user.accumulate(accumulator, *arguments)
            return self._user.get_value(accumulator)
        return self._user(*arguments)

    def rows(self, columns: Sequence[pa.Array], count: int) -> list[tuple[Value, ...]]:
        # A DataFrame of rows is built when all rows are buffered.
        values = self._values(columns)
        return list(zip(*values, strict=True)) if values else [()] * count


def _of_pandas(value: Value) -> Value:
    """Return a pandas value as a Python value; NaN becomes null, as in pandas columns."""
    scalar = value.item() if hasattr(value, "item") and not hasattr(value, "index") else value
    return None if isinstance(scalar, float) and math.isnan(scalar) else scalar


class TableAggregateCall(AggregateCall):
    """A TableAggregateFunction in a subtask."""

    def value(self, accumulator: Value) -> list[tuple[Value, ...]]:
        """Return its rows."""
        return [self._row(row) for row in self._emitted(accumulator)]

    def _emitted(self, accumulator: Value) -> Iterator[Value]:
        rows = self._user.emit_value(accumulator)
        yield from rows if rows is not None else ()

    def _row(self, row: Value) -> tuple[Value, ...]:
        width = len(self._result) if isinstance(self._result, RowType) else 1
        members = tuple(row) if isinstance(row, (tuple, Row)) else (row,)
        if len(members) != width:
            raise TableException(
                f"The table aggregate function {self.name} returned the row {row!r} of {len(members)} values, and its "
                f"result_type has {width}."
            )
        return tuple(v if isinstance(v, _PLAIN) else deepcopy(v) for v in members)

    def columns(self, rows: list[tuple[Value, ...]]) -> list[pa.Array]:
        """Return rows as columns."""
        kinds = self._result.field_types() if isinstance(self._result, RowType) else [self._result]
        if not rows:
            return [pa.array([], arrow_type(k)) for k in kinds]
        return [
            result_column(self.name, list(c), k, self._zone)
            for c, k in zip(zip(*rows, strict=True), kinds, strict=True)
        ]


def opened_aggregate(
    function: UserDefinedAggregateFunctionWrapper,
    types: Sequence[DataType],
    result: DataType,
    context: EvaluationContext,
) -> AggregateCall:
    """Return an aggregate function that can be called in a subtask."""
    if function.kind == "table_aggregate":
        return TableAggregateCall(function, types, result, context)
    make = PandasAggregateCall if function.func_type == "pandas" else AggregateCall
    return make(function, types, result, context)
