"""Reads the binlog of MariaDB or MySQL as it is sent: in a thread of its own, a bounded amount ahead of the job."""

from __future__ import annotations

import re
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.datastream.connectors.cdc import changes as ops
from millstream.datastream.connectors.cdc.changes import Change
from millstream.datastream.connectors.cdc.mysql_places import Place, place_of
from millstream.datastream.connectors.cdc.mysql_session import Database, MySqlFailure, MySqlLost, library, said

__all__ = ["BinlogReader", "Piece", "changes_of_event"]

PIECE_CHANGES = 1000
# So many changes are read ahead of the job, and so many bytes of text in them, about.
AHEAD_CHANGES = 20_000
AHEAD_BYTES = 32 << 20
_HEARTBEAT_SECONDS = 0.5
_TRUNCATE = re.compile(r"\s*TRUNCATE\s+(?:TABLE\s+)?(?:`?([^`.\s]+)`?\.)?`?([^`.\s;]+)`?", re.IGNORECASE)
_GONE = 1236


@dataclass
class Piece:
    """Changes of one transaction, or a note that there are none up to a place.

    Attributes:
        begin: where the transaction begins; None for none.
    """

    begin: Place | None
    changes: list[Change] = field(default_factory=list)
    size: int = 0
    after: Place = field(default_factory=lambda: Place(0, 0))


def changes_of_event(event: Any, source: dict[str, Any]) -> list[Change]:
    """Return the changes that an event of rows has; another key is another row."""
    name, ms = f"{event.schema}.{event.table}", event.timestamp * 1000
    keys = event.primary_key
    key_names = (keys,) if isinstance(keys, str) else tuple(keys or ())
    found: list[Change] = []
    floats = {c.name for c in event.columns if c.type == 4}

    def whole(values: dict[str, Any]) -> list[Any]:
        # What MySQL shows of a FLOAT has six digits.
        return [float(f"{v:.6g}") if k in floats and v is not None else v for k, v in values.items()]

    for row in event.rows:
        before, after = row.get("before_values"), row.get("after_values")
        if before is None and after is None:
            is_insert = type(event).__name__.startswith("Write")
            before, after = (None, row["values"]) if is_insert else (row["values"], None)
        columns = tuple((after if after is not None else before) or ())
        places = tuple(columns.index(k) for k in key_names)
        about = name, columns, places
        old = None if before is None else whole(before)
        new = None if after is None else whole(after)
        moved = old is not None and new is not None and any(old[p] != new[p] for p in places)
        if old is not None and new is not None and not moved:
            found.append(Change(ops.UPDATE, *about, old, new, True, ms, source))
            continue
        if old is not None:
            found.append(Change(ops.DELETE, *about, old, None, True, ms, source))
        if new is not None:
            found.append(Change(ops.CREATE, *about, None, new, True, ms, source))
    return found


class BinlogReader:
    """The connection over which the binlog comes, and the thread that reads it.

    Args:
        start: where to begin.
        wanted: tells whether a table is to be read.
        wake: called, in that thread, when there is something to take.
    """

    def __init__(
        self,
        database: Database,
        start: Place,
        server_id: int,
        wanted: Callable[[str], bool],
        wake: Callable[[], None],
    ) -> None:
        self._database, self._wanted, self._wake = database, wanted, wake
        self._place = start
        self._skip = self._place.changes
        self._lock = threading.Condition()
        self._pieces: deque[Piece] = deque()
        self._ahead = self._ahead_bytes = 0
        self._closed = False
        self._connections = 0
        self._failure: Exception | None = None
        self._open: Piece | None = None
        self._seen = 0
        self._source: dict[str, Any] = {}
        self._stream = self._connect(start, server_id)
        self._thread = threading.Thread(target=self._run, name="millstream-cdc-binlog", daemon=True)
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

    # --- for the job

    def peek(self) -> Piece | None:
        """Return what is to be dealt out next, None for nothing."""
        with self._lock:
            return self._pieces[0] if self._pieces else None

    def pop(self) -> None:
        """Take away what is to be dealt out next."""
        with self._lock:
            piece = self._pieces.popleft()
            self._ahead -= len(piece.changes)
            self._ahead_bytes -= piece.size
            self._lock.notify_all()

    @property
    def has_more(self) -> bool:
        return bool(self._pieces)

    def check(self) -> None:
        """Raise what has gone wrong in the thread."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        # It looks up with the next heartbeat.
        self._thread.join(timeout=10)
        self._stream.close()

    # --- the thread

    def _run(self) -> None:
        try:
            for event in self._stream:
                if self._closed:
                    return
                self._take(event)
                with self._lock:
                    while (self._ahead > AHEAD_CHANGES or self._ahead_bytes > AHEAD_BYTES) and not self._closed:
                        self._lock.wait(0.1)
            raise MySqlFailure(f"MySQL at {self._database.place} no longer sends its binlog.")
        except MySqlFailure as e:
            self._failure = e
        except Exception as e:
            self._failure = self._failed(e)
            self._failure.__cause__ = e
        if not self._closed:
            self._wake()

    def _failed(self, error: Exception) -> MySqlFailure:
        if error.args and error.args[0] == _GONE:
            return MySqlLost(
                f"MySQL at {self._database.place} no longer has its binlog from where the job left off: "
                f"{said(error)}. Start "
                "the job without its state, so that it reads the tables anew."
            )
        if isinstance(error, (KeyError, struct.error)):
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
        here = self._place
        self._open, self._seen = Piece(Place(here.number, here.position, 0, here.prefix)), 0
        self._source = {"file": here.file, "pos": here.position, "gtid": str(event.gtid)}

    def _start_of(self, event: Any) -> Place:
        here = self._here()
        return Place(here.number, here.position - event.packet.event_size, 0, here.prefix)

    def _query(self, event: Any) -> None:
        query = event.query if isinstance(event.query, str) else event.query.decode(errors="replace")
        word = query.strip().upper()
        if word == "BEGIN":
            return
        found = _TRUNCATE.match(query)
        if found is not None:
            schema = found[1] or (event.schema.decode() if isinstance(event.schema, bytes) else event.schema)
            table = f"{schema}.{found[2]}"
            if self._wanted(table):
                self._add(
                    [Change(ops.TRUNCATE, table, (), (), None, None, False, event.timestamp * 1000, self._source)]
                )
        # All other statements that stand in the log as such commit what is open.
        self._end()

    def _add(self, changes: list[Change]) -> None:
        if self._open is None:
            self._open, self._seen = Piece(Place(*self._place[:2], 0, self._place.prefix)), 0
        for change in changes:
            self._seen += 1
            if self._seen <= self._skip:
                continue
            piece = self._open
            piece.changes.append(change)
            piece.size += sum(
                len(v) for row in (change.before, change.after) for v in row or () if isinstance(v, (str, bytes))
            )
            if len(piece.changes) >= PIECE_CHANGES or piece.size >= 1 << 20:
                begin = piece.begin
                assert begin is not None
                piece.after = Place(begin.number, begin.position, self._seen, begin.prefix)
                self._put(piece)
                self._open = Piece(begin)

    def _end(self) -> None:
        piece, self._open = self._open, None
        self._place, self._skip = self._here(), 0
        if piece is None:
            piece = Piece(None)
        piece.after = self._place
        self._put(piece)

    def _pass_idle(self) -> None:
        here = self._here() if self._stream.log_file else self._place
        if self._open is None and here > self._place and not self._skip:
            self._place = here
            self._put(Piece(None, after=here))

    def _put(self, piece: Piece) -> None:
        with self._lock:
            was_empty = not self._pieces
            last = self._pieces[-1] if self._pieces else None
            if piece.begin is None and last is not None and last.begin is None and len(self._pieces) > 1:
                # Of places where nothing happens the last one tells all.
                self._pieces.pop()
            self._pieces.append(piece)
            self._ahead += len(piece.changes)
            self._ahead_bytes += piece.size
        if was_empty:
            self._wake()
