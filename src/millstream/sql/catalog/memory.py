"""The catalog contract and the in-memory catalog."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.catalog.tables import CatalogModel, CatalogTable
from millstream.sql.errors import CatalogException, DatabaseNotExistException


@fast_dataclass
class Database:
    """A database: its options and comment."""

    options: dict[str, str] = field(default_factory=dict)
    comment: str | None = None


@fast_dataclass
class CatalogFunction:
    """A function by the name of its implementation.

    Attributes:
        implementation: `module.object`.
        language: JAVA, SCALA or PYTHON.
    """

    implementation: str
    language: str = "JAVA"


# A partition or statistics object of `millstream.table`, the layer above, which alone reads it.
TableApiObject: TypeAlias = Any
# A partition spec: columns and values.
PartitionKey = tuple[tuple[str, str], ...]


@dataclass
class TableMetadata:
    """Partitions and statistics of a table, as objects of the Table API. The planner does not use them.

    Attributes:
        partitions: the declared partitions with their properties.
        statistics: of the table, under an empty key, and of partitions.
        column_statistics: the same by column.
    """

    partitions: dict[PartitionKey, TableApiObject] = field(default_factory=dict)
    statistics: dict[PartitionKey, TableApiObject] = field(default_factory=dict)
    column_statistics: dict[PartitionKey, TableApiObject] = field(default_factory=dict)


class Catalog(ABC):
    """A catalog.

    Attributes:
        name: the catalog's name.
    """

    name: str

    @abstractmethod
    def databases(self) -> dict[str, Database]:
        """Return the databases by name."""

    @abstractmethod
    def put_database(self, name: str, database: Database) -> None:
        """Add or replace a database."""

    @abstractmethod
    def drop_database(self, name: str) -> None:
        """Drop a database with its contents."""

    @abstractmethod
    def tables(self, database: str) -> dict[str, CatalogTable]:
        """Return the tables and views of a database by name."""

    @abstractmethod
    def put_table(self, database: str, name: str, table: CatalogTable) -> None:
        """Add or replace a table or view."""

    @abstractmethod
    def drop_table(self, database: str, name: str) -> None:
        """Drop a table or view."""

    def rename_table(self, database: str, name: str, new_name: str) -> None:
        """Rename a table or view with its partitions and statistics."""
        table = self.tables(database)[name]
        self.drop_table(database, name)
        self.put_table(database, new_name, table)

    @abstractmethod
    def functions(self, database: str) -> dict[str, CatalogFunction]:
        """Return the functions of a database by name, in lower case."""

    @abstractmethod
    def put_function(self, database: str, name: str, function: CatalogFunction) -> None:
        """Add or replace a function."""

    @abstractmethod
    def drop_function(self, database: str, name: str) -> None:
        """Drop a function."""

    def models(self, database: str) -> dict[str, CatalogModel]:
        """Return the mutable models of a database by name."""
        raise CatalogException(f"{type(self).__name__} does not store models.")

    def options(self) -> dict[str, str]:
        """Return the options of the catalog."""
        return {}

    def table_metadata(self, database: str, table: str) -> TableMetadata:
        """Return the mutable partitions and statistics of a table."""
        raise CatalogException(f"{type(self).__name__} does not store partitions and statistics.")


class GenericInMemoryCatalog(Catalog):
    """A catalog that lives as long as the program."""

    def __init__(self, name: str = "default_catalog", default_database: str = "default_database") -> None:
        self.name = name
        self.default_database = default_database
        self._databases: dict[str, Database] = {default_database: Database()}
        self._tables: dict[str, dict[str, CatalogTable]] = {default_database: {}}
        self._functions: dict[str, dict[str, CatalogFunction]] = {default_database: {}}
        self._metadata: dict[tuple[str, str], TableMetadata] = {}
        self._models: dict[str, dict[str, CatalogModel]] = {}

    def databases(self) -> dict[str, Database]:
        return self._databases

    def put_database(self, name: str, database: Database) -> None:
        self._databases[name] = database
        self._tables.setdefault(name, {})
        self._functions.setdefault(name, {})

    def drop_database(self, name: str) -> None:
        del self._databases[name], self._tables[name], self._functions[name]
        self._metadata = {key: notes for key, notes in self._metadata.items() if key[0] != name}
        self._models.pop(name, None)

    def tables(self, database: str) -> dict[str, CatalogTable]:
        self._need(database)
        return self._tables[database]

    def put_table(self, database: str, name: str, table: CatalogTable) -> None:
        self._need(database)
        self._tables[database][name] = table

    def drop_table(self, database: str, name: str) -> None:
        del self._tables[database][name]
        self._metadata.pop((database, name), None)

    def rename_table(self, database: str, name: str, new_name: str) -> None:
        notes = self._metadata.get((database, name))
        super().rename_table(database, name, new_name)
        if notes is not None:
            self._metadata[database, new_name] = notes

    def table_metadata(self, database: str, table: str) -> TableMetadata:
        return self._metadata.setdefault((database, table), TableMetadata())

    def models(self, database: str) -> dict[str, CatalogModel]:
        self._need(database)
        return self._models.setdefault(database, {})

    def functions(self, database: str) -> dict[str, CatalogFunction]:
        self._need(database)
        return self._functions[database]

    def put_function(self, database: str, name: str, function: CatalogFunction) -> None:
        self._need(database)
        self._functions[database][name.lower()] = function

    def drop_function(self, database: str, name: str) -> None:
        del self._functions[database][name.lower()]

    def _need(self, database: str) -> None:
        if database not in self._databases:
            raise DatabaseNotExistException.of(database, self.name)

    def options(self) -> dict[str, str]:
        return {"type": "generic_in_memory", "default-database": self.default_database}
