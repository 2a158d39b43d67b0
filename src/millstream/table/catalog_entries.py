"""What a catalog has: databases, tables and views, functions, models."""

from __future__ import annotations

from dataclasses import field, replace

from millstream.common.fast_dataclass import record
from millstream.sql.catalog import memory, models
from millstream.sql.catalog.tables import CatalogTable
from millstream.table.schema import Schema
from millstream.table.table_schema import TableSchema


@record(frozen=True)
class CatalogDatabase:
    """A database: its properties, and what is said of it."""

    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None

    @staticmethod
    def create_instance(properties: dict[str, str], comment: str | None = None) -> CatalogDatabase:
        """Return a database with properties."""
        return CatalogDatabase(dict(properties), comment)

    def get_properties(self) -> dict[str, str]:
        """Return its properties."""
        return dict(self.properties)

    def get_comment(self) -> str | None:
        """Return what is said of it."""
        return self.comment

    def copy(self) -> CatalogDatabase:
        """Return another that is equal."""
        return replace(self)

    def get_description(self) -> str | None:
        """Return what is said of it."""
        return self.comment

    def get_detailed_description(self) -> str | None:
        """Return what is said of it."""
        return self.comment


class CatalogBaseTable:
    """A table or a view of a catalog."""

    def __init__(self, table: CatalogTable) -> None:
        self.table = table

    @staticmethod
    def create_table(
        schema: TableSchema,
        partition_keys: list[str] | None = None,
        properties: dict[str, str] | None = None,
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """Return a table."""
        columns = Schema.new_builder().from_row_data_type(schema.to_row_data_type()).build()
        return CatalogBaseTable(columns.as_table(dict(properties or {}), partition_keys or (), comment))

    @staticmethod
    def create_view(
        original_query: str,
        expanded_query: str,
        schema: TableSchema,
        properties: dict[str, str],
        comment: str | None = None,
    ) -> CatalogBaseTable:
        """Return a view."""
        columns = Schema.new_builder().from_row_data_type(schema.to_row_data_type()).build()
        table = columns.as_table(dict(properties), (), comment)
        return CatalogBaseTable(replace(table, query=expanded_query, original_query=original_query))

    def get_options(self) -> dict[str, str]:
        """Return its options."""
        return dict(self.table.options)

    def get_unresolved_schema(self) -> Schema:
        """Return its schema."""
        return Schema.of_table(self.table)

    def get_comment(self) -> str | None:
        """Return what is said of it."""
        return self.table.comment

    def copy(self) -> CatalogBaseTable:
        """Return another that is equal."""
        return CatalogBaseTable(self.table)

    def get_description(self) -> str | None:
        """Return what is said of it."""
        return self.table.comment

    def get_detailed_description(self) -> str | None:
        """Return what is said of it."""
        return self.table.comment


class CatalogFunction:
    """A function by the name of what implements it."""

    def __init__(self, function: memory.CatalogFunction) -> None:
        self.function = function

    @staticmethod
    def create_instance(class_name: str, function_language: str = "Python") -> CatalogFunction:
        """Return a function: `module.object` in Python."""
        return CatalogFunction(memory.CatalogFunction(class_name, function_language.upper()))

    def get_class_name(self) -> str:
        """Return the name of what implements it."""
        return self.function.implementation

    def copy(self) -> CatalogFunction:
        """Return another that is equal."""
        return CatalogFunction(self.function)

    def get_description(self) -> str | None:
        """Return what is said of it."""
        return "This is a user-defined function"

    def get_detailed_description(self) -> str | None:
        """Return what is said of it."""
        return "This is a user-defined function"

    def get_function_language(self) -> str:
        """Return its language."""
        return self.function.language

    def get_options(self) -> dict[str, str]:
        """Return its options, of which there are none."""
        return {}


class CatalogModel:
    """A model: what goes in, what comes out, and where it is."""

    def __init__(self, model: models.CatalogModel) -> None:
        self.model = model

    @staticmethod
    def create_model(
        input_schema: Schema,
        output_schema: Schema,
        options: dict[str, str] | None = None,
        comment: str | None = None,
    ) -> CatalogModel:
        """Return a model."""
        inputs, outputs = (schema.as_table({}).columns for schema in (input_schema, output_schema))
        return CatalogModel(models.CatalogModel(inputs, outputs, dict(options or {}), comment))

    def copy(self) -> CatalogModel:
        """Return another that is equal."""
        return CatalogModel(self.model)

    def get_comment(self) -> str | None:
        """Return what is said of it."""
        return self.model.comment

    def get_options(self) -> dict[str, str]:
        """Return its options."""
        return dict(self.model.options)
