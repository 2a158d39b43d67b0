"""Before a sink: text and bytes have the lengths that their columns say, or are refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.records import record
from millstream.sql import types as t
from millstream.sql.columns.batch import Batch
from millstream.sql.errors import TableException
from millstream.sql.operators.base import BatchOperator

_TEXTS = (t.CharType, t.VarCharType)
_FIXED = (t.CharType, t.BinaryType)
_MOST = 2_147_483_647


@record(frozen=True)
class Limited:
    """A column with a length.

    Attributes:
        place: of the column.
        name: its name.
        type: its type.
    """

    place: int
    name: str
    type: Any

    @property
    def is_text(self) -> bool:
        """Whether it is of text, not of bytes."""
        return isinstance(self.type, _TEXTS)

    @property
    def is_fixed(self) -> bool:
        """Whether values are not shorter, either."""
        return isinstance(self.type, _FIXED)

    @property
    def words(self) -> str:
        """What it is to people, whether or not it may be null."""
        kind = "CHAR" if self.is_text else "BINARY"
        return f"{kind if self.is_fixed else f'VAR{kind}'}({self.type.length})"

    def lengths(self, column: pa.Array) -> pa.Array:
        """Return how long each value is."""
        return pc.utf8_length(column) if self.is_text else pc.binary_length(column)

    def wrong(self, column: pa.Array) -> pa.Array:
        """Return which values do not have the length; of nulls nothing is said."""
        return (pc.not_equal if self.is_fixed else pc.greater)(self.lengths(column), self.type.length)

    def fitted(self, column: pa.Array) -> pa.Array:
        """Return the values cut to the length, and filled up to it where it is fixed."""
        length = self.type.length
        if self.is_text:
            cut = pc.utf8_slice_codeunits(column, 0, length)
            return pc.utf8_rpad(cut, length, " ") if self.is_fixed else cut
        cut = pc.binary_slice(column, 0, length)
        if not self.is_fixed:
            return cut
        return pa.array([None if v is None else v.ljust(length, b"\0") for v in cut.to_pylist()], column.type)


def limited(columns: Sequence[tuple[str, t.DataType]]) -> list[Limited]:
    """Return those of some columns that have a length."""
    kinds = (*_TEXTS, t.BinaryType, t.VarBinaryType)
    found = [Limited(i, name, kind) for i, (name, kind) in enumerate(columns) if isinstance(kind, kinds)]
    return [c for c in found if c.type.length < _MOST]


class LengthOperator(BatchOperator):
    """Cuts and fills up what is written, or refuses what does not fit.

    Args:
        columns: those that have lengths.
        refuses: whether what does not fit fails the job.
    """

    def __init__(self, columns: Sequence[Limited], refuses: bool) -> None:
        self.columns = list(columns)
        self.refuses = refuses

    def process(self, batch: Batch) -> Iterable[Batch]:
        columns = list(batch.columns)
        for limit in self.columns:
            column = columns[limit.place]
            wrong = limit.wrong(column)
            if not pc.any(wrong).as_py():
                continue
            if self.refuses:
                raise self._refusal(limit, limit.lengths(column).filter(wrong)[0].as_py())
            columns[limit.place] = limit.fitted(column)
        return (batch.with_columns(columns),)

    def _refusal(self, limit: Limited, length: int) -> TableException:
        # Flink says string of bytes, too.
        return TableException(
            f"Column '{limit.name}' is {limit.words}, however, a string of length {length} is being written into it. "
            "You can set job configuration 'table.exec.sink.type-length-enforcer' to control this behaviour."
        )
