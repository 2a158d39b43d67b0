"""Tables of rows in memory: `from_elements`, `from_pandas`, and results as Arrow tables and DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millstream.common.aliases import Value
from millstream.common.errors import TypeMismatchError
from millstream.common.types import Row
from millstream.connectors.values import RowsTable, split_batch
from millstream.sql import types as t
from millstream.sql.catalog.tables import CatalogTable, TableColumn
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.columns.batch import DELETE, UPDATE_BEFORE, Batch
from millstream.sql.columns.value_conversion import inferred_row, merged_types, names_of, to_column
from millstream.sql.plan.nodes import Scan
from millstream.sql.schema import Field, Fields

if TYPE_CHECKING:
    import pandas

# The schema of rows: their type, the type of a single column, or the names of columns.
RowSchema = t.RowType | t.DataType | Sequence[str] | None


def scan_of(names: Sequence[str], types: Sequence[t.DataType], batch: Batch, name: str, subtasks: int = 1) -> Scan:
    """Return a scan of rows in memory."""
    fields = Fields(tuple(Field(n, k) for n, k in zip(names, types, strict=True)))
    table = CatalogTable(tuple(TableColumn(f.name, f.type) for f in fields.fields))
    source = RowsTable(names, split_batch(batch), subtasks=subtasks)
    return Scan(fields, table, source, (name,), tuple(names))


def row_type_of(elements: Sequence[Value], schema: RowSchema) -> t.RowType:
    """Return the type of rows, from the schema or inferred from the elements."""
    if isinstance(schema, t.RowType):
        return schema
    if isinstance(schema, t.DataType):
        return t.RowType([t.RowField("value", schema)])
    if schema is not None and not (isinstance(schema, (list, tuple)) and all(isinstance(n, str) for n in schema)):
        raise TypeError(f"schema should be RowType, list, tuple or None, but got: {schema!r}")
    if not elements:
        raise ValueError("can not infer schema from empty dataset")
    rows = [inferred_row(_as_row(e), schema) for e in elements]
    inferred = merged_types(rows)
    assert isinstance(inferred, t.RowType)
    for field in inferred.fields:
        if isinstance(field.data_type, t.NullType):
            raise ValueError(f"Some column types cannot be determined: {field.name} is null in all elements.")
    return inferred


def _as_row(element: Value) -> Row | tuple[Value, ...]:
    if isinstance(element, dict):
        return Row(**dict(sorted(element.items())))
    if isinstance(element, list):
        return tuple(element)
    if isinstance(element, (Row, tuple)):
        return element
    raise TypeError(f"Can not infer schema for type: {type(element).__name__}; give a schema, or rows as tuples.")


def batch_of(elements: Iterable[Value], kind: t.RowType, is_single: bool, zone: str) -> Batch:
    """Return elements as columns; all are inserts; their RowKind is ignored."""
    rows = [(e,) for e in elements] if is_single else [_members(e, kind) for e in elements]
    columns = zip(*rows, strict=True) if rows else [()] * len(kind)
    arrays = [to_column(list(c), f.data_type, zone) for c, f in zip(columns, kind.fields, strict=True)]
    return Batch(arrays, None, len(rows))


def _members(element: Value, kind: t.RowType) -> tuple[Value, ...]:
    if isinstance(element, dict):
        return tuple(element.get(n) for n in kind.names)
    if isinstance(element, Row):
        names = names_of(element)
        if names is not None and set(names) == set(kind.names):
            return tuple(element[n] for n in kind.names)
    if not isinstance(element, (Row, tuple, list)):
        if len(kind) != 1:
            raise TypeError(f"The element {element!r} is not a row of {len(kind)} columns.")
        return (element,)
    if len(element) != len(kind):
        raise ValueError(
            f"The element {element!r} has {len(element)} values, and the schema {len(kind)} columns: {kind.names}."
        )
    return tuple(element)


_UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def data_type_of(kind: pa.DataType, nullable: bool = True) -> t.DataType:
    """Return the SQL type of an Arrow type."""
    plain = _plain_type(kind)
    return plain if nullable else plain.not_null()


def _plain_type(kind: pa.DataType) -> t.DataType:
    types = pa.types
    for fits, result in (
        (types.is_boolean, t.DataTypes.BOOLEAN),
        (types.is_int8, t.DataTypes.TINYINT),
        (types.is_int16, t.DataTypes.SMALLINT),
        (types.is_uint8, t.DataTypes.SMALLINT),
        (types.is_int32, t.DataTypes.INT),
        (types.is_uint16, t.DataTypes.INT),
        (types.is_int64, t.DataTypes.BIGINT),
        (types.is_uint32, t.DataTypes.BIGINT),
        (types.is_float32, t.DataTypes.FLOAT),
        (types.is_float16, t.DataTypes.FLOAT),
        (types.is_float64, t.DataTypes.DOUBLE),
        (types.is_string, t.DataTypes.STRING),
        (types.is_large_string, t.DataTypes.STRING),
        (types.is_binary, t.DataTypes.BYTES),
        (types.is_large_binary, t.DataTypes.BYTES),
        (types.is_date, t.DataTypes.DATE),
        (types.is_time, t.DataTypes.TIME),
        (types.is_null, t.DataTypes.STRING),
    ):
        if fits(kind):
            return result()
    return _composite(kind)


def _composite(kind: pa.DataType) -> t.DataType:
    types = pa.types
    if types.is_decimal(kind):
        return t.DataTypes.DECIMAL(kind.precision, kind.scale)
    if types.is_timestamp(kind):
        make = t.DataTypes.TIMESTAMP if kind.tz is None else t.DataTypes.TIMESTAMP_LTZ
        return make(_UNITS[kind.unit])
    if types.is_list(kind) or types.is_large_list(kind):
        return t.DataTypes.ARRAY(_plain_type(kind.value_type))
    if types.is_map(kind):
        return t.DataTypes.MAP(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if types.is_struct(kind):
        return t.DataTypes.ROW([t.DataTypes.FIELD(f.name, _plain_type(f.type)) for f in kind])
    if types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    raise TypeError(f"Unsupported data type to convert to SQL: {kind}")


def from_frame(frame: pandas.DataFrame, schema: RowSchema | Sequence[t.DataType]) -> tuple[t.RowType, Batch]:
    """Return the columns of a pandas.DataFrame, with the types of a schema or their own.

    Raises:
        TypeMismatchError: a column has values that are not of its type.
    """
    table = pa.Table.from_pandas(frame, preserve_index=False)
    own = [t.RowField(f.name, data_type_of(f.type, f.nullable)) for f in table.schema]
    if schema is None:
        kind = t.RowType(own)
    elif isinstance(schema, t.RowType):
        kind = schema
    elif isinstance(schema, (list, tuple)) and schema and all(isinstance(n, str) for n in schema):
        kind = t.RowType([t.RowField(n, f.data_type) for n, f in zip(schema, own, strict=True)])
    elif isinstance(schema, (list, tuple)) and schema and all(isinstance(n, t.DataType) for n in schema):
        kind = t.RowType([t.RowField(f.name, k) for k, f in zip(schema, own, strict=True)])
    else:
        raise TypeError(
            f"Unsupported schema type, it could only be of RowType, a list of str or a list of DataType, got {schema!r}"
        )
    arrays = [
        _typed_column(frame.iloc[:, index], column, field)
        for index, (column, field) in enumerate(zip(table.columns, kind.fields, strict=True))
    ]
    plain = [a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for a in arrays]
    return kind, Batch(plain, None, table.num_rows)


def _typed_column(series: pandas.Series, column: pa.ChunkedArray, field: t.RowField) -> pa.Array:
    kind = arrow_type(field.data_type)
    if not isinstance(field.data_type, t.AtomicType) or isinstance(field.data_type, t.LocalZonedTimestampType):
        return column.cast(kind, safe=False)
    # A cast would parse numbers from text and wrap overflowing ones.
    try:
        return pa.Array.from_pandas(series, mask=series.isnull(), type=kind)
    except (pa.ArrowException, TypeError, ValueError) as e:
        raise TypeMismatchError(
            f"from_pandas(): the column '{field.name}' ({series.dtype}) is not of type {field.data_type}: {e}"
        ) from None


def arrow_table(fields: Fields, batches: Iterator[Batch], zone: str) -> pa.Table:
    """Return all rows as a pyarrow.Table."""
    non_empty = [b for b in batches if len(b)]
    schema = pa.schema([pa.field(f.name, arrow_type(f.type), f.type.is_nullable) for f in fields.fields])
    if not non_empty:
        return schema.empty_table()
    whole = Batch.concatenated(non_empty)
    if whole.kinds is not None:
        whole = whole.take(_remaining_rows(whole))
    return pa.Table.from_arrays(list(whole.columns), schema=schema)


def _remaining_rows(changes: Batch) -> NDArray[np.int64]:
    """Return the indexes of rows that are not retracted."""
    rows = list(zip(*(c.to_pylist() for c in changes.columns), strict=True))
    remaining: dict[int, None] = {}
    indexes: dict[str, list[int]] = {}
    for index, (row, kind) in enumerate(zip(rows, changes.all_kinds().tolist(), strict=True)):
        known = indexes.setdefault(repr(row), [])
        if kind in (UPDATE_BEFORE, DELETE):
            if known:
                del remaining[known.pop()]
        else:
            known.append(index)
            remaining[index] = None
    return np.array(list(remaining), np.int64)


def as_pandas(table: pa.Table) -> pandas.DataFrame:
    """Return a pyarrow.Table as a pandas.DataFrame."""
    # Imported only for programs that use pandas, which is optional.
    import pandas

    frame = table.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    return frame
