"""The catalogs of an environment, temporary objects, and name resolution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from millstream.common.display_text import closest
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.catalog.memory import Catalog, CatalogFunction, Database, GenericInMemoryCatalog
from millstream.sql.catalog.tables import CatalogTable, Models
from millstream.sql.errors import CatalogException, ValidationException
from millstream.sql.expressions import UserFunction
from millstream.sql.plan.nodes import Node

Path = tuple[str, str, str]

# The module of all system functions, and the only one.
CORE_MODULE = "core"


@fast_dataclass
class InlineView:
    """A temporary view of a relation of the program.

    Attributes:
        node: the relation.
        summary: its description.
        declared: the table it reads, if it is one.
    """

    node: Node
    summary: str = ""
    declared: CatalogTable | None = None

    @property
    def is_view(self) -> bool:
        """Whether it is a view; always true."""
        return True


Relation = CatalogTable | InlineView


@dataclass
class CatalogManager:
    """Catalogs, temporary objects, and the current catalog and database.

    Attributes:
        catalogs: by name.
        current_catalog, current_database: the defaults for unqualified names.
        load_function: loads the function that CREATE FUNCTION names; set by the Table API.
    """

    builtin_catalog: str = "default_catalog"
    builtin_database: str = "default_database"
    catalogs: dict[str, Catalog] = field(default_factory=dict)
    load_function: Callable[[CatalogFunction], UserFunction] | None = None

    def __post_init__(self) -> None:
        if not self.catalogs:
            catalog = GenericInMemoryCatalog(self.builtin_catalog, self.builtin_database)
            self.catalogs = {self.builtin_catalog: catalog}
        self.current_catalog = self.builtin_catalog
        self.current_database = self.builtin_database
        self._temporary: dict[Path, Relation] = {}
        self._temporary_functions: dict[Path, UserFunction] = {}
        self.models = Models(self)
        self._system_functions: dict[str, UserFunction] = {}
        self._loaded: dict[CatalogFunction, UserFunction] = {}
        self.modules: dict[str, dict[str, str]] = {CORE_MODULE: {}}
        self.used_modules: list[str] = [CORE_MODULE]
        # Options and comments of catalogs.
        self.catalog_options: dict[str, tuple[dict[str, str], str | None]] = {}

    # --- catalogs and databases

    def catalog(self, name: str) -> Catalog:
        """Return a catalog."""
        if name not in self.catalogs:
            raise ValidationException(f"Catalog {name} does not exist")
        return self.catalogs[name]

    def catalog_names(self) -> list[str]:
        """Return the names of all catalogs."""
        return sorted(self.catalogs)

    def register_catalog(self, name: str, catalog: Catalog) -> None:
        """Add a catalog."""
        if name in self.catalogs:
            raise CatalogException(f"Catalog {name} already exists.")
        self.catalogs[name] = catalog

    def drop_catalog(self, name: str, if_exists: bool) -> None:
        """Drop a catalog."""
        if name not in self.catalogs:
            if if_exists:
                return
            raise CatalogException(f"Catalog {name} does not exist.")
        if name == self.current_catalog:
            raise CatalogException("Cannot drop a catalog which is currently in use.")
        del self.catalogs[name]

    def use_catalog(self, name: str) -> None:
        """Set the current catalog."""
        if name not in self.catalogs:
            raise CatalogException(f"A catalog with name [{name}] does not exist.")
        self.current_catalog = name
        self.current_database = getattr(self.catalogs[name], "default_database", "default")

    def use_database(self, path: Sequence[str]) -> None:
        """Set the current database."""
        catalog, database = self.database_path(path)
        if catalog not in self.catalogs:
            raise CatalogException(f"A catalog with name [{catalog}] does not exist.")
        if database not in self.catalogs[catalog].databases():
            raise CatalogException(f"A database with name [{database}] does not exist in the catalog: [{catalog}].")
        self.current_catalog, self.current_database = catalog, database

    def database_path(self, path: Sequence[str]) -> tuple[str, str]:
        """Return catalog and database of a name with one or two parts; the current ones for none."""
        if not path:
            return self.current_catalog, self.current_database
        return (self.current_catalog, path[0]) if len(path) == 1 else (path[0], path[1])

    @contextmanager
    def using_database(self, path: Sequence[str]) -> Iterator[None]:
        """Use another current database temporarily."""
        before = self.current_catalog, self.current_database
        if path[0] in self.catalogs:
            self.current_catalog, self.current_database = path[0], path[1]
        try:
            yield
        finally:
            self.current_catalog, self.current_database = before

    # --- tables and views

    def full_path(self, parts: Sequence[str]) -> Path:
        """Return catalog, database and name."""
        if len(parts) > 3:
            raise ValidationException(f"A name has at most three parts: {'.'.join(parts)}")
        before = (self.current_catalog, self.current_database)
        full = (*before[: 3 - len(parts)], *parts)
        return full[0], full[1], full[2]

    def find(self, path: Path) -> Relation | None:
        """Return a table or view, temporary ones first, or None."""
        result = self._temporary.get(path)
        return result if result is not None else self.permanent(path)

    def permanent(self, path: Path) -> CatalogTable | None:
        """Return a permanent table or view, or None."""
        catalog = self.catalogs.get(path[0])
        if catalog is None or path[1] not in catalog.databases():
            return None
        return catalog.tables(path[1]).get(path[2])

    def temporary(self, path: Path) -> Relation | None:
        """Return a temporary table or view, or None."""
        return self._temporary.get(path)

    def create(self, path: Path, table: CatalogTable, temporary: bool, if_not_exists: bool = False) -> None:
        """Add a table or view."""
        if temporary:
            self.create_temporary(path, table, if_not_exists)
            return
        catalog = self.catalogs.get(path[0])
        if catalog is None:
            raise ValidationException(f"Catalog {path[0]} does not exist.")
        kind = "View" if table.is_view else "Table"
        if path[1] not in catalog.databases():
            raise ValidationException(
                f"Could not execute Create{kind} in path `{path[0]}`.`{path[1]}`.`{path[2]}`: "
                f"Database {path[1]} does not exist in Catalog {path[0]}."
            )
        if path[2] in catalog.tables(path[1]):
            if if_not_exists:
                return
            raise ValidationException(
                f"Could not execute CreateTable in path `{path[0]}`.`{path[1]}`.`{path[2]}`: "
                f"Table (or view) {path[1]}.{path[2]} already exists in Catalog {path[0]}."
            )
        catalog.put_table(path[1], path[2], table)

    def create_temporary(self, path: Path, relation: Relation, if_not_exists: bool = False) -> None:
        """Add a temporary table or view."""
        if path in self._temporary:
            if if_not_exists:
                return
            name = "`.`".join(path)
            raise ValidationException(f"Temporary table '`{name}`' already exists")
        self._temporary[path] = relation

    def replace(self, path: Path, table: CatalogTable) -> None:
        """Replace a table."""
        if path in self._temporary:
            self._temporary[path] = table
        else:
            self.catalog(path[0]).put_table(path[1], path[2], table)

    def drop(self, path: Path, view: bool, temporary: bool, if_exists: bool) -> bool:
        """Drop a table or view; return whether it existed."""
        label = "View" if view else "Table"
        name = "`.`".join(path)
        result = self._temporary.get(path)
        if result is not None and result.is_view == view:
            if not temporary:
                raise ValidationException(
                    f"Temporary {label.lower()} with identifier '`{name}`' exists. Drop it first before removing the "
                    f"permanent {label.lower()}."
                )
            del self._temporary[path]
            return True
        if not temporary:
            permanent = self.permanent(path)
            if permanent is not None and permanent.is_view == view:
                self.catalogs[path[0]].drop_table(path[1], path[2])
                return True
        if not if_exists:
            kind = "Temporary table or view" if temporary else label
            raise ValidationException(f"{kind} with identifier '{'.'.join(path)}' does not exist.")
        return False

    def drop_temporary(self, path: Path) -> bool:
        """Drop a temporary table or view; return whether it existed."""
        return self._temporary.pop(path, None) is not None

    def names(self, catalog: str, database: str, *, views: bool | None = None) -> list[str]:
        """Return the names of a database's tables and views, or of one of the two."""
        result: dict[str, Relation] = dict(self.catalog(catalog).tables(database))
        result |= {p[2]: t for p, t in self._temporary.items() if p[:2] == (catalog, database)}
        return sorted(n for n, t in result.items() if views is None or t.is_view == views)

    def temporary_paths(self) -> list[Path]:
        """Return the paths of all temporary tables and views."""
        return sorted(self._temporary)

    def suggestion(self, path: Path) -> str:
        """Return a suggestion for an unknown name, as the end of a sentence."""
        catalog = self.catalogs.get(path[0])
        if catalog is None or path[1] not in catalog.databases():
            return ""
        match = closest(path[2], self.names(path[0], path[1]))
        if match is None:
            return ""
        # Calcite names the database where only the case differs.
        within = f" within '{path[0]}.{path[1]}'" if match.lower() == path[2].lower() else ""
        return f"{within}; did you mean '{match}'?"

    # --- functions

    def find_function(self, parts: tuple[str, ...]) -> UserFunction:
        """Return a user function, or None."""
        system = self.find_system_function(parts[0]) if len(parts) == 1 else None
        if system is not None:
            return system
        if len(parts) > 3:
            return None
        path = self._function_path(parts)
        if path in self._temporary_functions:
            return self._temporary_functions[path]
        catalog = self.catalogs.get(path[0])
        if catalog is None or path[1] not in catalog.databases():
            return None
        function = catalog.functions(path[1]).get(path[2])
        return None if function is None else self._load(function)

    def find_system_function(self, name: str) -> UserFunction:
        """Return the temporary system function of a name, or None."""
        return self._system_functions.get(name.lower())

    def function_path(self, function: UserFunction) -> tuple[str, ...] | None:
        """Return the path of a user function; None for an inline one."""
        for name, known in self._system_functions.items():
            if known is function:
                return None if name.startswith("*") else (name,)
        for path, known in self._temporary_functions.items():
            if known is function:
                return path
        for catalog_name, catalog in self.catalogs.items():
            for database in catalog.databases():
                for name, registered in catalog.functions(database).items():
                    if self._loaded.get(registered) is function:
                        return catalog_name, database, name
        return None

    def _load(self, function: CatalogFunction) -> UserFunction:
        if function not in self._loaded:
            if self.load_function is None:
                raise ValidationException(f"The function {function.implementation} cannot be loaded here.")
            self._loaded[function] = self.load_function(function)
        return self._loaded[function]

    def _function_path(self, parts: Sequence[str]) -> Path:
        catalog, database, name = self.full_path(parts)
        return catalog, database, name.lower()

    def create_system_function(self, name: str, function: UserFunction, if_not_exists: bool = False) -> None:
        """Add a temporary system function."""
        if name.lower() in self._system_functions:
            if if_not_exists:
                return
            raise ValidationException(
                f"Could not register temporary system function. A function named '{name.lower()}' does already exist."
            )
        self._system_functions[name.lower()] = function

    def create_temporary_function(
        self, parts: Sequence[str], function: UserFunction, if_not_exists: bool = False
    ) -> None:
        """Add a temporary catalog function."""
        path = self._function_path(parts)
        if path in self._temporary_functions:
            if if_not_exists:
                return
            name = "`.`".join(path)
            raise ValidationException(
                f"Could not register temporary catalog function. A function '`{name}`' does already exist."
            )
        self._temporary_functions[path] = function

    def create_function(self, parts: Sequence[str], function: CatalogFunction, if_not_exists: bool = False) -> None:
        """Add a function to a catalog."""
        path = self._function_path(parts)
        catalog = self.catalog(path[0])
        if path[2] in catalog.functions(path[1]):
            if if_not_exists:
                return
            raise ValidationException(f"Function {path[1]}.{path[2]} already exists in Catalog {path[0]}.")
        catalog.put_function(path[1], path[2], function)

    def alter_function(self, parts: Sequence[str], function: CatalogFunction, if_exists: bool) -> None:
        """Replace a function."""
        path = self._function_path(parts)
        catalog = self.catalog(path[0])
        if path[2] not in catalog.functions(path[1]):
            if if_exists:
                return
            raise ValidationException(f"Function {path[1]}.{path[2]} does not exist in Catalog {path[0]}.")
        catalog.put_function(path[1], path[2], function)

    def drop_function(self, parts: Sequence[str], temporary: bool, system: bool, if_exists: bool) -> bool:
        """Drop a function; return whether it existed."""
        path = self._function_path(parts)
        if system:
            if self._system_functions.pop(parts[-1].lower(), None) is not None:
                return True
            message = f"Could not drop temporary system function. A function named '{parts[-1]}' doesn't exist."
        elif temporary:
            if self._temporary_functions.pop(path, None) is not None:
                return True
            message = f"Temporary catalog function {'.'.join(f'`{p}`' for p in path)} doesn't exist"
        else:
            catalog = self.catalogs.get(path[0])
            if catalog is not None and path[1] in catalog.databases() and path[2] in catalog.functions(path[1]):
                catalog.drop_function(path[1], path[2])
                return True
            message = f"Function {path[1]}.{path[2]} does not exist in Catalog {path[0]}."
        if not if_exists:
            raise ValidationException(message)
        return False

    def user_functions(self) -> list[str]:
        """Return the names of all user functions that can be called unqualified."""
        here = (self.current_catalog, self.current_database)
        result = {*self._system_functions, *(p[2] for p in self._temporary_functions if p[:2] == here)}
        return sorted(result | set(self.catalog(here[0]).functions(here[1])))

    # --- databases

    def create_database(self, path: Sequence[str], database: Database, if_not_exists: bool) -> None:
        """Add a database."""
        catalog, name = self.database_path(path)
        result = self.catalog(catalog)
        if name in result.databases():
            if if_not_exists:
                return
            raise ValidationException(
                f"Could not execute CREATE DATABASE {catalog}.{name}: Database {name} already exists in Catalog "
                f"{catalog}."
            )
        result.put_database(name, database)

    def drop_database(self, path: Sequence[str], if_exists: bool, cascade: bool) -> None:
        """Drop a database."""
        catalog, name = self.database_path(path)
        result = self.catalog(catalog)
        if name not in result.databases():
            if if_exists:
                return
            raise ValidationException(
                f"Could not execute DROP DATABASE {catalog}.{name} RESTRICT: Database {name} does not exist in Catalog "
                f"{catalog}."
            )
        if (catalog, name) == (self.current_catalog, self.current_database):
            raise ValidationException("Cannot drop a database which is currently in use.")
        if not cascade and (result.tables(name) or result.functions(name)):
            raise ValidationException(
                f"Could not execute DROP DATABASE {catalog}.{name} RESTRICT: Database {name} in catalog {catalog} is "
                "not empty."
            )
        result.drop_database(name)
