"""Catalogs: where tables, views and functions are known by name."""

from __future__ import annotations

from dataclasses import field, replace

from millstream.common.configuration import Configuration
from millstream.common.missing import JAVA, missing_class, missing_function
from millstream.common.records import record
from millstream.sql.catalog import memory, models
from millstream.sql.catalog.memory import GenericInMemoryCatalog
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.errors import CatalogException
from millstream.table.catalog_partitions import (
    CatalogColumnStatistics,
    CatalogPartition,
    CatalogPartitionSpec,
    CatalogTableStatistics,
    PartitionsAndStatistics,
)
from millstream.table.object_identifier import ObjectIdentifier, ObjectPath
from millstream.table.resolved_schema import (
    Column,
    ComputedColumn,
    Constraint,
    MetadataColumn,
    PhysicalColumn,
    ResolvedSchema,
    UniqueConstraint,
    WatermarkSpec,
)
from millstream.table.schema import Schema
from millstream.table.table_schema import TableSchema

__all__ = [
    "Catalog",
    "CatalogBaseTable",
    "CatalogColumnStatistics",
    "CatalogDatabase",
    "CatalogDescriptor",
    "CatalogFunction",
    "CatalogModel",
    "CatalogPartition",
    "CatalogPartitionSpec",
    "CatalogTableStatistics",
    "Column",
    "ComputedColumn",
    "Constraint",
    "GenericInMemoryCatalog",
    "HiveCatalog",
    "JdbcCatalog",
    "MetadataColumn",
    "ObjectIdentifier",
    "ObjectPath",
    "PhysicalColumn",
    "Procedure",
    "ResolvedSchema",
    "UniqueConstraint",
    "WatermarkSpec",
]

_PROCEDURES = "procedures are objects of catalogs in Java"


@record(frozen=True)
class CatalogDatabase:
    """A database: its properties, and what is said of it."""

    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None

    @staticmethod
    def create_instance(properties: dict[str, str], comment: str | None = None) -> CatalogDatabase:
        """Return a database with properties."""
        return CatalogDatabase(dict(properties), comment)

    def get_properties(self) -> dict[str, str]:
        """Return its properties."""
        return dict(self.properties)

    def get_comment(self) -> str | None:
        """Return what is said of it."""
        return self.comment

    def copy(self) -> CatalogDatabase:
        """Return another that is equal."""
        return replace(self)

    def get_description(self) -> str | None:
        """Return what is said of it."""
        return self.comment

    def get_detailed_description(self) -> str | None:
        """Return what is said of it."""
        return self.comment


class CatalogBaseTable:
    """A table or a view of a catalog."""

    def __init__(self, table: CatalogTable) -> None:
        self._table = table

    @staticmethod
    def create_table(
        schema: TableSchema,
        partition_keys: list[str] | None = None,
        properties: dict[str, str] | None = None,
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """Return a table."""
        columns = Schema.new_builder().from_row_data_type(schema.to_row_data_type()).build()
        return CatalogBaseTable(columns.as_table(dict(properties or {}), partition_keys or (), comment))

    @staticmethod
    def create_view(
        original_query: str,
        expanded_query: str,
        schema: TableSchema,
        properties: dict[str, str],
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """Return a view."""
        columns = Schema.new_builder().from_row_data_type(schema.to_row_data_type()).build()
        table = columns.as_table(dict(properties), (), comment)
        return CatalogBaseTable(replace(table, query=expanded_query, original_query=original_query))

    def get_options(self) -> dict[str, str]:
        """Return its options."""
        return dict(self._table.options)

    def get_unresolved_schema(self) -> Schema:
        """Return its schema."""
        return Schema.of_table(self._table)

    def get_comment(self) -> str | None:
        """Return what is said of it."""
        return self._table.comment

    def copy(self) -> CatalogBaseTable:
        """Return another that is equal."""
        return CatalogBaseTable(self._table)

    def get_description(self) -> str | None:
        """Return what is said of it."""
        return self._table.comment

    def get_detailed_description(self) -> str | None:
        """Return what is said of it."""
        return self._table.comment


class CatalogFunction:
    """A function by the name of what implements it."""

    def __init__(self, function: memory.CatalogFunction) -> None:
        self._function = function

    @staticmethod
    def create_instance(class_name: str, function_language: str = "Python") -> CatalogFunction:
        """Return a function: `module.object` in Python."""
        return CatalogFunction(memory.CatalogFunction(class_name, function_language.upper()))

    def get_class_name(self) -> str:
        """Return the name of what implements it."""
        return self._function.implementation

    def copy(self) -> CatalogFunction:
        """Return another that is equal."""
        return CatalogFunction(self._function)

    def get_description(self) -> str | None:
        """Return what is said of it."""
        return "This is a user-defined function"

    def get_detailed_description(self) -> str | None:
        """Return what is said of it."""
        return "This is a user-defined function"

    def get_function_language(self) -> str:
        """Return its language."""
        return self._function.language

    def get_options(self) -> dict[str, str]:
        """Return its options, of which there are none."""
        return {}


class CatalogModel:
    """A model: what goes in, what comes out, and where it is."""

    def __init__(self, model: models.CatalogModel) -> None:
        self._model = model

    @staticmethod
    def create_model(
        input_schema: Schema,
        output_schema: Schema,
        options: dict[str, str] | None = None,
        comment: str | None = None,
    ) -> CatalogModel:
        """Return a model."""
        inputs, outputs = (schema.as_table({}).columns for schema in (input_schema, output_schema))
        return CatalogModel(models.CatalogModel(inputs, outputs, dict(options or {}), comment))

    def copy(self) -> CatalogModel:
        """Return another that is equal."""
        return CatalogModel(self._model)

    def get_comment(self) -> str | None:
        """Return what is said of it."""
        return self._model.comment

    def get_options(self) -> dict[str, str]:
        """Return its options."""
        return dict(self._model.options)


Procedure = missing_class(__name__, "Procedure", _PROCEDURES)
HiveCatalog = missing_class(__name__, "HiveCatalog", JAVA)


@record(frozen=True)
class CatalogDescriptor:
    """A catalog by its options: `type` says which kind it is."""

    catalog_name: str
    configuration: Configuration
    comment: str | None = None

    @staticmethod
    def of(catalog_name: str, configuration: Configuration, comment: str | None = None) -> CatalogDescriptor:
        """Return the description of a catalog."""
        return CatalogDescriptor(catalog_name, configuration, comment)

    def options(self) -> dict[str, str]:
        """Return the options as text."""
        return {key: str(value) for key, value in self.configuration.to_dict().items()}


class Catalog(PartitionsAndStatistics):
    """A catalog, as programs look at it: databases, tables, views, functions and partitions.

    Example:
        >>> Catalog(GenericInMemoryCatalog("mine")).list_databases()
        ['default_database']
    """

    def __init__(self, store: memory.Catalog) -> None:
        self._store = store

    @property
    def store(self) -> memory.Catalog:
        """Where the declarations are kept."""
        return self._store

    # --- databases

    def get_default_database(self) -> str:
        """Return the database that is there from the beginning."""
        return str(getattr(self._store, "default_database", "default"))

    def list_databases(self) -> list[str]:
        """Return the names of all databases."""
        return sorted(self._store.databases())

    def get_database(self, database_name: str) -> CatalogDatabase:
        """Return a database."""
        found = self._store.databases().get(database_name)
        if found is None:
            raise CatalogException(f"Database {database_name} does not exist.")
        return CatalogDatabase(dict(found.options), found.comment)

    def database_exists(self, database_name: str) -> bool:
        """Tell whether there is a database."""
        return database_name in self._store.databases()

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool) -> None:
        """Add a database."""
        if self.database_exists(name):
            if ignore_if_exists:
                return
            raise CatalogException(f"Database {name} already exists.")
        self._store.put_database(name, memory.Database(database.get_properties(), database.comment))

    def drop_database(self, name: str, ignore_if_exists: bool) -> None:
        """Forget a database."""
        if self.database_exists(name):
            self._store.drop_database(name)
        elif not ignore_if_exists:
            raise CatalogException(f"Database {name} does not exist.")

    def alter_database(self, name: str, new_database: CatalogDatabase, ignore_if_not_exists: bool) -> None:
        """Give a database other properties."""
        if self.database_exists(name):
            self._store.put_database(name, memory.Database(new_database.get_properties(), new_database.comment))
        elif not ignore_if_not_exists:
            raise CatalogException(f"Database {name} does not exist.")

    # --- tables

    def list_tables(self, database_name: str) -> list[str]:
        """Return the names of tables and views."""
        return sorted(self._store.tables(database_name))

    def list_views(self, database_name: str) -> list[str]:
        """Return the names of views."""
        return sorted(n for n, t in self._store.tables(database_name).items() if t.is_view)

    def list_materialized_tables(self, database_name: str) -> list[str]:
        """Return the names of materialized tables, of which there are none."""
        return []

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """Return a table or view."""
        found = self._table(table_path)
        if found is None:
            raise CatalogException(f"Table (or view) {table_path} does not exist.")
        return CatalogBaseTable(found)

    def _table(self, path: ObjectPath) -> CatalogTable | None:
        if not self.database_exists(path.get_database_name()):
            return None
        return self._store.tables(path.get_database_name()).get(path.get_object_name())

    def table_exists(self, table_path: ObjectPath) -> bool:
        """Tell whether there is a table or view."""
        return self._table(table_path) is not None

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Forget a table or view."""
        if self.table_exists(table_path):
            self._store.drop_table(table_path.get_database_name(), table_path.get_object_name())
        elif not ignore_if_not_exists:
            raise CatalogException(f"Table (or view) {table_path} does not exist.")

    def rename_table(self, table_path: ObjectPath, new_table_name: str, ignore_if_not_exists: bool) -> None:
        """Give a table or view another name."""
        found = self._table(table_path)
        if found is not None:
            database = table_path.get_database_name()
            self._store.drop_table(database, table_path.get_object_name())
            self._store.put_table(database, new_table_name, found)
        elif not ignore_if_not_exists:
            raise CatalogException(f"Table (or view) {table_path} does not exist.")

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool) -> None:
        """Add a table or view."""
        if self.table_exists(table_path):
            if ignore_if_exists:
                return
            raise CatalogException(f"Table (or view) {table_path} already exists.")
        self._store.put_table(table_path.get_database_name(), table_path.get_object_name(), table._table)

    def alter_table(self, table_path: ObjectPath, new_table: CatalogBaseTable, ignore_if_not_exists: bool) -> None:
        """Put a table or view in the place of one."""
        if self.table_exists(table_path):
            self._store.put_table(table_path.get_database_name(), table_path.get_object_name(), new_table._table)
        elif not ignore_if_not_exists:
            raise CatalogException(f"Table (or view) {table_path} does not exist.")

    # --- functions

    def list_functions(self, database_name: str) -> list[str]:
        """Return the names of functions."""
        return sorted(self._store.functions(database_name))

    def get_function(self, function_path: ObjectPath) -> CatalogFunction:
        """Return a function."""
        found = self._function(function_path)
        if found is None:
            raise CatalogException(f"Function {function_path} does not exist.")
        return CatalogFunction(found)

    def _function(self, path: ObjectPath) -> memory.CatalogFunction | None:
        if not self.database_exists(path.get_database_name()):
            return None
        return self._store.functions(path.get_database_name()).get(path.get_object_name().lower())

    def function_exists(self, function_path: ObjectPath) -> bool:
        """Tell whether there is a function."""
        return self._function(function_path) is not None

    def create_function(self, function_path: ObjectPath, function: CatalogFunction, ignore_if_exists: bool) -> None:
        """Add a function."""
        if self.function_exists(function_path):
            if ignore_if_exists:
                return
            raise CatalogException(f"Function {function_path} already exists.")
        self._put_function(function_path, function)

    def _put_function(self, path: ObjectPath, function: CatalogFunction) -> None:
        self._store.put_function(path.get_database_name(), path.get_object_name(), function._function)

    def alter_function(
        self, function_path: ObjectPath, new_function: CatalogFunction, ignore_if_not_exists: bool
    ) -> None:
        """Put a function in the place of one."""
        if self.function_exists(function_path):
            self._put_function(function_path, new_function)
        elif not ignore_if_not_exists:
            raise CatalogException(f"Function {function_path} does not exist.")

    def drop_function(self, function_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Forget a function."""
        if self.function_exists(function_path):
            self._store.drop_function(function_path.get_database_name(), function_path.get_object_name())
        elif not ignore_if_not_exists:
            raise CatalogException(f"Function {function_path} does not exist.")

    def list_procedures(self, database_name: str) -> list[str]:
        """Return the names of procedures, of which there are none."""
        return []

    get_procedure = missing_function("get_procedure", _PROCEDURES)

    # --- models

    def list_models(self, database_name: str) -> list[str]:
        """Return the names of models."""
        return sorted(self._store.models(database_name))

    def _models(self, path: ObjectPath) -> dict[str, models.CatalogModel]:
        database = path.get_database_name()
        return self._store.models(database) if self.database_exists(database) else {}

    def get_model(self, model_path: ObjectPath) -> CatalogModel:
        """Return a model."""
        found = self._models(model_path).get(model_path.get_object_name())
        if found is None:
            raise CatalogException(f"Model {model_path} does not exist.")
        return CatalogModel(found)

    def model_exists(self, model_path: ObjectPath) -> bool:
        """Tell whether there is a model."""
        return model_path.get_object_name() in self._models(model_path)

    def drop_model(self, model_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Forget a model."""
        if self._has_model(model_path, ignore_if_not_exists):
            del self._models(model_path)[model_path.get_object_name()]

    def _has_model(self, path: ObjectPath, if_exists: bool) -> bool:
        if not self.model_exists(path) and not if_exists:
            raise CatalogException(f"Model {path} does not exist.")
        return self.model_exists(path)

    def rename_model(self, model_path: ObjectPath, new_model_name: str, ignore_if_not_exists: bool) -> None:
        """Give a model another name."""
        if self._has_model(model_path, ignore_if_not_exists):
            kept = self._models(model_path)
            if new_model_name in kept:
                raise CatalogException(f"Model {model_path.get_database_name()}.{new_model_name} already exists.")
            kept[new_model_name] = kept.pop(model_path.get_object_name())

    def create_model(self, model_path: ObjectPath, model: CatalogModel, ignore_if_exists: bool) -> None:
        """Add a model."""
        if not self.model_exists(model_path):
            self._store.models(model_path.get_database_name())[model_path.get_object_name()] = model._model
        elif not ignore_if_exists:
            raise CatalogException(f"Model {model_path} already exists.")

    def alter_model(self, model_path: ObjectPath, new_model: CatalogModel, ignore_if_not_exists: bool) -> None:
        """Put a model in the place of one."""
        if self._has_model(model_path, ignore_if_not_exists):
            self._models(model_path)[model_path.get_object_name()] = new_model._model


class JdbcCatalog(Catalog):
    """The databases and tables of a PostgreSQL server.

    Args:
        catalog_name: its name.
        default_database: the database that is used first.
        username: who asks.
        pwd: the password.
        base_url: such as `jdbc:postgresql://localhost:5432/`, without a database.

    Example:
        >>> catalog = JdbcCatalog("shop", "postgres", "me", "secret", "jdbc:postgresql://localhost:5432/")
        >>> catalog.get_default_database()
        'postgres'
    """

    def __init__(self, catalog_name: str, default_database: str, username: str, pwd: str, base_url: str) -> None:
        from millstream.table.connectors.jdbc_catalog import PostgresCatalog

        super().__init__(PostgresCatalog(catalog_name, default_database, username, pwd, base_url))
