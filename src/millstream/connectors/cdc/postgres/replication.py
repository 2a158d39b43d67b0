"""Replication slots and publications."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.common.errors import InvalidProgramError
from millstream.connectors.cdc.postgres.catalog import TableInfo, quoted
from millstream.connectors.cdc.postgres.connection import PostgresFailure, PostgresLogLost, error_text, library

if TYPE_CHECKING:
    from millstream.connectors.cdc.postgres.connection import Connection

__all__ = ["Publication"]

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
        has_all: whether it publishes all kinds of changes.
        via_root: whether changes of partitions are published as changes of the table.
        members: the numbers of its tables, by name; a table that is removed and added again gets a new number.
        partial: tables with row filters or column lists.
    """

    has_all: bool
    via_root: bool
    members: dict[str, int]
    partial: frozenset[str]


def find_publication(connection: Connection, name: str) -> Publication | None:
    """Return a publication, or None if it does not exist."""
    row = connection.execute(
        "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate, pubviaroot FROM pg_publication "
        "WHERE pubname = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    tables = connection.execute(_PUBLISHED, (name,)).fetchall()
    members = {f"{schema}.{table}": number for schema, table, number, _ in tables}
    return Publication(row[0], row[1], members, frozenset(f"{s}.{t}" for s, t, _, is_partial in tables if is_partial))


def ensure_publication(
    connection: Connection, name: str, tables: list[TableInfo], create: bool, reads_tables: bool
) -> None:
    """Check that a publication has the tables; with `create`, create it or add them."""
    psycopg = library()
    publication = find_publication(connection, name)
    if publication is None and not create:
        raise InvalidProgramError(
            f"PostgreSQL has no publication {name!r}: run  CREATE PUBLICATION {quoted(name)} FOR TABLE "
            f"{', '.join(t.quoted for t in tables)}  or use publication(create=True)."
        )
    if publication is not None:
        _check_publication(publication, name, tables, reads_tables)
    missing = [t for t in tables if publication is None or t.table not in publication.members]
    if not missing:
        return
    if publication is not None and not create:
        raise InvalidProgramError(
            f"Publication {name!r} does not have table {missing[0].table}: run  ALTER PUBLICATION {quoted(name)} ADD "
            f"TABLE {missing[0].quoted}."
        )
    names = ", ".join(t.quoted for t in missing)
    statement = f"ALTER PUBLICATION {quoted(name)} ADD TABLE {names}"
    if publication is None:
        statement = f"CREATE PUBLICATION {quoted(name)} FOR TABLE {names} WITH (publish_via_partition_root = true)"
    try:
        connection.execute(statement)
    except psycopg.errors.DuplicateObject:
        # Another job created it at the same time.
        ensure_publication(connection, name, tables, False, reads_tables)
    except psycopg.Error as e:
        raise PostgresFailure(f"Publication {name!r} cannot be created or extended: {error_text(e)}.") from e


def _check_publication(publication: Publication, name: str, tables: list[TableInfo], reads_tables: bool) -> None:
    """Refuse a publication that omits changes, which would be lost silently."""
    if not publication.has_all:
        raise InvalidProgramError(
            f"Publication {name!r} does not publish all kinds of changes: run  ALTER PUBLICATION {quoted(name)} SET "
            "(publish = 'insert, update, delete, truncate')."
        )
    for table in tables:
        if table.is_partitioned and not publication.via_root:
            raise InvalidProgramError(
                f"Publication {name!r} publishes changes of {table.table} under the names of its partitions: run  "
                f"ALTER PUBLICATION {quoted(name)} SET (publish_via_partition_root = true)."
            )
        if reads_tables and table.table in publication.partial:
            raise InvalidProgramError(
                f"Publication {name!r} does not have all rows and columns of {table.table}, which the snapshot reads: "
                "use a publication without WHERE and columns, or StartupOptions.latest()."
            )


def check_published(connection: Connection, name: str, tables: list[TableInfo], known: dict[str, int]) -> None:
    """Fail if a publication did not always contain tables that are captured.

    Args:
        connection: the database.
        name: the publication.
        tables: the captured tables.
        known: the numbers of its members when the job last checked them.
    """
    publication = find_publication(connection, name)
    for table in tables:
        number = None if publication is None else publication.members.get(table.table)
        if number is None or number != known.get(table.table, number):
            raise PostgresLogLost(
                f"Table {table.table} was removed from publication {name!r}, or dropped, so its changes are lost: "
                "start the job without its state, so that it reads the tables again."
            )
    if publication is not None:
        _check_publication(publication, name, tables, False)


# Creating a slot waits for all open transactions.
_SLOT_SECONDS = 60
_DROP_SECONDS = 10.0


@dataclass(frozen=True)
class Slot:
    """A replication slot: the offset that its reader has confirmed, and whether its log is lost."""

    confirmed: int
    is_lost: bool


def lsn(text: str) -> int:
    """Parse an LSN.

    Example:
        >>> hex(lsn("16/B374D848"))
        '0x16b374d848'
    """
    match = re.fullmatch(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", text)
    if match is None:
        raise InvalidProgramError(f"{text!r} is not an LSN of PostgreSQL such as '0/1528C90'.")
    return int(match[1], 16) << 32 | int(match[2], 16)


def lsn_text(position: int) -> str:
    """Format an LSN."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def find_slot(connection: Connection, name: str, database: str) -> Slot | None:
    """Return a slot, or None if it does not exist; fail if it is of another kind."""
    row = connection.execute(
        "SELECT plugin, database, confirmed_flush_lsn::text, wal_status FROM pg_replication_slots WHERE slot_name = %s",
        (name,),
    ).fetchone()
    if row is None:
        return None
    plugin, owner, confirmed, status = row
    if plugin != "pgoutput" or owner != database:
        raise InvalidProgramError(
            f"Replication slot {name!r} has the plugin {plugin} and database {owner!r}, not pgoutput and {database!r}: "
            "set another slot_name."
        )
    return Slot(lsn(confirmed), status == "lost")


def create_slot(connection: Connection, name: str) -> Slot:
    """Create a slot; this waits for the end of all open transactions."""
    psycopg = library()
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {_SLOT_SECONDS * 1000}")
            row = connection.execute(
                "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", (name,)
            ).fetchone()
    except psycopg.errors.QueryCanceled as e:
        raise PostgresFailure(
            f"Replication slot {name!r} could not be created within {_SLOT_SECONDS} s, because of open transactions: "
            "find them in pg_stat_activity."
        ) from e
    except psycopg.Error as e:
        raise PostgresFailure(
            f"Replication slot {name!r} cannot be created: {error_text(e)}. Give the user the attribute REPLICATION, "
            "and check max_replication_slots."
        ) from e
    assert row is not None
    return Slot(lsn(row[0]), False)


def drop_slot(connection: Connection, name: str) -> None:
    """Drop a slot, so that the server can discard its log; wait until its reader has disconnected."""
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


def restored_slot(connection: Connection, name: str, database: str, position: int) -> Slot:
    """Return the slot of a restored job; fail if it no longer has the log from an LSN."""
    slot = find_slot(connection, name, database)
    if slot is None:
        raise PostgresLogLost(
            f"Replication slot {name!r} was dropped, so changes since {lsn_text(position)} are lost: start the job "
            "without its state, so that it reads the tables again."
        )
    if slot.is_lost or slot.confirmed > position:
        raise PostgresLogLost(
            f"Replication slot {name!r} no longer has the log from {lsn_text(position)} on (it is confirmed up to "
            f"{lsn_text(slot.confirmed)}): restore a newer checkpoint, or start the job without its state, so that it "
            "reads the tables again."
        )
    return slot
