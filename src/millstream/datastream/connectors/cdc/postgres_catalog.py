"""What PostgreSQL's catalog says of tables, publications and slots; and what is set up there."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.common.errors import InvalidProgramError
from millstream.datastream.connectors.cdc.pgoutput import Column, Relation
from millstream.datastream.connectors.cdc.postgres_session import PostgresFailure, PostgresLost, library, said
from millstream.datastream.connectors.cdc.postgres_values import TypeNote, is_known
from millstream.datastream.connectors.cdc.table_names import check_named, is_wanted

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

__all__ = ["KeyColumn", "TableNote"]

# A new slot waits for all transactions that are open.
_SLOT_SECONDS = 60
_DROP_SECONDS = 10.0


@dataclass(frozen=True)
class KeyColumn:
    """A column of a primary key, with its type and collation as SQL writes them."""

    name: str
    type: str
    collation: str | None


@dataclass(frozen=True)
class TableNote:
    """A table.

    Attributes:
        identity: what the log has of a row from before: d (the key), f (all), i (the columns of an index), n (nothing).
        is_partitioned: whether its rows are in other tables.
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
        """What to SELECT from: tables that inherit from this one are tables of their own."""
        return self.quoted if self.is_partitioned else f"ONLY {self.quoted}"


def quoted(name: str) -> str:
    """Write a name so that SQL takes it as it is."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Write text as SQL does."""
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


def find_tables(connection: Connection, patterns: tuple[str, ...]) -> list[TableNote]:
    """Return the tables that a list means; fails where it names one that is not there, or may not be read."""
    found = []
    for oid, schema, name, identity, is_partitioned, may_read in connection.execute(_TABLES).fetchall():
        if is_wanted(f"{schema}.{name}", patterns):
            keys = find_keys(connection, oid)
            found.append(table := TableNote(oid, schema, name, identity, is_partitioned, keys))
            if not may_read:
                user = connection.info.user
                raise InvalidProgramError(
                    f"User {user!r} may not read table {table.table}: run  GRANT SELECT ON {table.quoted} TO "
                    f"{quoted(user)}  (and  GRANT USAGE ON SCHEMA {quoted(schema)})."
                )
    check_named(patterns, [note.table for note in found], "PostgreSQL", "schema, as in 'public.orders'")
    return found


def find_keys(connection: Connection, oid: int) -> tuple[KeyColumn, ...]:
    """Return the columns of a table's primary key, in the key's order."""
    return tuple(KeyColumn(*row) for row in connection.execute(_KEYS, (oid,)).fetchall())


def check_identity(table: str, identity: str) -> None:
    """Refuse a table of whose rows the log does not have the key."""
    if identity not in ("d", "f"):
        what = {"n": "is NOTHING", "i": "is an index", "mixed": "is not that of all its partitions"}[identity]
        raise InvalidProgramError(
            f"The replica identity of table {table} {what}, so that the log does not tell which row was changed: run  "
            f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT  (the primary key) or FULL, and so for each partition."
        )


def find_columns(connection: Connection, table: TableNote) -> Relation | None:
    """Return a table as it is now, None if it is gone."""
    rows = connection.execute(_COLUMNS, (table.oid,)).fetchall()
    columns = tuple(Column(*row) for row in rows)
    return Relation(table.oid, table.schema, table.name, table.identity, columns) if columns else None


def find_types(connection: Connection, oids: Iterable[int]) -> dict[int, TypeNote]:
    """Return what is known of types that are not the commonest, and of those they are made of."""
    notes: dict[int, TypeNote] = {}
    wanted = [oid for oid in oids if not is_known(oid)]
    while wanted:
        rows = connection.execute(_TYPES, (wanted,)).fetchall()
        wanted = []
        for oid, kind, base, element, category, delimiter in rows:
            is_array = category == "A" and element
            notes[oid] = TypeNote(base if kind == "d" else None, element if is_array else None, delimiter)
            more = base if kind == "d" else element if is_array else 0
            if more and not is_known(more) and more not in notes:
                wanted.append(more)
    return notes


def check_server(connection: Connection, place: str) -> None:
    """Refuse a server that does not log what is needed."""
    level = connection.execute("SHOW wal_level").fetchone()
    if level is None or level[0] != "logical":
        raise InvalidProgramError(
            f"PostgreSQL at {place} does not log changes for others (wal_level is {level and level[0]}): set "
            "wal_level = logical in postgresql.conf and start it again."
        )


# --- the publication


_PUBLISHED = """
SELECT t.schemaname, t.tablename, coalesce(r.oid, p.oid)::bigint,
to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL
FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname
JOIN pg_namespace n ON n.nspname = t.schemaname JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = c.oid WHERE p.pubname = %s
"""


@dataclass(frozen=True)
class Publication:
    """A publication.

    Attributes:
        has_all: whether it has all kinds of changes.
        via_root: whether changes of partitions are those of the table.
        members: its tables by name; the number is another one when a table was taken out and added again.
        partial: tables of which not all rows or columns are published.
    """

    has_all: bool
    via_root: bool
    members: dict[str, int]
    partial: frozenset[str]


def find_publication(connection: Connection, name: str) -> Publication | None:
    """Return a publication, None if there is none."""
    row = connection.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication "
        "WHERE pubname = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    listed = connection.execute(_PUBLISHED, (name,)).fetchall()
    members = {f"{schema}.{table}": number for schema, table, number, _ in listed}
    return Publication(row[0], row[1], members, frozenset(f"{s}.{t}" for s, t, _, part in listed if part))


def ensure_publication(
    connection: Connection, name: str, tables: list[TableNote], create: bool, reads_tables: bool
) -> None:
    """See that a publication has the tables; make it, or add them to it, if that is wanted."""
    psycopg = library()
    found = find_publication(connection, name)
    if found is None and not create:
        raise InvalidProgramError(
            f"PostgreSQL has no publication {name!r}: run  CREATE PUBLICATION {quoted(name)} FOR TABLE "
            f"{', '.join(t.quoted for t in tables)}  or leave publication(create=True)."
        )
    if found is not None:
        _check_publication(found, name, tables, reads_tables)
    missing = [t for t in tables if found is None or t.table not in found.members]
    if not missing:
        return
    if found is not None and not create:
        raise InvalidProgramError(
            f"Publication {name!r} does not have table {missing[0].table}: run  ALTER PUBLICATION {quoted(name)} ADD "
            f"TABLE {missing[0].quoted}."
        )
    names = ", ".join(t.quoted for t in missing)
    statement = f"ALTER PUBLICATION {quoted(name)} ADD TABLE {names}"
    if found is None:
        statement = f"CREATE PUBLICATION {quoted(name)} FOR TABLE {names} WITH (publish_via_partition_root = true)"
    try:
        connection.execute(statement)
    except psycopg.errors.DuplicateObject:
        # Somebody else was as quick.
        ensure_publication(connection, name, tables, False, reads_tables)
    except psycopg.Error as e:
        raise PostgresFailure(f"Publication {name!r} cannot be made ready: {said(e)}.") from e


def _check_publication(found: Publication, name: str, tables: list[TableNote], reads_tables: bool) -> None:
    """Refuse a publication that leaves out changes, of which nobody would hear."""
    if not found.has_all:
        raise InvalidProgramError(
            f"Publication {name!r} does not have all changes: run  ALTER PUBLICATION {quoted(name)} SET (publish = "
            "'insert, update, delete, truncate')."
        )
    for table in tables:
        if table.is_partitioned and not found.via_root:
            raise InvalidProgramError(
                f"Publication {name!r} has changes of {table.table} under the names of its partitions: run  ALTER "
                f"PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)."
            )
        if reads_tables and table.table in found.partial:
            raise InvalidProgramError(
                f"Publication {name!r} does not have all rows and columns of {table.table}, which are read from the "
                "table: take a publication without WHERE and columns, or StartupOptions.latest()."
            )


def check_published(connection: Connection, name: str, tables: list[TableNote], known: dict[str, int]) -> None:
    """Fail if tables that are being read have not been in a publication all the time.

    Args:
        known: the numbers of its members, as they were.
    """
    found = find_publication(connection, name)
    for table in tables:
        number = None if found is None else found.members.get(table.table)
        if number is None or number != known.get(table.table, number):
            raise PostgresLost(
                f"Somebody has taken table {table.table} out of publication {name!r}, or dropped it: what changed in "
                "between is lost; start the job without its state, so that it reads the tables anew."
            )
    if found is not None:
        _check_publication(found, name, tables, False)


# --- the slot


@dataclass(frozen=True)
class Slot:
    """A replication slot: how far its reader has confirmed that it is done."""

    confirmed: int
    is_lost: bool


def lsn(text: str) -> int:
    """Read a place in the log.

    Example:
        >>> hex(lsn("16/B374D848"))
        '0x16b374d848'
    """
    found = re.fullmatch(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", text)
    if found is None:
        raise InvalidProgramError(f"{text!r} is not a place in PostgreSQL's log, such as '0/1528C90'.")
    return int(found[1], 16) << 32 | int(found[2], 16)


def lsn_text(place: int) -> str:
    """Write a place in the log."""
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"


def find_slot(connection: Connection, name: str, database: str) -> Slot | None:
    """Return a slot, None if there is none; fails if it is of another kind."""
    row = connection.execute(
        "SELECT plugin, database, confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    plugin, owner, confirmed, status = row
    if plugin != "pgoutput" or owner != database:
        raise InvalidProgramError(
            f"Replication slot {name!r} is of plugin {plugin} and database {owner!r}, not of pgoutput and "
            f"{database!r}: take another slot_name."
        )
    return Slot(lsn(confirmed), status == "lost")


def create_slot(connection: Connection, name: str) -> Slot:
    """Make a slot; it begins when all transactions that are open now have ended."""
    psycopg = library()
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {_SLOT_SECONDS * 1000}")
            row = connection.execute(
                "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", (name,)
            ).fetchone()
    except psycopg.errors.QueryCanceled as e:
        raise PostgresFailure(
            f"Replication slot {name!r} could not be made within {_SLOT_SECONDS} s, for transactions are open that "
            "long: look for them in pg_stat_activity."
        ) from e
    except psycopg.Error as e:
        raise PostgresFailure(
            f"Replication slot {name!r} cannot be made: {said(e)}. The user needs the attribute REPLICATION, and "
            "max_replication_slots must leave room."
        ) from e
    assert row is not None
    return Slot(lsn(row[0]), False)


def drop_slot(connection: Connection, name: str) -> None:
    """Give a slot up, so that the server need not keep its log any more; its reader may need a moment to leave."""
    end = time.monotonic() + _DROP_SECONDS
    while True:
        row = connection.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (name,)).fetchone()
        if row is None:
            return
        if not row[0]:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))
            return
        if time.monotonic() > end:
            raise PostgresFailure(f"Replication slot {name!r} cannot be dropped: another reader has it.")
        time.sleep(0.05)


def slot_to_go_on(connection: Connection, name: str, database: str, place: int) -> Slot:
    """Return the slot that a job goes on with; fails if the log from a place on is no longer there."""
    slot = find_slot(connection, name, database)
    if slot is None:
        raise PostgresLost(
            f"Replication slot {name!r} is gone, and with it what changed since {lsn_text(place)}: start the job "
            "without its state, so that it reads the tables anew."
        )
    if slot.is_lost or slot.confirmed > place:
        raise PostgresLost(
            f"Replication slot {name!r} no longer has the log from {lsn_text(place)} on (it is confirmed up to "
            f"{lsn_text(slot.confirmed)}): "
            "go on from a newer checkpoint, or start the job without its state, so that it reads the tables anew."
        )
    return slot
