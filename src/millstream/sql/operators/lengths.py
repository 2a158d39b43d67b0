"""Before a sink: text and bytes as long as the table says, or an error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from millstream.sql.columns.batch import Batch
from millstream.sql.errors import TableException
from millstream.sql.operators.base import BatchOperator
from millstream.sql.types import BinaryType, CharType, DataType, VarBinaryType, VarCharType

_LONGEST = 2**31 - 1


@dataclass(frozen=True)
class Limit:
    """A column whose values have a length: exactly so long if they are padded, else at most."""

    index: int
    name: str
    kind: str
    length: int
    is_text: bool
    is_padded: bool


def limited(columns: Sequence[tuple[str, DataType]]) -> list[Limit]:
    """Return the columns of a table whose values have a length, by their names and types."""
    found = []
    for index, (name, kind) in enumerate(columns):
        is_text, is_padded = isinstance(kind, (CharType, VarCharType)), isinstance(kind, (CharType, BinaryType))
        if isinstance(kind, (CharType, VarCharType, BinaryType, VarBinaryType)) and kind.length < _LONGEST:
            found.append(Limit(index, name, str(kind.nullable()), kind.length, is_text, is_padded))
    return found


class LengthOperator(BatchOperator):
    """Cuts values off and pads them, or refuses those that would have to be."""

    def __init__(self, limits: Sequence[Limit], refuses: bool) -> None:
        self.limits = list(limits)
        self.refuses = refuses

    def process(self, batch: Batch) -> Iterable[Batch]:
        columns = list(batch.columns)
        for limit in self.limits:
            column = columns[limit.index]
            lengths = pc.utf8_length(column) if limit.is_text else pc.binary_length(column)
            off = pc.not_equal(lengths, limit.length) if limit.is_padded else pc.greater(lengths, limit.length)
            if not pc.any(off).as_py():
                continue
            if self.refuses:
                self._refuse(limit, lengths.filter(off)[0].as_py())
            columns[limit.index] = _fitted(column, limit)
        return (batch.with_columns(columns),)

    @staticmethod
    def _refuse(limit: Limit, length: int) -> None:
        what = "string" if limit.is_text else "binary"
        raise TableException(
            f"Column '{limit.name}' is {limit.kind}, however, a {what} of length {length} is being written into it. "
            "You can set job configuration 'table.exec.sink.type-length-enforcer' to control this behaviour."
        )


def _fitted(column: pa.Array, limit: Limit) -> pa.Array:
    if limit.is_text:
        cut = pc.utf8_slice_codeunits(column, 0, limit.length)
        return pc.utf8_rpad(cut, limit.length, " ") if limit.is_padded else cut
    cut = pc.binary_slice(column, 0, limit.length)
    if not limit.is_padded:
        return cut
    padded = [None if v is None else v.ljust(limit.length, b"\0") for v in cut.to_pylist()]
    return pa.array(padded, column.type)
