"""ResolvedSchema: the columns of a table with resolved names and types."""

from __future__ import annotations

from dataclasses import replace

from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.catalog.tables import CatalogTable, ColumnKind, TableColumn
from millstream.sql.schema import Fields, TimeAttribute
from millstream.sql.types import DataType, RowField, RowType
from millstream.table.resolved_expression import ResolvedExpression
from millstream.table.sql_text import name_as_sql


class Column:
    """Describes a column of a ResolvedSchema.

    Example:
        >>> Column.physical("price", DataTypes.INT()).as_summary_string()
        '`price` INT'
        >>> Column.metadata("at", DataTypes.TIMESTAMP(3), "timestamp", True).as_summary_string()
        "`at` TIMESTAMP(3) METADATA FROM 'timestamp' VIRTUAL"
    """

    def __init__(self, column: TableColumn, time: TimeAttribute | None = None) -> None:
        self._column = column
        self._time = time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and (self._column, self._time) == (other._column, other._time)

    def __hash__(self) -> int:
        return hash((self._column, self._time))

    def __str__(self) -> str:
        return self.as_summary_string()

    @staticmethod
    def physical(name: str, data_type: DataType) -> PhysicalColumn:
        """Return a physical column, stored in the external system."""
        return PhysicalColumn(TableColumn(name, data_type))

    @staticmethod
    def computed(name: str, resolved_expression: ResolvedExpression) -> ComputedColumn:
        """Return a column that is computed from others."""
        kind, text = resolved_expression.get_output_data_type(), resolved_expression.as_serializable_string()
        return ComputedColumn(TableColumn(name, kind, ColumnKind.COMPUTED, text))

    @staticmethod
    def metadata(name: str, data_type: DataType, metadata_key: str | None, is_virtual: bool) -> MetadataColumn:
        """Return a column of the connector's metadata; a virtual one is not written."""
        column = TableColumn(name, data_type, ColumnKind.METADATA, None, metadata_key, is_virtual)
        return MetadataColumn(column)

    def _with(self, **changes: object) -> Column:
        return type(self)(replace(self._column, **changes), self._time)  # type: ignore[arg-type]

    def with_comment(self, comment: str | None) -> Column:
        """Return the column with a comment."""
        return self._with(comment=comment)

    def is_physical(self) -> bool:
        """Return whether the column is physical."""
        return self._column.kind is ColumnKind.PHYSICAL

    def is_persisted(self) -> bool:
        """Return whether the column is written: it is neither computed nor virtual metadata."""
        return self._column.is_persisted

    def get_data_type(self) -> DataType:
        """Return its type."""
        return self._column.type

    def get_name(self) -> str:
        """Return its name."""
        return self._column.name

    def get_comment(self) -> str | None:
        """Return the comment."""
        return self._column.comment

    def as_summary_string(self) -> str:
        """Return it as a line of a declaration."""
        time = f" *{self._time.value}*" if self._time is not None else ""
        extras = self.explain_extras()
        comment = f" COMMENT '{self._column.comment}'" if self._column.comment else ""
        return f"{name_as_sql(self._column.name)} {self._column.type}{time}{f' {extras}' if extras else ''}{comment}"

    def explain_extras(self) -> str | None:
        """Return the additional text of DESCRIBE."""
        return None

    def copy(self, new_type: DataType) -> Column:
        """Return the column with another type."""
        return self._with(type=new_type)

    def rename(self, new_name: str) -> Column:
        """Return the column under another name."""
        return self._with(name=new_name)


class PhysicalColumn(Column):
    """Describes a physical column."""

    def copy(self, new_data_type: DataType) -> Column:
        """Return the column with another type."""
        return self._with(type=new_data_type)


class ComputedColumn(Column):
    """Describes a column that is computed from others."""

    def copy(self, new_data_type: DataType) -> Column:
        """Return the column with another type."""
        return self._with(type=new_data_type)

    def get_expression(self) -> str | None:
        """Return the expression as SQL."""
        return self._column.expression

    def explain_extras(self) -> str | None:
        return f"AS {self._column.expression}"


class MetadataColumn(Column):
    """Describes a column of metadata."""

    def copy(self, new_data_type: DataType) -> Column:
        """Return the column with another type."""
        return self._with(type=new_data_type)

    def is_virtual(self) -> bool:
        """Return whether the column is read-only."""
        return self._column.virtual

    def get_metadata_key(self) -> str | None:
        """Return the metadata key, or None if it is the column's name."""
        return self._column.metadata_key

    def explain_extras(self) -> str | None:
        key = f" FROM '{self._column.metadata_key}'" if self._column.metadata_key is not None else ""
        return f"METADATA{key}{' VIRTUAL' if self._column.virtual else ''}"


_CLASSES = {
    ColumnKind.PHYSICAL: PhysicalColumn,
    ColumnKind.COMPUTED: ComputedColumn,
    ColumnKind.METADATA: MetadataColumn,
}


@fast_dataclass
class WatermarkSpec:
    """Holds the event-time column and its watermark expression.

    Example:
        >>> _ = t_env.execute_sql("CREATE TABLE clicks (ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
        ...     "WITH ('connector' = 'datagen')")
        >>> [watermark] = t_env.from_path("clicks").get_resolved_schema().get_watermark_specs()
        >>> watermark.get_rowtime_attribute(), str(watermark.get_watermark_expression())
        ('ts', "`ts` - INTERVAL '5' SECOND")
    """

    rowtime_attribute: str
    watermark_expression: ResolvedExpression

    @staticmethod
    def of(rowtime_attribute: str, watermark_expression: ResolvedExpression) -> WatermarkSpec:
        """Return a watermark for a column."""
        return WatermarkSpec(rowtime_attribute, watermark_expression)

    def get_rowtime_attribute(self) -> str:
        """Return the column."""
        return self.rowtime_attribute

    def get_watermark_expression(self) -> ResolvedExpression:
        """Return the watermark's expression."""
        return self.watermark_expression

    def as_summary_string(self) -> str:
        """Return it as a line of a declaration."""
        expression = self.watermark_expression
        kind = expression.get_output_data_type()
        return f"WATERMARK FOR {name_as_sql(self.rowtime_attribute)}: {kind} AS {expression.as_summary_string()}"

    def __str__(self) -> str:
        return self.as_summary_string()


class Constraint:
    """Describes a constraint on all rows; it is never enforced."""

    class ConstraintType:
        """The kinds of constraints."""

        PRIMARY_KEY = 0
        UNIQUE_KEY = 1

    def __init__(self, name: str) -> None:
        self._name = name

    def get_name(self) -> str:
        """Return its name."""
        return self._name

    def is_enforced(self) -> bool:
        """Return whether the constraint is enforced: always False."""
        return False

    def get_type(self) -> int:
        """Return its kind."""
        return Constraint.ConstraintType.PRIMARY_KEY

    def as_summary_string(self) -> str:
        """Return it as a line of a declaration."""
        return f"CONSTRAINT {name_as_sql(self._name)} NOT ENFORCED"


class UniqueConstraint(Constraint):
    """Describes a primary key.

    Example:
        >>> UniqueConstraint.primary_key("PK_id", ["id"]).as_summary_string()
        'CONSTRAINT `PK_id` PRIMARY KEY (`id`) NOT ENFORCED'
    """

    def __init__(self, name: str, columns: list[str]) -> None:
        super().__init__(name)
        self._columns = list(columns)

    @staticmethod
    def primary_key(name: str, columns: list[str]) -> UniqueConstraint:
        """Return a primary key."""
        return UniqueConstraint(name, columns)

    def get_columns(self) -> list[str]:
        """Return its columns."""
        return list(self._columns)

    def get_type_string(self) -> str:
        """Return its kind, as SQL has it."""
        return "PRIMARY KEY"

    def as_summary_string(self) -> str:
        columns = ", ".join(map(name_as_sql, self._columns))
        return f"CONSTRAINT {name_as_sql(self._name)} PRIMARY KEY ({columns}) NOT ENFORCED"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UniqueConstraint) and (self._name, self._columns) == (other._name, other._columns)

    def __hash__(self) -> int:
        return hash((self._name, tuple(self._columns)))


class ResolvedSchema:
    """Holds the columns, watermark and primary key of a table, with all types known.

    Example:
        >>> schema = ResolvedSchema.physical(["id", "name"], [DataTypes.INT(), DataTypes.STRING()])
        >>> print(schema)
        (
          `id` INT,
          `name` STRING
        )
        >>> schema.get_column_names(), schema.get_column_count(), schema.get_column("name").get_data_type()
        (['id', 'name'], 2, VarCharType(2147483647, true))
        >>> str(schema.to_physical_row_data_type())
        'ROW<`id` INT, `name` STRING> NOT NULL'
    """

    def __init__(
        self,
        columns: list[Column] | None = None,
        watermark_specs: list[WatermarkSpec] | None = None,
        primary_key: UniqueConstraint | None = None,
    ) -> None:
        self._columns = list(columns or [])
        self._watermarks = list(watermark_specs or [])
        self._primary_key = primary_key

    def __str__(self) -> str:
        lines = [c.as_summary_string() for c in self._columns]
        lines += [w.as_summary_string() for w in self._watermarks]
        if self._primary_key is not None:
            lines.append(self._primary_key.as_summary_string())
        return "(\n  " + ",\n  ".join(lines) + "\n)"

    def _parts(self) -> tuple[object, ...]:
        return tuple(self._columns), tuple(self._watermarks), self._primary_key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResolvedSchema) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    @staticmethod
    def of(columns: list[Column]) -> ResolvedSchema:
        """Return the schema of some columns."""
        return ResolvedSchema(columns)

    @staticmethod
    def physical(column_names: list[str], column_data_types: list[DataType]) -> ResolvedSchema:
        """Return the schema of physical columns."""
        named = zip(column_names, column_data_types, strict=True)
        return ResolvedSchema([Column.physical(n, t) for n, t in named])

    @staticmethod
    def of_fields(fields: Fields) -> ResolvedSchema:
        """Return the schema of a relation."""
        return ResolvedSchema([PhysicalColumn(TableColumn(f.name, f.type), f.time) for f in fields.fields])

    @staticmethod
    def of_table(table: CatalogTable, fields: Fields | None = None) -> ResolvedSchema:
        """Return the schema of a declared table, with types and time attributes of its rows where known."""
        known = {} if fields is None else {f.name: f for f in fields.fields}
        columns = []
        for column in table.columns:
            field = known.get(column.name)
            typed = column if field is None else replace(column, type=field.type)
            columns.append(_CLASSES[column.kind](typed, None if field is None else field.time))
        watermarks = []
        if table.watermark is not None:
            name, text = table.watermark
            kinds = {c.get_name(): c.get_data_type() for c in columns}
            watermarks.append(WatermarkSpec(name, ResolvedExpression(text, kinds[name])))
        key = None
        if table.primary_key:
            key = UniqueConstraint(
                table.primary_key_name or "PK_" + "_".join(table.primary_key), list(table.primary_key)
            )
        return ResolvedSchema(columns, watermarks, key)

    def get_column_count(self) -> int:
        """Return the number of columns."""
        return len(self._columns)

    def get_columns(self) -> list[Column]:
        """Return all columns."""
        return list(self._columns)

    def get_column_names(self) -> list[str]:
        """Return the names of all columns."""
        return [c.get_name() for c in self._columns]

    def get_column_data_types(self) -> list[DataType]:
        """Return the types of all columns."""
        return [c.get_data_type() for c in self._columns]

    def get_column(self, column_index_or_name: int | str) -> Column | None:
        """Return a column by index or name, or None."""
        if isinstance(column_index_or_name, int):
            known = 0 <= column_index_or_name < len(self._columns)
            return self._columns[column_index_or_name] if known else None
        return next((c for c in self._columns if c.get_name() == column_index_or_name), None)

    def get_watermark_specs(self) -> list[WatermarkSpec]:
        """Return the watermarks, at most one."""
        return list(self._watermarks)

    def get_primary_key(self) -> UniqueConstraint | None:
        """Return the primary key, None without one."""
        return self._primary_key

    def get_primary_key_indexes(self) -> list[int]:
        """Return the positions of the primary key's columns."""
        names = self.get_column_names()
        return [] if self._primary_key is None else [names.index(c) for c in self._primary_key.get_columns()]

    def _row_type(self, columns: list[Column]) -> RowType:
        return RowType([RowField(c.get_name(), c.get_data_type()) for c in columns], False)

    def to_source_row_data_type(self) -> DataType:
        """Return the type of rows that are read."""
        return self._row_type(self._columns)

    def to_physical_row_data_type(self) -> DataType:
        """Return the type of rows with only the physical columns."""
        return self._row_type([c for c in self._columns if c.is_physical()])

    def to_sink_row_data_type(self) -> DataType:
        """Return the type of rows that are written."""
        return self._row_type([c for c in self._columns if c.is_persisted()])


def declared_table(schema: ResolvedSchema) -> CatalogTable:
    """Return the declaration of a table with this schema."""
    watermark = None
    if schema._watermarks:
        spec = schema._watermarks[0]
        watermark = (spec.rowtime_attribute, spec.watermark_expression.as_serializable_string())
    key = schema._primary_key
    return CatalogTable(
        tuple(c._column for c in schema._columns),
        watermark,
        () if key is None else tuple(key.get_columns()),
        None if key is None else key.get_name(),
    )
