"""Deals out PostgreSQL's tables and log, from the driver: subtasks only make records of what they get."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.common.errors import InvalidProgramError
from millstream.datastream.connectors.base import Dealt, Share, SplitEnumerator
from millstream.datastream.connectors.cdc import pgoutput, startup
from millstream.datastream.connectors.cdc.changes import DebeziumDeserializationSchema
from millstream.datastream.connectors.cdc.pgoutput import Begin, Relation
from millstream.datastream.connectors.cdc.postgres_catalog import (
    Slot,
    TableNote,
    check_server,
    create_slot,
    drop_slot,
    ensure_publication,
    find_slot,
    find_tables,
    is_wanted,
    literal,
    lsn,
    lsn_text,
    slot_to_go_on,
)
from millstream.datastream.connectors.cdc.postgres_chunks import ChunkReaders, described
from millstream.datastream.connectors.cdc.postgres_log import LogReader, Piece, Place
from millstream.datastream.connectors.cdc.postgres_session import Database, PostgresLost
from millstream.datastream.connectors.cdc.postgres_shares import Described, LogShare
from millstream.datastream.connectors.cdc.snapshotting import Key, ReadChunk, Snapshotting
from millstream.datastream.connectors.cdc.startup import StartupOptions

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

__all__ = ["PostgresEnumerator", "Settings", "prepare"]

_log = logging.getLogger("millstream")

# So many bytes of the log are dealt out at once.
_SHARE_BYTES = 4 << 20
_SOON = 0.1
_SOMETIME = 1.0


@dataclass(frozen=True)
class Settings:
    """What a source reads, and how."""

    database: Database
    tables: tuple[str, ...]
    slot: str
    publication: str
    creates_publication: bool
    schema: DebeziumDeserializationSchema
    startup: StartupOptions = field(default_factory=StartupOptions.initial)
    chunk_rows: int = 8096
    threads: int = 2
    heartbeat_seconds: float = 30.0
    discovery_seconds: float = 30.0


def prepare(connection: Connection, settings: Settings) -> list[TableNote]:
    """Return the tables to read; fails where they cannot be."""
    check_server(connection, settings.database.place)
    found = find_tables(connection, settings.tables)
    for table in found:
        if not table.keys:
            raise InvalidProgramError(
                f"Table {table.table} has no primary key, by which its rows are told apart: add one, or leave it out "
                "of table_list."
            )
        settings.schema.check(table.table, table.identity == "f")
    return found


class PostgresEnumerator(SplitEnumerator):
    """Deals out chunks of tables or a stretch of the log, never both: between subtasks an epoch has no order."""

    def __init__(self, settings: Settings, parallelism: int, restored: Any) -> None:
        self._settings = settings
        self._parallelism = parallelism
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Condition()
        self._connection = settings.database.connect()
        self._log: LogReader | None = None
        self._chunks: ChunkReaders | None = None
        try:
            self._open(restored)
        except BaseException:
            self.close()
            raise

    def _open(self, restored: Any) -> None:
        settings = self._settings
        self._tables = {t.table: t for t in prepare(self._connection, settings)}
        ensure_publication(
            self._connection, settings.publication, list(self._tables.values()), settings.creates_publication
        )
        if restored is None:
            self._place, known = self._start(), set()
            self._machine = Snapshotting()
            if not settings.startup.reads_tables:
                known = set(self._tables)
            self._target: int | None = None
        else:
            slot_to_go_on(self._connection, settings.slot, settings.database.name, restored["place"][0])
            self._place, known = Place(*restored["place"]), set(restored["tables"])
            self._machine = Snapshotting(restored["snapshot"])
            self._target = restored["target"]
            # One that is gone has nothing left to read.
            for table in [t for t in self._machine.tables if t not in self._tables]:
                self._machine.skip(table)
        self._known = known
        self._add_tables()
        # By oid, as the log has described them; None: not ours.
        self._described: dict[int, Described | None] = {}
        self._deals_log = False
        self._last_beat: float | None = None
        self._beat_place = self._place.lsn
        self._next_look: float | None = None
        self._is_done = False
        wake = self._woken
        self._log = LogReader(settings.database, settings.slot, settings.publication, self._place, wake)
        self._read_chunks()

    def _start(self) -> Place:
        """Return where the log is read from, by a slot that is there or made."""
        settings, connection = self._settings, self._connection
        mode = settings.startup.mode
        slot = find_slot(connection, settings.slot, settings.database.name)
        if slot is None and mode in (startup.OFFSET, startup.COMMITTED):
            raise PostgresLost(
                f"There is no replication slot {settings.slot!r} to read from a place on: start with "
                "StartupOptions.initial()."
            )
        if slot is not None and slot.is_lost:
            _log.warning("replication slot %s has lost its log, and is made anew", settings.slot)
            drop_slot(connection, settings.slot)
            slot = None
        place = self._place_of(slot or create_slot(connection, settings.slot))
        return Place(place)

    def _place_of(self, slot: Slot) -> int:
        mode, offset = self._settings.startup.mode, self._settings.startup.offset
        if mode == startup.OFFSET:
            place = lsn(offset)
            if place < slot.confirmed:
                raise PostgresLost(
                    f"Replication slot {self._settings.slot!r} has the log from {lsn_text(slot.confirmed)} on, not "
                    f"from {offset}."
                )
            return place
        if mode == startup.LATEST:
            row = self._connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
            assert row is not None
            return max(lsn(row[0]), slot.confirmed)
        return slot.confirmed

    def _add_tables(self) -> None:
        """Begin with tables that are new."""
        new = [t for t in self._tables if t not in self._known]
        if not new:
            return
        # The log has all of every transaction that begins after this one, and of those before it, which a snapshot
        # must therefore see, perhaps not.
        row = self._connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        assert row is not None
        with self._lock:
            for table in new:
                self._machine.add(table, row[0] + 1)
        self._known |= set(new)

    def _read_chunks(self) -> None:
        """Have tables read that are not complete."""
        if self._chunks is None and not self._machine.is_complete:
            settings = self._settings
            self._chunks = ChunkReaders(
                settings.database,
                self._machine,
                self._lock,
                self._tables,
                settings.chunk_rows,
                settings.threads,
                self._woken,
            )

    def _woken(self) -> None:
        self._wake()

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        # What came before is not forgotten.
        wake()

    # --- dealing out

    def poll(self, budget: int, now: float) -> Dealt:
        assert self._log is not None
        self._log.check()
        if self._chunks is not None:
            self._chunks.check()
        self._look_for_tables(now)
        if self._last_beat is None:
            self._last_beat = now
        chunks: list[ReadChunk] = []
        if not (self._deals_log and self._log.has_more):
            with self._lock:
                chunks = self._machine.take(self._parallelism)
        self._deals_log = bool(chunks)
        if chunks:
            return Dealt({i: [done.rows] for i, done in enumerate(chunks)}, limited=True)
        shares = self._deal_log(budget)
        self._end_snapshot()
        if (
            not shares
            and now >= self._last_beat + self._settings.heartbeat_seconds
            and self._place.lsn > self._beat_place
        ):
            # Nothing happens in these tables: a checkpoint shall know all the same how far the log is.
            shares = [LogShare({}, [])]
        if shares:
            self._last_beat, self._beat_place = now, self._place.lsn
        return Dealt({0: shares} if shares else {}, limited=self._log.has_more and bool(shares))

    def next_poll(self, now: float) -> float:
        return now + (
            _SOMETIME if self._machine.is_complete and self._settings.startup.mode != startup.SNAPSHOT else _SOON
        )

    def _deal_log(self, budget: int) -> list[Share]:
        assert self._log is not None
        shares: list[LogShare] = []
        changes = size = 0
        while changes < budget and size < _SHARE_BYTES and (piece := self._log.peek()) is not None:
            if piece.begin is not None:
                with self._lock:
                    if not self._machine.may_deal(piece.begin.xid):
                        break
                    self._machine.dealt(piece.begin.xid)
                self._add_piece(shares, piece, piece.begin)
            self._log.pop()
            changes += piece.changes
            size += piece.size
            self._place = piece.after
            if not self._machine.is_complete:
                with self._lock:
                    self._machine.passed(self._place.lsn)
        return [s for s in shares if s.transactions]

    def _add_piece(self, shares: list[LogShare], piece: Piece, begin: Begin) -> None:
        messages: list[bytes] = []
        if not shares:
            shares.append(LogShare({}, []))
        for message in piece.messages:
            if isinstance(message, Relation):
                self._add_messages(shares[-1], begin, messages)
                messages = []
                self._describe(message)
                if message.oid in shares[-1].tables:
                    # The same table is another one from here on.
                    shares.append(LogShare({}, []))
            else:
                messages.append(message)
        self._add_messages(shares[-1], begin, messages)

    def _describe(self, relation: Relation) -> None:
        """The log describes a table: for the first time, or because it has changed."""
        name = relation.table
        if name not in self._tables and is_wanted(name, self._settings.tables):
            self._find_new_tables()
        table = self._tables.get(name)
        self._described[relation.oid] = (
            None if table is None else described(self._connection, relation, tuple(k.name for k in table.keys))
        )

    def _add_messages(self, share: LogShare, begin: Begin, messages: list[bytes]) -> None:
        ours: list[bytes] = []
        for message in messages:
            oids = pgoutput.truncated(message) if message[0] == pgoutput.TRUNCATE else (pgoutput.oid_of(message),)
            known = {oid: table for oid in oids if (table := self._described.get(oid)) is not None}
            if known:
                share.tables.update(known)
                ours.append(message)
        if ours and not self._machine.is_complete:
            ours = self._passing(begin.xid, ours)
        if ours:
            share.transactions.append((begin, ours))

    # --- while tables are read

    def _passing(self, xid: int, messages: list[bytes]) -> list[bytes]:
        """Leave out changes to rows that a chunk brings, or has brought."""
        passing: list[bytes] = []
        run: list[bytes] = []
        for message in messages:
            if message[0] == pgoutput.TRUNCATE:
                passing += self._passing_rows(xid, run)
                run = []
                self._truncated(message)
                passing.append(message)
            else:
                run.append(message)
        return passing + self._passing_rows(xid, run)

    def _truncated(self, message: bytes) -> None:
        for oid in pgoutput.truncated(message):
            table = self._described.get(oid)
            if table is not None:
                with self._lock:
                    if table.relation.table in self._machine.tables:
                        self._machine.again(table.relation.table)

    def _passing_rows(self, xid: int, messages: list[bytes]) -> list[bytes]:
        with self._lock:
            busy = set(self._machine.tables)
        keys: dict[str, list[Key]] = {}
        found: list[tuple[bytes, str | None, Key | None, Key | None]] = []
        for message in messages:
            table = self._described[pgoutput.oid_of(message)]
            assert table is not None
            name = table.relation.table
            if name not in busy:
                found.append((message, None, None, None))
                continue
            before, after = _decoded(pgoutput.key_of(pgoutput.images(message), table.keys), message)
            found.append((message, name, before, after))
            keys.setdefault(name, []).extend(k for k in (before, after) if k is not None)
        verdicts = {name: self._verdicts(name, wanted, xid) for name, wanted in keys.items()}
        passing: list[bytes] = []
        for message, busy_table, before, after in found:
            passing += [message] if busy_table is None else _halves(message, before, after, verdicts[busy_table])
        return passing

    def _verdicts(self, table: str, keys: list[Key], xid: int) -> dict[Key, bool]:
        """Tell which keys a transaction's changes pass to; the database knows their order."""
        with self._lock:
            bounds = list(self._machine.bounds(table))
        different = list(dict.fromkeys(keys))
        above = [0] * len(different) if not bounds else self._compare(self._tables[table], different, bounds)
        with self._lock:
            return {k: self._machine.passes(table, n, xid) for k, n in zip(different, above, strict=True)}

    def _compare(self, table: TableNote, keys: list[Key], bounds: list[Key]) -> list[int]:
        columns = [f"k{i}" for i in range(len(table.keys))]
        typed = [
            f"{c}::{k.type}" + (f" COLLATE {k.collation}" if k.collation else "")
            for c, k in zip(columns, table.keys, strict=True)
        ]
        row = ", ".join(typed)
        above = " + ".join(f"(({row}) > ({', '.join(map(literal, bound))}))::int" for bound in bounds)
        arrays = ", ".join(["%s::text[]"] * len(columns))
        query = f"SELECT {above} FROM unnest({arrays}) WITH ORDINALITY AS e({', '.join(columns)}, n) ORDER BY n"
        texts = [[key[i] for key in keys] for i in range(len(columns))]
        return [n for (n,) in self._connection.execute(_escaped(query, len(columns)), texts).fetchall()]

    def _end_snapshot(self) -> None:
        """Once all tables are read, the log must pass what they have seen; it may need a push."""
        assert self._log is not None
        if self._machine.is_complete and self._chunks is not None:
            self._chunks.close()
            self._chunks = None
        if self._settings.startup.mode != startup.SNAPSHOT:
            return
        if self._target is None and self._machine.all_dealt:
            message = "SELECT pg_logical_emit_message(true, 'millstream', 'the snapshot ends')::text"
            row = self._connection.execute(message).fetchone()
            assert row is not None
            self._target = lsn(row[0])
        if self._target is not None and not self.is_finished():
            self._log.ask()

    # --- tables that come later

    def _look_for_tables(self, now: float) -> None:
        if self._next_look is not None and now >= self._next_look and self._settings.startup.mode != startup.SNAPSHOT:
            self._find_new_tables()
            self._next_look = None
        if self._next_look is None:
            self._next_look = now + self._settings.discovery_seconds

    def _find_new_tables(self) -> None:
        settings = self._settings
        new = [t for t in prepare(self._connection, settings) if t.table not in self._tables]
        if new:
            ensure_publication(self._connection, settings.publication, new, settings.creates_publication)
            with self._lock:
                self._tables.update({t.table: t for t in new})
            self._add_tables()
            self._read_chunks()

    # --- the rest of the contract

    def is_finished(self) -> bool:
        return (
            self._settings.startup.mode == startup.SNAPSHOT
            and self._target is not None
            and self._place.lsn >= self._target
            and self._machine.is_complete
        )

    def snapshot(self) -> Any:
        with self._lock:
            return {
                "place": tuple(self._place),
                "tables": sorted(self._known),
                "snapshot": self._machine.state,
                "target": self._target,
                "finished": self.is_finished(),
            }

    def committed(self, snapshot: Any) -> None:
        assert self._log is not None
        self._log.confirm(snapshot["place"][0])
        self._is_done = snapshot["finished"]

    def close(self) -> None:
        for part in (self._chunks, self._log):
            if part is not None:
                part.close()
        if self._log is not None and self._is_done:
            # Nobody comes back to it, and the server would keep its log for ever.
            drop_slot(self._connection, self._settings.slot)
        self._connection.close()


def _decoded(
    keys: tuple[tuple[Any, ...] | None, tuple[Any, ...] | None], message: bytes
) -> tuple[Key | None, Key | None]:
    before, after = keys
    is_insert = message[0] == pgoutput.INSERT
    return (
        None if before is None or is_insert else tuple(part.decode() for part in before),
        None if after is None else tuple(part.decode() for part in after),
    )


def _halves(message: bytes, before: Key | None, after: Key | None, passes: dict[Key, bool]) -> list[bytes]:
    """Return what is left of a change when rows of some keys are left out."""
    gone = before is not None and passes[before]
    come = after is not None and passes[after]
    if before == after or before is None or after is None:
        return [message] if gone or come else []
    if gone and come:
        return [message]
    delete, insert = pgoutput.cut_update(message)
    return [delete] if gone else [insert] if come else []


def _escaped(query: str, places: int) -> Any:
    """Let every % but those of parameters stand for itself."""
    marks = "%s::text[]"
    return query.replace("%", "%%").replace("%%s::text[]", marks, places)
