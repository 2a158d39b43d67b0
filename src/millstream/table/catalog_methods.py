"""The part of TableEnvironment that manages catalogs, databases, functions, modules and models."""

from __future__ import annotations

from millstream.common.unsupported import JAVA, missing_function
from millstream.sql.catalog.manager import CatalogManager
from millstream.sql.language import statements as s
from millstream.table.catalog import Catalog, CatalogDescriptor
from millstream.table.model_descriptor import ModelDescriptor
from millstream.table.module import Module, ModuleEntry
from millstream.table.sql_text import read_path
from millstream.table.statement_planner import StatementPlanner, as_function
from millstream.table.udf import UserDefinedFunction, UserDefinedFunctionWrapper


class CatalogMethods:
    """Lists, registers and drops the objects of an environment's catalogs."""

    _planner: StatementPlanner
    _catalogs: CatalogManager

    def drop_temporary_table(self, table_path: str) -> bool:
        """Drop a temporary table; return whether it existed.

        Example:
            >>> _ = t_env.execute_sql("CREATE TEMPORARY TABLE numbers (n INT) WITH ('connector' = 'datagen')")
            >>> t_env.drop_temporary_table("numbers"), t_env.drop_temporary_table("numbers")
            (True, False)
        """
        return self._dropped(table_path, view=False, temporary=True, if_exists=True)

    def drop_table(self, table_path: str, ignore_if_not_exists: bool | None = True) -> bool:
        """Drop a table; return whether it existed. A missing table is an error if `ignore_if_not_exists` is False.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE numbers (n INT) WITH ('connector' = 'datagen')")
            >>> t_env.drop_table("numbers"), t_env.drop_table("numbers")
            (True, False)
        """
        return self._dropped(table_path, view=False, temporary=False, if_exists=bool(ignore_if_not_exists))

    def drop_temporary_view(self, view_path: str) -> bool:
        """Drop a temporary view; return whether it existed.

        Example:
            >>> t_env.create_temporary_view("orders", t_env.from_elements([("ann", 3)]))
            >>> t_env.drop_temporary_view("orders"), t_env.drop_temporary_view("orders")
            (True, False)
        """
        return self._dropped(view_path, view=True, temporary=True, if_exists=True)

    def drop_view(self, view_path: str, ignore_if_not_exists: bool | None = True) -> bool:
        """Drop a view; return whether it existed. A missing view is an error if `ignore_if_not_exists` is False.

        Example:
            >>> _ = t_env.execute_sql("CREATE VIEW words AS SELECT 'to' AS word")
            >>> t_env.drop_view("words"), t_env.drop_view("words")
            (True, False)
        """
        return self._dropped(view_path, view=True, temporary=False, if_exists=bool(ignore_if_not_exists))

    def _dropped(self, path: str, view: bool, temporary: bool, if_exists: bool) -> bool:
        return self._catalogs.drop(self._catalogs.full_path(read_path(path)), view, temporary, if_exists)

    # --- functions

    def create_temporary_system_function(
        self, name: str, function: UserDefinedFunctionWrapper | UserDefinedFunction
    ) -> None:
        """Name a function in all catalogs; it hides a system function of that name.

        Example:
            >>> from millstream.table.udf import udf
            >>> t_env.create_temporary_system_function("twice", udf(lambda n: n * 2, result_type="INT"))
            >>> list(t_env.execute_sql("SELECT twice(4)").collect())
            [<Row(8)>]
        """
        self._catalogs.create_system_function(name, as_function(function))

    def drop_temporary_system_function(self, name: str) -> bool:
        """Drop a temporary system function; return whether it existed.

        Example:
            >>> from millstream.table.udf import udf
            >>> t_env.create_temporary_system_function("twice", udf(lambda n: n * 2, result_type="INT"))
            >>> t_env.drop_temporary_system_function("twice")
            True
        """
        return self._catalogs.drop_function((name,), temporary=True, system=True, if_exists=True)

    def create_temporary_function(self, path: str, function: UserDefinedFunctionWrapper | UserDefinedFunction) -> None:
        """Name a function in a catalog and a database, for this environment.

        Example:
            >>> from millstream.table.udf import udf
            >>> t_env.create_temporary_function("default_database.twice", udf(lambda n: n * 2, result_type="INT"))
            >>> list(t_env.execute_sql("SELECT default_database.twice(4)").collect())
            [<Row(8)>]
        """
        self._catalogs.create_temporary_function(read_path(path), as_function(function))

    def drop_temporary_function(self, path: str) -> bool:
        """Drop a temporary function; return whether it existed.

        Example:
            >>> from millstream.table.udf import udf
            >>> t_env.create_temporary_function("twice", udf(lambda n: n * 2, result_type="INT"))
            >>> t_env.drop_temporary_function("twice"), t_env.drop_temporary_function("twice")
            (True, False)
        """
        return self._catalogs.drop_function(read_path(path), temporary=True, system=False, if_exists=True)

    def drop_function(self, path: str) -> bool:
        """Drop a function of a catalog; return whether it existed.

        Example:
            >>> _ = t_env.execute_sql("CREATE FUNCTION root AS 'math.sqrt' LANGUAGE PYTHON")
            >>> t_env.drop_function("root"), t_env.drop_function("root")
            (True, False)
        """
        return self._catalogs.drop_function(read_path(path), temporary=False, system=False, if_exists=True)

    create_java_temporary_system_function = missing_function("create_java_temporary_system_function", JAVA)
    create_java_function = missing_function("create_java_function", JAVA)
    create_java_temporary_function = missing_function("create_java_temporary_function", JAVA)

    # --- catalogs

    def create_catalog(self, catalog_name: str, catalog_descriptor: CatalogDescriptor) -> None:
        """Add a catalog by its options; `type` selects the kind, such as `generic_in_memory` or `jdbc`.

        Example:
            >>> from millstream.common import Configuration
            >>> options = Configuration.from_dict({"type": "generic_in_memory"})
            >>> t_env.create_catalog("mine", CatalogDescriptor.of("mine", options))
            >>> t_env.list_catalogs()
            ['default_catalog', 'mine']
        """
        options = tuple(catalog_descriptor.options().items())
        self._planner.ddl().execute(s.CreateCatalog(catalog_name, options, catalog_descriptor.comment))

    def register_catalog(self, catalog_name: str, catalog: Catalog) -> None:
        """Add a catalog object.

        Example:
            >>> from millstream.table.catalog import Catalog, GenericInMemoryCatalog
            >>> t_env.register_catalog("mine", Catalog(GenericInMemoryCatalog("mine")))
            >>> t_env.list_catalogs()
            ['default_catalog', 'mine']
        """
        self._catalogs.register_catalog(catalog_name, catalog.store)

    def get_catalog(self, catalog_name: str) -> Catalog | None:
        """Return a catalog, or None if there is no catalog of that name.

        Example:
            >>> t_env.get_catalog("default_catalog").list_databases(), t_env.get_catalog("other")
            (['default_database'], None)
        """
        catalog = self._catalogs.catalogs.get(catalog_name)
        return None if catalog is None else Catalog(catalog)

    def list_catalogs(self) -> list[str]:
        """Return the names of all catalogs.

        Example:
            >>> t_env.list_catalogs()
            ['default_catalog']
        """
        return self._catalogs.catalog_names()

    def list_databases(self) -> list[str]:
        """Return the names of the databases of the current catalog.

        Example:
            >>> _ = t_env.execute_sql("CREATE DATABASE shop")
            >>> t_env.list_databases()
            ['default_database', 'shop']
        """
        return sorted(self._catalogs.catalog(self._catalogs.current_catalog).databases())

    def get_current_catalog(self) -> str:
        """Return the name of the current catalog.

        Example:
            >>> t_env.get_current_catalog()
            'default_catalog'
        """
        return self._catalogs.current_catalog

    def use_catalog(self, catalog_name: str) -> None:
        """Set the current catalog, and its default database as the current one.

        Example:
            >>> from millstream.table.catalog import Catalog, GenericInMemoryCatalog
            >>> t_env.register_catalog("mine", Catalog(GenericInMemoryCatalog("mine")))
            >>> t_env.use_catalog("mine")
            >>> t_env.get_current_catalog(), t_env.get_current_database()
            ('mine', 'default_database')
        """
        self._catalogs.use_catalog(catalog_name)

    def get_current_database(self) -> str:
        """Return the name of the current database.

        Example:
            >>> t_env.get_current_database()
            'default_database'
        """
        return self._catalogs.current_database

    def use_database(self, database_name: str) -> None:
        """Set the current database of the current catalog.

        Example:
            >>> _ = t_env.execute_sql("CREATE DATABASE shop")
            >>> t_env.use_database("shop")
            >>> t_env.get_current_database()
            'shop'
        """
        self._catalogs.use_database((database_name,))

    def list_tables(self) -> list[str]:
        """Return the names of tables and views of the current database, including temporary ones.

        Example:
            >>> t_env.create_temporary_view("orders", t_env.from_elements([("ann", 3)]))
            >>> t_env.list_tables()
            ['orders']
        """
        return [n for n in self._names() if not n.startswith("*")]

    def list_views(self) -> list[str]:
        """Return the names of views of the current database, including temporary ones.

        Example:
            >>> t_env.create_temporary_view("orders", t_env.from_elements([("ann", 3)]))
            >>> t_env.list_views()
            ['orders']
        """
        return self._names(views=True)

    def list_temporary_tables(self) -> list[str]:
        """Return the names of temporary tables and views of the current database.

        Example:
            >>> t_env.create_temporary_view("orders", t_env.from_elements([("ann", 3)]))
            >>> t_env.list_temporary_tables()
            ['orders']
        """
        current = (self._catalogs.current_catalog, self._catalogs.current_database)
        paths = [p for p in self._catalogs.temporary_paths() if p[:2] == current]
        return [p[2] for p in paths if not p[2].startswith("*")]

    def list_temporary_views(self) -> list[str]:
        """Return the names of temporary views of the current database.

        Example:
            >>> t_env.create_temporary_view("orders", t_env.from_elements([("ann", 3)]))
            >>> t_env.list_temporary_views()
            ['orders']
        """
        views = set(self._names(views=True))
        return [n for n in self.list_temporary_tables() if n in views]

    def _names(self, views: bool | None = None) -> list[str]:
        return self._catalogs.names(self._catalogs.current_catalog, self._catalogs.current_database, views=views)

    def list_materialized_tables(self) -> list[str]:
        """Return the names of materialized tables: always empty."""
        return []

    def list_user_defined_functions(self) -> list[str]:
        """Return the names of registered user-defined functions.

        Example:
            >>> from millstream.table.udf import udf
            >>> t_env.create_temporary_function("twice", udf(lambda n: n * 2, result_type="INT"))
            >>> t_env.list_user_defined_functions()
            ['twice']
        """
        return [n for n in self._catalogs.user_functions() if not n.startswith("*")]

    def list_functions(self) -> list[str]:
        """Return the names of all functions: SQL's and registered ones.

        Example:
            >>> {"upper", "regexp_extract"} <= set(t_env.list_functions())
            True
        """
        return sorted({*self.list_user_defined_functions(), *(n.lower() for n in self._planner.functions.names())})

    def load_module(self, module_name: str, module: Module) -> None:
        """Load a module of system functions; `core` is the only one, and loaded already.

        Example:
            >>> t_env.unload_module("core")
            >>> t_env.load_module("core", Module("core"))
            >>> t_env.list_modules()
            ['core']
        """
        self._planner.ddl().execute(s.LoadModule(module_name))

    def unload_module(self, module_name: str) -> None:
        """Unload a module. Unlike in Flink, its functions remain available.

        Example:
            >>> t_env.unload_module("core")
            >>> t_env.list_modules()
            []
        """
        self._planner.ddl().execute(s.UnloadModule(module_name))

    def use_modules(self, *module_names: str) -> None:
        """Set the modules in use, in lookup order; others stay loaded.

        Example:
            >>> t_env.use_modules("core")
            >>> t_env.list_modules()
            ['core']
        """
        self._planner.ddl().execute(s.UseModules(module_names))

    def list_modules(self) -> list[str]:
        """Return the names of the modules in use.

        Example:
            >>> t_env.list_modules()
            ['core']
        """
        return list(self._catalogs.used_modules)

    def list_full_modules(self) -> list[ModuleEntry]:
        """Return all loaded modules, and whether each is in use.

        Example:
            >>> t_env.list_full_modules()
            [ModuleEntry{name='core', used=true}]
        """
        used = self._catalogs.used_modules
        rest = [m for m in self._catalogs.modules if m not in used]
        return [*(ModuleEntry(m, True) for m in used), *(ModuleEntry(m, False) for m in rest)]

    # --- models

    def list_models(self) -> list[str]:
        """Return the names of models of the current database.

        See `TableEnvironment.create_model` for an example.
        """
        return self._catalogs.models.names(self._catalogs.current_catalog, self._catalogs.current_database)

    def list_temporary_models(self) -> list[str]:
        """Return the names of temporary models of the current database.

        See `TableEnvironment.create_temporary_model` for an example.
        """
        return self._catalogs.models.temporary_names(self._catalogs.current_catalog, self._catalogs.current_database)

    def create_model(
        self, model_path: str, model_descriptor: ModelDescriptor, ignore_if_exists: bool | None = False
    ) -> None:
        """Declare a model, for ML_PREDICT.

        Example:
            >>> from millstream.table import Schema
            >>> model = ModelDescriptor.for_provider("openai").option("task", "chat")
            >>> schema = Schema.new_builder().column("text", "STRING").build()
            >>> t_env.create_model("rate", model.input_schema(schema).output_schema(schema).build())
            >>> t_env.list_models()
            ['rate']
        """
        self._create_model(model_path, model_descriptor, False, bool(ignore_if_exists))

    def create_temporary_model(
        self, model_path: str, model_descriptor: ModelDescriptor, ignore_if_exists: bool | None = False
    ) -> None:
        """Declare a temporary model, which hides a permanent one of the same name.

        Example:
            >>> from millstream.table import Schema
            >>> model = ModelDescriptor.for_provider("openai").option("task", "chat")
            >>> schema = Schema.new_builder().column("text", "STRING").build()
            >>> t_env.create_temporary_model("rate", model.input_schema(schema).output_schema(schema).build())
            >>> t_env.list_temporary_models()
            ['rate']
        """
        self._create_model(model_path, model_descriptor, True, bool(ignore_if_exists))

    def _create_model(self, path: str, descriptor: ModelDescriptor, temporary: bool, if_not_exists: bool) -> None:
        full = self._catalogs.full_path(read_path(path))
        self._catalogs.models.create(full, descriptor.as_model(), temporary, if_not_exists)

    def drop_model(self, model_path: str, ignore_if_not_exists: bool | None = True) -> bool:
        """Drop a model; return whether it existed. A missing model is an error if `ignore_if_not_exists` is False.

        Example:
            >>> t_env.drop_model("rate")
            False
        """
        full = self._catalogs.full_path(read_path(model_path))
        return self._catalogs.models.drop(full, temporary=False, if_exists=bool(ignore_if_not_exists))

    def drop_temporary_model(self, model_path: str) -> bool:
        """Drop a temporary model; return whether it existed.

        Example:
            >>> t_env.drop_temporary_model("rate")
            False
        """
        full = self._catalogs.full_path(read_path(model_path))
        return self._catalogs.models.drop(full, temporary=True, if_exists=True)
