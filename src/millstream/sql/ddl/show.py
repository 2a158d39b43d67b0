"""SHOW and DESCRIBE: catalog contents as rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from millstream.common.aliases import Value
from millstream.sql.catalog.manager import CatalogManager, InlineView, Path, Relation
from millstream.sql.catalog.tables import CatalogModel, CatalogTable, ColumnKind, TableColumn
from millstream.sql.errors import ValidationException
from millstream.sql.language import statements as s
from millstream.sql.language.unparser import name, path, string
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import DataType, DataTypes

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder

Rows = list[tuple[Value, ...]]
MODULES = Fields((Field("module name", DataTypes.STRING()), Field("used", DataTypes.BOOLEAN())))
COLUMNS = Fields(
    (
        Field("name", DataTypes.STRING()),
        Field("type", DataTypes.STRING()),
        Field("null", DataTypes.BOOLEAN()),
        Field("key", DataTypes.STRING()),
        Field("extras", DataTypes.STRING()),
        Field("watermark", DataTypes.STRING()),
    )
)
WITH_COMMENT = Fields((*COLUMNS.fields, Field("comment", DataTypes.STRING())))
INFO = Fields((Field("info name", DataTypes.STRING()), Field("info value", DataTypes.STRING())))
_LISTS = {
    "TABLES": "table name",
    "VIEWS": "view name",
    "DATABASES": "database name",
    "CATALOGS": "catalog name",
    "FUNCTIONS": "function name",
    "USER FUNCTIONS": "function name",
    "MODULES": "module name",
    "CURRENT CATALOG": "current catalog name",
    "CURRENT DATABASE": "current database name",
    "JARS": "jars",
    "PARTITIONS": "partition name",
    "PROCEDURES": "procedure name",
    "MODELS": "model name",
    "CREATE MODEL": "result",
    "CREATE TABLE": "result",
    "CREATE VIEW": "result",
    "CREATE CATALOG": "result",
}


def shown(binder: Binder, w: s.Show) -> tuple[Fields, Rows]:
    """Return the rows of a SHOW, and their columns."""
    catalogs = binder.catalogs
    if w.kind == "COLUMNS":
        matches = matching(w)
        fields, rows = _described_table(binder, w.within, "SHOW COLUMNS")
        return fields, [r for r in rows if matches(r[0])]
    if w.kind == "FULL MODULES":
        unused = [m for m in catalogs.modules if m not in catalogs.used_modules]
        return MODULES, [*((m, True) for m in catalogs.used_modules), *((m, False) for m in unused)]
    if w.kind not in _LISTS:
        raise ValidationException(f"SHOW {w.kind} is not supported here")
    fields = Fields((Field(_LISTS[w.kind], DataTypes.STRING()),))
    return fields, [(one,) for one in _listed(binder, w)]


def _listed(binder: Binder, w: s.Show) -> Iterable[str]:
    catalogs = binder.catalogs
    matches = matching(w)
    if w.kind in ("TABLES", "VIEWS"):
        catalog, database = catalogs.database_path(w.within)
        if catalog not in catalogs.catalogs or database not in catalogs.catalogs[catalog].databases():
            raise ValidationException(f"Database '{catalog}'.'{database}' doesn't exist.")
        return filter(matches, catalogs.names(catalog, database, views=True if w.kind == "VIEWS" else None))
    if w.kind == "MODELS":
        return filter(matches, catalogs.models.names(*catalogs.database_path(w.within)))
    if w.kind == "DATABASES":
        return filter(
            matches, sorted(catalogs.catalog(w.within[-1] if w.within else catalogs.current_catalog).databases())
        )
    if w.kind == "CATALOGS":
        return filter(matches, catalogs.catalog_names())
    if w.kind in ("FUNCTIONS", "USER FUNCTIONS"):
        users = catalogs.user_functions()
        own = [] if w.kind == "USER FUNCTIONS" else [f.lower() for f in binder.functions.names()]
        return filter(matches, sorted({*users, *own}))
    if w.kind == "MODULES":
        return catalogs.used_modules
    if w.kind == "CURRENT CATALOG":
        return [catalogs.current_catalog]
    if w.kind == "CURRENT DATABASE":
        return [catalogs.current_database]
    if w.kind.startswith("CREATE"):
        return [_create(catalogs, w)]
    if w.kind == "PARTITIONS":
        return _partitions(binder, w)
    return []


def _partitions(binder: Binder, w: s.Show) -> list[str]:
    path = binder.catalogs.full_path(w.within)
    table = binder.catalogs.find(path)
    if table is None:
        raise ValidationException(f"Table `{'`.`'.join(path)}` doesn't exist or is a temporary table.")
    if not isinstance(table, CatalogTable) or not table.partition:
        raise ValidationException(f"Table {'.'.join(path[1:])} in catalog {path[0]} is not partitioned.")
    catalog = binder.catalogs.catalogs.get(path[0])
    known = catalog.table_metadata(*path[1:]).partitions if catalog is not None else {}
    required = set(w.partition)
    return ["/".join(f"{k}={v}" for k, v in key) for key in known if required <= set(key)]


def matching(w: s.Show) -> Callable[[str], bool]:
    """Return whether a name matches a LIKE."""
    if w.pattern is None:
        return lambda _: True
    pattern = "".join({"%": ".*", "_": "."}.get(c, re.escape(c)) for c in w.pattern)
    flags = re.DOTALL | (re.IGNORECASE if w.ignores_case else 0)
    compiled = re.compile(pattern, flags)
    return lambda one: (compiled.fullmatch(one) is not None) != w.negated


# --- SHOW CREATE


def _create(catalogs: CatalogManager, w: s.Show) -> str:
    if w.kind == "CREATE CATALOG":
        return _create_catalog(catalogs, w.within[-1])
    full = catalogs.full_path(w.within)
    if w.kind == "CREATE MODEL":
        return _create_model(catalogs, full)
    result = catalogs.find(full)
    view = w.kind == "CREATE VIEW"
    if result is None:
        kind = "View" if view else "Table"
        raise ValidationException(
            f"Could not execute SHOW {w.kind}. {kind} with identifier {path(full)} does not exist."
        )
    if isinstance(result, InlineView):
        raise ValidationException(f"SHOW {w.kind} is not supported for views that the program created: {path(full)}")
    if result.is_view and not view:
        raise ValidationException(
            f"SHOW CREATE TABLE is only supported for tables, but {path(full)} is a view. Please use SHOW CREATE VIEW "
            "instead."
        )
    if view and not result.is_view:
        raise ValidationException(
            f"SHOW CREATE VIEW is only supported for views, but {path(full)} is a table. Please use SHOW CREATE TABLE "
            "instead."
        )
    temporary = catalogs.temporary(full) is not None
    return _view(full, result, temporary) if view else _table(full, result, temporary)


def _create_catalog(catalogs: CatalogManager, catalog_name: str) -> str:
    result = catalogs.catalog(catalog_name)
    options, comment = catalogs.catalog_options.get(catalog_name, (result.options(), None))
    comment_clause = f"COMMENT {string(comment)}\n" if comment else ""
    return f"CREATE CATALOG {name(catalog_name)}\n{comment_clause}{_with(options)}"


def _model(catalogs: CatalogManager, full: Path) -> CatalogModel:
    result = catalogs.models.find(full)
    if result is None:
        raise ValidationException(f"Model with the identifier '{path(full)}' doesn't exist.")
    return result


def _create_model(catalogs: CatalogManager, full: Path) -> str:
    model = _model(catalogs, full)
    inputs, outputs = (", ".join(_column(c).strip() for c in columns) for columns in (model.inputs, model.outputs))
    text = f"CREATE {'TEMPORARY ' if catalogs.models.is_temporary(full) else ''}MODEL {path(full)}\n"
    if model.inputs:
        text += f"INPUT ({inputs})\nOUTPUT ({outputs})\n"
    if model.comment:
        text += f"COMMENT {string(model.comment)}\n"
    return text + _with(model.options)


def _with(options: dict[str, str]) -> str:
    rows = ",\n".join(f"  {string(k)} = {string(options[k])}" for k in sorted(options))
    return f"WITH (\n{rows}\n)\n"


def sql_type(kind: DataType) -> str:
    """Return a type as SHOW CREATE TABLE writes it: STRING and BYTES with their lengths."""
    text = str(kind)
    text = re.sub(r"\bSTRING\b(?![`'])", "VARCHAR(2147483647)", text)
    return re.sub(r"\bBYTES\b(?![`'])", "VARBINARY(2147483647)", text)


def _column(column: TableColumn) -> str:
    comment = f" COMMENT {string(column.comment)}" if column.comment else ""
    if column.kind is ColumnKind.COMPUTED:
        return f"  {name(column.name)} AS {column.expression}{comment}"
    return f"  {name(column.name)} {sql_type(column.type)}{_metadata(column)}{comment}"


def _metadata(column: TableColumn) -> str:
    if column.kind is not ColumnKind.METADATA:
        return ""
    key = f" FROM {string(column.metadata_key)}" if column.metadata_key is not None else ""
    return f" METADATA{key}{' VIRTUAL' if column.virtual else ''}"


def _table(full: Path, table: CatalogTable, temporary: bool) -> str:
    lines = [_column(c) for c in table.columns]
    if table.watermark is not None:
        lines.append(f"  WATERMARK FOR {name(table.watermark[0])} AS {table.watermark[1]}")
    if table.primary_key:
        keys = ", ".join(map(name, table.primary_key))
        lines.append(f"  CONSTRAINT {name(table.primary_key_name or '')} PRIMARY KEY ({keys}) NOT ENFORCED")
    body = ",\n".join(lines)
    text = f"CREATE {'TEMPORARY ' if temporary else ''}TABLE {path(full)} (\n{body}\n)\n"
    if table.comment:
        text += f"COMMENT {string(table.comment)}\n"
    if table.partition:
        text += f"PARTITIONED BY ({', '.join(map(name, table.partition))})\n"
    return text + _with(table.options)


def _view(full: Path, view: CatalogTable, temporary: bool) -> str:
    columns = ",\n".join(f"  {name(c.name)}" for c in view.columns)
    comment = f"COMMENT {string(view.comment)}\n" if view.comment else ""
    return f"CREATE {'TEMPORARY ' if temporary else ''}VIEW {path(full)} (\n{columns}\n)\n{comment}AS {view.query}\n"


# --- DESCRIBE


def described(binder: Binder, d: s.Describe) -> tuple[Fields, Rows]:
    """Return the rows of a DESCRIBE."""
    catalogs = binder.catalogs
    if d.kind == "CATALOG":
        result = catalogs.catalog(d.name[-1])
        options, comment = catalogs.catalog_options.get(d.name[-1], (result.options(), None))
        rows: Rows = [("name", d.name[-1]), ("type", options.get("type")), ("comment", comment)]
        if d.extended:
            rows += [(f"option:{k}", options[k]) for k in sorted(options) if k != "type"]
        return INFO, rows
    if d.kind == "DATABASE":
        catalog, database = catalogs.database_path(d.name)
        properties = catalogs.catalog(catalog).databases().get(database)
        if properties is None:
            raise ValidationException(f"Database {database} does not exist in Catalog {catalog}.")
        rows = [("name", database), ("comment", properties.comment)]
        if d.extended:
            rows += [(f"option:{k}", properties.options[k]) for k in sorted(properties.options)]
        return INFO, rows
    if d.kind == "MODEL":
        return _described_model(_model(catalogs, catalogs.full_path(d.name)))
    if d.kind != "TABLE":
        raise ValidationException(f"DESCRIBE {d.kind} is not supported")
    return _described_table(binder, d.name, "DESCRIBE")


def _described_model(model: CatalogModel) -> tuple[Fields, Rows]:
    columns = [*((c, True) for c in model.inputs), *((c, False) for c in model.outputs)]
    shown = (*COLUMNS.fields[:3], Field("is input", DataTypes.BOOLEAN()))
    rows = [(c.name, str(c.type.nullable()), c.type.is_nullable, is_input, c.comment) for c, is_input in columns]
    if any(c.comment for c, _ in columns):
        return Fields((*shown, Field("comment", DataTypes.STRING()))), list(rows)
    return Fields(shown), [row[:-1] for row in rows]


def _described_table(binder: Binder, parts: Sequence[str], verb: str) -> tuple[Fields, Rows]:
    full = binder.catalogs.full_path(parts)
    result = binder.catalogs.find(full)
    if result is None:
        raise ValidationException(f"Tables or views with the identifier '{'.'.join(full)}' doesn't exist.")
    return described_rows(fields_of(binder, result), result)


def fields_of(binder: Binder, relation: Relation) -> Fields:
    """Return the columns of a table or view, with their time attributes."""
    if isinstance(relation, InlineView):
        return relation.node.fields
    watermark = relation.watermark[0] if relation.watermark else None
    fields = []
    for column in relation.columns:
        time = TimeAttribute.ROWTIME if column.name == watermark else None
        if column.kind is ColumnKind.COMPUTED and (column.expression or "").upper() == "PROCTIME()":
            time = TimeAttribute.PROCTIME
        fields.append(Field(column.name, column.type, time))
    return Fields(tuple(fields))


def described_rows(fields: Fields, relation: Relation) -> tuple[Fields, Rows]:
    """Return the rows of DESCRIBE for a table or view."""
    table = None if isinstance(relation, InlineView) else relation
    comments = table is not None and any(c.comment is not None for c in table.columns)
    rows: Rows = []
    for index, field in enumerate(fields.fields):
        kind = str(field.type.nullable()) + (f" *{field.time.value}*" if field.time else "")
        key = extras = watermark = comment = None
        if table is not None:
            column = table.columns[index]
            comment = column.comment
            extras = _extras(column)
            if field.name in table.primary_key:
                key = f"PRI({', '.join(table.primary_key)})"
            if table.watermark is not None and table.watermark[0] == field.name:
                watermark = table.watermark[1]
        row = (field.name, kind, field.type.is_nullable, key, extras, watermark)
        rows.append((*row, comment) if comments else row)
    return (WITH_COMMENT if comments else COLUMNS), rows


def _extras(column: TableColumn) -> str | None:
    if column.kind is ColumnKind.COMPUTED:
        return f"AS {column.expression}"
    return _metadata(column).strip() or None
