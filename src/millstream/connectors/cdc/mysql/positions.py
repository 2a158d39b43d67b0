"""The end of a server's binlog, and which part of it the server still has."""

from __future__ import annotations

from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.connectors.cdc.mysql.connection import MySqlFailure, MySqlLost, library, run, said
from millstream.connectors.cdc.mysql.offsets import Gtids, Place, place_of

# Position of a file's first event.
_FIRST_EVENT = 4


def snapshot_place(connection: Any) -> Place | None:
    """Return the binlog offset of the connection's snapshot, or None if the server does not report it."""
    rows = run(connection, "SHOW STATUS LIKE 'binlog_snapshot_%%'")
    found = {name.lower(): value for name, value in rows}
    if "binlog_snapshot_file" not in found:
        return None
    file = found["binlog_snapshot_file"]
    return place_of(file, int(found["binlog_snapshot_position"])) if file else Place(0, 0)


def log_status(connection: Any) -> list[Any]:
    """Return the binlog's file and position, and the databases that are logged or ignored."""
    for statement in ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"):
        try:
            rows = run(connection, statement)
        except library().Error as e:
            if e.args and e.args[0] in (1227, 1044):
                raise MySqlFailure(
                    f"The user may not ask where the binlog is: {said(e)}. Grant it REPLICATION CLIENT (BINLOG MONITOR "
                    "in MariaDB) and REPLICATION SLAVE."
                ) from e
            continue
        if rows:
            return list(rows[0])
    raise MySqlFailure("The server does not tell where its binlog is.")


def current_place(connection: Any) -> Place:
    """Return the end of the binlog."""
    file, position = log_status(connection)[:2]
    return place_of(file, int(position))


def check_file(connection: Any, place: Place) -> None:
    """Fail if an offset's file was purged."""
    if place.prefix and place.file not in _files(connection):
        raise MySqlLost(
            f"The server no longer has {place.file} of its binlog, where the job left off: start the job without its "
            "state, so that it reads the tables anew, and let the server keep its binlog for longer."
        )


def check_transaction(connection: Any, place: Place, gtid: str) -> None:
    """Fail if the log up to an offset lacks a transaction, as far as the server can tell."""
    if not place.prefix or not gtid or not _is_mariadb(connection):
        return
    ((found,),) = run(connection, "SELECT binlog_gtid_pos(%s, %s)", (place.file, place.position))
    if found is None or not Gtids.parse(found).has(gtid):
        raise MySqlLost(
            f"The binlog is another one than that the job has read up to {place.file}, {place.position} (GTID {gtid}): "
            "somebody has reset it, or it is another server. Start the job without its state, so that it reads the "
            "tables anew."
        )


def _is_mariadb(connection: Any) -> bool:
    return "mariadb" in str(run(connection, "SELECT version()")[0][0]).lower()


def bytes_behind(connection: Any, place: Place) -> int:
    """Return how many bytes of the binlog are behind an offset."""
    sizes = {place_of(row[0], 0).number: int(row[1]) for row in run(connection, "SHOW BINARY LOGS")}
    return max(0, sum(size for number, size in sizes.items() if number >= place.number) - place.position)


def _files(connection: Any) -> list[str]:
    return [str(row[0]) for row in run(connection, "SHOW BINARY LOGS")]


def place_before(connection: Any, done: Gtids, text: str) -> Place:
    """Return an offset before which are only transactions of a set; fail if the server purged it."""
    is_mariadb = _is_mariadb(connection)
    ((now,),) = run(connection, f"SELECT @@global.{'gtid_binlog_pos' if is_mariadb else 'gtid_executed'}")
    if not Gtids.parse(now).covers(done):
        raise InvalidProgramError(f"MySqlSource: the server has not come to GTID {text!r} yet, its last are {now!r}.")
    for file in reversed(_files(connection)):
        if done.covers(Gtids.parse(_gtids_before(connection, file, is_mariadb))):
            return place_of(file, _FIRST_EVENT)
    raise MySqlLost(f"The server no longer has its binlog from GTID {text!r} on: begin with StartupOptions.initial().")


def _gtids_before(connection: Any, file: str, is_mariadb: bool) -> str:
    """Return the transactions that precede a binlog file."""
    if is_mariadb:
        return str(run(connection, "SELECT binlog_gtid_pos(%s, %s)", (file, _FIRST_EVENT))[0][0] or "")
    events = run(connection, "SHOW BINLOG EVENTS IN %s LIMIT 3", (file,))
    return next((str(e[5]) for e in events if e[2] == "Previous_gtids"), "").replace("\n", "")
