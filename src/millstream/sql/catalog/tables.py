"""What a catalog knows of a table or a view: its declaration."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from millstream.common.fast_dataclass import record
from millstream.sql.types import DataType


class ColumnKind(Enum):
    """Where the values of a column come from."""

    PHYSICAL = "PHYSICAL"
    COMPUTED = "COMPUTED"
    METADATA = "METADATA"


@record
class TableColumn:
    """A column of a table.

    Attributes:
        name: its name.
        type: its type; of a computed one, that of the expression.
        kind: where its values come from.
        expression: of a computed column, as SQL.
        metadata_key: of a metadata column, the name the connector knows, None if it is the column's own.
        virtual: whether a metadata column is only read.
        comment: what is said of it.
    """

    name: str
    type: DataType
    kind: ColumnKind = ColumnKind.PHYSICAL
    expression: str | None = None
    metadata_key: str | None = None
    virtual: bool = False
    comment: str | None = None

    @property
    def is_persisted(self) -> bool:
        """Whether rows that are written have it."""
        return self.kind is ColumnKind.PHYSICAL or (self.kind is ColumnKind.METADATA and not self.virtual)


@record
class CatalogTable:
    """A table or a view.

    Attributes:
        columns: in the order of the declaration.
        watermark: the column and the expression, as SQL, of WATERMARK FOR; None without one.
        primary_key: the columns of the primary key; none without one.
        primary_key_name: of its constraint.
        partition: the columns of PARTITIONED BY.
        options: the options of WITH.
        comment: what is said of it.
        query: of a view, its text with full names; None for a table.
        original_query: as it was typed.
    """

    columns: tuple[TableColumn, ...]
    watermark: tuple[str, str] | None = None
    primary_key: tuple[str, ...] = ()
    primary_key_name: str | None = None
    partition: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    query: str | None = None
    original_query: str | None = None

    @property
    def is_view(self) -> bool:
        return self.query is not None

    @property
    def persisted(self) -> list[TableColumn]:
        """The columns of rows that are written: physical ones, then metadata."""
        metadata = [c for c in self.columns if c.is_persisted and c.kind is ColumnKind.METADATA]
        return self.physical + metadata

    @property
    def physical(self) -> list[TableColumn]:
        """Its physical columns."""
        return [c for c in self.columns if c.kind is ColumnKind.PHYSICAL]
