"""Binlog offsets and GTID sets, and the part of the binlog that the server still has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from millstream.common.aliases import Value
from millstream.common.errors import InvalidProgramError
from millstream.common.tags import tagged
from millstream.connectors.cdc.mysql.connection import (
    MySqlFailure,
    MySqlLogLost,
    error_text,
    library,
    run,
)

if TYPE_CHECKING:
    from millstream.connectors.cdc.mysql.connection import Connection

__all__ = ["BinlogOffset", "BinlogVisibility", "Gtids", "offset_of"]

_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)")
_MYSQL = re.compile(r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})((?::\d+(?:-\d+)?)+)")
# Ranges of sequence numbers by domain (MariaDB) or server (MySQL).
Spans: TypeAlias = Mapping[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True)
class Gtids:
    """A set of transactions by GTID.

    Example:
        >>> done = Gtids.parse("0-1-270,1-1-3")
        >>> done.has("0-2-270"), done.has("0-1-271"), done.has("1-1-3")
        (True, False, True)
        >>> Gtids.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:7").has("3E11FA47-71CA-11E1-9E33-C80AA9429562:6")
        False
    """

    spans: Spans

    @staticmethod
    def parse(text: str) -> Gtids:
        """Parse a set as the server writes it: MariaDB's `0-1-270` is the last of its domain."""
        spans: dict[str, tuple[tuple[int, int], ...]] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            if match := _MARIADB.fullmatch(part):
                spans[match[1]] = ((1, int(match[3])),)
            elif match := _MYSQL.fullmatch(part):
                bounds = [b.split("-") for b in match[2][1:].split(":")]
                ranges = tuple((int(b[0]), int(b[-1])) for b in bounds)
                spans[match[1].lower()] = (*spans.get(match[1].lower(), ()), *ranges)
            else:
                raise InvalidProgramError(
                    f"{part!r} is not a GTID: MariaDB's have the form '0-1-270', MySQL's "
                    "'3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5'; a binlog file needs a position, as in "
                    "specific_offset('binlog.000003', 4)."
                )
        return Gtids(spans)

    def has(self, gtid: str) -> bool:
        """Return whether a transaction is in the set."""
        if not self.spans:
            return False
        if match := _MARIADB.fullmatch(gtid):
            source, number = match[1], int(match[3])
        else:
            source, number = gtid.rpartition(":")[0].lower(), int(gtid.rpartition(":")[2])
        return any(first <= number <= last for first, last in self.spans.get(source, ()))

    def covers(self, other: Gtids) -> bool:
        """Return whether this set contains all transactions of another."""
        return all(
            any(first <= low and high <= last for first, last in self.spans.get(source, ()))
            for source, spans in other.spans.items()
            for low, high in spans
        )


@tagged("mysql-offset")
class BinlogOffset(NamedTuple):
    """A binlog offset; offsets compare in log order.

    Attributes:
        number: the file's number.
        position: the position in the file.
        changes: number of assigned changes of the transaction that starts there.
        prefix: the rest of the file name.
    """

    number: int
    position: int
    changes: int = 0
    prefix: str = ""

    @property
    def file(self) -> str:
        digits = str(self.number)
        return f"{self.prefix}.{digits:0>6}"

    @property
    def at_begin(self) -> BinlogOffset:
        """The offset where the transaction starts."""
        return self._replace(changes=0)


def offset_of(file: str, position: int) -> BinlogOffset:
    """Return the offset for a file and position as the server reports them.

    Example:
        >>> offset_of("binlog.000012", 345) < offset_of("binlog.000013", 4)
        True
        >>> offset_of("binlog.000012", 345).file
        'binlog.000012'
    """
    prefix, _, number = file.rpartition(".")
    return BinlogOffset(int(number), position, 0, prefix)


@tagged("mysql-binlog-seen")
@dataclass(frozen=True)
class BinlogVisibility:
    """The transactions that a snapshot at an offset sees: all that start before it."""

    offset: BinlogOffset

    def sees(self, transaction: BinlogOffset) -> bool:
        return transaction[:2] < self.offset[:2]

    def is_past(self, point: BinlogOffset) -> bool:
        return self.offset[:2] >= point[:2]


# Position of a file's first event.
_FIRST_EVENT = 4


def snapshot_offset(connection: Connection) -> BinlogOffset | None:
    """Return the binlog offset of the connection's snapshot, or None if the server does not report it."""
    rows = run(connection, "SHOW STATUS LIKE 'binlog_snapshot_%%'")
    status = {name.lower(): value for name, value in rows}
    if "binlog_snapshot_file" not in status:
        return None
    file = status["binlog_snapshot_file"]
    return offset_of(file, int(status["binlog_snapshot_position"])) if file else BinlogOffset(0, 0)


def log_status(connection: Connection) -> list[Value]:
    """Return the binlog's file and position, and the databases that are logged or ignored."""
    for statement in ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS"):
        try:
            rows = run(connection, statement)
        except library().Error as e:
            if e.args and e.args[0] in (1227, 1044):
                raise MySqlFailure(
                    f"The user may not read the binlog position: {error_text(e)}. Grant it REPLICATION CLIENT "
                    "(BINLOG MONITOR in MariaDB) and REPLICATION SLAVE."
                ) from e
            continue
        if rows:
            return list(rows[0])
    raise MySqlFailure("The server does not report its binlog's offset.")


def current_offset(connection: Connection) -> BinlogOffset:
    """Return the end of the binlog."""
    file, position = log_status(connection)[:2]
    return offset_of(file, int(position))


def check_file(connection: Connection, offset: BinlogOffset) -> None:
    """Fail if an offset's file was purged."""
    if offset.prefix and offset.file not in _files(connection):
        raise MySqlLogLost(
            f"The server no longer has {offset.file} of its binlog, which the job has not read: start the job without "
            "its state, so that it reads the tables again, and increase the server's binlog retention."
        )


def check_transaction(connection: Connection, offset: BinlogOffset, gtid: str) -> None:
    """Fail if the server reports that the log up to an offset lacks a transaction."""
    if not offset.prefix or not gtid or not _is_mariadb(connection):
        return
    ((gtids,),) = run(connection, "SELECT binlog_gtid_pos(%s, %s)", (offset.file, offset.position))
    if gtids is None or not Gtids.parse(gtids).has(gtid):
        raise MySqlLogLost(
            f"The binlog is not the one that the job read up to {offset.file}, {offset.position} (GTID {gtid}): it was "
            "reset, or this is another server. Start the job without its state, so that it reads the tables again."
        )


def _is_mariadb(connection: Connection) -> bool:
    return "mariadb" in str(run(connection, "SELECT version()")[0][0]).lower()


def bytes_after(connection: Connection, offset: BinlogOffset) -> int:
    """Return the number of bytes of the binlog after an offset."""
    sizes = {offset_of(row[0], 0).number: int(row[1]) for row in run(connection, "SHOW BINARY LOGS")}
    return max(0, sum(size for number, size in sizes.items() if number >= offset.number) - offset.position)


def _files(connection: Connection) -> list[str]:
    return [str(row[0]) for row in run(connection, "SHOW BINARY LOGS")]


def offset_before(connection: Connection, done: Gtids, text: str) -> BinlogOffset:
    """Return an offset before which are only transactions of a set; fail if the server purged it."""
    is_mariadb = _is_mariadb(connection)
    ((executed,),) = run(connection, f"SELECT @@global.{'gtid_binlog_pos' if is_mariadb else 'gtid_executed'}")
    if not Gtids.parse(executed).covers(done):
        raise InvalidProgramError(f"MySqlSource: the server has not reached GTID {text!r}; its last are {executed!r}.")
    for file in reversed(_files(connection)):
        if done.covers(Gtids.parse(_gtids_before(connection, file, is_mariadb))):
            return offset_of(file, _FIRST_EVENT)
    raise MySqlLogLost(f"The server no longer has its binlog from GTID {text!r} on: use StartupOptions.initial().")


def _gtids_before(connection: Connection, file: str, is_mariadb: bool) -> str:
    """Return the transactions that precede a binlog file."""
    if is_mariadb:
        return str(run(connection, "SELECT binlog_gtid_pos(%s, %s)", (file, _FIRST_EVENT))[0][0] or "")
    events = run(connection, "SHOW BINLOG EVENTS IN %s LIMIT 3", (file,))
    return next((str(e[5]) for e in events if e[2] == "Previous_gtids"), "").replace("\n", "")
