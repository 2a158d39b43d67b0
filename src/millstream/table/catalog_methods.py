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
        """Drop a temporary table; return whether it existed."""
        return self._dropped(table_path, view=False, temporary=True, if_exists=True)

    def drop_table(self, table_path: str, ignore_if_not_exists: bool | None = True) -> bool:
        """Drop a table; return whether it existed."""
        return self._dropped(table_path, view=False, temporary=False, if_exists=bool(ignore_if_not_exists))

    def drop_temporary_view(self, view_path: str) -> bool:
        """Drop a temporary view; return whether it existed."""
        return self._dropped(view_path, view=True, temporary=True, if_exists=True)

    def drop_view(self, view_path: str, ignore_if_not_exists: bool | None = True) -> bool:
        """Drop a view; return whether it existed."""
        return self._dropped(view_path, view=True, temporary=False, if_exists=bool(ignore_if_not_exists))

    def _dropped(self, path: str, view: bool, temporary: bool, if_exists: bool) -> bool:
        return self._catalogs.drop(self._catalogs.full_path(read_path(path)), view, temporary, if_exists)

    # --- functions

    def create_temporary_system_function(
        self, name: str, function: UserDefinedFunctionWrapper | UserDefinedFunction
    ) -> None:
        """Name a function for all catalogs."""
        self._catalogs.create_system_function(name, as_function(function))

    def drop_temporary_system_function(self, name: str) -> bool:
        """Drop a temporary system function; return whether it existed."""
        return self._catalogs.drop_function((name,), temporary=True, system=True, if_exists=True)

    def create_temporary_function(self, path: str, function: UserDefinedFunctionWrapper | UserDefinedFunction) -> None:
        """Name a function in a catalog, for this environment."""
        self._catalogs.create_temporary_function(read_path(path), as_function(function))

    def drop_temporary_function(self, path: str) -> bool:
        """Drop a temporary function; return whether it existed."""
        return self._catalogs.drop_function(read_path(path), temporary=True, system=False, if_exists=True)

    def drop_function(self, path: str) -> bool:
        """Drop a function of a catalog; return whether it existed."""
        return self._catalogs.drop_function(read_path(path), temporary=False, system=False, if_exists=True)

    create_java_temporary_system_function = missing_function("create_java_temporary_system_function", JAVA)
    create_java_function = missing_function("create_java_function", JAVA)
    create_java_temporary_function = missing_function("create_java_temporary_function", JAVA)

    # --- catalogs

    def create_catalog(self, catalog_name: str, catalog_descriptor: CatalogDescriptor) -> None:
        """Add a catalog."""
        options = tuple(catalog_descriptor.options().items())
        self._planner.ddl().execute(s.CreateCatalog(catalog_name, options, catalog_descriptor.comment))

    def register_catalog(self, catalog_name: str, catalog: Catalog) -> None:
        """Add a catalog."""
        self._catalogs.register_catalog(catalog_name, catalog.store)

    def get_catalog(self, catalog_name: str) -> Catalog | None:
        """Return a catalog, or None if there is no catalog of that name."""
        catalog = self._catalogs.catalogs.get(catalog_name)
        return None if catalog is None else Catalog(catalog)

    def list_catalogs(self) -> list[str]:
        """Return the names of all catalogs."""
        return self._catalogs.catalog_names()

    def list_databases(self) -> list[str]:
        """Return the names of the databases of the current catalog."""
        return sorted(self._catalogs.catalog(self._catalogs.current_catalog).databases())

    def get_current_catalog(self) -> str:
        """Return the current catalog."""
        return self._catalogs.current_catalog

    def use_catalog(self, catalog_name: str) -> None:
        """Set the current catalog."""
        self._catalogs.use_catalog(catalog_name)

    def get_current_database(self) -> str:
        """Return the current database."""
        return self._catalogs.current_database

    def use_database(self, database_name: str) -> None:
        """Set the current database."""
        self._catalogs.use_database((database_name,))

    def list_tables(self) -> list[str]:
        """Return the names of tables and views."""
        return [n for n in self._names() if not n.startswith("*")]

    def list_views(self) -> list[str]:
        """Return the names of views."""
        return self._names(views=True)

    def list_temporary_tables(self) -> list[str]:
        """Return the names of temporary tables and views."""
        current = (self._catalogs.current_catalog, self._catalogs.current_database)
        paths = [p for p in self._catalogs.temporary_paths() if p[:2] == current]
        return [p[2] for p in paths if not p[2].startswith("*")]

    def list_temporary_views(self) -> list[str]:
        """Return the names of temporary views."""
        views = set(self._names(views=True))
        return [n for n in self.list_temporary_tables() if n in views]

    def _names(self, views: bool | None = None) -> list[str]:
        return self._catalogs.names(self._catalogs.current_catalog, self._catalogs.current_database, views=views)

    def list_materialized_tables(self) -> list[str]:
        """Return the names of materialized tables: always empty."""
        return []

    def list_user_defined_functions(self) -> list[str]:
        """Return the names of functions of users."""
        return [n for n in self._catalogs.user_functions() if not n.startswith("*")]

    def list_functions(self) -> list[str]:
        """Return the names of all functions."""
        return sorted({*self.list_user_defined_functions(), *(n.lower() for n in self._planner.functions.names())})

    def load_module(self, module_name: str, module: Module) -> None:
        """Load a module."""
        self._planner.ddl().execute(s.LoadModule(module_name))

    def unload_module(self, module_name: str) -> None:
        """Unload a module."""
        self._planner.ddl().execute(s.UnloadModule(module_name))

    def use_modules(self, *module_names: str) -> None:
        """Set the modules in use, in lookup order."""
        self._planner.ddl().execute(s.UseModules(module_names))

    def list_modules(self) -> list[str]:
        """Return the names of the modules that are used."""
        return list(self._catalogs.used_modules)

    def list_full_modules(self) -> list[ModuleEntry]:
        """Return all modules that are loaded."""
        used = self._catalogs.used_modules
        rest = [m for m in self._catalogs.modules if m not in used]
        return [*(ModuleEntry(m, True) for m in used), *(ModuleEntry(m, False) for m in rest)]

    # --- models

    def list_models(self) -> list[str]:
        """Return the names of models."""
        return self._catalogs.models.names(self._catalogs.current_catalog, self._catalogs.current_database)

    def list_temporary_models(self) -> list[str]:
        """Return the names of temporary models."""
        return self._catalogs.models.temporary_names(self._catalogs.current_catalog, self._catalogs.current_database)

    def create_model(
        self, model_path: str, model_descriptor: ModelDescriptor, ignore_if_exists: bool | None = False
    ) -> None:
        """Declare a model."""
        self._create_model(model_path, model_descriptor, False, bool(ignore_if_exists))

    def create_temporary_model(
        self, model_path: str, model_descriptor: ModelDescriptor, ignore_if_exists: bool | None = False
    ) -> None:
        """Declare a temporary model."""
        self._create_model(model_path, model_descriptor, True, bool(ignore_if_exists))

    def _create_model(self, path: str, descriptor: ModelDescriptor, temporary: bool, if_not_exists: bool) -> None:
        full = self._catalogs.full_path(read_path(path))
        self._catalogs.models.create(full, descriptor.as_model(), temporary, if_not_exists)

    def drop_model(self, model_path: str, ignore_if_not_exists: bool | None = True) -> bool:
        """Drop a model; return whether it existed."""
        full = self._catalogs.full_path(read_path(model_path))
        return self._catalogs.models.drop(full, temporary=False, if_exists=bool(ignore_if_not_exists))

    def drop_temporary_model(self, model_path: str) -> bool:
        """Drop a temporary model; return whether it existed."""
        full = self._catalogs.full_path(read_path(model_path))
        return self._catalogs.models.drop(full, temporary=True, if_exists=True)
