"""Reads the binlog of MariaDB or MySQL as it is sent: in a thread of its own, a bounded amount ahead of the job."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from millstream.common.tags import tagged
from millstream.connectors.cdc import changes as ops
from millstream.connectors.cdc.changes import Change
from millstream.connectors.cdc.log_reader import LogPiece, LogThread
from millstream.connectors.cdc.mysql.connection import Database, MySqlFailure, MySqlLost, library, said
from millstream.connectors.cdc.mysql.gtids import Gtids
from millstream.connectors.cdc.mysql.offsets import Place, place_of
from millstream.connectors.cdc.mysql.statements import emptied, first_words
from millstream.connectors.cdc.mysql.values import right_time, short_float

__all__ = ["BinlogReader", "ChangesShare", "Piece", "changes_of_event"]

PIECE_CHANGES = 1000
PIECE_BYTES = 1 << 20
_HEARTBEAT_SECONDS = 0.5
_FATAL, _DENIED = 1236, 1227
# Of a Gtid event: what follows is only prepared.
_PREPARED = 64
_ROW_STATEMENTS = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD")
# Types of columns whose values the library does not have right.
_FLOAT, _TIME = 4, 19
# Why it says that a value is None.
_MISSING, _EMPTY_SET = ("cols bitmap", "same with before values"), "empty set"


@dataclass(kw_only=True)
class Piece(LogPiece):
    """Changes of one transaction, named by where it begins.

    Attributes:
        gtid: of the transaction.
    """

    changes: list[Change] = field(default_factory=list)
    gtid: str = ""


@tagged("mysql-split-range")
@dataclass(frozen=True)
class ChangesShare:
    """A stretch of the binlog, or a chunk of a table."""

    of_table: bool
    found: list[Change]

    @property
    def is_empty(self) -> bool:
        return not self.found

    def changes(self) -> Iterator[Change]:
        return iter(self.found)


def _value(kind: int | None, value: Any, reason: str | None) -> Any:
    """Return a value as it is in the table; kind: of a column whose values the library does not have right."""
    if value is None:
        if reason in _MISSING:
            raise MySqlFailure(
                "The binlog has a change of which not all columns were logged: see that no session sets "
                "binlog_row_image to anything but FULL, and start the job without its state."
            )
        return set() if reason == _EMPTY_SET else None
    if kind is None:
        return value
    return short_float(value) if kind == _FLOAT else right_time(value)


def changes_of_event(event: Any, source: dict[str, Any]) -> list[Change]:
    """Return the changes that an event of rows has; another key is another row."""
    name, ms = f"{event.schema}.{event.table}", event.timestamp * 1000
    keys = event.primary_key
    key_names = (keys,) if isinstance(keys, str) else tuple(keys or ())
    found: list[Change] = []
    kinds = {c.name: c.type for c in event.columns if c.type in (_FLOAT, _TIME)}

    def whole(values: dict[str, Any], reasons: dict[str, str]) -> list[Any]:
        return [_value(kinds.get(k), v, reasons.get(k)) for k, v in values.items()]

    for row in event.rows:
        before, after = row.get("before_values"), row.get("after_values")
        if before is None and after is None:
            is_insert = type(event).__name__.startswith("Write")
            before, after = (None, row["values"]) if is_insert else (row["values"], None)
        columns = tuple((after if after is not None else before) or ())
        places = tuple(columns.index(k) for k in key_names)
        about = name, columns, places
        reasons = row.get("none_sources", {})
        old = None if before is None else whole(before, row.get("before_none_sources", reasons))
        new = None if after is None else whole(after, row.get("after_none_sources", reasons))
        moved = old is not None and new is not None and any(old[p] != new[p] for p in places)
        if old is not None and new is not None and not moved:
            found.append(Change(ops.UPDATE, *about, old, new, True, ms, source, event.schema))
            continue
        if old is not None:
            found.append(Change(ops.DELETE, *about, old, None, True, ms, source, event.schema))
        if new is not None:
            found.append(Change(ops.CREATE, *about, None, new, True, ms, source, event.schema))
    return found


class BinlogReader(LogThread[Piece]):
    """The connection over which the binlog comes, and the thread that reads it.

    Args:
        start: where to begin.
        done: transactions that are left out wherever they are.
        wanted: tells whether a table is to be read.
    """

    ahead_changes = 20_000
    ahead_bytes = 32 << 20

    def __init__(
        self,
        database: Database,
        start: Place,
        done: Gtids,
        server_id: int,
        wanted: Callable[[str], bool],
        wake: Callable[[], None],
    ) -> None:
        super().__init__("millstream-cdc-binlog", wake)
        self._database, self._done, self._wanted = database, done, wanted
        # Whether the transaction is one of those that are done, and whether it is only prepared.
        self._is_done = self._is_prepared = False
        self._place = start
        self._skip = self._place.changes
        self._connections = 0
        self._open: Piece | None = None
        self._seen = 0
        self._source: dict[str, Any] = {}
        self._stream = self._connect(start, server_id)
        self._thread.start()

    def _connect(self, start: Place, server_id: int) -> Any:
        library()
        from pymysqlreplication import BinLogStreamReader, event, row_event

        kinds = [row_event.WriteRowsEvent, row_event.UpdateRowsEvent, row_event.DeleteRowsEvent]
        kinds += [event.QueryEvent, event.XidEvent, event.RotateEvent, event.HeartbeatLogEvent]
        kinds += [event.MariadbGtidEvent, event.GtidEvent]
        return BinLogStreamReader(
            connection_settings=self._database.settings(),
            server_id=server_id,
            blocking=True,
            resume_stream=True,
            only_events=kinds,
            # Though it be one: else the library would not begin at a place.
            is_mariadb=False,
            slave_heartbeat=_HEARTBEAT_SECONDS,
            pymysql_wrapper=self._one_connection,
            enable_logging=False,
            log_file=start.file,
            log_pos=start.position,
        )

    def _one_connection(self, **settings: Any) -> Any:
        """Connect for the library, for the log and for questions; not again, in the middle of a transaction."""
        self._connections += 1
        if self._connections > 2 or self._closed:
            raise MySqlFailure(f"The connection to MySQL at {self._database.place} is lost.")
        # The library has names that pymysql no longer likes.
        names = {"db": "database", "passwd": "password"}
        return library().connect(**{names.get(name, name): value for name, value in settings.items()})

    # --- the thread

    def _read(self) -> None:
        for event in self._stream:
            if self._closed:
                return
            self._take(event)
            with self._lock:
                while self._is_full and not self._closed:
                    self._lock.wait(0.1)
        raise MySqlFailure(f"MySQL at {self._database.place} no longer sends its binlog.")

    def _disconnect(self) -> None:
        self._stream.close()

    def _failed(self, error: Exception) -> MySqlFailure:
        words = said(error)
        if "same server_uuid/server_id" in words:
            return MySqlFailure(f"Another reader has the same server_id: {words}. Give every job one of its own.")
        if error.args and error.args[0] == _FATAL:
            if any(w in words.lower() for w in ("could not find", "purged", "impossible position")):
                return MySqlLost(
                    f"MySQL at {self._database.place} no longer has its binlog from where the job left off: {words}. "
                    "Start the job without its state, so that it reads the tables anew."
                )
            return MySqlFailure(f"MySQL at {self._database.place} does not send its binlog: {words}.")
        if error.args and error.args[0] == _DENIED:
            return MySqlFailure(f"The user may not read the binlog: {said(error)}. Grant it REPLICATION SLAVE.")
        if isinstance(error, (KeyError, NotImplementedError, UnicodeError, struct.error)):
            return MySqlFailure(f"An event of the binlog cannot be read: {error!r}.")
        return MySqlFailure(f"The connection to MySQL at {self._database.place} is lost: {said(error)}.")

    def _here(self) -> Place:
        return place_of(self._stream.log_file, self._stream.log_pos)

    def _take(self, event: Any) -> None:
        kind = type(event).__name__
        if kind in ("RotateEvent", "HeartbeatLogEvent"):
            self._pass_idle()
        elif kind in ("MariadbGtidEvent", "GtidEvent"):
            self._begin(event)
        elif kind == "XidEvent":
            self._end()
        elif kind == "QueryEvent":
            self._query(event)
        elif self._wanted(f"{event.schema}.{event.table}"):
            self._add(changes_of_event(event, self._source))

    def _begin(self, event: Any) -> None:
        self._place = max(self._place, self._start_of(event))
        here, gtid = self._place, str(event.gtid)
        self._open, self._seen = Piece(transaction=here.at_begin, gtid=gtid), 0
        self._source = {"file": here.file, "pos": here.position, "gtid": gtid}
        self._is_done = self._done.has(gtid)
        self._is_prepared = bool(getattr(event, "flags", 0) & _PREPARED)

    def _start_of(self, event: Any) -> Place:
        here = self._here()
        return here._replace(position=here.position - event.packet.event_size)

    def _query(self, event: Any) -> None:
        query = event.query if isinstance(event.query, str) else event.query.decode(errors="replace")
        schema = event.schema.decode() if isinstance(event.schema, bytes) else event.schema
        words = first_words(query)
        if words.startswith("XA START"):
            self._is_prepared = True
        if words.startswith(("BEGIN", "SAVEPOINT", "XA START", "XA END")):
            return
        if words.startswith("ROLLBACK") and self._seen:
            raise MySqlFailure("The binlog has changes that were taken back, of a transaction over different engines.")
        if words.startswith(_ROW_STATEMENTS) and not self._is_done:
            raise MySqlFailure(
                f"The binlog has a statement where it should have rows ({query[:60]!r}): see that no session sets "
                "binlog_format to anything but ROW, and start the job without its state."
            )
        ms = event.timestamp * 1000
        gone = [table for table in emptied(query, schema) if self._wanted(table)]
        self._add([Change(ops.TRUNCATE, table, (), (), None, None, False, ms, self._source) for table in gone])
        # All other statements that stand in the log as such commit what is open.
        self._end()

    def _add(self, changes: list[Change]) -> None:
        if self._is_done or not changes:
            return
        if self._is_prepared:
            raise MySqlFailure(
                f"The binlog has changes of table {changes[0].table} that are prepared (XA PREPARE), of which is not "
                "known whether they will be committed: no transaction of that kind may change a table that is read."
            )
        if self._open is None:
            self._open, self._seen = Piece(transaction=self._place.at_begin), 0
        for change in changes:
            self._seen += 1
            if self._seen <= self._skip:
                continue
            piece = self._open
            piece.changes.append(change)
            piece.count += 1
            piece.size += sum(
                len(v) for row in (change.before, change.after) for v in row or () if isinstance(v, (str, bytes))
            )
            if piece.count >= PIECE_CHANGES or piece.size >= PIECE_BYTES:
                piece.after = piece.transaction._replace(changes=self._seen)
                self._put(piece)
                self._open = Piece(transaction=piece.transaction, gtid=piece.gtid)

    def _end(self) -> None:
        piece, self._open = self._open or Piece(), None
        self._place, self._skip = self._here(), 0
        piece.after = self._place
        self._put(piece)

    def _pass_idle(self) -> None:
        here = self._here() if self._stream.log_file else self._place
        if self._open is None and here > self._place and not self._skip:
            self._place = here
            self._put(Piece(after=here))
