"""Replication slots and publications."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.common.errors import InvalidProgramError
from millstream.connectors.cdc.postgres.catalog import TableInfo, quoted
from millstream.connectors.cdc.postgres.connection import PostgresFailure, PostgresLogLost, error_text, library

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

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
        members: its tables by name; the number is another one when a table was taken out and added again.
        partial: tables with row filters or column lists.
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
    connection: Connection, name: str, tables: list[TableInfo], create: bool, reads_tables: bool
) -> None:
    """See that a publication has the tables; make it, or add them to it, if that is keys_by_table."""
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
        # Another job created it at the same time.
        ensure_publication(connection, name, tables, False, reads_tables)
    except psycopg.Error as e:
        raise PostgresFailure(f"Publication {name!r} cannot be made ready: {error_text(e)}.") from e


def _check_publication(found: Publication, name: str, tables: list[TableInfo], reads_tables: bool) -> None:
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


def check_published(connection: Connection, name: str, tables: list[TableInfo], known: dict[str, int]) -> None:
    """Fail if tables that are being read have not been in a publication all the time.

    Args:
        known: the numbers of its members, as they were.
    """
    found = find_publication(connection, name)
    for table in tables:
        number = None if found is None else found.members.get(table.table)
        if number is None or number != known.get(table.table, number):
            raise PostgresLogLost(
                f"Somebody has taken table {table.table} out of publication {name!r}, or dropped it: what changed in "
                "between is lost; start the job without its state, so that it reads the tables anew."
            )
    if found is not None:
        _check_publication(found, name, tables, False)


# Creating a slot waits for all open transactions.
_SLOT_SECONDS = 60
_DROP_SECONDS = 10.0


@dataclass(frozen=True)
class Slot:
    """A replication slot: how far its reader has confirmed that it is done."""

    confirmed: int
    is_lost: bool


def lsn(text: str) -> int:
    """Parse an LSN.

    Example:
        >>> hex(lsn("16/B374D848"))
        '0x16b374d848'
    """
    found = re.fullmatch(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})", text)
    if found is None:
        raise InvalidProgramError(f"{text!r} is not an LSN of PostgreSQL such as '0/1528C90'.")
    return int(found[1], 16) << 32 | int(found[2], 16)


def lsn_text(position: int) -> str:
    """Format an LSN."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


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
            f"Replication slot {name!r} cannot be made: {error_text(e)}. The user needs the attribute REPLICATION, and "
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


def restored_slot(connection: Connection, name: str, database: str, position: int) -> Slot:
    """Return the slot of a restored job; fail if it no longer has the log from an LSN."""
    slot = find_slot(connection, name, database)
    if slot is None:
        raise PostgresLogLost(
            f"Replication slot {name!r} is gone, and with it what changed since {lsn_text(position)}: start the job "
            "without its state, so that it reads the tables anew."
        )
    if slot.is_lost or slot.confirmed > position:
        raise PostgresLogLost(
            f"Replication slot {name!r} no longer has the log from {lsn_text(position)} on (it is confirmed up to "
            f"{lsn_text(slot.confirmed)}): "
            "go on from a newer checkpoint, or start the job without its state, so that it reads the tables anew."
        )
    return slot
