"""Services that functions use besides their arguments: time zone, clock, runtime context, user functions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import pyarrow as pa

from millstream.common.fast_dataclass import record
from millstream.sql.types import DataType


class OpenedFunction(Protocol):
    """A scalar function in a subtask, after its `open`."""

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> pa.Array:
        """Return the column of results for columns of arguments, or for so many rows where there are none."""

    def close(self) -> None:
        """The subtask has ended."""


class OpenedAggregate(Protocol):
    """An aggregate function in a subtask, after its `open`."""

    def begin(self) -> Any:
        """Return a new accumulator."""

    def add(self, accumulator: Any, values: tuple[Any, ...]) -> Any:
        """Add a row; return the accumulator."""

    def take_back(self, accumulator: Any, values: tuple[Any, ...]) -> Any:
        """Take a row back; return the accumulator."""

    def value(self, accumulator: Any) -> Any:
        """Return the result, which the accumulator does not change any more; of a table aggregate, its rows."""

    def rows(self, columns: Sequence[pa.Array], count: int) -> list[tuple[Any, ...]]:
        """Return the arguments of rows."""

    def column(self, values: list[Any]) -> pa.Array:
        """Return results as a column."""

    def close(self) -> None:
        """The subtask has ended."""


class UserFunction(Protocol):
    """A scalar function of the user's.

    Attributes:
        kind: scalar, table, aggregate or table_aggregate.
        input_types: what its arguments are cast to; None for as they are.
        deterministic: whether equal arguments give equal results.
    """

    kind: str
    input_types: list[DataType] | None
    deterministic: bool

    def opened(
        self, name: str, types: Sequence[DataType], result: DataType, context: EvaluationContext
    ) -> OpenedFunction:
        """Open it for a subtask, for arguments and a result of these types."""


def _now() -> int:
    return int(time.time() * 1000)


@record
class EvaluationContext:
    """Where expressions are evaluated.

    Attributes:
        time_zone: the session's, `table.local-time-zone`.
        clock: the time in milliseconds since 1970.
        batch: whether all rows see the same CURRENT_TIMESTAMP: that of `query_start`.
        query_start: when the query began, by the clock.
        watermark: the watermark of the operator, None as long as there is none.
        catalog, database: the current ones.
        runtime_context: what functions of the user's are opened with; None where there is no subtask.
        options: the configuration.
    """

    time_zone: str = "UTC"
    clock: Callable[[], int] = _now
    batch: bool = False
    query_start: int = field(default_factory=_now)
    watermark: Callable[[], int | None] = lambda: None
    catalog: str = "default_catalog"
    database: str = "default_database"
    runtime_context: Any = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _opened: dict[Any, OpenedFunction] = field(default_factory=dict, repr=False)
    # What is asked for several times: expressions as text, and what computes each once for a batch, see `evaluate`.
    shared: dict[str, Any] = field(default_factory=dict, repr=False)

    def now(self) -> int:
        """Return the time that CURRENT_TIMESTAMP gives."""
        return self.query_start if self.batch else self.clock()

    def opened(self, function: UserFunction, name: str, types: Sequence[DataType], result: DataType) -> OpenedFunction:
        """Return a function of the user's, opened once however often it stands in expressions of this context."""
        key = (id(function), name, tuple(types), result)
        found = self._opened.get(key)
        if found is None:
            found = self._opened[key] = function.opened(name, types, result, self)
        return found

    def close(self) -> None:
        """Close the functions of the user's that were opened here."""
        for function in self._opened.values():
            function.close()
        self._opened.clear()
