"""Errors of catalogs, under the names and in the words of Flink's."""

from __future__ import annotations

from typing import ClassVar, Self

from millstream.sql.errors import CatalogException


class _ObjectException(CatalogException):
    """An object of a catalog exists, or does not, against what was expected."""

    text: ClassVar[str]

    @classmethod
    def of(cls, name: object, catalog: str) -> Self:
        """Return the error for an object of a catalog."""
        return cls(cls.text.format(name=name, catalog=catalog))


class DatabaseAlreadyExistException(_ObjectException):
    """A database that is to be created exists."""

    text = "Database {name} already exists in Catalog {catalog}."


class DatabaseNotEmptyException(_ObjectException):
    """A database that is to be dropped has tables or functions."""

    text = "Database {name} in catalog {catalog} is not empty."


class DatabaseNotExistException(_ObjectException):
    """A database does not exist."""

    text = "Database {name} does not exist in Catalog {catalog}."


class FunctionAlreadyExistException(_ObjectException):
    """A function that is to be created exists."""

    text = "Function {name} already exists in Catalog {catalog}."


class FunctionNotExistException(_ObjectException):
    """A function does not exist."""

    text = "Function {name} does not exist in Catalog {catalog}."


class ModelAlreadyExistException(_ObjectException):
    """A model that is to be created exists."""

    text = "Model {name} already exists in Catalog {catalog}."


class ModelNotExistException(_ObjectException):
    """A model does not exist."""

    text = "Model {name} does not exist in Catalog {catalog}."


class PartitionAlreadyExistsException(_ObjectException):
    """A partition that is to be created exists."""

    text = "Partition {name} in catalog {catalog} already exists."


class PartitionNotExistException(_ObjectException):
    """A partition does not exist."""

    text = "Partition {name} in catalog {catalog} does not exist."


class PartitionSpecInvalidException(_ObjectException):
    """A partition is not named by the table's partition keys."""

    text = "PartitionSpec {name} in catalog {catalog}."


class TableAlreadyExistException(_ObjectException):
    """A table or view that is to be created exists."""

    text = "Table (or view) {name} already exists in Catalog {catalog}."


class TableNotExistException(_ObjectException):
    """A table or view does not exist."""

    text = "Table (or view) {name} does not exist in Catalog {catalog}."


class TableNotPartitionedException(_ObjectException):
    """A partition was asked for of a table that has none."""

    text = "Table {name} in catalog {catalog} is not partitioned."
