"""Services that functions use besides their arguments: time zone, clock, runtime context, user functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.columns.batch import Batch
from millstream.sql.types import DataType

if TYPE_CHECKING:
    from millstream.operators.functions.context import RuntimeContext


class OpenedFunction(Protocol):
    """A scalar function in a subtask, after its `open`."""

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """Return the results for argument columns, or for `rows` rows without arguments."""

    def close(self) -> None:
        """Release resources when the subtask ends."""


class OpenedAggregate(Protocol):
    """An aggregate function in a subtask, after its `open`."""

    def begin(self) -> Value:
        """Return a new accumulator."""

    def add(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        """Add a row; return the accumulator."""

    def retract(self, accumulator: Value, values: tuple[Value, ...]) -> Value:
        """Retract a row; return the accumulator."""

    def value(self, accumulator: Value) -> Value:
        """Return the result, independent of later changes; for a table aggregate its rows."""

    def rows(self, columns: Sequence[pa.Array], count: int) -> list[tuple[Value, ...]]:
        """Return the arguments of rows."""

    def column(self, values: list[Value]) -> pa.Array:
        """Return results as a column."""

    def close(self) -> None:
        """Release resources when the subtask ends."""


class OpenedTableAggregate(OpenedAggregate, Protocol):
    """A table aggregate function in a subtask, after its `open`; its `value` is a list of rows."""

    def columns(self, rows: Sequence[tuple[Value, ...]]) -> list[pa.Array]:
        """Return result rows as columns."""


class UserFunction(Protocol):
    """A user function.

    Attributes:
        kind: scalar, table, aggregate or table_aggregate.
        input_types: the parameter types; None to accept any.
        deterministic: whether equal arguments have equal results.
    """

    kind: str
    input_types: list[DataType] | None
    deterministic: bool

    def opened(
        self, name: str, types: Sequence[DataType], result: DataType, context: EvaluationContext
    ) -> OpenedFunction:
        """Open it in a subtask for argument and result types."""


def _now() -> int:
    return int(time.time() * 1000)


class SharedExpression:
    """A common subexpression, evaluated once per batch."""

    def __init__(self) -> None:
        self.evaluate: Callable[[Batch], pa.Array | pa.Scalar] | None = None
        self._batch: Batch | None = None
        self._value: pa.Array | pa.Scalar = None

    def __call__(self, batch: Batch) -> pa.Array | pa.Scalar:
        if self._batch is not batch:
            assert self.evaluate is not None
            # A failed evaluation is not cached.
            self._batch = None
            self._value = self.evaluate(batch)
            self._batch = batch
        return self._value

    def forget(self) -> None:
        self._batch = self._value = None


@fast_dataclass
class EvaluationContext:
    """The context in which expressions are evaluated.

    Attributes:
        time_zone: the session time zone, `table.local-time-zone`.
        clock: returns the time in milliseconds since 1970.
        batch: whether all rows see `query_start` as CURRENT_TIMESTAMP.
        query_start: the start time of the query.
        watermark: the operator's watermark; None before the first.
        catalog, database: the current ones.
        runtime_context: passed to `open` of user functions; None outside a subtask.
        options: the configuration.
    """

    time_zone: str = "UTC"
    clock: Callable[[], int] = _now
    batch: bool = False
    query_start: int = field(default_factory=_now)
    watermark: Callable[[], int | None] = lambda: None
    catalog: str = "default_catalog"
    database: str = "default_database"
    runtime_context: RuntimeContext | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _opened: dict[tuple[int, str, tuple[DataType, ...], DataType], OpenedFunction] = field(
        default_factory=dict, repr=False
    )
    # Common subexpressions by text, each computed once per batch; see `evaluate`.
    shared: dict[str, SharedExpression] = field(default_factory=dict, repr=False)

    def now(self) -> int:
        """Return the value of CURRENT_TIMESTAMP."""
        return self.query_start if self.batch else self.clock()

    def opened(self, function: UserFunction, name: str, types: Sequence[DataType], result: DataType) -> OpenedFunction:
        """Return a user function, opened once per context."""
        key = (id(function), name, tuple(types), result)
        match = self._opened.get(key)
        if match is None:
            match = self._opened[key] = function.opened(name, types, result, self)
        return match

    def close(self) -> None:
        """Close all user functions opened here."""
        for function in self._opened.values():
            function.close()
        self._opened.clear()
