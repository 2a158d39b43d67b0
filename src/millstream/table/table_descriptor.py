"""TableDescriptor: a CREATE TABLE without SQL."""

from __future__ import annotations

from millstream.common.java_text import as_hash_map
from millstream.sql.catalog.tables import CatalogTable
from millstream.sql.errors import ValidationException
from millstream.table.schema import Schema
from millstream.table.sql_text import name_as_sql

__all__ = ["FormatDescriptor", "TableDescriptor"]


class FormatDescriptor:
    """Holds a format and its options.

    Example:
        >>> json = FormatDescriptor.for_format("json").option("ignore-parse-errors", "true").build()
        >>> str(json)
        'json[{ignore-parse-errors=true}]'
    """

    def __init__(self, format: str, options: dict[str, str]) -> None:
        self._format = format
        self._options = dict(options)

    @staticmethod
    def for_format(format: str) -> FormatDescriptor.Builder:
        """Return a builder for a format, such as `json`."""
        return FormatDescriptor.Builder(format)

    def get_format(self) -> str:
        """Return the format's name."""
        return self._format

    def get_options(self) -> dict[str, str]:
        """Return its options."""
        return dict(self._options)

    def __str__(self) -> str:
        return f"{self._format}[{{{', '.join(f'{k}={v}' for k, v in self._options.items())}}}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormatDescriptor) and self._format == other._format and self._options == other._options

    def __hash__(self) -> int:
        return hash((self._format, tuple(sorted(self._options.items()))))

    class Builder:
        """Builds a format descriptor; see FormatDescriptor for an example."""

        def __init__(self, format: str) -> None:
            self._format = format
            self._options: dict[str, str] = {}

        def option(self, key: object, value: object) -> FormatDescriptor.Builder:
            """Set an option of the format, without the format's name as prefix."""
            self._options[option_key(key)] = option_value(value)
            return self

        def build(self) -> FormatDescriptor:
            """Return the descriptor."""
            return FormatDescriptor(self._format, self._options)


class TableDescriptor:
    """Describes a table: its schema, its connector and the connector's options.

    Example:
        >>> schema = Schema.new_builder().column("name", "STRING").column("day", "DATE").build()
        >>> files = TableDescriptor.for_connector("filesystem").schema(schema).partitioned_by("day")
        >>> json = FormatDescriptor.for_format("json").option("ignore-parse-errors", "true").build()
        >>> print(files.option("path", "/data/orders").format(json).comment("all orders").build())
        (
          `name` STRING,
          `day` DATE
        )
        COMMENT 'all orders'
        PARTITIONED BY (`day`)
        WITH (
          'path' = '/data/orders',
          'connector' = 'filesystem',
          'json.ignore-parse-errors' = 'true',
          'format' = 'json'
        )
    """

    def __init__(
        self,
        schema: Schema | None,
        options: dict[str, str],
        partition_keys: list[str],
        comment: str | None,
    ) -> None:
        self._schema = schema
        self._options = dict(options)
        self._partition_keys = list(partition_keys)
        self._comment = comment

    @staticmethod
    def for_connector(connector: str) -> TableDescriptor.Builder:
        """Return a builder for a connector, such as `kafka`."""
        return TableDescriptor.Builder().option("connector", connector)

    def get_schema(self) -> Schema | None:
        """Return the schema, or None."""
        return self._schema

    def get_options(self) -> dict[str, str]:
        """Return the options."""
        return dict(self._options)

    def get_partition_keys(self) -> list[str]:
        """Return the columns the table is partitioned by."""
        return list(self._partition_keys)

    def get_comment(self) -> str | None:
        """Return the comment."""
        return self._comment

    def check(self) -> None:
        """Raise an error for an invalid declaration: without a schema, or with a nullable key."""
        if self._schema is None:
            raise ValidationException(
                "Missing schema in TableDescriptor. A schema is typically required. It can only be omitted at certain "
                "documented locations."
            )
        for column in self._schema.columns:
            if column.name in self._schema.primary_key and column.type.is_nullable:
                raise ValidationException(
                    f"Invalid primary key '{self._schema.primary_key_name}'. Column '{column.name}' is nullable. "
                    f"Declare it as {column.type} NOT NULL."
                )

    def as_table(self) -> CatalogTable:
        """Return the declaration for a catalog."""
        schema = self._schema or Schema.new_builder().build()
        return schema.as_table(self._options, self._partition_keys, self._comment)

    def _parts(self) -> tuple[object, ...]:
        return self._schema, tuple(sorted(self._options.items())), tuple(self._partition_keys), self._comment

    def __str__(self) -> str:
        partition = ", ".join(map(name_as_sql, self._partition_keys))
        # The order of Flink's HashMap.
        options = ",\n".join(f"  '{k}' = '{v}'" for k, v in as_hash_map(self._options.items(), "String", 16))
        lines = [
            str(self._schema) if self._schema is not None else "",
            *([f"COMMENT '{self._comment}'"] if self._comment is not None else []),
            *([f"PARTITIONED BY ({partition})"] if partition else []),
            f"WITH (\n{options}\n)",
        ]
        return "\n".join(lines)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableDescriptor) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    class Builder:
        """Builds a table descriptor; see TableDescriptor for an example."""

        def __init__(self) -> None:
            self._schema: Schema | None = None
            self._options: dict[str, str] = {}
            self._partition_keys: list[str] = []
            self._comment: str | None = None

        def schema(self, schema: Schema) -> TableDescriptor.Builder:
            """Set the schema, which most uses need."""
            self._schema = schema
            return self

        def option(self, key: object, value: object) -> TableDescriptor.Builder:
            """Set an option of the connector, as in WITH."""
            self._options[option_key(key)] = option_value(value)
            return self

        def format(self, format: str | FormatDescriptor, format_option: object = None) -> TableDescriptor.Builder:
            """Set the format and its options, prefixed by its name.

            Args:
                format: the name, or a FormatDescriptor.
                format_option: the option that names the format, by default `format`; for example `value.format`.

            Example:
                >>> json = FormatDescriptor.for_format("json").option("fail-on-missing-field", "true").build()
                >>> TableDescriptor.for_connector("kafka").format(json, "value.format").build().get_options()
                {'connector': 'kafka', 'value.format': 'json', 'value.json.fail-on-missing-field': 'true'}
            """
            key = "format" if format_option is None else option_key(format_option)
            if isinstance(format, str):
                return self.option(key, format)
            prefix = format.get_format()
            if key != "format":
                if not key.endswith(".format"):
                    raise ValidationException(
                        f"Format identifier keys should either be 'format' or suffixed with '.format', but was '{key}'."
                    )
                prefix = f"{key.removesuffix('.format')}.{prefix}"
            self.option(key, format.get_format())
            for name, value in format.get_options().items():
                self.option(f"{prefix}.{name}", value)
            return self

        def partitioned_by(self, *partition_keys: str) -> TableDescriptor.Builder:
            """Set the columns the table is partitioned by, by default none."""
            self._partition_keys += partition_keys
            return self

        def comment(self, comment: str) -> TableDescriptor.Builder:
            """Set the comment, which SHOW CREATE TABLE shows."""
            self._comment = comment
            return self

        def build(self) -> TableDescriptor:
            """Return the descriptor."""
            return TableDescriptor(self._schema, self._options, self._partition_keys, self._comment)


def option_key(key: object) -> str:
    """Return the text of a key that may be a ConfigOption."""
    return key if isinstance(key, str) else str(getattr(key, "key", key))


def option_value(value: object) -> str:
    """Return a value as an option has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
