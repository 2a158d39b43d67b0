"""What the evaluator asks of a function of the user's; `udf(...)` and `udtf(...)` of `millstream.table` make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

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
