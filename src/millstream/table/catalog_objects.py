"""Objects of a catalog: databases, tables, views, functions, models, partitions and statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from millstream.common.aliases import Value
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.catalog import memory, tables
from millstream.sql.catalog.memory import PartitionKey, TableMetadata
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.errors import (
    PartitionAlreadyExistsException,
    PartitionNotExistException,
    PartitionSpecInvalidException,
    TableNotExistException,
    TableNotPartitionedException,
)
from millstream.table.object_identifier import ObjectPath
from millstream.table.schema import Schema
from millstream.table.table_schema import TableSchema

__all__ = ["CatalogColumnStatistics", "CatalogPartition", "CatalogPartitionSpec", "CatalogTableStatistics"]


@fast_dataclass
class CatalogDatabase:
    """Holds a database's properties and comment.

    Example:
        >>> database = CatalogDatabase.create_instance({"owner": "ann"}, "our shop")
        >>> database.get_properties(), database.get_comment()
        ({'owner': 'ann'}, 'our shop')
    """

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
        """Return the comment."""
        return self.comment

    def copy(self) -> CatalogDatabase:
        """Return a copy."""
        return replace(self)

    def get_description(self) -> str | None:
        """Return the comment."""
        return self.comment

    def get_detailed_description(self) -> str | None:
        """Return the comment."""
        return self.comment


class CatalogBaseTable:
    """Holds a table or a view of a catalog: its schema, options and comment.

    Example:
        >>> from millstream.table import TableSchema
        >>> schema = TableSchema(["name", "day"], [DataTypes.STRING(), DataTypes.DATE()])
        >>> table = CatalogBaseTable.create_table(schema, ["day"], {"connector": "print"}, "all orders")
        >>> table.get_options(), table.get_comment()
        ({'connector': 'print'}, 'all orders')
    """

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
        """Return the comment."""
        return self.table.comment

    def copy(self) -> CatalogBaseTable:
        """Return a copy."""
        return CatalogBaseTable(self.table)

    def get_description(self) -> str | None:
        """Return the comment."""
        return self.table.comment

    def get_detailed_description(self) -> str | None:
        """Return the comment."""
        return self.table.comment


class CatalogFunction:
    """Holds a function, by the name of its implementation.

    Example:
        >>> function = CatalogFunction.create_instance("math.sqrt")
        >>> function.get_class_name(), function.get_function_language()
        ('math.sqrt', 'PYTHON')
    """

    def __init__(self, function: memory.CatalogFunction) -> None:
        self.function = function

    @staticmethod
    def create_instance(class_name: str, function_language: str = "Python") -> CatalogFunction:
        """Return a function: `module.object` in Python."""
        return CatalogFunction(memory.CatalogFunction(class_name, function_language.upper()))

    def get_class_name(self) -> str:
        """Return the name of the implementation."""
        return self.function.implementation

    def copy(self) -> CatalogFunction:
        """Return a copy."""
        return CatalogFunction(self.function)

    def get_description(self) -> str | None:
        """Return the description."""
        return "This is a user-defined function"

    def get_detailed_description(self) -> str | None:
        """Return the description."""
        return "This is a user-defined function"

    def get_function_language(self) -> str:
        """Return its language."""
        return self.function.language

    def get_options(self) -> dict[str, str]:
        """Return its options: always empty."""
        return {}


class CatalogModel:
    """Holds a model: input and output schema, options and comment.

    Example:
        >>> schema = Schema.new_builder().column("text", "STRING").build()
        >>> CatalogModel.create_model(schema, schema, {"provider": "openai"}, "rates reviews").get_options()
        {'provider': 'openai'}
    """

    def __init__(self, model: tables.CatalogModel) -> None:
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
        return CatalogModel(tables.CatalogModel(inputs, outputs, dict(options or {}), comment))

    def copy(self) -> CatalogModel:
        """Return a copy."""
        return CatalogModel(self.model)

    def get_comment(self) -> str | None:
        """Return the comment."""
        return self.model.comment

    def get_options(self) -> dict[str, str]:
        """Return its options."""
        return dict(self.model.options)


# The key of statistics of the whole table.
_WHOLE: PartitionKey = ()


@fast_dataclass
class CatalogPartition:
    """Holds a partition's properties and comment.

    Example:
        >>> CatalogPartition.create_instance({"numRows": "3"}, "one day").get_properties()
        {'numRows': '3'}
    """

    properties: dict[str, str] = field(default_factory=dict)
    comment: str | None = None

    @staticmethod
    def create_instance(properties: dict[str, str], comment: str | None = None) -> CatalogPartition:
        """Return a partition with properties."""
        return CatalogPartition(dict(properties), comment)

    def get_properties(self) -> dict[str, str]:
        """Return its properties."""
        return dict(self.properties)

    def copy(self) -> CatalogPartition:
        """Return a copy."""
        return replace(self)

    def get_description(self) -> str | None:
        """Return the comment."""
        return self.comment

    def get_detailed_description(self) -> str | None:
        """Return the comment."""
        return self.comment

    def get_comment(self) -> str | None:
        """Return the comment."""
        return self.comment


class CatalogPartitionSpec:
    """Identifies a partition, or several, by values of columns.

    Example:
        >>> CatalogPartitionSpec({"day": "2026-11-19"}).get_partition_spec()
        {'day': '2026-11-19'}
    """

    def __init__(self, partition_spec: dict[str, str]) -> None:
        if not isinstance(partition_spec, dict):
            raise TypeError(f"CatalogPartitionSpec takes a dict of values by column, not {partition_spec!r}.")
        self._spec = dict(partition_spec)

    def __str__(self) -> str:
        return f"CatalogPartitionSpec{{{self._spec}}}"

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._spec.items())))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CatalogPartitionSpec) and self._spec == other._spec

    def get_partition_spec(self) -> dict[str, str]:
        """Return the values by column."""
        return dict(self._spec)


@fast_dataclass
class CatalogTableStatistics:
    """Holds the size of a table or partition: rows, files and bytes."""

    row_count: int | None = None
    field_count: int | None = None
    total_size: int | None = None
    raw_data_size: int | None = None
    properties: dict[str, str] | None = None

    def get_row_count(self) -> int | None:
        """Return the number of rows."""
        return self.row_count

    def get_field_count(self) -> int | None:
        """Return the number of files."""
        return self.field_count

    def get_total_size(self) -> int | None:
        """Return the size in bytes."""
        return self.total_size

    def get_raw_data_size(self) -> int | None:
        """Return the uncompressed size in bytes."""
        return self.raw_data_size

    def get_properties(self) -> dict[str, str]:
        """Return its properties."""
        return dict(self.properties or {})

    def copy(self) -> CatalogTableStatistics:
        """Return a copy."""
        return replace(self)


@fast_dataclass
class CatalogColumnStatistics:
    """Holds statistics of columns, such as the number of distinct values."""

    column_statistics_data: dict[str, Value] | None = None
    properties: dict[str, str] | None = None

    def get_column_statistics_data(self) -> dict[str, Value]:
        """Return the statistics by column."""
        return dict(self.column_statistics_data or {})

    def get_properties(self) -> dict[str, str]:
        """Return its properties."""
        return dict(self.properties or {})

    def copy(self) -> CatalogColumnStatistics:
        """Return a copy."""
        return replace(self)


# Statistics of a table that has not been analyzed.
_UNKNOWN = CatalogTableStatistics(-1, -1, -1, -1)
_UNKNOWN_COLUMNS = CatalogColumnStatistics()


class PartitionsAndStatistics:
    """The part of Catalog that manages partitions and statistics."""

    _store: memory.Catalog

    def _table(self, path: ObjectPath) -> CatalogTable | None:
        raise NotImplementedError

    # --- partitions

    def list_partitions(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec | None = None
    ) -> list[CatalogPartitionSpec]:
        """Return all partitions, or those that match a partial specification."""
        self._partitioned(table_path)
        required = set((partition_spec or CatalogPartitionSpec({})).get_partition_spec().items())
        return [
            CatalogPartitionSpec(dict(key)) for key in self._metadata(table_path).partitions if required <= set(key)
        ]

    def get_partition(self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec) -> CatalogPartition:
        """Return a partition."""
        if not self.partition_exists(table_path, partition_spec):
            raise self._no_partition(table_path, partition_spec)
        partition: CatalogPartition = self._metadata(table_path).partitions[self._key(table_path, partition_spec)]
        return partition

    def partition_exists(self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec) -> bool:
        """Return whether a partition exists."""
        table = self._table(table_path)
        if table is None or set(table.partition) != partition_spec.get_partition_spec().keys():
            return False
        return self._key(table_path, partition_spec) in self._metadata(table_path).partitions

    def create_partition(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        partition: CatalogPartition,
        ignore_if_exists: bool,
    ) -> None:
        """Add a partition; an existing one is an error, or left unchanged with `ignore_if_exists`.

        Example:
            >>> _ = t_env.execute_sql("CREATE TABLE orders (n INT, `day` STRING) PARTITIONED BY (`day`) "
            ...     "WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json')")
            >>> catalog, path = t_env.get_catalog("default_catalog"), ObjectPath("default_database", "orders")
            >>> spec = CatalogPartitionSpec({"day": "2026-11-19"})
            >>> catalog.create_partition(path, spec, CatalogPartition.create_instance({}), False)
            >>> catalog.list_partitions(path) == [spec], catalog.partition_exists(path, spec)
            (True, True)
        """
        key = self._key(table_path, partition_spec)
        if key not in self._metadata(table_path).partitions:
            self._metadata(table_path).partitions[key] = partition
        elif not ignore_if_exists:
            name = f"{partition_spec} of table {table_path}"
            raise PartitionAlreadyExistsException.of(name, self._store.name)

    def drop_partition(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec, ignore_if_not_exists: bool
    ) -> None:
        """Drop a partition; its files remain."""
        if self._has(table_path, partition_spec, ignore_if_not_exists):
            key, notes = self._key(table_path, partition_spec), self._metadata(table_path)
            for known in (notes.partitions, notes.statistics, notes.column_statistics):
                known.pop(key, None)

    def alter_partition(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        new_partition: CatalogPartition,
        ignore_if_not_exists: bool,
    ) -> None:
        """Replace a partition's properties and comment."""
        if self._has(table_path, partition_spec, ignore_if_not_exists):
            self._metadata(table_path).partitions[self._key(table_path, partition_spec)] = new_partition

    # --- statistics

    def get_table_statistics(self, table_path: ObjectPath) -> CatalogTableStatistics:
        """Return the statistics of a table, as far as known."""
        statistics: CatalogTableStatistics = self._metadata(table_path).statistics.get(_WHOLE, _UNKNOWN)
        return statistics

    def get_table_column_statistics(self, table_path: ObjectPath) -> CatalogColumnStatistics:
        """Return the column statistics of a table."""
        statistics: CatalogColumnStatistics = self._metadata(table_path).column_statistics.get(_WHOLE, _UNKNOWN_COLUMNS)
        return statistics

    def get_partition_statistics(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> CatalogTableStatistics:
        """Return the statistics of a partition."""
        return self.bulk_get_partition_statistics(table_path, [partition_spec])[0]

    def bulk_get_partition_statistics(
        self, table_path: ObjectPath, partition_specs: Sequence[CatalogPartitionSpec]
    ) -> list[CatalogTableStatistics]:
        """Return the statistics of several partitions."""
        known = self._metadata(table_path).statistics
        return [known.get(key, _UNKNOWN) for key in self._existing_keys(table_path, partition_specs)]

    def get_partition_column_statistics(
        self, table_path: ObjectPath, partition_spec: CatalogPartitionSpec
    ) -> CatalogColumnStatistics:
        """Return the column statistics of a partition."""
        return self.bulk_get_partition_column_statistics(table_path, [partition_spec])[0]

    def bulk_get_partition_column_statistics(
        self, table_path: ObjectPath, partition_specs: Sequence[CatalogPartitionSpec]
    ) -> list[CatalogColumnStatistics]:
        """Return the column statistics of several partitions."""
        known = self._metadata(table_path).column_statistics
        return [known.get(key, _UNKNOWN_COLUMNS) for key in self._existing_keys(table_path, partition_specs)]

    def alter_table_statistics(
        self, table_path: ObjectPath, table_statistics: CatalogTableStatistics, ignore_if_not_exists: bool
    ) -> None:
        """Set the statistics of a table."""
        if self._has_table(table_path, ignore_if_not_exists):
            self._metadata(table_path).statistics[_WHOLE] = table_statistics

    def alter_table_column_statistics(
        self, table_path: ObjectPath, column_statistics: CatalogColumnStatistics, ignore_if_not_exists: bool
    ) -> None:
        """Set the column statistics of a table."""
        if self._has_table(table_path, ignore_if_not_exists):
            self._metadata(table_path).column_statistics[_WHOLE] = column_statistics

    def alter_partition_statistics(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        partition_statistics: CatalogTableStatistics,
        ignore_if_not_exists: bool,
    ) -> None:
        """Set the statistics of a partition."""
        if self._has(table_path, partition_spec, ignore_if_not_exists):
            self._metadata(table_path).statistics[self._key(table_path, partition_spec)] = partition_statistics

    def alter_partition_column_statistics(
        self,
        table_path: ObjectPath,
        partition_spec: CatalogPartitionSpec,
        column_statistics: CatalogColumnStatistics,
        ignore_if_not_exists: bool,
    ) -> None:
        """Set the column statistics of a partition."""
        if self._has(table_path, partition_spec, ignore_if_not_exists):
            self._metadata(table_path).column_statistics[self._key(table_path, partition_spec)] = column_statistics

    # --- lookups

    def _metadata(self, path: ObjectPath) -> TableMetadata:
        if self._table(path) is None:
            raise TableNotExistException.of(path, self._store.name)
        return self._store.table_metadata(path.get_database_name(), path.get_object_name())

    def _partitioned(self, path: ObjectPath) -> CatalogTable:
        table = self._table(path)
        if table is None:
            raise TableNotExistException.of(path, self._store.name)
        if not table.partition:
            raise TableNotPartitionedException.of(path, self._store.name)
        return table

    def _key(self, path: ObjectPath, spec: CatalogPartitionSpec) -> PartitionKey:
        """Return a partition's columns and values, in the order of the table's."""
        values, columns = spec.get_partition_spec(), self._partitioned(path).partition
        if values.keys() != set(columns):
            mismatch = f"{spec} does not match partition keys [{', '.join(columns)}] of table {path}"
            raise PartitionSpecInvalidException.of(mismatch, self._store.name)
        return tuple((c, values[c]) for c in columns)

    def _existing_keys(self, path: ObjectPath, specs: Sequence[CatalogPartitionSpec]) -> list[PartitionKey]:
        for spec in specs:
            if not self.partition_exists(path, spec):
                raise self._no_partition(path, spec)
        return [self._key(path, spec) for spec in specs]

    def _has_table(self, path: ObjectPath, ignore: bool) -> bool:
        if self._table(path) is None and not ignore:
            raise TableNotExistException.of(path, self._store.name)
        return self._table(path) is not None

    def _has(self, path: ObjectPath, spec: CatalogPartitionSpec, ignore: bool) -> bool:
        exists = self.partition_exists(path, spec)
        if not exists and not ignore:
            raise self._no_partition(path, spec)
        return exists

    def _no_partition(self, path: ObjectPath, spec: CatalogPartitionSpec) -> PartitionNotExistException:
        return PartitionNotExistException.of(f"{spec} of table {path}", self._store.name)
