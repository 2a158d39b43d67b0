"""Errors of the Table API and SQL, under Flink's names."""

from __future__ import annotations

from millstream.common.errors import MillstreamError
from millstream.sql.language.errors import SqlParserException


class TableException(MillstreamError):
    """A query cannot be run."""


class ValidationException(MillstreamError):
    """A program or statement is wrong: a name that is not there, types that do not fit."""


class CatalogException(MillstreamError):
    """Something is wrong in a catalog."""


__all__ = ["CatalogException", "SqlParserException", "TableException", "ValidationException"]
