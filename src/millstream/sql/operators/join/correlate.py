"""Correlate: joins each row with the rows that a table function returns for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.columns.numpy_arrays import Ints
from millstream.sql.expressions import Expression
from millstream.sql.functions.evaluate import compiled, condition
from millstream.sql.functions.function import EvaluationContext
from millstream.sql.operators.base import EvaluatingOperator
from millstream.sql.operators.query_context import Session
from millstream.sql.types import ArrayType, DataType, MapType, MultisetType, RowType

# The number of function rows per input row, and their columns.
Joined = tuple[Sequence[int] | Ints, list[pa.Array]]


class OpenedTableFunction(Protocol):
    """A table function in a subtask, after its `open`."""

    def __call__(self, columns: Sequence[pa.Array], rows: int) -> Joined:
        """Return the function's rows for argument columns of `rows` input rows."""

    def close(self) -> None:
        """Release resources when the subtask ends."""


class TableFunction(Protocol):
    """A user's table function."""

    def opened(
        self, name: str, types: Sequence[DataType], results: Sequence[DataType], context: EvaluationContext
    ) -> OpenedTableFunction:
        """Open it in a subtask for argument and result types."""


class CorrelateOperator(EvaluatingOperator):
    """Emits the input's columns, then the function's."""

    def __init__(
        self,
        function: TableFunction | str,
        arguments: Sequence[Expression],
        types: Sequence[DataType],
        session: Session,
        *,
        is_outer: bool = False,
        condition: Expression | None = None,
        ordinality: bool = False,
    ) -> None:
        """Create the operator.

        Args:
            function: "UNNEST", or the user's table function.
            arguments: expressions over the input row.
            types: of the function's columns, and of the ordinal if there is one.
            session: the session settings.
            is_outer: whether rows without function rows are emitted (LEFT).
            condition: a condition on all columns; None for none.
            ordinality: whether the last column numbers the rows from 1.
        """
        self.function = function
        self.arguments = tuple(arguments)
        self.types = list(types)
        self.session = session
        self.is_outer = is_outer
        self.condition = condition
        self.ordinality = ordinality

    def open(self) -> None:
        self._arguments = [compiled(a, self.context) for a in self.arguments]
        self._holds = None if self.condition is None else condition(self.condition, self.context)
        self._opened: OpenedTableFunction | None = None
        self._make: Callable[[Sequence[pa.Array], int], Joined] = self._unnested
        if not isinstance(self.function, str):
            name = getattr(self.function, "name", None) or "the table function"
            results = self.types[:-1] if self.ordinality else self.types
            self._opened = self._make = self.function.opened(
                name, [a.type for a in self.arguments], results, self.context
            )

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        super().close()

    def process(self, batch: Batch) -> Iterable[Batch]:
        counts, columns = self._make([a(batch) for a in self._arguments], len(batch))
        counts = np.asarray(counts, np.int64)
        rows = np.repeat(np.arange(len(batch)), counts)
        if self.ordinality:
            number = np.arange(1, len(rows) + 1) - np.repeat(np.cumsum(counts) - counts, counts)
            columns = [*columns, pa.array(number).cast(arrow_type(self.types[-1]))]
        taken = batch.take(rows)
        out = taken.with_columns([*taken.columns, *columns])
        if self._holds is not None and len(out):
            holds = self._holds(out)
            out, rows = out.filter(holds), rows[holds]
        return (self._with_all(batch, out, rows) if self.is_outer else out,)

    def _with_all(self, batch: Batch, out: Batch, rows: Ints) -> Batch:
        """Return the joined rows with the unmatched rows inserted in input order."""
        alone = np.flatnonzero(np.bincount(rows, minlength=len(batch)) == 0)
        if not len(alone):
            return out
        unmatched = batch.take(alone)
        nulls = [pa.nulls(len(alone), arrow_type(t)) for t in self.types]
        both = Batch.concatenated([out, unmatched.with_columns([*unmatched.columns, *nulls])])
        return both.take(np.argsort(np.concatenate([rows, alone]), kind="stable"))

    def _unnested(self, columns: Sequence[pa.Array], rows: int) -> Joined:
        (column,), kind = columns, self.arguments[0].type
        if isinstance(kind, MultisetType):
            return _multiset(column)
        counts = _lengths(column)
        if isinstance(kind, MapType):
            flat = pc.list_flatten(_as_list(column))
            return counts, [flat.field(0), flat.field(1)]
        assert isinstance(kind, ArrayType)
        flat = pc.list_flatten(column)
        if isinstance(kind.element_type, RowType):
            return counts, _fields(flat)
        return counts, [flat]


def _lengths(column: pa.Array) -> Ints:
    lengths = pc.list_value_length(_as_list(column)).fill_null(0)
    return lengths.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _as_list(column: pa.Array) -> pa.Array:
    if not pa.types.is_map(column.type):
        return column
    entries = pa.struct([pa.field("key", column.type.key_type, False), pa.field("value", column.type.item_type)])
    return column.cast(pa.list_(entries))


def _fields(rows: pa.Array) -> list[pa.Array]:
    """Return the fields of rows; fields of null rows are null."""
    return [pc.struct_field(rows, [i]) for i in range(rows.type.num_fields)]


def _multiset(column: pa.Array) -> Joined:
    entries = pc.list_flatten(_as_list(column))
    times = entries.field(1).to_numpy(zero_copy_only=False)
    members = entries.field(0).take(pa.array(np.repeat(np.arange(len(entries)), times)))
    parents = np.repeat(np.arange(len(column)), _lengths(column))
    counts = np.bincount(np.repeat(parents, times), minlength=len(column))
    return counts, [members]
