"""Catalogs: named tables, views, functions and models."""

from __future__ import annotations

from millstream.common.configuration import Configuration
from millstream.common.fast_dataclass import fast_dataclass
from millstream.common.unsupported import JAVA, missing_class, missing_function
from millstream.sql.catalog import memory, tables
from millstream.sql.catalog.memory import GenericInMemoryCatalog
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.errors import (
    CatalogException,
    DatabaseAlreadyExistException,
    DatabaseNotEmptyException,
    DatabaseNotExistException,
    FunctionAlreadyExistException,
    FunctionNotExistException,
    ModelAlreadyExistException,
    ModelNotExistException,
    TableAlreadyExistException,
    TableNotExistException,
)
from millstream.table.catalog_objects import (
    CatalogBaseTable,
    CatalogColumnStatistics,
    CatalogDatabase,
    CatalogFunction,
    CatalogModel,
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

_PROCEDURES = "procedures exist only in catalogs written in Java"


Procedure = missing_class(__name__, "Procedure", _PROCEDURES)
HiveCatalog = missing_class(__name__, "HiveCatalog", JAVA)


@fast_dataclass
class CatalogDescriptor:
    """Describes a catalog by its options; `type` selects the kind.

    Example:
        >>> options = Configuration.from_dict({"type": "generic_in_memory", "default-database": "shop"})
        >>> t_env.create_catalog("mine", CatalogDescriptor.of("mine", options))
        >>> t_env.use_catalog("mine")
        >>> t_env.get_current_database()
        'shop'
    """

    catalog_name: str
    configuration: Configuration
    comment: str | None = None

    @staticmethod
    def of(catalog_name: str, configuration: Configuration, comment: str | None = None) -> CatalogDescriptor:
        """Return the description of a catalog; the comment is None by default."""
        return CatalogDescriptor(catalog_name, configuration, comment)

    def options(self) -> dict[str, str]:
        """Return the options as text."""
        return {key: str(value) for key, value in self.configuration.to_dict().items()}


class Catalog(PartitionsAndStatistics):
    """Holds databases, and their tables, views, functions, models and partitions.

    Example:
        >>> from millstream.table import TableSchema
        >>> catalog = Catalog(GenericInMemoryCatalog("mine"))
        >>> catalog.create_database("shop", CatalogDatabase.create_instance({"owner": "ann"}), False)
        >>> schema = TableSchema(["name"], [DataTypes.STRING()])
        >>> orders = CatalogBaseTable.create_table(schema, properties={"connector": "print"}, comment="all orders")
        >>> catalog.create_table(ObjectPath("shop", "orders"), orders, False)
        >>> catalog.list_databases(), catalog.list_tables("shop")
        (['default_database', 'shop'], ['orders'])
        >>> catalog.get_table(ObjectPath("shop", "orders")).get_comment()
        'all orders'
    """

    def __init__(self, store: memory.Catalog) -> None:
        self._store = store

    @property
    def store(self) -> memory.Catalog:
        """The store of declarations."""
        return self._store

    # --- databases

    def get_default_database(self) -> str:
        """Return the default database."""
        return str(getattr(self._store, "default_database", "default"))

    def list_databases(self) -> list[str]:
        """Return the names of all databases."""
        return sorted(self._store.databases())

    def get_database(self, database_name: str) -> CatalogDatabase:
        """Return a database; a missing one is an error.

        Example:
            >>> t_env.get_catalog("default_catalog").get_database("default_database").get_properties()
            {}
        """
        database = self._store.databases().get(database_name)
        if database is None:
            raise DatabaseNotExistException.of(database_name, self._store.name)
        return CatalogDatabase(dict(database.options), database.comment)

    def database_exists(self, database_name: str) -> bool:
        """Return whether a database exists."""
        return database_name in self._store.databases()

    def create_database(self, name: str, database: CatalogDatabase, ignore_if_exists: bool) -> None:
        """Add a database; an existing one is an error, or left unchanged with `ignore_if_exists`.

        Example:
            >>> catalog = t_env.get_catalog("default_catalog")
            >>> catalog.create_database("shop", CatalogDatabase.create_instance({}, "our shop"), False)
            >>> catalog.database_exists("shop"), catalog.get_database("shop").get_comment()
            (True, 'our shop')
        """
        if self.database_exists(name):
            if ignore_if_exists:
                return
            raise DatabaseAlreadyExistException.of(name, self._store.name)
        self._store.put_database(name, memory.Database(database.get_properties(), database.comment))

    def drop_database(self, name: str, ignore_if_exists: bool) -> None:
        """Drop an empty database; a missing one is an error, or ignored with `ignore_if_not_exists`.

        Example:
            >>> catalog = t_env.get_catalog("default_catalog")
            >>> catalog.create_database("shop", CatalogDatabase.create_instance({}), False)
            >>> catalog.drop_database("shop", False)
            >>> catalog.list_databases()
            ['default_database']
        """
        if self.database_exists(name):
            if self._store.tables(name) or self._store.functions(name):
                raise DatabaseNotEmptyException.of(name, self._store.name)
            self._store.drop_database(name)
        elif not ignore_if_exists:
            raise DatabaseNotExistException.of(name, self._store.name)

    def alter_database(self, name: str, new_database: CatalogDatabase, ignore_if_not_exists: bool) -> None:
        """Replace a database's properties and comment.

        Example:
            >>> catalog = t_env.get_catalog("default_catalog")
            >>> catalog.alter_database("default_database", CatalogDatabase.create_instance({"owner": "ann"}), False)
            >>> catalog.get_database("default_database").get_properties()
            {'owner': 'ann'}
        """
        if self.database_exists(name):
            self._store.put_database(name, memory.Database(new_database.get_properties(), new_database.comment))
        elif not ignore_if_not_exists:
            raise DatabaseNotExistException.of(name, self._store.name)

    # --- tables

    def list_tables(self, database_name: str) -> list[str]:
        """Return the names of tables and views of a database."""
        return sorted(self._store.tables(database_name))

    def list_views(self, database_name: str) -> list[str]:
        """Return the names of views of a database.

        Example:
            >>> _ = t_env.execute_sql("CREATE VIEW words AS SELECT 'to' AS word")
            >>> t_env.get_catalog("default_catalog").list_views("default_database")
            ['words']
        """
        return sorted(n for n, t in self._store.tables(database_name).items() if t.is_view)

    def list_materialized_tables(self, database_name: str) -> list[str]:
        """Return the names of materialized tables: always empty."""
        return []

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """Return a table or view; a missing one is an error.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE orders (name STRING) WITH ('connector' = 'print')")
            >>> table = t_env.get_catalog("default_catalog").get_table(ObjectPath("default_database", "orders"))
            >>> print(table.get_unresolved_schema())
            (
              `name` STRING
            )
        """
        table = self._table(table_path)
        if table is None:
            raise TableNotExistException.of(table_path, self._store.name)
        return CatalogBaseTable(table)

    def _table(self, path: ObjectPath) -> CatalogTable | None:
        if not self.database_exists(path.get_database_name()):
            return None
        return self._store.tables(path.get_database_name()).get(path.get_object_name())

    def table_exists(self, table_path: ObjectPath) -> bool:
        """Return whether a table or view exists.

        Example:
            >>> t_env.get_catalog("default_catalog").table_exists(ObjectPath("default_database", "orders"))
            False
        """
        return self._table(table_path) is not None

    def drop_table(self, table_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Drop a table or view; a missing one is an error, or ignored with `ignore_if_not_exists`.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE orders (name STRING) WITH ('connector' = 'print')")
            >>> t_env.get_catalog("default_catalog").drop_table(ObjectPath("default_database", "orders"), False)
            >>> t_env.list_tables()
            []
        """
        if self.table_exists(table_path):
            self._store.drop_table(table_path.get_database_name(), table_path.get_object_name())
        elif not ignore_if_not_exists:
            raise TableNotExistException.of(table_path, self._store.name)

    def rename_table(self, table_path: ObjectPath, new_table_name: str, ignore_if_not_exists: bool) -> None:
        """Rename a table or view of a database.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE orders (name STRING) WITH ('connector' = 'print')")
            >>> path = ObjectPath("default_database", "orders")
            >>> t_env.get_catalog("default_catalog").rename_table(path, "old_orders", False)
            >>> t_env.list_tables()
            ['old_orders']
        """
        table = self._table(table_path)
        if table is not None:
            new_path = ObjectPath(table_path.get_database_name(), new_table_name)
            if self.table_exists(new_path):
                raise TableAlreadyExistException.of(new_path, self._store.name)
            self._store.rename_table(table_path.get_database_name(), table_path.get_object_name(), new_table_name)
        elif not ignore_if_not_exists:
            raise TableNotExistException.of(table_path, self._store.name)

    def create_table(self, table_path: ObjectPath, table: CatalogBaseTable, ignore_if_exists: bool) -> None:
        """Add a table or view; an existing one is an error, or left unchanged with `ignore_if_exists`.

        See `Catalog` for an example.
        """
        if self.table_exists(table_path):
            if ignore_if_exists:
                return
            raise TableAlreadyExistException.of(table_path, self._store.name)
        self._store.put_table(table_path.get_database_name(), table_path.get_object_name(), table.table)

    def alter_table(self, table_path: ObjectPath, new_table: CatalogBaseTable, ignore_if_not_exists: bool) -> None:
        """Replace a table or view by one of the same kind.

        Example:
            >>> from millstream.table import TableSchema
            >>> _ = t_env.execute_sql("CREATE TABLE orders (name STRING) WITH ('connector' = 'print')")
            >>> schema = TableSchema(["name"], [DataTypes.STRING()])
            >>> table = CatalogBaseTable.create_table(schema, properties={"connector": "blackhole"})
            >>> catalog, path = t_env.get_catalog("default_catalog"), ObjectPath("default_database", "orders")
            >>> catalog.alter_table(path, table, False)
            >>> catalog.get_table(path).get_options()
            {'connector': 'blackhole'}
        """
        current = self._table(table_path)
        if current is not None:
            if current.is_view != new_table.table.is_view:
                kinds = ["VIEW" if t.is_view else "TABLE" for t in (current, new_table.table)]
                raise CatalogException(
                    f"Table types don't match. Existing table is '{kinds[0]}' and new table is '{kinds[1]}'."
                )
            self._store.put_table(table_path.get_database_name(), table_path.get_object_name(), new_table.table)
        elif not ignore_if_not_exists:
            raise TableNotExistException.of(table_path, self._store.name)

    # --- functions

    def list_functions(self, database_name: str) -> list[str]:
        """Return the names of functions of a database.

        Example:
            >>> _ = t_env.execute_sql("CREATE FUNCTION root AS 'math.sqrt' LANGUAGE PYTHON")
            >>> t_env.get_catalog("default_catalog").list_functions("default_database")
            ['root']
        """
        return sorted(self._store.functions(database_name))

    def get_function(self, function_path: ObjectPath) -> CatalogFunction:
        """Return a function; a missing one is an error.

        Example:
            >>> _ = t_env.execute_sql("CREATE FUNCTION root AS 'math.sqrt' LANGUAGE PYTHON")
            >>> path = ObjectPath("default_database", "root")
            >>> t_env.get_catalog("default_catalog").get_function(path).get_class_name()
            'math.sqrt'
        """
        function = self._function(function_path)
        if function is None:
            raise FunctionNotExistException.of(function_path, self._store.name)
        return CatalogFunction(function)

    def _function(self, path: ObjectPath) -> memory.CatalogFunction | None:
        if not self.database_exists(path.get_database_name()):
            return None
        return self._store.functions(path.get_database_name()).get(path.get_object_name().lower())

    def function_exists(self, function_path: ObjectPath) -> bool:
        """Return whether a function exists."""
        return self._function(function_path) is not None

    def create_function(self, function_path: ObjectPath, function: CatalogFunction, ignore_if_exists: bool) -> None:
        """Add a function by the name of its implementation; an existing one is an error, unless `ignore_if_exists`.

        Example:
            >>> path = ObjectPath("default_database", "root")
            >>> catalog = t_env.get_catalog("default_catalog")
            >>> catalog.create_function(path, CatalogFunction.create_instance("math.sqrt"), False)
            >>> catalog.function_exists(path)
            True
        """
        if self.function_exists(function_path):
            if ignore_if_exists:
                return
            raise FunctionAlreadyExistException.of(function_path, self._store.name)
        self._put_function(function_path, function)

    def _put_function(self, path: ObjectPath, function: CatalogFunction) -> None:
        self._store.put_function(path.get_database_name(), path.get_object_name(), function.function)

    def alter_function(
        self, function_path: ObjectPath, new_function: CatalogFunction, ignore_if_not_exists: bool
    ) -> None:
        """Replace a function; a missing one is an error, or ignored with `ignore_if_not_exists`."""
        if self.function_exists(function_path):
            self._put_function(function_path, new_function)
        elif not ignore_if_not_exists:
            raise FunctionNotExistException.of(function_path, self._store.name)

    def drop_function(self, function_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Drop a function; a missing one is an error, or ignored with `ignore_if_not_exists`."""
        if self.function_exists(function_path):
            self._store.drop_function(function_path.get_database_name(), function_path.get_object_name())
        elif not ignore_if_not_exists:
            raise FunctionNotExistException.of(function_path, self._store.name)

    def list_procedures(self, database_name: str) -> list[str]:
        """Return the names of procedures: always empty."""
        return []

    get_procedure = missing_function("get_procedure", _PROCEDURES)

    # --- models

    def list_models(self, database_name: str) -> list[str]:
        """Return the names of models of a database."""
        return sorted(self._store.models(database_name))

    def _models(self, path: ObjectPath) -> dict[str, tables.CatalogModel]:
        database = path.get_database_name()
        return self._store.models(database) if self.database_exists(database) else {}

    def get_model(self, model_path: ObjectPath) -> CatalogModel:
        """Return a model; a missing one is an error."""
        model = self._models(model_path).get(model_path.get_object_name())
        if model is None:
            raise ModelNotExistException.of(model_path, self._store.name)
        return CatalogModel(model)

    def model_exists(self, model_path: ObjectPath) -> bool:
        """Return whether a model exists."""
        return model_path.get_object_name() in self._models(model_path)

    def drop_model(self, model_path: ObjectPath, ignore_if_not_exists: bool) -> None:
        """Drop a model; a missing one is an error, or ignored with `ignore_if_not_exists`."""
        if self._has_model(model_path, ignore_if_not_exists):
            del self._models(model_path)[model_path.get_object_name()]

    def _has_model(self, path: ObjectPath, if_exists: bool) -> bool:
        if not self.model_exists(path) and not if_exists:
            raise ModelNotExistException.of(path, self._store.name)
        return self.model_exists(path)

    def rename_model(self, model_path: ObjectPath, new_model_name: str, ignore_if_not_exists: bool) -> None:
        """Rename a model of a database."""
        if self._has_model(model_path, ignore_if_not_exists):
            models = self._models(model_path)
            if new_model_name in models:
                path = ObjectPath(model_path.get_database_name(), new_model_name)
                raise ModelAlreadyExistException.of(path, self._store.name)
            models[new_model_name] = models.pop(model_path.get_object_name())

    def create_model(self, model_path: ObjectPath, model: CatalogModel, ignore_if_exists: bool) -> None:
        """Add a model; an existing one is an error, or left unchanged with `ignore_if_exists`.

        Example:
            >>> from millstream.table import Schema
            >>> schema = Schema.new_builder().column("text", "STRING").build()
            >>> catalog = t_env.get_catalog("default_catalog")
            >>> model = CatalogModel.create_model(schema, schema, {"provider": "openai"}, "rates reviews")
            >>> catalog.create_model(ObjectPath("default_database", "rate"), model, False)
            >>> catalog.list_models("default_database"), t_env.list_models()
            (['rate'], ['rate'])
        """
        if not self.model_exists(model_path):
            self._store.models(model_path.get_database_name())[model_path.get_object_name()] = model.model
        elif not ignore_if_exists:
            raise ModelAlreadyExistException.of(model_path, self._store.name)

    def alter_model(self, model_path: ObjectPath, new_model: CatalogModel, ignore_if_not_exists: bool) -> None:
        """Replace a model; a missing one is an error, or ignored with `ignore_if_not_exists`."""
        if self._has_model(model_path, ignore_if_not_exists):
            self._models(model_path)[model_path.get_object_name()] = new_model.model


class JdbcCatalog(Catalog):
    """Reads the databases and tables of a PostgreSQL server; it cannot create tables.

    Args:
        catalog_name: its name.
        default_database: the database that is used first.
        username: the database user.
        pwd: the password.
        base_url: such as `jdbc:postgresql://localhost:5432/`, without a database.

    Example:
        >>> catalog = JdbcCatalog("shop", "postgres", "me", "secret", "jdbc:postgresql://localhost:5432/")
        >>> catalog.get_default_database()
        'postgres'
    """

    def __init__(self, catalog_name: str, default_database: str, username: str, pwd: str, base_url: str) -> None:
        # Imported late: it loads database drivers, which few programs need.
        from millstream.connectors.jdbc.catalog import PostgresCatalog

        super().__init__(PostgresCatalog(catalog_name, default_database, username, pwd, base_url))
