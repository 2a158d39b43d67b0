"""Binds INSERT: maps query columns to table columns and checks their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.sql import type_rules
from millstream.sql.bind import relation_builder
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.scope import BindError, Scope
from millstream.sql.bind.tables import context_of, with_options
from millstream.sql.bind.unbound_calls import PROCTIME, cast
from millstream.sql.catalog.manager import InlineView
from millstream.sql.catalog.tables import ColumnKind, TableColumn
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Column, Constant, Expression
from millstream.sql.language import statements
from millstream.sql.plan.nodes import Node, Project, Sink
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import DataType

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder


def bound(binder: Binder, statement: statements.Insert) -> Sink:
    """Return the sink node of an INSERT."""
    node = binder.query(statement.query)
    partition = {}
    for name, value in statement.partition:
        constant = binder.folded(ExpressionBinder(binder, Scope()).bind(value))
        if not isinstance(constant, Constant):
            raise BindError(f"The value of the partition '{name}' must be a constant", value.position)
        partition[name] = constant
    return written(
        binder,
        node,
        statement.table,
        columns=statement.columns,
        partition=partition,
        overwrite=statement.overwrite,
        options=statement.options,
        conflict=statement.conflict,
        position=statement.position,
    )


def written(
    binder: Binder,
    node: Node,
    name: tuple[str, ...],
    *,
    columns: Sequence[str] = (),
    partition: dict[str, Constant] | None = None,
    overwrite: bool = False,
    options: tuple[tuple[str, str], ...] = (),
    conflict: str | None = None,
    position: int | None = None,
) -> Sink:
    """Return the sink node of a relation."""
    path = binder.catalogs.full_path(name)
    table = binder.catalogs.find(path)
    if table is None:
        raise BindError(
            f"Cannot find table '`{'`.`'.join(path)}`' in any of the catalogs "
            f"[{', '.join(sorted(binder.catalogs.catalog_names()))}], nor as a temporary table"
            f"{binder.catalogs.suggestion(path) or '.'}",
            position,
        )
    if isinstance(table, InlineView) or table.is_view:
        raise BindError(f"'{'.'.join(path)}' is a view; only tables can be written to", position)
    if binder.connectors is None:
        raise BindError(f"The table '{'.'.join(path)}' cannot be written: there are no connectors")
    table = with_options(binder, table, options)
    sink = binder.connectors.sink(context_of(binder, path, table))
    if overwrite:
        sink = sink.overwriting()
    target = table.persisted
    _check_metadata(target, sink.metadata(), path)
    row = _aligned(node, target, list(columns), partition or {}, path)
    fields = Fields(tuple(Field(c.name, c.type) for c in target))
    # Columns stay nullable until the sink's constraint checks them.
    projected = Project(
        Fields(tuple(Field(c.name, e.type) for c, e in zip(target, row, strict=True))), node, tuple(row)
    )
    values = tuple((k, str(v.value)) for k, v in (partition or {}).items())
    return Sink(fields, _materialized(projected), table, sink, path, overwrite, values, options, conflict=conflict)


def _check_metadata(target: list[TableColumn], known: Mapping[str, DataType], path: tuple[str, ...]) -> None:
    for column in target:
        key = column.metadata_key or column.name
        if column.kind is ColumnKind.METADATA and key not in known:
            raise BindError(
                f"Invalid metadata key '{key}' in column '{column.name}' of table '{'.'.join(path)}'. The connector "
                f"supports the following metadata keys for writing: {', '.join(sorted(known)) or 'none'}. Declare the "
                "column as VIRTUAL to only read it."
            )


def _materialized(project: Project) -> Project:
    """Convert processing time attributes to the current time."""
    below = project.input.fields
    read = tuple(
        cast(PROCTIME, e.type) if isinstance(e, Column) and below[e.index].time is TimeAttribute.PROCTIME else e
        for e in project.expressions
    )
    return replace(project, expressions=read)


def _aligned(
    node: Node, target: list[TableColumn], columns: list[str], partition: dict[str, Constant], path: tuple[str, ...]
) -> list[Expression]:
    """Return the expression of each table column."""
    names = [c.name for c in target]
    for name in [*columns, *partition]:
        if name not in names:
            raise BindError(f"Unknown target column '{name}'")
    if len(set(columns)) != len(columns):
        duplicate = next(c for c in columns if columns.count(c) > 1)
        raise BindError(f"Target column '{duplicate}' is assigned more than once")
    column_names = columns or [n for n in names if n not in partition]
    if len(column_names) != len(node.fields):
        raise mismatch("Different number of columns.", node.fields, target, path)
    values: dict[str, Expression] = {}
    for name, expression in zip(column_names, relation_builder.columns(node.fields), strict=True):
        values[name] = expression
    values |= partition
    row: list[Expression] = []
    for index, column in enumerate(target):
        value = values.get(column.name)
        if value is None:
            if not column.type.is_nullable:
                raise BindError(f"Column '{column.name}' has no default value and does not allow NULLs")
            row.append(Constant(column.type, None))
            continue
        if not _can_store(value, column):
            cause = f"Incompatible types for sink column '{column.name}' at position {index + 1}."
            raise mismatch(cause, node.fields, target, path)
        row.append(cast(value, column.type))
    return row


def _can_store(value: Expression, column: TableColumn) -> bool:
    return type_rules.can_store(value.type, column.type.nullable())


def mismatch(cause: str, query: Fields, target: Sequence[TableColumn], path: Sequence[str]) -> ValidationException:
    """Return the error for a query whose columns do not match the sink's."""
    required = ", ".join(f"{c.name}: {c.type}" for c in target)
    actual = ", ".join(f"{f.name}: {f.type}" for f in query.fields)
    return ValidationException(
        f"Column types of query result and sink for '{'.'.join(path)}' do not match.\n"
        f"Cause: {cause}\n\n"
        f"Query schema: [{actual}]\n"
        f"Sink schema:  [{required}]"
    )
