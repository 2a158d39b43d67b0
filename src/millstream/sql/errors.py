"""Errors of the Table API and SQL, under Flink's names."""

from __future__ import annotations

from millstream.common.errors import MillstreamError
from millstream.sql.language.errors import SqlParserException


class TableException(MillstreamError):
    """A query cannot be run."""

    is_of_program = True


class ValidationException(MillstreamError):
    """A program or statement is wrong: a name that is not there, types that do not fit."""

    is_of_program = True


class CatalogException(MillstreamError):
    """Something is wrong in a catalog."""

    is_of_program = True


def null_rowtime() -> TableException:
    """Return the error of a row whose time is null, in Flink's words, with what to do."""
    return TableException(
        "RowTime field should not be null, please convert it to a non-null long value. Make the time a column that is "
        "computed, such as `ts AS COALESCE(read_time, TIMESTAMP '1970-01-01 00:00:00')`, or correct the rows."
    )


__all__ = ["CatalogException", "SqlParserException", "TableException", "ValidationException", "null_rowtime"]
