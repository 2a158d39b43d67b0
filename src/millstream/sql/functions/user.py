"""What the evaluator asks of a function of the user's; `udf(...)` and `udtf(...)` of `millstream.table` make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from millstream.sql.types import DataType

if TYPE_CHECKING:
    from millstream.sql.functions.context import EvaluationContext


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
