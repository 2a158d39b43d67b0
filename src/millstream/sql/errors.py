"""Errors of the Table API and SQL, under Flink's names."""

from __future__ import annotations

from millstream.common.errors import MillstreamError
from millstream.sql.language.errors import SqlParserException


class TableException(MillstreamError):
    """A query that cannot be planned or run."""

    is_of_program = True


class ValidationException(MillstreamError):
    """An invalid program or statement: unknown names, types that do not match."""

    is_of_program = True


class CatalogException(MillstreamError):
    """A failed catalog operation."""

    is_of_program = True


def null_rowtime() -> TableException:
    """Return the error for a row with a null rowtime: Flink's text and the fix."""
    return TableException(
        "RowTime field should not be null, please convert it to a non-null long value. Make the time a column that is "
        "computed, such as `ts AS COALESCE(read_time, TIMESTAMP '1970-01-01 00:00:00')`, or correct the rows."
    )


__all__ = ["CatalogException", "SqlParserException", "TableException", "ValidationException", "null_rowtime"]
