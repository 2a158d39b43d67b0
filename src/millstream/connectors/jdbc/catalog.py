"""The catalog `jdbc`: the databases and tables of a PostgreSQL server, without declarations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TypeVar

from millstream.common.aliases import Value
from millstream.connectors.jdbc.connection import JdbcConnectionOptions, connector
from millstream.connectors.jdbc.statements import error_text, fetch_rows
from millstream.sql.catalog.memory import Catalog, CatalogFunction, Database
from millstream.sql.catalog.tables import CatalogTable, TableColumn
from millstream.sql.errors import CatalogException, ValidationException
from millstream.sql.types import DataType, DataTypes

_DATABASES = "SELECT datname FROM pg_database WHERE NOT datistemplate AND datallowconn"
_COLUMNS = """
    SELECT n.nspname, c.relname, a.attname, t.typname, a.atttypmod, a.attnotnull,
        COALESCE(a.attnum = ANY (k.conkey), FALSE), k.conname, array_position(k.conkey, a.attnum)
    FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_type t ON t.oid = a.atttypid
        LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped
        AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname NOT LIKE 'pg_temp%'
    ORDER BY n.nspname, c.relname, a.attnum"""
_DEFAULT_SCHEMA = "public"
_TYPES: dict[str, DataType] = {
    "bool": DataTypes.BOOLEAN(),
    "bytea": DataTypes.BYTES(),
    "int2": DataTypes.SMALLINT(),
    "int4": DataTypes.INT(),
    "int8": DataTypes.BIGINT(),
    "float4": DataTypes.FLOAT(),
    "float8": DataTypes.DOUBLE(),
    "text": DataTypes.STRING(),
    "date": DataTypes.DATE(),
}
# PostgreSQL adds this to lengths.
_HEAD = 4

T = TypeVar("T")


def type_of(name: str, modifier: int) -> DataType:
    """Return the type of a column; types without an equivalent are strings.

    Example:
        >>> str(type_of("numeric", ((8 << 16) | 2) + 4))
        'DECIMAL(8, 2)'
    """
    if name.startswith("_"):
        return DataTypes.ARRAY(type_of(name[1:], modifier))
    if name in _TYPES:
        return _TYPES[name]
    if name == "numeric":
        packed = modifier - _HEAD
        return DataTypes.DECIMAL(38, 18) if modifier < 0 else DataTypes.DECIMAL(packed >> 16, packed & 0x7FF)
    if name in ("timestamp", "timestamptz", "time"):
        precision = 6 if modifier < 0 else modifier
        types = {"timestamp": DataTypes.TIMESTAMP, "timestamptz": DataTypes.TIMESTAMP_LTZ, "time": DataTypes.TIME}
        return types[name](precision)
    if name in ("varchar", "bpchar") and modifier > _HEAD:
        length = modifier - _HEAD
        return DataTypes.VARCHAR(length) if name == "varchar" else DataTypes.CHAR(length)
    return DataTypes.STRING()


class _Tables(dict[str, CatalogTable]):
    """Tables by `schema.table`; those of the schema public also by their names alone."""

    def __missing__(self, name: str) -> CatalogTable:
        return super().__getitem__(f"{_DEFAULT_SCHEMA}.{name}")

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or super().__contains__(f"{_DEFAULT_SCHEMA}.{name}")

    def get(self, name: str, default: T | None = None, /) -> CatalogTable | T | None:  # type: ignore[override]
        table = super().get(name)
        return table if table is not None else super().get(f"{_DEFAULT_SCHEMA}.{name}", default)


class PostgresCatalog(Catalog):
    """The current databases and tables of a PostgreSQL server.

    Args:
        name: the name of the catalog.
        default_database: the initial database.
        username, password: the user.
        base_url: a URL without a database, such as `jdbc:postgresql://localhost:5432/`.
    """

    def __init__(self, name: str, default_database: str, username: str, password: str, base_url: str) -> None:
        if not base_url.startswith("jdbc:postgresql:"):
            raise ValidationException(
                f"JdbcCatalog: the base URL must be one of PostgreSQL, such as jdbc:postgresql://localhost:5432/, not "
                f"{base_url!r}."
            )
        self.name = name
        self.default_database = default_database
        self._user, self._password = username, password
        self._base = base_url

    def _url(self, database: str) -> str:
        address, question, parameters = self._base.partition("?")
        return f"{address.rstrip('/') + '/' if '://' in address else address}{database}{question}{parameters}"

    def _query(self, database: str, statement: str) -> list[Sequence[Value]]:
        builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(self._url(database))
        if self._user:
            builder = builder.with_user_name(self._user).with_password(self._password)
        try:
            with closing(connector(builder.build())()) as connection:
                return fetch_rows(connection, statement)
        except Exception as e:
            raise CatalogException(f"Catalog {self.name}: database {database!r} fails: {error_text(e)}.") from e

    def databases(self) -> dict[str, Database]:
        return {name: Database() for (name,) in self._query(self.default_database, _DATABASES)}

    def tables(self, database: str) -> dict[str, CatalogTable]:
        columns: dict[tuple[str, str], list[TableColumn]] = {}
        keys: dict[tuple[str, str], list[tuple[int, str]]] = {}
        names: dict[tuple[str, str], str] = {}
        rows = self._query(database, _COLUMNS)
        for schema, table, column, kind, modifier, not_null, is_key, constraint, position in rows:
            path = schema, table
            data_type = type_of(kind, modifier)
            if not_null or is_key:
                data_type = data_type.not_null()
            columns.setdefault(path, []).append(TableColumn(column, data_type))
            if is_key:
                keys.setdefault(path, []).append((position, column))
                names[path] = constraint
        return _Tables(
            {
                f"{schema}.{table}": CatalogTable(
                    tuple(table_columns),
                    primary_key=tuple(c for _, c in sorted(keys.get((schema, table), ()))),
                    primary_key_name=names.get((schema, table)),
                    options=self._options_of(database, f"{schema}.{table}"),
                )
                for (schema, table), table_columns in columns.items()
            }
        )

    def _options_of(self, database: str, table: str) -> dict[str, str]:
        user = {"username": self._user, "password": self._password} if self._user else {}
        return {"connector": "jdbc", "url": self._url(database), "table-name": table, **user}

    def functions(self, database: str) -> dict[str, CatalogFunction]:
        return {}

    def options(self) -> dict[str, str]:
        return {"type": "jdbc", "default-database": self.default_database, "base-url": self._base}

    # --- changes: not supported

    def put_database(self, name: str, database: Database) -> None:
        raise self._refusal("databases")

    def drop_database(self, name: str) -> None:
        raise self._refusal("databases")

    def put_table(self, database: str, name: str, table: CatalogTable) -> None:
        raise self._refusal("tables")

    def drop_table(self, database: str, name: str) -> None:
        raise self._refusal("tables")

    def put_function(self, database: str, name: str, function: CatalogFunction) -> None:
        raise self._refusal("functions")

    def drop_function(self, database: str, name: str) -> None:
        raise self._refusal("functions")

    def _refusal(self, objects: str) -> CatalogException:
        return CatalogException(
            f"Catalog {self.name} is read-only: create and drop {objects} in PostgreSQL, or create temporary ones."
        )


def catalog_of(name: str, options: dict[str, str]) -> Catalog:
    """Return the catalog that CREATE CATALOG declares with the type `jdbc`."""
    missing = [o for o in ("default-database", "username", "password", "base-url") if o not in options]
    if missing:
        raise ValidationException(
            f"Unable to create catalog '{name}'. One or more required options are missing.\n\nMissing required options "
            "are:\n\n" + "\n".join(missing)
        )
    return PostgresCatalog(
        name, options["default-database"], options["username"], options["password"], options["base-url"]
    )
