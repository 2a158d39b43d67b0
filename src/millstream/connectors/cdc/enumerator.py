"""Deals out a database's tables and log, from the driver: subtasks only make records of what they get."""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from millstream.common.errors import IncurableError, InvalidProgramError, MillstreamError
from millstream.connectors.base import SplitAssignment, SplitEnumerator
from millstream.connectors.cdc.chunk_readers import ChunkReaders, Desk
from millstream.connectors.cdc.incremental_snapshot import Key, ReadChunk, Snapshotting
from millstream.connectors.cdc.log_reader import LogPiece, LogThread
from millstream.connectors.cdc.settings import SNAPSHOT, CaptureSettings
from millstream.connectors.cdc.source import CaptureShare

__all__ = ["CaptureEnumerator", "CapturedTable", "check_keys"]

# So many bytes of the log are dealt out at once.
_SHARE_BYTES = 2 << 20
_SOON, _SOMETIME = 0.1, 1.0
# So often the server is asked how far its log is.
_LAG_SECONDS = 1.0


class CapturedTable(Protocol):
    """A table that is read."""

    @property
    def table(self) -> str:
        """Its name, with what it is in."""
        ...

    @property
    def keys(self) -> Sequence[Any]:
        """The columns of its primary key."""
        ...


def check_keys(tables: Sequence[CapturedTable]) -> None:
    """Refuse a table that has no primary key."""
    for table in tables:
        if not table.keys:
            raise InvalidProgramError(
                f"Table {table.table} has no primary key, by which its rows are told apart: add one, or leave it out "
                "of table_list."
            )


S = TypeVar("S", bound=CaptureSettings)
T = TypeVar("T", bound=CapturedTable)
P = TypeVar("P", bound=LogPiece)
# What a change of rows is while tables are read.
C = TypeVar("C")


class CaptureEnumerator(SplitEnumerator, Generic[S, T, P, C]):
    """Deals out chunks of tables or a stretch of the log, never both: between subtasks an epoch has no order."""

    def __init__(self, settings: S, parallelism: int, restored: Any) -> None:
        self._settings, self._parallelism = settings, parallelism
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Condition()
        self._connection = settings.database.connect()
        self._log: LogThread[P] | None = None
        self._chunks: ChunkReaders[T] | None = None
        try:
            with self._in_a_sentence():
                self._open(restored)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _in_a_sentence(self) -> Iterator[None]:
        try:
            yield
        except Exception as e:
            failure = self._failure(e)
            if failure is None:
                raise
            raise failure from e

    def _open(self, restored: Any) -> None:
        self._tables: dict[str, T] = {t.table: t for t in self._find_tables()}
        known = set() if restored is None else set(restored["tables"])
        self._check_known([t for t in self._tables.values() if t.table in known])
        if new := [t for t in self._tables.values() if t.table not in known]:
            self._make_ready(new)
        self._place: Any
        self._known: set[str]
        self._target: Any = None
        if restored is None:
            self._place = self._start()
            self._machine = Snapshotting()
            self._known = set() if self._settings.startup.reads_tables else set(self._tables)
        else:
            self._place = self._go_on(restored)
            self._machine = Snapshotting(restored["snapshot"])
            self._known, self._target = set(restored["tables"]), restored["target"]
            # One that is gone has nothing left to read.
            for table in [t for t in self._machine.tables if t not in self._tables]:
                self._machine.skip(table)
        self._add_tables()
        self._deals_log = False
        self._last_beat: float | None = None
        self._beat_place = self._place
        self._next_look: float | None = None
        self._behind, self._behind_at = 0, -math.inf
        self._log = self._open_log()
        self._read_chunks()

    # --- what each database does in its own way

    @abstractmethod
    def _failure(self, error: Exception) -> MillstreamError | None:
        """Return in a sentence what the server would not do; None if an error is none of the server's."""

    @abstractmethod
    def _find_tables(self) -> list[T]:
        """Return the tables to read; fails where they cannot be."""

    def _check_known(self, tables: list[T]) -> None:
        """Fail if tables that are being read are no longer logged, or are others under the same names."""

    def _make_ready(self, tables: list[T]) -> None:
        """Have the server log tables that are read for the first time."""

    @abstractmethod
    def _start(self) -> Any:
        """Return where the log is read from by a job that has no state."""

    @abstractmethod
    def _go_on(self, restored: Any) -> Any:
        """Return where the log is read from by a job that has; fails if it is no longer there."""

    @abstractmethod
    def _horizon(self) -> Any:
        """Return what the snapshot of a table that is new must be past of: the log may not have all of it."""

    @abstractmethod
    def _open_log(self) -> LogThread[P]:
        """Begin to read the log."""

    @abstractmethod
    def _open_chunks(self, desk: Desk[T]) -> ChunkReaders[T]:
        """Begin to read tables."""

    @abstractmethod
    def _empty_share(self) -> CaptureShare:
        """Return a stretch of the log in which nothing happens."""

    @abstractmethod
    def _add_piece(self, shares: list[Any], piece: P) -> None:
        """Add what is to be read of a piece of the log to the last share, or to new ones."""

    @abstractmethod
    def _point(self) -> Any:
        """Return the place in the log as snapshots know it."""

    @abstractmethod
    def _end_of_log(self) -> Any:
        """Return where the log ends now."""

    @abstractmethod
    def _has_reached(self, target: Any) -> bool:
        """Tell whether the log has been dealt out up to where it ended."""

    @abstractmethod
    def _bytes_behind(self) -> int:
        """Return how many bytes of the log have not been dealt out."""

    def _hurry(self) -> None:
        """Have the server tell how far it is."""

    @abstractmethod
    def _truncates(self, change: C) -> Sequence[str] | None:
        """Return the tables of which a change takes all rows; None for a change of a row."""

    @abstractmethod
    def _keys_of(self, change: C) -> tuple[str, list[Key]]:
        """Return the table of a change, and the keys of the rows it is about."""

    @abstractmethod
    def _left_of(self, change: C, passes: dict[Key, bool]) -> list[C]:
        """Return what is left of a change when rows of some keys are left out."""

    @abstractmethod
    def _compare(self, table: T, keys: list[Key], bounds: list[Key]) -> list[int]:
        """Return how many bounds each key is above, by the order of the database."""

    def _closing(self) -> None:
        """All has been read, or the job has ended otherwise."""

    # --- tables

    def _add_tables(self) -> None:
        """Begin with tables that are new."""
        new = [t for t in self._tables if t not in self._known]
        if not new:
            return
        horizon = self._horizon()
        with self._lock:
            for table in new:
                self._machine.add(table, horizon)
        self._known |= set(new)

    def _read_chunks(self) -> None:
        """Have tables read that are not complete."""
        if self._chunks is None and not self._machine.is_complete:
            self._chunks = self._open_chunks(Desk(self._machine, self._lock, self._tables, self._woken))

    def _look_for_tables(self, now: float) -> None:
        if self._next_look is not None and now >= self._next_look and self._settings.startup.mode != SNAPSHOT:
            self._find_new_tables()
            self._next_look = None
        if self._next_look is None:
            self._next_look = now + self._settings.discovery_seconds

    def _find_new_tables(self) -> None:
        found = self._find_tables()
        self._check_known([t for t in found if t.table in self._tables])
        if new := [t for t in found if t.table not in self._tables]:
            self._make_ready(new)
            with self._lock:
                self._tables.update({t.table: t for t in new})
            self._add_tables()
            self._read_chunks()

    # --- dealing out

    def _woken(self) -> None:
        self._wake()

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        # What came before is not forgotten.
        wake()

    def poll(self, budget: int, now: float) -> SplitAssignment:
        with self._in_a_sentence():
            found = self._poll(budget, now)
            if now >= self._behind_at + _LAG_SECONDS:
                self._behind, self._behind_at = self._bytes_behind(), now
        assert self._log is not None
        return replace(found, pending={0: self._log.waiting}, pending_bytes={0: self._behind})

    def _poll(self, budget: int, now: float) -> SplitAssignment:
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
            return SplitAssignment({i: [done.rows] for i, done in enumerate(chunks)}, limited=True)
        shares = self._deal_log(budget)
        self._end_snapshot()
        is_time = now >= self._last_beat + self._settings.heartbeat_seconds
        if not shares and is_time and self._place > self._beat_place:
            # Nothing happens in these tables: a checkpoint shall know all the same how far the log is.
            shares = [self._empty_share()]
        if not shares:
            return SplitAssignment({})
        self._last_beat, self._beat_place = now, self._place
        return SplitAssignment({0: shares}, limited=self._log.has_more)

    def next_poll(self, now: float) -> float:
        is_quiet = self._machine.is_complete and self._settings.startup.mode != SNAPSHOT
        return now + (_SOMETIME if is_quiet else _SOON)

    def _deal_log(self, budget: int) -> list[CaptureShare]:
        assert self._log is not None
        shares: list[CaptureShare] = []
        changes = size = 0
        while changes < budget and size < _SHARE_BYTES and (piece := self._log.peek()) is not None:
            if piece.transaction is not None:
                with self._lock:
                    if not self._machine.may_deal(piece.transaction):
                        break
                    self._machine.dealt(piece.transaction)
                self._add_piece(shares, piece)
            self._log.pop()
            changes += piece.count
            size += piece.size
            self._place = piece.after
        if not self._machine.is_complete:
            with self._lock:
                self._machine.passed(self._point())
        return [s for s in shares if not s.is_empty]

    def _end_snapshot(self) -> None:
        """Once all tables are read, the log must pass what they have seen; it may need a push."""
        if self._machine.is_complete and self._chunks is not None:
            self._chunks.close()
            self._chunks = None
        if self._settings.startup.mode != SNAPSHOT:
            return
        if self._target is None and self._machine.all_dealt:
            self._target = self._end_of_log()
        if self._target is not None and not self.is_finished():
            self._hurry()

    # --- while tables are read

    def _passing(self, transaction: Any, changes: list[C]) -> list[C]:
        """Leave out changes to rows that a chunk brings, or has brought."""
        passing: list[C] = []
        run: list[C] = []
        for change in changes:
            truncated = self._truncates(change)
            if truncated is None:
                run.append(change)
                continue
            passing += self._passing_rows(transaction, run)
            run = []
            with self._lock:
                for table in truncated:
                    if table in self._machine.tables:
                        self._machine.again(table)
            passing.append(change)
        return passing + self._passing_rows(transaction, run)

    def _passing_rows(self, transaction: Any, changes: list[C]) -> list[C]:
        with self._lock:
            busy = set(self._machine.tables)
        found = [(change, *self._keys_of(change)) for change in changes]
        wanted: dict[str, list[Key]] = {}
        for _, table, keys in found:
            if table in busy:
                wanted.setdefault(table, []).extend(keys)
        verdicts = {table: self._verdicts(table, keys, transaction) for table, keys in wanted.items()}
        passing: list[C] = []
        for change, table, _ in found:
            passing += [change] if table not in busy else self._left_of(change, verdicts[table])
        return passing

    def _verdicts(self, table: str, keys: list[Key], transaction: Any) -> dict[Key, bool]:
        """Tell which keys a transaction's changes pass to; the database knows their order."""
        different = list(dict.fromkeys(keys))
        with self._lock:
            if self._machine.all_pass(table, transaction):
                # Nothing to compare: the table may have another key by now.
                return dict.fromkeys(different, True)
            bounds = list(self._machine.bounds(table))
        if any(len(key) != len(bound) for key in different for bound in bounds[:1]):
            raise IncurableError(
                f"The primary key of table {table} is another one than when the job began to read it: start the job "
                "without its state."
            )
        above = [0] * len(different) if not bounds else self._compare(self._tables[table], different, bounds)
        with self._lock:
            return {k: self._machine.passes(table, n, transaction) for k, n in zip(different, above, strict=True)}

    # --- the rest of the contract

    def is_finished(self) -> bool:
        return self._target is not None and self._machine.is_complete and self._has_reached(self._target)

    def snapshot(self) -> Any:
        with self._lock:
            return {
                "offset": tuple(self._place),
                "tables": sorted(self._known),
                "snapshot": self._machine.state,
                "target": self._target,
                "finished": self.is_finished(),
            }

    def close(self) -> None:
        try:
            for part in (self._chunks, self._log):
                if part is not None:
                    part.close()
            self._closing()
        finally:
            self._connection.close()
