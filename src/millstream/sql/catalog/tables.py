"""Declarations of tables and views in a catalog."""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from millstream.common.fast_dataclass import record
from millstream.sql.types import DataType


class ColumnKind(Enum):
    """The kind of a column."""

    PHYSICAL = "PHYSICAL"
    COMPUTED = "COMPUTED"
    METADATA = "METADATA"


@record
class TableColumn:
    """A column of a table.

    Attributes:
        name: its name.
        type: its type; for a computed column that of the expression.
        kind: physical, computed or metadata.
        expression: the SQL of a computed column.
        metadata_key: the connector's name of a metadata column; None if it is the column's own.
        virtual: whether a metadata column is read-only.
        comment: its comment.
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
        """Whether the sink writes it."""
        return self.kind is ColumnKind.PHYSICAL or (self.kind is ColumnKind.METADATA and not self.virtual)


@record
class CatalogTable:
    """A table or a view.

    Attributes:
        columns: in the order of the declaration.
        watermark: the column and SQL expression of WATERMARK FOR; None without one.
        primary_key: the columns of the primary key; empty without one.
        primary_key_name: the name of its constraint.
        partition: the columns of PARTITIONED BY.
        options: the options of WITH.
        comment: its comment.
        query: a view's expanded query; None for a table.
        original_query: a view's query as typed.
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
        """The columns that a sink writes: physical ones, then metadata."""
        metadata = [c for c in self.columns if c.is_persisted and c.kind is ColumnKind.METADATA]
        return self.physical + metadata

    @property
    def physical(self) -> list[TableColumn]:
        """Its physical columns."""
        return [c for c in self.columns if c.kind is ColumnKind.PHYSICAL]
