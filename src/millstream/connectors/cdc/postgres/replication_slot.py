"""PostgreSQL's replication slots: from where on the server keeps its log."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.common.errors import InvalidProgramError
from millstream.connectors.cdc.postgres.connection import PostgresFailure, PostgresLost, library, said

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

__all__ = ["Slot", "lsn", "lsn_text"]

# A new slot waits for all transactions that are open.
_SLOT_SECONDS = 60
_DROP_SECONDS = 10.0


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
