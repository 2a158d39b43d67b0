"""Errors of the Table API and SQL, under Flink's names."""

from __future__ import annotations

from typing import ClassVar, Self

from millstream.common.errors import MillstreamError
from millstream.sql.language.errors import SqlParserException

__all__ = ["CatalogException", "SqlParserException", "TableException", "ValidationException", "null_rowtime"]


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


class _ObjectException(CatalogException):
    """An error about the existence of a catalog object."""

    text: ClassVar[str]

    @classmethod
    def of(cls, name: object, catalog: str) -> Self:
        """Return the error for an object of a catalog."""
        return cls(cls.text.format(name=name, catalog=catalog))


class DatabaseAlreadyExistException(_ObjectException):
    """A database to be created already exists."""

    text = "Database {name} already exists in Catalog {catalog}."


class DatabaseNotEmptyException(_ObjectException):
    """A database to be dropped is not empty."""

    text = "Database {name} in catalog {catalog} is not empty."


class DatabaseNotExistException(_ObjectException):
    """A database does not exist."""

    text = "Database {name} does not exist in Catalog {catalog}."


class FunctionAlreadyExistException(_ObjectException):
    """A function to be created already exists."""

    text = "Function {name} already exists in Catalog {catalog}."


class FunctionNotExistException(_ObjectException):
    """A function does not exist."""

    text = "Function {name} does not exist in Catalog {catalog}."


class ModelAlreadyExistException(_ObjectException):
    """A model to be created already exists."""

    text = "Model {name} already exists in Catalog {catalog}."


class ModelNotExistException(_ObjectException):
    """A model does not exist."""

    text = "Model {name} does not exist in Catalog {catalog}."


class PartitionAlreadyExistsException(_ObjectException):
    """A partition to be created already exists."""

    text = "Partition {name} in catalog {catalog} already exists."


class PartitionNotExistException(_ObjectException):
    """A partition does not exist."""

    text = "Partition {name} in catalog {catalog} does not exist."


class PartitionSpecInvalidException(_ObjectException):
    """A partition spec does not match the table's partition keys."""

    text = "PartitionSpec {name} in catalog {catalog}."


class TableAlreadyExistException(_ObjectException):
    """A table or view to be created already exists."""

    text = "Table (or view) {name} already exists in Catalog {catalog}."


class TableNotExistException(_ObjectException):
    """A table or view does not exist."""

    text = "Table (or view) {name} does not exist in Catalog {catalog}."


class TableNotPartitionedException(_ObjectException):
    """A table is not partitioned."""

    text = "Table {name} in catalog {catalog} is not partitioned."
