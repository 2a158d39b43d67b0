"""ALTER TABLE: changes of a declaration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.sql.bind.tables import read_expression
from millstream.sql.catalog.tables import CatalogTable, ColumnKind, TableColumn
from millstream.sql.ddl.declarations import checked, column_of, key_name
from millstream.sql.errors import ValidationException
from millstream.sql.language import statements as s
from millstream.sql.language import syntax
from millstream.sql.language.unparser import to_sql

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder


def quoted(path: Sequence[str]) -> str:
    """Return a quoted path."""
    return ".".join(f"`{p}`" for p in path)


def failed(path: Sequence[str], reason: str) -> ValidationException:
    """Return an ALTER TABLE error."""
    return ValidationException(f"Failed to execute ALTER TABLE statement.\n{reason}")


def altered(binder: Binder, path: Sequence[str], table: CatalogTable, a: s.AlterTable) -> CatalogTable:
    """Return the altered table."""
    if a.set is not None:
        return replace(table, options={**table.options, **dict(a.set)})
    if a.reset is not None:
        if not a.reset:
            raise ValidationException("ALTER TABLE RESET does not support empty key")
        if "connector" in a.reset:
            raise ValidationException("ALTER TABLE RESET does not support changing 'connector'")
        return replace(table, options={k: v for k, v in table.options.items() if k not in a.reset})
    if a.rename_column is not None:
        return checked(binder, _renamed(path, table, a.rename_column[0][-1], a.rename_column[1]))
    if a.drop_columns:
        return checked(binder, _without_columns(path, table, a.drop_columns))
    if a.drop is not None or a.drop_constraint is not None:
        return _without(path, table, a)
    for placed in a.add:
        table = _added(path, table, placed)
    for placed in a.modify:
        table = _modified(path, table, placed)
    return checked(binder, table)


# --- ADD and MODIFY


def _added(path: Sequence[str], table: CatalogTable, placed: s.Placed) -> CatalogTable:
    part = placed.part
    if isinstance(part, s.Column):
        if part.name in _names(table):
            raise failed(path, f"Column `{part.name}` already exists in the table.")
        return replace(table, columns=_placed(path, list(table.columns), column_of(part), placed))
    if isinstance(part, s.Watermark):
        if table.watermark is not None:
            raise failed(
                path,
                f"The current table has already defined the watermark strategy `{table.watermark[0]}` AS "
                f"{table.watermark[1]}. You might want to drop it before adding a new one.",
            )
        return replace(table, watermark=(".".join(part.column), to_sql(part.strategy.value)))
    if isinstance(part, s.PrimaryKey):
        if table.primary_key:
            raise failed(
                path,
                f"The current table has already defined the primary key constraint [{_ticked(table.primary_key)}]. You "
                "might want to drop it before adding a new one.",
            )
        return _keyed(table, part)
    raise failed(path, "Distributions are not supported.")


def _modified(path: Sequence[str], table: CatalogTable, placed: s.Placed) -> CatalogTable:
    part = placed.part
    if isinstance(part, s.Column):
        if part.name not in _names(table):
            raise failed(path, f"Column `{part.name}` does not exist in the table.")
        columns = list(table.columns)
        index = _names(table).index(part.name)
        result = column_of(part)
        if result.comment is None:
            result = replace(result, comment=columns[index].comment)
        if not placed.first and placed.after is None:
            columns[index] = result
            return replace(table, columns=tuple(columns))
        del columns[index]
        return replace(table, columns=_placed(path, columns, result, placed))
    if isinstance(part, s.Watermark):
        if table.watermark is None:
            raise failed(path, "The current table does not define any watermark. You might want to add a new one.")
        return replace(table, watermark=(".".join(part.column), to_sql(part.strategy.value)))
    if isinstance(part, s.PrimaryKey):
        if not table.primary_key:
            raise failed(
                path,
                "The current table does not define any primary key constraint. You might want to add a new one.",
            )
        return _keyed(table, part)
    raise failed(path, "Distributions are not supported.")


def _keyed(table: CatalogTable, key: s.PrimaryKey) -> CatalogTable:
    return replace(table, primary_key=key.columns, primary_key_name=key.name or key_name(key.columns))


def _placed(
    path: Sequence[str], columns: list[TableColumn], column: TableColumn, placed: s.Placed
) -> tuple[TableColumn, ...]:
    names = [c.name for c in columns]
    if placed.first:
        return (column, *columns)
    if placed.after is None:
        return (*columns, column)
    if placed.after not in names:
        raise failed(path, f"Referenced column `{placed.after}` by 'AFTER' does not exist in the table.")
    index = names.index(placed.after) + 1
    return (*columns[:index], column, *columns[index:])


# --- RENAME and DROP


def _names(table: CatalogTable) -> list[str]:
    return [c.name for c in table.columns]


def _ticked(names: Sequence[str]) -> str:
    return ", ".join(f"`{n}`" for n in names)


def _renamed(path: Sequence[str], table: CatalogTable, old: str, new: str) -> CatalogTable:
    names = _names(table)
    if old not in names:
        raise failed(path, f"The column `{old}` does not exist in the base table.")
    if new in names:
        raise failed(path, f"The column `{new}` already existed in table schema.")
    _refuse_used(path, table, old, "rename")
    columns = tuple(replace(c, name=new) if c.name == old else c for c in table.columns)
    swapped = {old: new}
    return replace(
        table,
        columns=columns,
        primary_key=tuple(swapped.get(k, k) for k in table.primary_key),
        partition=tuple(swapped.get(k, k) for k in table.partition),
    )


def _uses(expression: str, column: str) -> bool:
    return any(isinstance(e, syntax.Name) and e.parts[0] == column for e in syntax.walk(read_expression(expression)))


def _refuse_used(path: Sequence[str], table: CatalogTable, column: str, verb: str) -> None:
    users = [
        c.name
        for c in table.columns
        if c.kind is ColumnKind.COMPUTED and c.expression is not None and _uses(c.expression, column)
    ]
    if users:
        raise failed(path, f"The column `{column}` is referenced by computed column {_ticked(users)}.")
    if table.watermark is not None and (table.watermark[0] == column or _uses(table.watermark[1], column)):
        raise failed(path, f"The column `{column}` is referenced by watermark expression.")
    if verb == "drop" and column in table.primary_key:
        raise failed(path, f"The column `{column}` is used as the primary key.")
    if column in table.partition:
        raise failed(path, f"The column `{column}` is used as the partition keys.")


def _without_columns(path: Sequence[str], table: CatalogTable, dropped: Sequence[str]) -> CatalogTable:
    for column in dropped:
        if column not in _names(table):
            raise failed(path, f"The column `{column}` does not exist in the base table.")
    if len(set(dropped)) != len(dropped):
        duplicate = next(c for c in dropped if dropped.count(c) > 1)
        raise failed(path, f"Duplicate column `{duplicate}`.")
    remaining = replace(table, columns=tuple(c for c in table.columns if c.name not in dropped))
    for column in dropped:
        _refuse_used(path, remaining, column, "drop")
    return remaining


def _without(path: Sequence[str], table: CatalogTable, a: s.AlterTable) -> CatalogTable:
    if a.drop == "WATERMARK":
        if table.watermark is None:
            raise failed(path, "The current table does not define any watermark strategy.")
        return replace(table, watermark=None)
    if a.drop == "DISTRIBUTION":
        raise failed(path, "Table does not have a distribution to drop.")
    if not table.primary_key:
        raise failed(path, "The current table does not define any primary key.")
    if a.drop_constraint is not None and a.drop_constraint != table.primary_key_name:
        raise failed(
            path,
            f"The current table does not define a primary key constraint named '{a.drop_constraint}'. Available "
            f"constraint name: ['{table.primary_key_name}'].",
        )
    return replace(table, primary_key=(), primary_key_name=None)
