"""Arrow batches of tables: casts to the declared types and schemas for writers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millstream.common.errors import MillstreamError
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import Batch
from millstream.sql.schema import Field

# Rows per batch that file formats of columns yield.
BATCH_ROWS = 1 << 14


def as_columns(batch: pa.RecordBatch | pa.Table, fields: Sequence[Field], path: str) -> Batch:
    """Return what was read of a file as columns of the table's types; those that it has not are null."""
    names = batch.schema.names
    columns = []
    for field in fields:
        kind = arrow_type(field.type)
        if field.name not in names:
            columns.append(pa.nulls(batch.num_rows, kind))
            continue
        try:
            found = batch.column(names.index(field.name)).cast(kind, safe=False)
        except pa.ArrowException as e:
            raise MillstreamError(
                f"Column '{field.name}' of {path} does not fit the type {field.type}: {e}. Correct the declaration."
            ) from None
        columns.append(found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found)
    return Batch(columns, None, batch.num_rows)


def arrow_schema(fields: Sequence[Field]) -> pa.Schema:
    return pa.schema([pa.field(f.name, arrow_type(f.type)) for f in fields])
