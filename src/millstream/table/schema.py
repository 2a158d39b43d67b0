"""Schema: the columns, watermark and primary key of a table that is declared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.catalog.tables import CatalogTable, ColumnKind, TableColumn
from millstream.sql.errors import ValidationException
from millstream.sql.types import DataType, NullType, RowType
from millstream.table.expression import Expression, tree_of
from millstream.table.resolved_schema import ResolvedSchema, declared_table
from millstream.table.sql_text import as_data_type, as_sql, name_as_sql

__all__ = ["Schema"]

# The type of a computed column is unknown until it is bound.
_UNKNOWN = NullType()


def _written(expression: str | Expression) -> str:
    return expression if isinstance(expression, str) else as_sql(tree_of(expression))


@fast_dataclass
class _Parts:
    columns: tuple[TableColumn, ...] = ()
    watermark: tuple[str, str] | None = None
    primary_key: tuple[str, ...] = ()
    primary_key_name: str | None = None


class Schema:
    """Holds the columns of a declared table, with its watermark and primary key.

    Example:
        >>> builder = Schema.new_builder().column("id", DataTypes.INT().not_null()).column("price", "DECIMAL(10, 2)")
        >>> builder = builder.column_by_expression("double", "price * 2").column_by_metadata("ts", "TIMESTAMP(3)")
        >>> print(builder.watermark("ts", "ts - INTERVAL '5' SECOND").primary_key("id").build())
        (
          `id` INT NOT NULL,
          `price` DECIMAL(10, 2),
          `double` AS [price * 2],
          `ts` TIMESTAMP(3) METADATA,
          WATERMARK FOR `ts` AS [ts - INTERVAL '5' SECOND],
          CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED
        )
    """

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts

    @staticmethod
    def new_builder() -> Schema.Builder:
        """Return a builder; see Schema for an example."""
        return Schema.Builder()

    def __str__(self) -> str:
        parts = self._parts
        lines = [_column_line(c) for c in parts.columns]
        if parts.watermark is not None:
            column, strategy = parts.watermark
            lines.append(f"WATERMARK FOR {name_as_sql(column)} AS [{strategy}]")
        if parts.primary_key:
            names = ", ".join(map(name_as_sql, parts.primary_key))
            lines.append(f"CONSTRAINT {name_as_sql(self.primary_key_name)} PRIMARY KEY ({names}) NOT ENFORCED")
        return "(\n  " + ",\n  ".join(lines) + "\n)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        """The columns in order."""
        return self._parts.columns

    @property
    def watermark(self) -> tuple[str, str] | None:
        """The column that is event time and the watermark's expression; None without one."""
        return self._parts.watermark

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return self._parts.primary_key

    @property
    def primary_key_name(self) -> str:
        """The name of the primary key's constraint."""
        return self._parts.primary_key_name or "PK_" + "_".join(self._parts.primary_key)

    def as_table(
        self, options: dict[str, str], partition: Sequence[str] = (), comment: str | None = None
    ) -> CatalogTable:
        """Return the declaration of a table with this schema."""
        parts = self._parts
        name = parts.primary_key_name or (self.primary_key_name if parts.primary_key else None)
        return CatalogTable(
            parts.columns, parts.watermark, parts.primary_key, name, tuple(partition), dict(options), comment
        )

    @staticmethod
    def of_table(table: CatalogTable) -> Schema:
        """Return the schema of a declared table."""
        return Schema(_Parts(table.columns, table.watermark, table.primary_key, table.primary_key_name))

    class Builder:
        """Builds a schema; columns keep their order."""

        def __init__(self) -> None:
            self._parts = _Parts()

        def _add(self, *columns: TableColumn) -> Schema.Builder:
            self._parts = replace(self._parts, columns=(*self._parts.columns, *columns))
            return self

        def from_schema(self, unresolved_schema: Schema) -> Schema.Builder:
            """Copy another schema, replacing what was set before.

            Example:
                >>> schema = Schema.new_builder().column("id", "INT").build()
                >>> print(Schema.new_builder().from_schema(schema).column("name", "STRING").build())
                (
                  `id` INT,
                  `name` STRING
                )
            """
            self._parts = unresolved_schema._parts
            return self

        def from_resolved_schema(self, resolved_schema: ResolvedSchema) -> Schema.Builder:
            """Copy the columns, watermark and key of a table.

            Example:
                >>> orders = t_env.from_elements([("ann", 3)], ["name", "price"])
                >>> print(Schema.new_builder().from_resolved_schema(orders.get_resolved_schema()).build())
                (
                  `name` STRING,
                  `price` BIGINT
                )
            """
            self._parts = Schema.of_table(declared_table(resolved_schema))._parts
            return self

        def from_row_data_type(self, data_type: DataType) -> Schema.Builder:
            """Add the fields of a ROW as columns.

            Example:
                >>> kind = DataTypes.ROW([DataTypes.FIELD("id", DataTypes.INT())])
                >>> print(Schema.new_builder().from_row_data_type(kind).build())
                (
                  `id` INT
                )
            """
            if not isinstance(data_type, RowType):
                raise ValidationException(f"Data type of ROW expected, not {data_type}.")
            return self._add(*(TableColumn(f.name, f.data_type) for f in data_type.fields))

        def from_fields(self, field_names: list[str], field_data_types: list[DataType]) -> Schema.Builder:
            """Add columns by names and types.

            Example:
                >>> print(Schema.new_builder().from_fields(["id", "n"], [DataTypes.INT(), DataTypes.INT()]).build())
                (
                  `id` INT,
                  `n` INT
                )
            """
            if len(field_names) != len(field_data_types):
                raise ValidationException("Field names and field data types must have the same length.")
            return self._add(
                *(TableColumn(n, as_data_type(t)) for n, t in zip(field_names, field_data_types, strict=False))
            )

        def column(self, column_name: str, data_type: str | DataType) -> Schema.Builder:
            """Add a physical column, stored in the external system.

            Example:
                >>> print(Schema.new_builder().column("id", DataTypes.INT()).column("name", "STRING").build())
                (
                  `id` INT,
                  `name` STRING
                )
            """
            return self._add(TableColumn(column_name, as_data_type(data_type)))

        def column_by_expression(self, column_name: str, expr: str | Expression) -> Schema.Builder:
            """Add a computed column: a SQL text or an expression of other columns, such as `PROCTIME()`.

            Example:
                >>> print(Schema.new_builder().column("n", "INT").column_by_expression("next", col("n") + 1).build())
                (
                  `n` INT,
                  `next` AS [(`n` + 1)]
                )
            """
            return self._add(TableColumn(column_name, _UNKNOWN, ColumnKind.COMPUTED, _written(expr)))

        def column_by_metadata(
            self,
            column_name: str,
            data_type: DataType | str,
            metadata_key: str | None = None,
            is_virtual: bool = False,
        ) -> Schema.Builder:
            """Add a column of the connector's metadata, such as the offset of a Kafka message.

            Args:
                column_name: the name.
                data_type: the type.
                metadata_key: the connector's name of it, by default the column's name.
                is_virtual: excludes the column from writes; by default it is written too.

            Example:
                >>> print(Schema.new_builder().column_by_metadata("at", "TIMESTAMP_LTZ(3)", "timestamp", True).build())
                (
                  `at` TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL
                )
            """
            kind = as_data_type(data_type)
            return self._add(TableColumn(column_name, kind, ColumnKind.METADATA, None, metadata_key, is_virtual))

        def watermark(self, column_name: str, watermark_expr: str | Expression) -> Schema.Builder:
            """Declare the event-time column and its watermark expression, in SQL or as an expression.

            Example:
                >>> builder = Schema.new_builder().column("ts", "TIMESTAMP(3)")
                >>> print(builder.watermark("ts", "ts - INTERVAL '5' SECOND").build())
                (
                  `ts` TIMESTAMP(3),
                  WATERMARK FOR `ts` AS [ts - INTERVAL '5' SECOND]
                )
            """
            self._parts = replace(self._parts, watermark=(column_name, _written(watermark_expr)))
            return self

        def primary_key(self, *column_names: str) -> Schema.Builder:
            """Set the primary key, whose columns must be NOT NULL; it is not enforced.

            Example:
                >>> print(Schema.new_builder().column("id", "INT NOT NULL").primary_key("id").build())
                (
                  `id` INT NOT NULL,
                  CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED
                )
            """
            return self.primary_key_named(None, *column_names)

        def primary_key_named(self, constraint_name: str | None, *column_names: str) -> Schema.Builder:
            """Set the primary key and the name of its constraint.

            Example:
                >>> print(Schema.new_builder().column("id", "INT NOT NULL").primary_key_named("by_id", "id").build())
                (
                  `id` INT NOT NULL,
                  CONSTRAINT `by_id` PRIMARY KEY (`id`) NOT ENFORCED
                )
            """
            if self._parts.primary_key:
                raise ValidationException("Multiple primary keys are not supported.")
            self._parts = replace(self._parts, primary_key=column_names, primary_key_name=constraint_name)
            return self

        def build(self) -> Schema:
            """Return the schema.

            See `Schema` for an example.
            """
            return Schema(self._parts)


def _column_line(column: TableColumn) -> str:
    name = name_as_sql(column.name)
    if column.kind is ColumnKind.COMPUTED:
        return f"{name} AS [{column.expression}]"
    if column.kind is ColumnKind.METADATA:
        key = f" FROM '{column.metadata_key}'" if column.metadata_key is not None else ""
        return f"{name} {column.type} METADATA{key}{' VIRTUAL' if column.virtual else ''}"
    return f"{name} {column.type}"
