"""Declarations that programs make, as catalogs keep them: with the types of computed columns."""

from __future__ import annotations

from millstream.sql.bind.binder import Binder
from millstream.sql.catalog.tables import CatalogTable, ColumnKind
from millstream.sql.ddl.declarations import declared
from millstream.sql.language import statements as s
from millstream.table.texts import read_expression


def resolved(binder: Binder, table: CatalogTable) -> CatalogTable:
    """Return a declaration checked as CREATE TABLE is, with all its types."""
    columns = tuple(
        s.Column(
            c.name,
            None if c.kind is ColumnKind.COMPUTED else c.type,
            None if c.expression is None else s.Written(read_expression(c.expression), c.expression),
            c.kind is ColumnKind.METADATA,
            c.metadata_key,
            c.virtual,
            c.comment,
        )
        for c in table.columns
    )
    watermarks: tuple[s.Watermark, ...] = ()
    if table.watermark is not None:
        name, text = table.watermark
        watermarks = (s.Watermark((name,), s.Written(read_expression(text), text)),)
    key = s.PrimaryKey(table.primary_key, table.primary_key_name) if table.primary_key else None
    statement = s.CreateTable(
        ("described",),
        columns,
        watermarks,
        key,
        table.comment,
        partition=table.partition,
        options=tuple(table.options.items()),
    )
    return declared(binder, statement, None)
