"""Schemas of relations and row kinds."""

from __future__ import annotations

from enum import Enum

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.types import DataType, RowField, RowType


class TimeAttribute(Enum):
    """The type of a time attribute."""

    ROWTIME = "ROWTIME"
    PROCTIME = "PROCTIME"


@fast_dataclass
class Field:
    """A column: its name, its type, and whether it is a time attribute."""

    name: str
    type: DataType
    time: TimeAttribute | None = None

    def __str__(self) -> str:
        """Return its type as DESCRIBE shows it."""
        return str(self.type) if self.time is None else f"{self.type} *{self.time.value}*"


@fast_dataclass
class Fields:
    """The columns of a relation in order."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> list[str]:
        return [f.name for f in self.fields]

    @property
    def types(self) -> list[DataType]:
        return [f.type for f in self.fields]

    def __len__(self) -> int:
        return len(self.fields)

    def __getitem__(self, index: int) -> Field:
        return self.fields[index]

    def row_type(self) -> RowType:
        """Return the row type."""
        return RowType([RowField(f.name, f.type) for f in self.fields], False)


class Changes(Enum):
    """A row kind."""

    INSERT = "I"
    UPDATE_BEFORE = "UB"
    UPDATE_AFTER = "UA"
    DELETE = "D"


INSERTS = frozenset({Changes.INSERT})
UPSERTS = frozenset({Changes.INSERT, Changes.UPDATE_AFTER, Changes.DELETE})
ALL_CHANGES = frozenset(Changes)
