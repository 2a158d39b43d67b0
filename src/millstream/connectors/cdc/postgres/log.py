"""Reads PostgreSQL's log in a thread, a bounded amount ahead of the job."""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from millstream.common.tags import tagged
from millstream.connectors.cdc.postgres import pgoutput
from millstream.connectors.cdc.postgres.catalog import quoted
from millstream.connectors.cdc.postgres.connection import (
    Database,
    PostgresFailure,
    PostgresLogLost,
    error_text,
    library,
)
from millstream.connectors.cdc.postgres.pgoutput import Begin, Relation
from millstream.connectors.cdc.postgres.replication import lsn_text
from millstream.connectors.cdc.readers import LogPiece, LogThread

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from millstream.connectors.cdc.postgres.connection import Connection

__all__ = ["Assembler", "LogReader", "Piece", "PostgresOffset"]

# Maximum changes and bytes per piece of a transaction; larger transactions are assigned in several pieces.
PIECE_CHANGES = 1000
PIECE_BYTES = 1 << 20
# Interval of progress reports to the server, in seconds.
_STATUS_SECONDS = 5.0
# How long a slot may still be held by a closing connection.
_BUSY_SECONDS = 60.0
_POLL = 0.1

_HEADER = 25
_KEEPALIVE = struct.Struct(">qqB")
_STATUS = struct.Struct(">cqqqqB")
_EPOCH_US = 946_684_800_000_000
_DATA, _ALIVE = b"wk"


@tagged("postgres-offset")
class PostgresOffset(NamedTuple):
    """The assigned part of the log.

    Attributes:
        lsn: the end of the last completely assigned transaction.
        transaction: commit LSN of a partly assigned transaction; 0 for none.
        changes: number of its assigned changes.
    """

    lsn: int
    transaction: int = 0
    changes: int = 0


@dataclass(kw_only=True)
class Piece(LogPiece):
    """Changes of one transaction, identified by its number.

    Attributes:
        begin: the transaction; None if the log up to the offset has no captured changes.
        messages: changes, and table descriptions that apply to the next ones.
    """

    begin: Begin | None = None
    messages: list[bytes | Relation] = field(default_factory=list)


def _piece_of(begin: Begin) -> Piece:
    return Piece(begin=begin, transaction=begin.xid)


class Assembler:
    """Divides a stream of messages into pieces of transactions. Pure.

    Args:
        offset: changes before it are skipped.
    """

    def __init__(self, offset: PostgresOffset) -> None:
        self._offset = offset
        self._begin: Begin | None = None
        self._piece: Piece | None = None
        self._changes = 0
        self._skip = 0

    @property
    def is_between(self) -> bool:
        """Whether no transaction is open."""
        return self._begin is None

    def message(self, message: bytes) -> Piece | None:
        """Take a message; return the piece that it completes."""
        kind = message[0]
        if kind == pgoutput.BEGIN:
            self._open(pgoutput.begin(message))
        elif kind == pgoutput.COMMIT:
            return self._close(pgoutput.commit(message).end)
        elif kind == pgoutput.RELATION:
            if self._piece is not None:
                self._piece.messages.append(pgoutput.relation(message))
        elif kind in (pgoutput.INSERT, pgoutput.UPDATE, pgoutput.DELETE, pgoutput.TRUNCATE):
            return self._change(message)
        return None

    def idle(self, lsn: int) -> Piece | None:
        """Record that the server sent the whole log up to an offset."""
        if self._begin is not None or lsn <= self._offset.lsn:
            return None
        self._offset = PostgresOffset(lsn)
        return Piece(after=self._offset)

    def _open(self, begin: Begin) -> None:
        self._begin, self._changes = begin, 0
        self._skip = self._offset.changes if self._offset.transaction == begin.lsn else 0
        # A transaction that was assigned before is skipped, except its relation messages.
        self._piece = _piece_of(begin)

    def _change(self, message: bytes) -> Piece | None:
        piece = self._piece
        assert piece is not None and self._begin is not None
        self._changes += 1
        if self._changes <= self._skip or self._begin.lsn < self._offset.lsn:
            return None
        piece.messages.append(message)
        piece.count += 1
        piece.size += len(message)
        if piece.count < PIECE_CHANGES and piece.size < PIECE_BYTES:
            return None
        piece.after = self._offset = PostgresOffset(self._offset.lsn, self._begin.lsn, self._changes)
        self._piece = _piece_of(self._begin)
        return piece

    def _close(self, end: int) -> Piece:
        piece = self._piece
        assert piece is not None
        self._begin = self._piece = None
        if end > self._offset.lsn:
            self._offset = PostgresOffset(end)
        piece.after = self._offset
        return piece


class LogReader(LogThread[Piece]):
    """Reads a replication slot in a thread."""

    def __init__(
        self, database: Database, slot: str, publication: str, offset: PostgresOffset, wake: Callable[[], None]
    ) -> None:
        super().__init__("millstream-cdc-log", wake)
        self._database, self._slot, self._publication = database, slot, publication
        self._assembler = Assembler(offset)
        self._confirmed = self._reported_lsn = 0
        # Whether the server must reply, and whether it awaits a reply.
        self._requests_reply = self._reply_due = False
        self._connection = self._start(offset)
        self._thread.start()

    def _start(self, offset: PostgresOffset) -> Connection:
        connection = self._database.connect(replication=True)
        names = quoted(self._publication).replace("'", "''")
        command = (
            f"START_REPLICATION SLOT {quoted(self._slot)} LOGICAL {lsn_text(offset.lsn)} "
            f"(proto_version '1', publication_names '{names}')"
        )
        end = time.monotonic() + _BUSY_SECONDS
        while True:
            result = connection.pgconn.exec_(command.encode())
            if result.status == library().pq.ExecStatus.COPY_BOTH:
                return connection
            message = (result.error_message or b"").decode(errors="replace").strip().splitlines()[0]
            if "is active" not in message or time.monotonic() > end:
                connection.close()
                raise self._refused(message.removeprefix("ERROR:").strip())
            time.sleep(_POLL)

    def _refused(self, reason: str) -> PostgresFailure:
        if "is active" in reason:
            return PostgresFailure(
                f"Another reader has replication slot {self._slot!r}: {reason}. Set a unique slot_name for each job."
            )
        if "does not exist" in reason or "requested WAL segment" in reason or "can no longer" in reason:
            return PostgresLogLost(
                f"Replication slot {self._slot!r} can no longer be read: {reason}. Start the job without its state."
            )
        return PostgresFailure(f"Replication slot {self._slot!r} cannot be read: {reason}.")

    # --- called by the job

    def confirm(self, lsn: int) -> None:
        """Confirm that a checkpoint covers the log up to an offset, so that the server may discard it."""
        self._confirmed = max(self._confirmed, lsn)

    def request_status(self) -> None:
        """Request the server's log position, even without changes."""
        self._requests_reply = True

    # --- run by the thread

    def _failed(self, error: Exception) -> PostgresFailure:
        return PostgresFailure(
            f"The connection to PostgreSQL at {self._database.address} is lost: {error_text(error)}."
        )

    def _disconnect(self) -> None:
        self._connection.close()

    def _read(self) -> None:
        connection = self._connection.pgconn
        next_status = 0.0
        while not self._closed:
            now = time.monotonic()
            if now >= next_status or self._requests_reply or self._reply_due or self._confirmed > self._reported_lsn:
                self._send_status(connection)
                next_status = now + _STATUS_SECONDS
            if self._is_full:
                with self._lock:
                    self._lock.wait(_POLL)
                continue
            if not self._take_all(connection):
                ready, _, _ = select.select([connection.socket], [], [], _POLL)
                if ready:
                    connection.consume_input()
        # Report the confirmed offset before the end.
        self._send_status(connection)

    def _take_all(self, connection: PGconn) -> bool:
        """Process the available messages; return whether there were any."""
        get, message = connection.get_copy_data, self._assembler.message
        pieces: list[Piece] = []
        size = taken = 0
        while size < PIECE_BYTES:
            length, data = get(1)
            if length <= 0:
                break
            taken += 1
            if data[0] == _DATA:
                piece = message(bytes(data[_HEADER:]))
            else:
                end, _, reply = _KEEPALIVE.unpack_from(data, 1)
                self._reply_due = self._reply_due or bool(reply)
                piece = self._assembler.idle(end)
            if piece is not None:
                pieces.append(piece)
                size += piece.size
        if pieces:
            self._put(*pieces)
        if length == -1:
            self._ended(connection)
        elif length < -1:
            reason = connection.error_message.decode(errors="replace").strip()
            raise PostgresFailure(f"The connection to the log of PostgreSQL failed: {reason}.")
        return taken > 0

    def _ended(self, connection: PGconn) -> None:
        result = connection.get_result()
        message = "" if result is None else (result.error_message or b"").decode(errors="replace").strip()
        reason = "the stream has ended"
        if message:
            reason = message.splitlines()[0].removeprefix("ERROR:").removeprefix("FATAL:").strip()
        if "slot" in reason and ("dropped" in reason or "does not exist" in reason):
            raise PostgresLogLost(f"Replication slot {self._slot!r} was dropped: {reason}.")
        if "publication" in reason and "does not exist" in reason:
            raise PostgresFailure(
                f"PostgreSQL no longer sends the log: {reason}. Create the publication again, and start the job "
                "without its state."
            )
        raise PostgresFailure(f"PostgreSQL no longer sends the log: {reason}.")

    def _send_status(self, connection: PGconn) -> None:
        confirmed = self._confirmed
        now = time.time_ns() // 1000 - _EPOCH_US
        requests_reply, self._requests_reply, self._reply_due = self._requests_reply, False, False
        status = _STATUS.pack(b"r", confirmed, confirmed, confirmed, now, requests_reply)
        connection.put_copy_data(status)
        connection.flush()
        self._reported_lsn = confirmed
