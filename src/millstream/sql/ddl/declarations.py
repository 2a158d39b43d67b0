"""Declarations of tables: converts CREATE TABLE and LIKE to a checked catalog table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.scope import BindError, Scope
from millstream.sql.bind.tables import is_source_watermark, read_expression
from millstream.sql.catalog.tables import CatalogTable, ColumnKind, TableColumn
from millstream.sql.errors import ValidationException
from millstream.sql.language import statements
from millstream.sql.language.unparser import to_sql
from millstream.sql.schema import Field, Fields
from millstream.sql.types import DataType, LocalZonedTimestampType, NullType, TimestampType

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder

_ORDINARY = (ColumnKind.PHYSICAL, ColumnKind.METADATA)


def declared(binder: Binder, statement: statements.CreateTable, base: CatalogTable | None) -> CatalogTable:
    """Return the table that CREATE TABLE declares, merged with its LIKE."""
    rules = _rules(statement.like)
    inherited = _taken_columns(base, rules)
    columns = _with_own(inherited, statement.columns, rules)
    if len(statement.watermarks) > 1:
        raise ValidationException("Multiple WATERMARK declarations are not supported yet.")
    watermark = _watermark(statement, base, rules)
    key, key_name = _primary_key(statement, base, rules)
    partition = statement.partition
    if base is not None and base.partition and rules["PARTITIONS"] != "EXCLUDING":
        if partition:
            raise ValidationException(
                "The base table already has partitions defined. You might want to specify EXCLUDING PARTITIONS."
            )
        partition = base.partition
    options = _options(statement, base, rules)
    table = CatalogTable(tuple(columns), watermark, key, key_name, tuple(partition), options, statement.comment)
    return checked(binder, table)


# --- LIKE

_FEATURES = ("CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS")


def _rules(like: statements.Like | None) -> dict[str, str]:
    """Return per feature whether LIKE includes it."""
    result = dict.fromkeys(_FEATURES, "INCLUDING")
    result |= {"OPTIONS": "OVERWRITING"}
    for verb, feature in like.rules if like else ():
        if feature == "ALL":
            result |= dict.fromkeys(_FEATURES, verb)
    for verb, feature in like.rules if like else ():
        if feature != "ALL":
            if verb == "OVERWRITING" and feature in ("CONSTRAINTS", "PARTITIONS", "DISTRIBUTION"):
                raise ValidationException(f"Illegal merging strategy '{verb}' for '{feature}' option.")
            result[feature] = verb
    return result


def _taken_columns(base: CatalogTable | None, rules: dict[str, str]) -> list[TableColumn]:
    is_included = {
        ColumnKind.PHYSICAL: True,
        ColumnKind.COMPUTED: rules["GENERATED"] != "EXCLUDING",
        ColumnKind.METADATA: rules["METADATA"] != "EXCLUDING",
    }
    return [c for c in base.columns if is_included[c.kind]] if base else []


def _with_own(
    inherited: Sequence[TableColumn], own: Sequence[statements.Column], rules: dict[str, str]
) -> list[TableColumn]:
    columns = {c.name: c for c in inherited}
    seen: set[str] = set()
    for column in own:
        if column.name in seen:
            raise ValidationException(f"A {_kind(column)} Column named '{column.name}' already exists in the table.")
        seen.add(column.name)
        result = column_of(column)
        before = columns.get(column.name)
        if before is not None:
            _check_overwriting(before, result, rules)
        columns[column.name] = result
    return list(columns.values())


def _kind(column: statements.Column) -> str:
    return "generated" if column.computed is not None else "metadata" if column.metadata else "regular"


def _check_overwriting(before: TableColumn, now: TableColumn, rules: dict[str, str]) -> None:
    feature = {ColumnKind.COMPUTED: "GENERATED", ColumnKind.METADATA: "METADATA"}.get(now.kind)
    if feature is None:
        raise ValidationException(f"A column named '{now.name}' already exists in the base table.")
    if before.kind is not now.kind:
        raise ValidationException(f"A column named '{now.name}' already exists in the base table.")
    if rules[feature] != "OVERWRITING":
        words = "generated" if feature == "GENERATED" else "metadata"
        raise ValidationException(
            f"A {words} column named '{now.name}' already exists in the base table. You might want to specify "
            f"EXCLUDING {feature} or OVERWRITING {feature}."
        )


def _watermark(
    statement: statements.CreateTable, base: CatalogTable | None, rules: dict[str, str]
) -> tuple[str, str] | None:
    inherited = base.watermark if base and rules["WATERMARKS"] != "EXCLUDING" else None
    if not statement.watermarks:
        return inherited
    own = statement.watermarks[0]
    if inherited is not None and rules["WATERMARKS"] != "OVERWRITING":
        raise ValidationException(
            f"There already exists a watermark spec for column '{inherited[0]}' in the base table. You might want to "
            "specify EXCLUDING WATERMARKS or OVERWRITING WATERMARKS."
        )
    return ".".join(own.column), to_sql(own.strategy.value)


def _primary_key(
    statement: statements.CreateTable, base: CatalogTable | None, rules: dict[str, str]
) -> tuple[tuple[str, ...], str | None]:
    own = statement.primary_key
    if base is not None and base.primary_key and rules["CONSTRAINTS"] != "EXCLUDING":
        if own is not None:
            raise ValidationException(
                "The base table already has a primary key. You might want to specify EXCLUDING CONSTRAINTS."
            )
        return base.primary_key, base.primary_key_name
    return (own.columns, own.name or key_name(own.columns)) if own else ((), None)


def key_name(columns: Sequence[str]) -> str:
    """Return the default name of a primary key."""
    return f"PK_{'_'.join(columns)}"


def _options(statement: statements.CreateTable, base: CatalogTable | None, rules: dict[str, str]) -> dict[str, str]:
    own = dict(statement.options)
    if base is None or rules["OPTIONS"] == "EXCLUDING":
        return own
    duplicates = sorted(set(own) & set(base.options))
    if duplicates and rules["OPTIONS"] == "INCLUDING":
        raise ValidationException(
            f"There already exists an option ['{duplicates[0]}' -> '{base.options[duplicates[0]]}']  in the base "
            "table. You might want to specify EXCLUDING OPTIONS or OVERWRITING OPTIONS."
        )
    return {**base.options, **own}


# --- columns


def column_of(column: statements.Column) -> TableColumn:
    """Return a declared column; the check derives the type of a computed one."""
    if column.computed is not None:
        text = to_sql(column.computed.value)
        return TableColumn(column.name, _UNKNOWN, ColumnKind.COMPUTED, text, comment=column.comment)
    assert column.type is not None
    if column.metadata:
        return TableColumn(
            column.name,
            column.type,
            ColumnKind.METADATA,
            metadata_key=column.key,
            virtual=column.virtual,
            comment=column.comment,
        )
    return TableColumn(column.name, column.type, comment=column.comment)


_UNKNOWN = NullType()


def checked(binder: Binder, table: CatalogTable) -> CatalogTable:
    """Return the table with types of computed columns; raise if it is invalid."""
    ordinary = Fields(tuple(Field(c.name, c.type) for c in table.columns if c.kind in _ORDINARY))
    scope = Scope.of(ordinary)
    columns: list[TableColumn] = []
    for column in table.columns:
        if column.kind is ColumnKind.COMPUTED:
            assert column.expression is not None
            try:
                bound = ExpressionBinder(binder, scope).raw(read_expression(column.expression))
            except BindError as e:
                raise ValidationException(
                    f"Invalid expression for computed column '{column.name}'. {e.message}"
                ) from None
            column = replace(column, type=bound.type)
        columns.append(column)
    table = replace(table, columns=tuple(columns))
    names = [c.name for c in columns]
    if table.watermark is not None:
        _check_watermark(binder, table, names)
    table = _check_key(table, names)
    for name in table.partition:
        if name not in names:
            raise ValidationException(
                f"Partition column '{name}' not defined in the table schema. Available columns: "
                f"[{', '.join(repr(n) for n in names)}]"
            )
    return table


def _check_watermark(binder: Binder, table: CatalogTable, names: list[str]) -> None:
    assert table.watermark is not None
    column, strategy = table.watermark
    if column not in names:
        raise ValidationException(
            f"The rowtime attribute field '{column}' is not defined in the table schema.\nAvailable fields: "
            f"[{', '.join(repr(n) for n in names)}]"
        )
    kind = table.columns[names.index(column)].type
    if not _is_time(kind):
        raise ValidationException(
            "Invalid data type of time field for watermark definition. The field must be of type TIMESTAMP(p) or "
            "TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3, but the time field type is "
            f"{kind}"
        )
    fields = Fields(tuple(Field(c.name, c.type) for c in table.columns))
    if is_source_watermark(strategy):
        # Whether the connector supports source watermarks is known only when the table is read.
        return
    try:
        bound = ExpressionBinder(binder, Scope.of(fields)).bind(read_expression(strategy))
    except BindError as e:
        raise ValidationException(f"Invalid expression for watermark '{column}'. {e.message}") from None
    if not _is_time(bound.type):
        raise ValidationException(
            "Invalid data type of expression for watermark definition. The field must be of type TIMESTAMP(p) or "
            "TIMESTAMP_LTZ(p), the supported precision 'p' is from 0 to 3, but the watermark expression type is "
            f"{bound.type}"
        )


def _is_time(kind: DataType) -> bool:
    return isinstance(kind, (TimestampType, LocalZonedTimestampType)) and kind.precision <= 3


def _check_key(table: CatalogTable, names: list[str]) -> CatalogTable:
    columns = list(table.columns)
    for name in table.primary_key:
        if name not in names:
            raise ValidationException(f"Primary key column '{name}' is not defined in the schema.")
        index = names.index(name)
        if columns[index].kind is not ColumnKind.PHYSICAL:
            raise ValidationException(
                f"Could not create a PRIMARY KEY with column '{name}'.\nA PRIMARY KEY constraint must be declared on "
                "physical columns."
            )
        # Primary key columns are NOT NULL.
        columns[index] = replace(columns[index], type=columns[index].type.not_null())
    return replace(table, columns=tuple(columns))
