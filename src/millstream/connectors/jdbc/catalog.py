"""The catalog `jdbc`: the databases and tables of a PostgreSQL server, without declaring them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from millstream.connectors.jdbc.connection import JdbcConnectionOptions, connector
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
# What PostgreSQL adds to a length.
_HEAD = 4


def type_of(name: str, modifier: int) -> DataType:
    """Return the type of a column; what Flink does not know is text.

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
        made = {"timestamp": DataTypes.TIMESTAMP, "timestamptz": DataTypes.TIMESTAMP_LTZ, "time": DataTypes.TIME}
        return made[name](precision)
    if name in ("varchar", "bpchar") and modifier > _HEAD:
        length = modifier - _HEAD
        return DataTypes.VARCHAR(length) if name == "varchar" else DataTypes.CHAR(length)
    return DataTypes.STRING()


class _Tables(dict[str, CatalogTable]):
    """Tables by `schema.table`; those of schema public also by their names alone."""

    def __missing__(self, name: str) -> CatalogTable:
        return super().__getitem__(f"{_DEFAULT_SCHEMA}.{name}")

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or super().__contains__(f"{_DEFAULT_SCHEMA}.{name}")

    def get(self, name: str, default: Any = None, /) -> Any:
        found = super().get(name)
        return found if found is not None else super().get(f"{_DEFAULT_SCHEMA}.{name}", default)


class PostgresCatalog(Catalog):
    """What a PostgreSQL server has, as it is when one looks.

    Args:
        name: of the catalog.
        default_database: the database that is used first.
        username, password: who asks.
        base_url: such as `jdbc:postgresql://localhost:5432/`, without a database.
    """

    def __init__(self, name: str, default_database: str, username: str, password: str, base_url: str) -> None:
        if not base_url.startswith("jdbc:postgresql:"):
            raise ValidationException(
                f"JdbcCatalog: the base URL is one of PostgreSQL, such as jdbc:postgresql://localhost:5432/, not "
                f"{base_url!r}."
            )
        self.name = name
        self.default_database = default_database
        self._user, self._password = username, password
        self._base = base_url

    def _url(self, database: str) -> str:
        address, question, words = self._base.partition("?")
        return f"{address.rstrip('/') + '/' if '://' in address else address}{database}{question}{words}"

    def _asked(self, database: str, query: str) -> list[Sequence[Any]]:
        builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder().with_url(self._url(database))
        if self._user:
            builder = builder.with_user_name(self._user).with_password(self._password)
        try:
            with closing(connector(builder.build())()) as connection:
                return list(connection.execute(query).fetchall())
        except Exception as e:
            said = str(e).strip().partition("\n")[0].rstrip(".")
            raise CatalogException(f"Catalog {self.name}: database {database!r} does not answer: {said}.") from e

    def databases(self) -> dict[str, Database]:
        return {name: Database() for (name,) in self._asked(self.default_database, _DATABASES)}

    def tables(self, database: str) -> dict[str, CatalogTable]:
        columns: dict[tuple[str, str], list[TableColumn]] = {}
        keys: dict[tuple[str, str], list[tuple[int, str]]] = {}
        names: dict[tuple[str, str], str] = {}
        for schema, table, column, kind, modifier, needed, is_key, constraint, place in self._asked(database, _COLUMNS):
            at = schema, table
            found = type_of(kind, modifier)
            columns.setdefault(at, []).append(TableColumn(column, found.not_null() if needed or is_key else found))
            if is_key:
                keys.setdefault(at, []).append((place, column))
                names[at] = constraint
        return _Tables(
            {
                f"{schema}.{table}": CatalogTable(
                    tuple(found),
                    primary_key=tuple(c for _, c in sorted(keys.get((schema, table), ()))),
                    primary_key_name=names.get((schema, table)),
                    options=self._options_of(database, f"{schema}.{table}"),
                )
                for (schema, table), found in columns.items()
            }
        )

    def _options_of(self, database: str, table: str) -> dict[str, str]:
        who = {"username": self._user, "password": self._password} if self._user else {}
        return {"connector": "jdbc", "url": self._url(database), "table-name": table, **who}

    def functions(self, database: str) -> dict[str, CatalogFunction]:
        return {}

    def options(self) -> dict[str, str]:
        return {"type": "jdbc", "default-database": self.default_database, "base-url": self._base}

    # --- what a server of its own decides

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

    def _refusal(self, what: str) -> CatalogException:
        return CatalogException(
            f"Catalog {self.name} shows what PostgreSQL has: {what} are made and dropped there, or as temporary ones."
        )


def catalog_of(name: str, options: dict[str, str]) -> Catalog:
    """Return the catalog of CREATE CATALOG with the type `jdbc`."""
    missing = [o for o in ("default-database", "username", "password", "base-url") if o not in options]
    if missing:
        raise ValidationException(
            f"Unable to create catalog '{name}'. One or more required options are missing.\n\nMissing required options "
            "are:\n\n" + "\n".join(missing)
        )
    about = options["default-database"], options["username"], options["password"], options["base-url"]
    return PostgresCatalog(name, *about)
