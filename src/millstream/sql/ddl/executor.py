"""Executes catalog statements: CREATE, ALTER, DROP, USE, SHOW, DESCRIBE, SET, modules."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace

from millstream.common.aliases import Value
from millstream.common.dispatch import MethodDispatch
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.bind.binder import Binder, locating_errors
from millstream.sql.bind.view_expansion import qualified
from millstream.sql.catalog.manager import CORE_MODULE, CatalogManager, InlineView
from millstream.sql.catalog.memory import Catalog, CatalogFunction, Database, GenericInMemoryCatalog
from millstream.sql.catalog.tables import CatalogTable, TableColumn
from millstream.sql.catalog.tables import declared as declared_model
from millstream.sql.ddl import alter, show
from millstream.sql.ddl.declarations import declared
from millstream.sql.errors import CatalogException, ValidationException
from millstream.sql.expressions import UserFunction
from millstream.sql.language import statements as s
from millstream.sql.language import syntax
from millstream.sql.language.unparser import query_to_sql
from millstream.sql.plan.nodes import Node
from millstream.sql.schema import Field, Fields
from millstream.sql.types import DataTypes


@fast_dataclass
class Result:
    """The result of a statement.

    Attributes:
        fields: the columns of its rows.
        rows: Python values.
        insert: the INSERT of a CREATE TABLE .. AS, to be run by the caller.
        is_content: whether the rows are a query result, not just OK.
    """

    fields: Fields
    rows: tuple[tuple[Value, ...], ...]
    insert: s.Insert | None = None
    is_content: bool = True


def _texts(*names: str) -> Fields:
    return Fields(tuple(Field(n, DataTypes.STRING()) for n in names))


OK = Result(Fields((Field("result", DataTypes.STRING()),)), (("OK",),), is_content=False)


class Ddl:
    """Executes statements on the catalogs of an environment.

    Attributes:
        binder: binds queries of views and expressions of columns.
        settings: the configuration that SET changes.
        catalog_factories: catalog factories by `type`.
        load_function: loads the function that a CREATE TEMPORARY FUNCTION names.
    """

    def __init__(
        self,
        binder: Binder,
        settings: MutableMapping[str, str],
        catalog_factories: dict[str, Callable[[str, dict[str, str]], Catalog]] | None = None,
        load_function: Callable[[CatalogFunction], UserFunction] | None = None,
    ) -> None:
        self._binder = binder
        self._settings = settings
        self._catalog_factories = {"generic_in_memory": _in_memory, **(catalog_factories or {})}
        self._load = load_function

    @property
    def _catalogs(self) -> CatalogManager:
        return self._binder.catalogs

    def can(self, statement: s.Statement) -> bool:
        """Return whether a statement is a catalog statement."""
        return _EXECUTE.get(statement) is not None

    def execute(self, statement: s.Statement, text: str = "") -> Result:
        """Execute a statement."""
        execute = _EXECUTE.get(statement)
        if execute is None:
            raise ValidationException(f"{type(statement).__name__} is not a statement about catalogs")
        with locating_errors(text):
            return execute(self, statement)

    # --- tables

    def _create_table(self, c: s.CreateTable) -> Result:
        path = self._catalogs.full_path(c.name)
        base = self._base(c)
        if c.query is not None:
            return self._create_table_as(c, path)
        table = declared(self._binder, c, base)
        self._catalogs.create(path, table, c.temporary, c.if_not_exists)
        return OK

    def _base(self, c: s.CreateTable) -> CatalogTable | None:
        if c.like is None:
            return None
        path = self._catalogs.full_path(c.like.table)
        result = self._catalogs.find(path)
        if result is None:
            raise ValidationException(
                f"Source table '`{'`.`'.join(path)}`' of the LIKE clause not found in the catalog, at line 1"
            )
        if isinstance(result, InlineView) or result.is_view:
            raise ValidationException(
                f"Source table '`{'`.`'.join(path)}`' of the LIKE clause can not be a VIEW, at line 1"
            )
        return result

    def _create_table_as(self, c: s.CreateTable, path: tuple[str, str, str]) -> Result:
        assert c.query is not None
        if c.like is not None:
            raise ValidationException("CREATE TABLE AS SELECT cannot be LIKE another table")
        node = self._binder.query(c.query)
        own = {column.name for column in c.columns}
        selected = [s.Column(f.name, f.type) for f in node.fields.fields if f.name not in own]
        names = c.names
        if names:
            unknown = [name for name in names if name not in node.fields.names]
            if unknown:
                raise ValidationException(f"Column '{unknown[0]}' not found in the source schema.")
            by_name = {column.name: column for column in selected}
            selected = [by_name[name] for name in names]
        table = declared(self._binder, replace(c, columns=(*c.columns, *selected), names=()), None)
        result = self._catalogs.find(path)
        if c.replace and result is not None:
            self._catalogs.replace(path, table)
        elif result is not None and c.if_not_exists:
            return OK
        else:
            self._catalogs.create(path, table, c.temporary)
        columns = tuple(node.fields.names)
        return replace(OK, insert=s.Insert(path, c.query, columns))

    def _alter_table(self, a: s.AlterTable) -> Result:
        path = self._catalogs.full_path(a.name)
        result = self._catalogs.find(path)
        if result is None:
            if a.if_exists:
                return OK
            raise ValidationException(f"Table {alter.quoted(path)} doesn't exist or is a temporary table.")
        if isinstance(result, InlineView) or result.is_view:
            raise ValidationException(f"ALTER TABLE for a view is not allowed: {alter.quoted(path)}")
        if a.rename is not None:
            self._rename(path, self._catalogs.full_path(a.rename))
            return OK
        self._catalogs.replace(path, alter.altered(self._binder, path, result, a))
        return OK

    def _rename(self, path: tuple[str, str, str], new: tuple[str, str, str]) -> None:
        if self._catalogs.temporary(path) is not None:
            result = self._catalogs.temporary(path)
            assert result is not None
            self._catalogs.drop_temporary(path)
            self._catalogs.create_temporary(new, result)
            return
        if path[:2] != new[:2]:
            raise ValidationException("RENAME TO must name a table in the same database")
        if self._catalogs.permanent(new) is not None:
            raise ValidationException(
                f"Could not execute ALTER TABLE {'.'.join(path)} RENAME TO {'.'.join(new)}. Table (or view) "
                f"{new[1]}.{new[2]} already exists in Catalog {new[0]}."
            )
        self._catalogs.catalog(path[0]).rename_table(path[1], path[2], new[2])

    def _drop(self, d: s.Drop) -> Result:
        if d.kind in ("TABLE", "VIEW"):
            path = self._catalogs.full_path(d.name)
            self._catalogs.drop(path, d.kind == "VIEW", d.temporary, d.if_exists)
        elif d.kind == "MODEL":
            self._catalogs.models.drop(self._catalogs.full_path(d.name), d.temporary, d.if_exists)
        elif d.kind == "DATABASE":
            self._catalogs.drop_database(d.name, d.if_exists, bool(d.cascade))
        elif d.kind == "CATALOG":
            self._catalogs.drop_catalog(d.name[-1], d.if_exists)
        else:
            self._catalogs.drop_function(d.name, d.temporary, d.system, d.if_exists)
        return OK

    # --- views and functions

    def _create_view(self, v: s.CreateView) -> Result:
        path = self._catalogs.full_path(v.name)
        view = self._view(self._binder.query(v.query), v.query, v.text, v.columns, v.comment)
        if v.replace and self._catalogs.find(path) is not None:
            self._catalogs.replace(path, view)
        else:
            self._catalogs.create(path, view, v.temporary, v.if_not_exists)
        return OK

    def _view(
        self, node: Node, query: syntax.Query, text: str, names: Sequence[str], comment: str | None
    ) -> CatalogTable:
        if names and len(names) != len(node.fields):
            raise ValidationException(
                f"VIEW definition and input fields not match:\n\tDef fields: [{', '.join(names)}].\n\tInput fields: "
                f"[{', '.join(node.fields.names)}]."
            )
        column_names = names or node.fields.names
        columns = tuple(TableColumn(n, f.type) for n, f in zip(column_names, node.fields.fields, strict=True))
        full = query_to_sql(qualified(self._binder, query), self._catalogs.full_path)
        return CatalogTable(columns, comment=comment, query=full, original_query=text)

    def _alter_view(self, a: s.AlterView) -> Result:
        path = self._catalogs.full_path(a.name)
        result = self._catalogs.find(path)
        if result is None:
            raise ValidationException(f"View {alter.quoted(path)} doesn't exist or is a temporary view.")
        if isinstance(result, InlineView) or not result.is_view:
            raise ValidationException("ALTER VIEW for a table is not allowed")
        if a.rename is not None:
            self._rename(path, self._catalogs.full_path(a.rename))
        else:
            assert a.query is not None
            view = self._view(self._binder.query(a.query), a.query, a.text, (), result.comment)
            self._catalogs.replace(path, view)
        return OK

    def _create_function(self, f: s.CreateFunction) -> Result:
        function = CatalogFunction(f.implementation, f.language)
        if not f.temporary:
            self._catalogs.create_function(f.name, function, f.if_not_exists)
            return OK
        loaded = self._loaded(function)
        if f.system:
            self._catalogs.create_system_function(f.name[-1], loaded, f.if_not_exists)
        else:
            self._catalogs.create_temporary_function(f.name, loaded, f.if_not_exists)
        return OK

    def _loaded(self, function: CatalogFunction) -> UserFunction:
        load = self._load or self._catalogs.load_function
        if load is None:
            raise ValidationException(f"The function {function.implementation} cannot be loaded here.")
        return load(function)

    def _alter_function(self, f: s.AlterFunction) -> Result:
        if f.temporary:
            raise ValidationException("Alter temporary function is not supported")
        self._catalogs.alter_function(f.name, CatalogFunction(f.implementation, f.language), f.if_exists)
        return OK

    def _create_model(self, m: s.CreateModel) -> Result:
        path = self._catalogs.full_path(m.name)
        self._catalogs.models.create(path, declared_model(m), m.temporary, m.if_not_exists)
        return OK

    def _alter_model(self, m: s.AlterModel) -> Result:
        self._catalogs.models.alter(m)
        return OK

    # --- catalogs, databases, modules

    def _create_catalog(self, c: s.CreateCatalog) -> Result:
        options = dict(c.options)
        if c.if_not_exists and c.name in self._catalogs.catalogs:
            return OK
        kind = options.get("type")
        if kind is None:
            raise ValidationException(
                f"Unable to create catalog '{c.name}'. Catalog options do not contain an option key 'type' for "
                "discovering a catalog."
            )
        if kind not in self._catalog_factories:
            known = "\n".join(sorted(self._catalog_factories))
            raise ValidationException(
                f"Unable to create catalog '{c.name}'. Could not find any factory for identifier '{kind}'. Available "
                f"factory identifiers are:\n\n{known}"
            )
        if c.name in self._catalogs.catalogs:
            raise CatalogException(f"Catalog {c.name} already exists.")
        result = self._catalog_factories[kind](c.name, options)
        self._catalogs.register_catalog(c.name, result)
        self._catalogs.catalog_options[c.name] = (options, c.comment)
        return OK

    def _create_database(self, c: s.CreateDatabase) -> Result:
        self._catalogs.create_database(c.name, Database(dict(c.options), c.comment), c.if_not_exists)
        return OK

    def _alter_options(self, a: s.AlterOptions) -> Result:
        if a.kind == "DATABASE":
            catalog, name = self._catalogs.database_path(a.name)
            previous = self._catalogs.catalog(catalog).databases().get(name)
            if previous is None:
                raise ValidationException(f"Database {name} does not exist in Catalog {catalog}.")
            options = {**previous.options, **dict(a.set or ())}
            self._catalogs.catalog(catalog).put_database(name, replace(previous, options=options))
            return OK
        name = a.name[-1]
        self._catalogs.catalog(name)
        options, comment = self._catalogs.catalog_options.get(name, ({}, None))
        options = {k: v for k, v in {**options, **dict(a.set or ())}.items() if k not in (a.reset or ())}
        self._catalogs.catalog_options[name] = (options, a.comment if a.comment is not None else comment)
        return OK

    def _use(self, u: s.Use) -> Result:
        if u.kind == "CATALOG":
            self._catalogs.use_catalog(u.name[-1])
        else:
            self._catalogs.use_database(u.name)
        return OK

    def _use_modules(self, u: s.UseModules) -> Result:
        for name in u.names:
            if name not in self._catalogs.modules:
                raise ValidationException(
                    f"Could not execute USE MODULES: {self._listed(u.names)}. No module with name '{name}' exists"
                )
        if len(set(u.names)) != len(u.names):
            duplicate = next(name for name in u.names if u.names.count(name) > 1)
            raise ValidationException(
                f"Could not execute USE MODULES: {self._listed(u.names)}. Module '{duplicate}' appears more than once"
            )
        self._catalogs.used_modules = list(u.names)
        return OK

    @staticmethod
    def _listed(names: Sequence[str]) -> str:
        return f"[{', '.join(names)}]"

    def _load_module(self, m: s.LoadModule) -> Result:
        if m.name in self._catalogs.modules:
            raise ValidationException(
                f"Could not execute LOAD MODULE `{m.name}`. A module with name '{m.name}' already exists"
            )
        if m.name == CORE_MODULE:
            self._catalogs.modules[m.name] = {}
            self._catalogs.used_modules.append(m.name)
            return OK
        raise ValidationException(
            f"Could not execute LOAD MODULE `{m.name}`. Unable to create module '{m.name}'. Could not find any factory "
            "for identifier "
            f"'{m.name}'. Available factory identifiers are:\n\n{CORE_MODULE}"
        )

    def _unload_module(self, m: s.UnloadModule) -> Result:
        if m.name not in self._catalogs.modules:
            raise ValidationException(
                f"Could not execute UNLOAD MODULE {m.name}. No module with name '{m.name}' exists"
            )
        del self._catalogs.modules[m.name]
        self._catalogs.used_modules = [name for name in self._catalogs.used_modules if name != m.name]
        return OK

    # --- settings

    def _set(self, o: s.SetOption) -> Result:
        if o.key is None:
            rows = tuple((k, self._settings[k]) for k in sorted(self._settings))
            return Result(_texts("key", "value"), rows)
        assert o.value is not None
        self._settings[o.key] = o.value
        return OK

    def _reset(self, o: s.ResetOption) -> Result:
        if o.key is None:
            self._settings.clear()
        else:
            self._settings.pop(o.key, None)
        return OK

    def _jar(self, j: s.Jar) -> Result:
        return OK

    # --- SHOW and DESCRIBE

    def _show(self, w: s.Show) -> Result:
        fields, rows = show.shown(self._binder, w)
        return Result(fields, tuple(rows))

    def _describe(self, d: s.Describe) -> Result:
        fields, rows = show.described(self._binder, d)
        return Result(fields, tuple(rows))


def _in_memory(name: str, options: dict[str, str]) -> Catalog:
    return GenericInMemoryCatalog(name, options.get("default-database", "default"))


_EXECUTE = (
    MethodDispatch[Ddl, [], Result]()
    .on(s.CreateTable, Ddl._create_table)
    .on(s.AlterTable, Ddl._alter_table)
    .on(s.Drop, Ddl._drop)
    .on(s.CreateView, Ddl._create_view)
    .on(s.AlterView, Ddl._alter_view)
    .on(s.CreateFunction, Ddl._create_function)
    .on(s.AlterFunction, Ddl._alter_function)
    .on(s.CreateModel, Ddl._create_model)
    .on(s.AlterModel, Ddl._alter_model)
    .on(s.CreateCatalog, Ddl._create_catalog)
    .on(s.CreateDatabase, Ddl._create_database)
    .on(s.AlterOptions, Ddl._alter_options)
    .on(s.Use, Ddl._use)
    .on(s.UseModules, Ddl._use_modules)
    .on(s.LoadModule, Ddl._load_module)
    .on(s.UnloadModule, Ddl._unload_module)
    .on(s.SetOption, Ddl._set)
    .on(s.ResetOption, Ddl._reset)
    .on(s.Jar, Ddl._jar)
    .on(s.Show, Ddl._show)
    .on(s.Describe, Ddl._describe)
)
