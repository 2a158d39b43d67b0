"""Binds catalog tables: scan, computed columns, watermark, and hints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from millstream.common.configuration import parse_duration_ms
from millstream.common.errors import MillstreamError
from millstream.sql.bind import relation_builder
from millstream.sql.bind.expressions import ExpressionBinder
from millstream.sql.bind.scope import BindError, Scope
from millstream.sql.bind.unbound_calls import cast
from millstream.sql.catalog.tables import CatalogTable, ColumnKind
from millstream.sql.connector_contract import TableContext, TableSink, TableSource
from millstream.sql.errors import ValidationException
from millstream.sql.expressions import Column, Expression
from millstream.sql.language.statement_grammar import StatementGrammar
from millstream.sql.language.syntax import Expression as SyntaxExpression
from millstream.sql.plan.nodes import Node, Scan, Watermark
from millstream.sql.plan.specs import Retry
from millstream.sql.schema import Field, Fields, TimeAttribute

if TYPE_CHECKING:
    from millstream.sql.bind.binder import Binder


class Connectors(Protocol):
    """Creates sources and sinks of tables by their options."""

    def source(self, context: TableContext) -> TableSource:
        """Return the source of a table."""

    def sink(self, context: TableContext) -> TableSink:
        """Return the sink of a table."""


def read_expression(text: str) -> SyntaxExpression:
    """Parse an expression that a catalog stores as text."""
    grammar = StatementGrammar(text)
    result = grammar.expression()
    if not grammar.is_at_end:
        grammar.refuse()
    return result


def is_source_watermark(strategy: str) -> bool:
    """Return whether a watermark is declared as SOURCE_WATERMARK()."""
    return "".join(strategy.split()).upper() == "SOURCE_WATERMARK()"


def context_of(binder: Binder, path: tuple[str, ...], table: CatalogTable) -> TableContext:
    """Return a table as its connector sees it."""
    return TableContext(path, table, binder.settings, binder.batch)


_HINTS = "table.dynamic-table-options.enabled"


def with_options(binder: Binder, table: CatalogTable, options: tuple[tuple[str, str], ...]) -> CatalogTable:
    """Return the table with the options of a hint."""
    if options and str(binder.settings.get(_HINTS, "true")).lower() == "false":
        raise BindError(f"The 'OPTIONS' hint is allowed only when the config option '{_HINTS}' is set to true")
    return replace(table, options={**table.options, **dict(options)}) if options else table


def scanned(
    binder: Binder, path: tuple[str, ...], table: CatalogTable, options: tuple[tuple[str, str], ...] = ()
) -> Node:
    """Return the scan of a table."""
    if binder.connectors is None:
        raise BindError(f"The table '{'.'.join(path)}' cannot be read: there are no connectors")
    table = with_options(binder, table, options)
    source = binder.connectors.source(context_of(binder, path, table))
    read = [c for c in table.columns if c.kind is ColumnKind.PHYSICAL]
    metadata = source.metadata() if any(c.kind is ColumnKind.METADATA for c in table.columns) else {}
    fields = [Field(c.name, c.type) for c in read]
    columns = [c.name for c in read]
    for column in table.columns:
        if column.kind is ColumnKind.METADATA:
            key = column.metadata_key or column.name
            if key not in metadata:
                known = ", ".join(sorted(metadata)) or "none"
                raise BindError(
                    f"Invalid metadata key '{key}' in column '{column.name}' of table '{'.'.join(path)}'. The "
                    f"connector's metadata keys are: {known}."
                )
            fields.append(Field(column.name, metadata[key]))
            columns.append(key)
    scan: Node = Scan(Fields(tuple(fields)), table, source, path, tuple(columns), options=options)
    return declared(binder, scan, table)


def declared(binder: Binder, scan: Node, table: CatalogTable) -> Node:
    """Return the declared columns in order over the scanned ones, with the watermark."""
    scope = Scope.of(scan.fields)
    indexes = {f.name: i for i, f in enumerate(scan.fields.fields)}
    expressions: list[Expression] = []
    for column in table.columns:
        if column.kind is ColumnKind.COMPUTED:
            assert column.expression is not None
            expressions.append(ExpressionBinder(binder, scope).raw(read_expression(column.expression)))
        else:
            read = Column(scan.fields[indexes[column.name]].type, indexes[column.name])
            expressions.append(cast(read, column.type) if column.kind is ColumnKind.METADATA else read)
    node = relation_builder.project(scan, expressions, [c.name for c in table.columns])
    if table.watermark is None:
        return node
    rowtime, strategy = table.watermark
    if is_source_watermark(strategy):
        if not isinstance(scan, Scan) or not scan.source.watermarks_on_event:
            raise BindError(
                f"Invalid expression for watermark '{rowtime}'. SOURCE_WATERMARK() takes the watermarks of a "
                f"DataStream, and this connector emits none: declare WATERMARK FOR {rowtime} AS {rowtime} - "
                "INTERVAL '5' SECOND"
            )
        strategy = f"`{rowtime}`"
    return watermarked(binder, node, rowtime, strategy)


def watermarked(binder: Binder, node: Node, column: str, strategy: str) -> Node:
    """Return the relation with a watermark."""
    index = node.fields.names.index(column)
    bound = ExpressionBinder(binder, Scope.of(node.fields)).bind(read_expression(strategy))
    field = replace(node.fields[index], time=TimeAttribute.ROWTIME)
    fields = Fields((*node.fields.fields[:index], field, *node.fields.fields[index + 1 :]))
    if binder.batch:
        # In batch no row is late, so watermarks are not needed.
        return replace(node, fields=fields)
    return Watermark(fields, node, index, bound)


_LOOKUP_OPTIONS = frozenset(
    [
        "table",
        "async",
        "output-mode",
        "capacity",
        "timeout",
        "retry-predicate",
        "retry-strategy",
        "fixed-delay",
        "max-attempts",
        "shuffle",
    ]
)


def check_hint(hint: Mapping[str, str]) -> None:
    """Reject an invalid LOOKUP hint."""
    unknown = sorted(set(hint) - _LOOKUP_OPTIONS)
    if unknown:
        raise ValidationException(f"Invalid LOOKUP hint: unsupported option '{unknown[0]}'.")
    if "table" not in hint:
        raise ValidationException("Invalid LOOKUP hint: incomplete required option(s): 'table'.")
    retry_of(hint)


def retry_of(hint: Mapping[str, str]) -> Retry | None:
    """Return the retry strategy of a LOOKUP hint; None for no retry."""
    names = ("retry-predicate", "retry-strategy", "fixed-delay", "max-attempts")
    present = [name for name in names if name in hint]
    if not present:
        return None
    if len(present) < len(names):
        raise ValidationException(
            f"Invalid LOOKUP hint: retry options can be both null or all not null: {', '.join(names)}."
        )
    if hint["retry-predicate"].lower() != "lookup_miss":
        raise ValidationException("Invalid LOOKUP hint: unsupported 'retry-predicate', it can only be 'lookup_miss'.")
    if hint["retry-strategy"].lower() != "fixed_delay":
        raise ValidationException("Invalid LOOKUP hint: unsupported 'retry-strategy', it can only be 'fixed_delay'.")
    try:
        attempts, delay = int(hint["max-attempts"]), parse_duration_ms(hint["fixed-delay"])
    except (ValueError, MillstreamError):
        raise ValidationException(
            "Invalid LOOKUP hint: 'max-attempts' must be a number, and 'fixed-delay' a duration such as '10 s'."
        ) from None
    if attempts < 1:
        raise ValidationException("Invalid LOOKUP hint: max-attempts value should be positive integer.")
    return Retry(attempts, delay / 1000)
