"""Deals out MariaDB's tables and binlog, from the driver: subtasks only make records of what they get."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from millstream.common.errors import InvalidProgramError
from millstream.datastream.connectors.base import Dealt, SplitEnumerator
from millstream.datastream.connectors.cdc import changes as ops
from millstream.datastream.connectors.cdc import startup
from millstream.datastream.connectors.cdc.changes import Change, DebeziumDeserializationSchema
from millstream.datastream.connectors.cdc.mysql_chunks import ChunkReaders
from millstream.datastream.connectors.cdc.mysql_log import BinlogReader
from millstream.datastream.connectors.cdc.mysql_places import Place, place_of
from millstream.datastream.connectors.cdc.mysql_session import (
    Database,
    TableNote,
    check_file,
    check_server,
    compare,
    current_place,
    find_tables,
    is_wanted,
)
from millstream.datastream.connectors.cdc.snapshotting import Key, Snapshotting
from millstream.datastream.connectors.cdc.startup import StartupOptions

__all__ = ["MySqlEnumerator", "Settings", "prepare"]

_SHARE_BYTES = 4 << 20
_SOON, _SOMETIME = 0.1, 1.0


@dataclass(frozen=True)
class Settings:
    """What a source reads, and how."""

    database: Database
    tables: tuple[str, ...]
    schema: DebeziumDeserializationSchema
    startup: StartupOptions = field(default_factory=StartupOptions.initial)
    chunk_rows: int = 8096
    threads: int = 2
    server_id: int | None = None
    heartbeat_seconds: float = 30.0
    discovery_seconds: float = 30.0


def prepare(connection: Any, settings: Settings) -> list[TableNote]:
    """Return the tables to read; fails where they cannot be."""
    check_server(connection, settings.database.place, settings.startup.reads_tables)
    found = find_tables(connection, settings.tables)
    for table in found:
        if not table.keys:
            raise InvalidProgramError(
                f"Table {table.table} has no primary key, by which its rows are told apart: add one, or leave it out "
                "of "
                "table_list."
            )
    return found


class MySqlEnumerator(SplitEnumerator):
    """Deals out chunks of tables or a stretch of the log, never both: between subtasks an epoch has no order."""

    def __init__(self, settings: Settings, parallelism: int, restored: Any) -> None:
        self._settings, self._parallelism = settings, parallelism
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Condition()
        self._connection = settings.database.connect()
        self._log: BinlogReader | None = None
        self._chunks: ChunkReaders | None = None
        try:
            self._open(restored)
        except BaseException:
            self.close()
            raise

    def _open(self, restored: Any) -> None:
        settings, connection = self._settings, self._connection
        self._tables = {t.table: t for t in prepare(connection, settings)}
        self._target: Place | None = None
        if restored is None:
            start = self._start()
            self._machine = Snapshotting()
            self._known = set() if settings.startup.reads_tables else set(self._tables)
        else:
            start = Place(*restored["place"])
            check_file(connection, start)
            self._machine = Snapshotting(restored["snapshot"])
            self._known = set(restored["tables"])
            self._target = None if restored["target"] is None else Place(*restored["target"])
            for table in [t for t in self._machine.tables if t not in self._tables]:
                self._machine.skip(table)
        self._place = start
        self._add_tables()
        self._deals_log = False
        self._last_beat: float | None = None
        self._beat_place = self._place
        self._next_look: float | None = None
        server_id = settings.server_id or random.randrange(1 << 16, 1 << 31)
        wanted = settings.tables
        self._log = BinlogReader(
            settings.database,
            start,
            server_id,
            lambda table: is_wanted(table, wanted),
            self._woken,
        )
        self._read_chunks()

    def _start(self) -> Place:
        mode, offset = self._settings.startup.mode, self._settings.startup.offset
        if mode == startup.COMMITTED:
            raise InvalidProgramError("MySqlSource: the server does not know how far a job is: take another start.")
        if mode == startup.OFFSET:
            if not isinstance(offset, tuple):
                raise InvalidProgramError(
                    "MySqlSource: name a file of the binlog and a place in it: specific_offset('binlog.000003', 4)."
                )
            place = place_of(*offset)
            check_file(self._connection, place)
            return place
        return current_place(self._connection)

    def _add_tables(self) -> None:
        """Begin with tables that are new."""
        new = [t for t in self._tables if t not in self._known]
        if new:
            place = current_place(self._connection)
            with self._lock:
                for table in new:
                    self._machine.add(table, place)
            self._known |= set(new)

    def _read_chunks(self) -> None:
        if self._chunks is None and not self._machine.is_complete:
            s = self._settings
            self._chunks = ChunkReaders(
                s.database, self._machine, self._lock, self._tables, s.chunk_rows, s.threads, self._woken
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
        chunks = []
        if not (self._deals_log and self._log.has_more):
            with self._lock:
                chunks = self._machine.take(self._parallelism)
        self._deals_log = bool(chunks)
        if chunks:
            return Dealt({i: [("tables", done.rows)] for i, done in enumerate(chunks)}, limited=True)
        changes = self._deal_log(budget)
        self._end_snapshot()
        moved = self._place > self._beat_place
        if changes or (moved and now >= self._last_beat + self._settings.heartbeat_seconds):
            self._last_beat, self._beat_place = now, self._place
            return Dealt({0: [("log", changes)]}, limited=self._log.has_more)
        return Dealt({})

    def next_poll(self, now: float) -> float:
        return now + (_SOMETIME if self._machine.is_complete and self._target is None else _SOON)

    def _deal_log(self, budget: int) -> list[Change]:
        assert self._log is not None
        dealt: list[Change] = []
        size = 0
        while len(dealt) < budget and size < _SHARE_BYTES and (piece := self._log.peek()) is not None:
            if piece.begin is not None:
                with self._lock:
                    if not self._machine.may_deal(piece.begin):
                        break
                    self._machine.dealt(piece.begin)
                for change in piece.changes:
                    if change.table not in self._tables:
                        self._find_new_tables()
                        break
                dealt += self._passing(piece.begin, piece.changes)
            self._log.pop()
            size += piece.size
            self._place = piece.after
            if not self._machine.is_complete:
                with self._lock:
                    # All before the place where a transaction goes on was dealt out.
                    self._machine.passed(self._place)
        return dealt

    # --- while tables are read

    def _passing(self, transaction: Place, changes: list[Change]) -> list[Change]:
        """Leave out changes to rows that a chunk brings, or has brought."""
        changes = [c._replace(keys=self._key_places(c)) for c in changes if c.table in self._tables]
        with self._lock:
            busy = set(self._machine.tables)
        if not any(c.table in busy for c in changes):
            return changes
        passing: list[Change] = []
        waiting: list[Change] = []
        for change in changes:
            if change.op == ops.TRUNCATE:
                passing += self._passing_rows(transaction, waiting)
                waiting = []
                with self._lock:
                    if change.table in self._machine.tables:
                        self._machine.again(change.table)
                passing.append(change)
            else:
                waiting.append(change)
        return passing + self._passing_rows(transaction, waiting)

    def _key_places(self, change: Change) -> tuple[int, ...]:
        """Return where the key is, in its own order: the log tells it in the order of columns."""
        names = self._tables[change.table].keys
        return tuple(change.columns.index(k) for k in names if k in change.columns)

    def _passing_rows(self, transaction: Place, changes: list[Change]) -> list[Change]:
        with self._lock:
            busy = set(self._machine.tables)
        keys: dict[str, list[Key]] = {}
        for change in changes:
            if change.table in busy:
                keys.setdefault(change.table, []).append(_key(change))
        verdicts = {table: self._verdicts(table, found, transaction) for table, found in keys.items()}
        return [c for c in changes if c.table not in busy or verdicts[c.table][_key(c)]]

    def _verdicts(self, table: str, keys: list[Key], transaction: Place) -> dict[Key, bool]:
        with self._lock:
            bounds = list(self._machine.bounds(table))
        different = list(dict.fromkeys(keys))
        above = [0] * len(different)
        if bounds:
            above = compare(self._connection, self._tables[table], different, bounds)
        with self._lock:
            return {k: self._machine.passes(table, n, transaction) for k, n in zip(different, above, strict=True)}

    def _end_snapshot(self) -> None:
        if self._machine.is_complete and self._chunks is not None:
            self._chunks.close()
            self._chunks = None
        if self._settings.startup.mode == startup.SNAPSHOT and self._target is None and self._machine.all_dealt:
            self._target = current_place(self._connection)

    # --- tables that come later

    def _look_for_tables(self, now: float) -> None:
        if self._next_look is not None and now >= self._next_look and self._settings.startup.mode != startup.SNAPSHOT:
            self._find_new_tables()
            self._next_look = None
        if self._next_look is None:
            self._next_look = now + self._settings.discovery_seconds

    def _find_new_tables(self) -> None:
        new = [t for t in prepare(self._connection, self._settings) if t.table not in self._tables]
        if new:
            with self._lock:
                self._tables.update({t.table: t for t in new})
            self._add_tables()
            self._read_chunks()

    # --- the rest of the contract

    def is_finished(self) -> bool:
        return self._target is not None and self._place[:2] >= self._target[:2] and self._machine.all_dealt

    def snapshot(self) -> Any:
        with self._lock:
            return {
                "place": tuple(self._place),
                "tables": sorted(self._known),
                "snapshot": self._machine.state,
                "target": None if self._target is None else tuple(self._target),
            }

    def close(self) -> None:
        for part in (self._chunks, self._log):
            if part is not None:
                part.close()
        with suppress(Exception):
            self._connection.close()


def _key(change: Change) -> Key:
    row = change.after if change.after is not None else change.before
    assert row is not None
    return tuple(row[p] for p in change.keys)
