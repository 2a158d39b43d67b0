"""ANALYZE TABLE: computes statistics of a table and stores them in its catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.common.aliases import Value
from millstream.sql.catalog.manager import CatalogManager
from millstream.sql.catalog.tables import CatalogTable, TableColumn
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.language.statements import AnalyzeTable
from millstream.sql.types import ArrayType, MapType, MultisetType, RowType, quoted
from millstream.table.catalog_objects import CatalogColumnStatistics, CatalogTableStatistics
from millstream.table.sql_text import name_as_sql

_NESTED = (ArrayType, MapType, MultisetType, RowType)


def analyze(
    statement: AnalyzeTable, catalogs: CatalogManager, batch: bool, run_query: Callable[[str], Sequence[Value]]
) -> None:
    """Compute and store statistics; `run_query` runs a query and returns its single row."""
    path = catalogs.full_path(statement.table)
    table = catalogs.permanent(path)
    if table is None:
        raise ValidationException(f"Table {'.'.join(map(name_as_sql, path))} doesn't exist or is a temporary table.")
    if not batch:
        raise TableException("ANALYZE TABLE is not supported for streaming mode now")
    columns = _columns(table, statement.columns)
    aggregates = ["COUNT(*)"]
    for column in columns:
        name = name_as_sql(column.name)
        aggregates += [f"COUNT({name})", f"COUNT(DISTINCT {name})", f"MIN({name})", f"MAX({name})"]
    fixed = [(k, v) for k, v in statement.partition if v is not None]
    where = f" WHERE {' AND '.join(f'{name_as_sql(k)} = {quoted(v)}' for k, v in fixed)}" if fixed else ""
    rows, *values = run_query(f"SELECT {', '.join(aggregates)} FROM {'.'.join(map(name_as_sql, path))}{where}")
    notes = catalogs.catalog(path[0]).table_metadata(path[1], path[2])
    # Statistics of the whole table have an empty key.
    key = tuple(fixed)
    notes.statistics[key] = CatalogTableStatistics(rows, -1, -1, -1)
    if statement.columns is not None:
        data = {}
        for i, column in enumerate(columns):
            non_null, distinct, minimum, maximum = values[4 * i : 4 * i + 4]
            data[column.name] = {"nullCount": rows - non_null, "ndv": distinct, "min": minimum, "max": maximum}
        notes.column_statistics[key] = CatalogColumnStatistics(data)


def _columns(table: CatalogTable, named: tuple[str, ...] | None) -> list[TableColumn]:
    if named is None:
        return []
    known = {c.name: c for c in table.physical}
    for name in named:
        if name not in known:
            raise ValidationException(f"Column: {name} does not exist in the table, which has {', '.join(known)}.")
    return [c for c in table.physical if (not named or c.name in named) and not isinstance(c.type, _NESTED)]
