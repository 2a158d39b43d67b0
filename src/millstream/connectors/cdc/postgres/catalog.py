"""Tables and types in PostgreSQL's catalog, and checks that they can be captured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.common.errors import InvalidProgramError
from millstream.connectors.cdc.postgres.pgoutput import Column, Relation
from millstream.connectors.cdc.postgres.values import PostgresType, is_known
from millstream.connectors.cdc.source import check_named, is_captured

if TYPE_CHECKING:
    from millstream.connectors.cdc.postgres.connection import Connection

__all__ = ["KeyColumn", "TableInfo"]


@dataclass(frozen=True)
class KeyColumn:
    """A column of a primary key, with its type and collation as SQL writes them."""

    name: str
    type: str
    collation: str | None


@dataclass(frozen=True)
class TableInfo:
    """A table.

    Attributes:
        identity: the columns of old rows in the log: d (the key), f (all), i (those of an index), n (none).
        is_partitioned: whether its rows are in partitions.
    """

    oid: int
    schema: str
    name: str
    identity: str
    is_partitioned: bool
    keys: tuple[KeyColumn, ...]

    @property
    def table(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def rows(self) -> str:
        """The table for a SELECT, without the tables that inherit from it."""
        return self.quoted if self.is_partitioned else f"ONLY {self.quoted}"


def quoted(name: str) -> str:
    """Quote an identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a string literal."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'" if "\\" not in text else "E'" + escaped.replace("\\", "\\\\") + "'"


_TABLES = """
SELECT c.oid, n.nspname, c.relname, CASE WHEN c.relkind = 'r' THEN c.relreplident::text ELSE
(SELECT coalesce(CASE WHEN count(DISTINCT l.relreplident) > 1 THEN 'mixed' ELSE min(l.relreplident::text) END, 'd')
FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid WHERE t.isleaf OR l.oid = c.oid) END,
c.relkind = 'p', has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
AND n.nspname NOT LIKE 'pg\\_%%' AND n.nspname <> 'information_schema' ORDER BY 2, 3
"""
_KEYS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attcollation <> 0 THEN
(SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l
JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = a.attcollation) END
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s AND i.indisprimary ORDER BY k.place
"""
_COLUMNS = """
SELECT a.attname, a.atttypid, a.attnum = ANY(coalesce(
(SELECT i.indkey::int2[] FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary), '{}'))
FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
AND a.attgenerated = '' ORDER BY a.attnum
"""
_TYPES = """
SELECT oid, typtype::text, typbasetype, typelem, typcategory::text, typdelim::text FROM pg_type WHERE oid = ANY(%s)
"""


def find_tables(connection: Connection, patterns: tuple[str, ...]) -> list[TableInfo]:
    """Return the tables that a list matches; fail if it names one that does not exist or may not be read."""
    tables = []
    for oid, schema, name, identity, is_partitioned, may_read in connection.execute(_TABLES).fetchall():
        if is_captured(f"{schema}.{name}", patterns):
            keys = find_keys(connection, oid)
            tables.append(table := TableInfo(oid, schema, name, identity, is_partitioned, keys))
            if not may_read:
                user = connection.info.user
                raise InvalidProgramError(
                    f"User {user!r} may not read table {table.table}: run  GRANT SELECT ON {table.quoted} TO "
                    f"{quoted(user)}  (and  GRANT USAGE ON SCHEMA {quoted(schema)})."
                )
    check_named(patterns, [table.table for table in tables], "PostgreSQL", "schema, as in 'public.orders'")
    return tables


def find_keys(connection: Connection, oid: int) -> tuple[KeyColumn, ...]:
    """Return the columns of a table's primary key, in the key's order."""
    return tuple(KeyColumn(*row) for row in connection.execute(_KEYS, (oid,)).fetchall())


def check_identity(table: str, identity: str) -> None:
    """Refuse a table if the log lacks the keys of its rows."""
    if identity not in ("d", "f"):
        reason = {"n": "is NOTHING", "i": "is an index", "mixed": "differs from that of a partition"}[identity]
        raise InvalidProgramError(
            f"The replica identity of table {table} {reason}, so the log does not identify changed rows: run  ALTER "
            f"TABLE {table} REPLICA IDENTITY DEFAULT  (the primary key) or FULL, also for each partition."
        )


def find_columns(connection: Connection, table: TableInfo) -> Relation | None:
    """Return a table's current description, or None if it was dropped."""
    rows = connection.execute(_COLUMNS, (table.oid,)).fetchall()
    columns = tuple(Column(*row) for row in rows)
    return Relation(table.oid, table.schema, table.name, table.identity, columns) if columns else None


def find_types(connection: Connection, oids: Iterable[int]) -> dict[int, PostgresType]:
    """Return the catalog's entries of types that are not built in, and of their base and element types."""
    types: dict[int, PostgresType] = {}
    unknown = [oid for oid in oids if not is_known(oid)]
    while unknown:
        rows = connection.execute(_TYPES, (unknown,)).fetchall()
        unknown = []
        for oid, kind, base, element, category, delimiter in rows:
            is_array = category == "A" and element
            types[oid] = PostgresType(base if kind == "d" else None, element if is_array else None, delimiter)
            inner = base if kind == "d" else element if is_array else 0
            if inner and not is_known(inner) and inner not in types:
                unknown.append(inner)
    return types


def check_server(connection: Connection, address: str) -> None:
    """Fail if the server has no logical replication."""
    level = connection.execute("SHOW wal_level").fetchone()
    if level is None or level[0] != "logical":
        raise InvalidProgramError(
            f"PostgreSQL at {address} has no logical replication (wal_level is {level and level[0]}): set "
            "wal_level = logical in postgresql.conf and restart it."
        )
