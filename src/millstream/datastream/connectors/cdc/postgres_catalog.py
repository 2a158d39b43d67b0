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
from millstream.datastream.connectors.cdc.postgres_values import TypeNote

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

__all__ = ["KeyColumn", "TableNote"]

# The types that every PostgreSQL has are below.
_FIRST_OWN_TYPE = 10_000
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
    """A table."""

    oid: int
    schema: str
    name: str
    identity: str
    keys: tuple[KeyColumn, ...]

    @property
    def table(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"


def quoted(name: str) -> str:
    """Write a name so that SQL takes it as it is."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Write text as SQL does."""
    escaped = text.replace("'", "''")
    return f"'{escaped}'" if "\\" not in text else "E'" + escaped.replace("\\", "\\\\") + "'"


_TABLES = """
SELECT c.oid, n.nspname, c.relname, c.relreplident::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
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


def is_wanted(table: str, patterns: Iterable[str]) -> bool:
    """Tell whether a table is one of those that a list names, in full or by a pattern."""
    return any(table == p or re.fullmatch(p, table) for p in patterns)


def find_tables(connection: Connection, patterns: tuple[str, ...]) -> list[TableNote]:
    """Return the tables that a list means; fails where it names one that is not there."""
    found = []
    for oid, schema, name, identity in connection.execute(_TABLES).fetchall():
        if is_wanted(f"{schema}.{name}", patterns):
            keys = tuple(KeyColumn(*row) for row in connection.execute(_KEYS, (oid,)).fetchall())
            found.append(TableNote(oid, schema, name, identity, keys))
    for pattern in patterns:
        if not any(is_wanted(note.table, (pattern,)) for note in found) and re.fullmatch(r"[\w$ .-]+", pattern):
            raise InvalidProgramError(
                f"PostgreSQL has no table {pattern!r}: name tables with their schema, as in 'public.orders', and see "
                "that the user may see it."
            )
    return found


def find_columns(connection: Connection, table: TableNote) -> Relation | None:
    """Return a table as it is now, None if it is gone."""
    rows = connection.execute(_COLUMNS, (table.oid,)).fetchall()
    columns = tuple(Column(*row) for row in rows)
    return Relation(table.oid, table.schema, table.name, table.identity, columns) if columns else None


def find_types(connection: Connection, oids: Iterable[int]) -> dict[int, TypeNote]:
    """Return what is known of types that only this database has, and of those they are made of."""
    notes: dict[int, TypeNote] = {}
    wanted = [oid for oid in oids if oid >= _FIRST_OWN_TYPE]
    while wanted:
        rows = connection.execute(_TYPES, (wanted,)).fetchall()
        wanted = []
        for oid, kind, base, element, category, delimiter in rows:
            is_array = category == "A" and element
            notes[oid] = TypeNote(base if kind == "d" else None, element if is_array else None, delimiter)
            more = base if kind == "d" else element if is_array else 0
            if more >= _FIRST_OWN_TYPE and more not in notes:
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


def ensure_publication(connection: Connection, name: str, tables: list[TableNote], create: bool) -> None:
    """See that a publication has the tables; make it, or add them to it, if that is wanted."""
    psycopg = library()
    found = connection.execute("SELECT puballtables FROM pg_publication WHERE pubname = %s", (name,)).fetchone()
    if found is None and not create:
        raise InvalidProgramError(
            f"PostgreSQL has no publication {name!r}: run  CREATE PUBLICATION {quoted(name)} FOR TABLE "
            f"{', '.join(t.quoted for t in tables)}  or leave publication(create=True)."
        )
    listed = connection.execute("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (name,))
    there = {f"{schema}.{table}" for schema, table in listed.fetchall()}
    missing = [t for t in tables if t.table not in there]
    if found is not None and not missing:
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
        return
    except psycopg.Error as e:
        raise PostgresFailure(f"Publication {name!r} cannot be made ready: {said(e)}.") from e


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
