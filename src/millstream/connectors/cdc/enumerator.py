"""Assigns chunks of tables and ranges of the log; subtasks only convert them into records."""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Generic, NotRequired, Protocol, TypedDict, TypeVar

from millstream.common.errors import InvalidProgramError, MillstreamError, UnrecoverableError
from millstream.connectors.base import SplitAssignment, SplitEnumerator
from millstream.connectors.cdc.incremental_snapshot import (
    IncrementalSnapshot,
    Key,
    LogOffset,
    ReadChunk,
    SnapshotState,
    Transaction,
)
from millstream.connectors.cdc.readers import ChunkReaders, LogPiece, LogThread, SnapshotContext
from millstream.connectors.cdc.source import SNAPSHOT, CaptureRange, CaptureSettings

__all__ = ["CaptureEnumerator", "CaptureSnapshot", "CapturedTable", "check_keys"]

# Maximum bytes of the log per assignment.
_RANGE_BYTES = 2 << 20
# Seconds between polls while tables are read, and afterwards.
_SNAPSHOT_POLL, _LOG_POLL = 0.1, 1.0
# The interval at which the lag behind the end of the log is queried.
_LAG_SECONDS = 1.0


class CapturedTable(Protocol):
    """A captured table."""

    @property
    def table(self) -> str:
        """The qualified name."""
        ...

    @property
    def keys(self) -> Sequence[object]:
        """The primary key columns."""
        ...


class CaptureSnapshot(TypedDict):
    """The position of a source in a checkpoint."""

    # A plain tuple.
    offset: LogOffset
    tables: list[str]
    snapshot: SnapshotState
    target: LogOffset
    finished: bool
    # MySQL: transactions before the start, and the last completely assigned one.
    done: NotRequired[dict[str, tuple[tuple[int, int], ...]]]
    gtid: NotRequired[str]
    # PostgreSQL: the oid of each table, and its number in the publication.
    oids: NotRequired[dict[str, int]]
    members: NotRequired[dict[str, int]]


def check_keys(tables: Sequence[CapturedTable]) -> None:
    """Refuse tables without a primary key."""
    for table in tables:
        if not table.keys:
            raise InvalidProgramError(
                f"Table {table.table} has no primary key, which identifies its rows: add one, or remove the table from "
                "table_list."
            )


S = TypeVar("S", bound=CaptureSettings)
T = TypeVar("T", bound=CapturedTable)
P = TypeVar("P", bound=LogPiece)
# A change of rows while tables are read.
C = TypeVar("C")
R = TypeVar("R", bound=CaptureRange)


class CaptureEnumerator(SplitEnumerator, Generic[S, T, P, C, R]):
    """Assigns either chunks of tables or a range of the log per epoch: subtasks of an epoch have no common order."""

    def __init__(self, settings: S, parallelism: int, restored: CaptureSnapshot | None) -> None:
        self._settings, self._parallelism = settings, parallelism
        self._wake: Callable[[], None] = lambda: None
        self._lock = threading.Condition()
        self._connection = settings.database.connect()
        self._log: LogThread[P] | None = None
        self._chunks: ChunkReaders[T] | None = None
        try:
            with self._translated_errors():
                self._open(restored)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as e:
            failure = self._failure(e)
            if failure is None:
                raise
            raise failure from e

    def _open(self, restored: CaptureSnapshot | None) -> None:
        self._tables: dict[str, T] = {t.table: t for t in self._find_tables()}
        known = set() if restored is None else set(restored["tables"])
        self._check_known([t for t in self._tables.values() if t.table in known])
        if new := [t for t in self._tables.values() if t.table not in known]:
            self._make_ready(new)
        self._offset: LogOffset
        self._known: set[str]
        self._target: LogOffset = None
        if restored is None:
            self._offset = self._start()
            self._machine = IncrementalSnapshot()
            self._known = set() if self._settings.startup.reads_tables else set(self._tables)
        else:
            self._offset = self._restored_offset(restored)
            self._machine = IncrementalSnapshot(restored["snapshot"])
            self._known, self._target = set(restored["tables"]), restored["target"]
            # A dropped table has nothing left to read.
            for table in [t for t in self._machine.tables if t not in self._tables]:
                self._machine.skip(table)
        self._add_tables()
        self._assigns_log = False
        self._last_heartbeat: float | None = None
        self._heartbeat_offset = self._offset
        self._next_discovery: float | None = None
        self._lag, self._lag_at = 0, -math.inf
        self._log = self._open_log()
        self._read_chunks()

    # --- implemented per database

    @abstractmethod
    def _failure(self, error: Exception) -> MillstreamError | None:
        """Return the error to raise for a server's refusal, or None for other errors."""

    @abstractmethod
    def _find_tables(self) -> list[T]:
        """Return the tables to capture, or fail if they cannot be captured."""

    def _check_known(self, tables: list[T]) -> None:
        """Fail if captured tables are no longer logged, or were replaced by others of the same name."""

    def _make_ready(self, tables: list[T]) -> None:
        """Make the server log newly captured tables."""

    @abstractmethod
    def _start(self) -> LogOffset:
        """Return the log offset where a job without state starts."""

    @abstractmethod
    def _restored_offset(self, restored: CaptureSnapshot) -> LogOffset:
        """Return the log offset where a restored job resumes; fail if the log no longer has it."""

    @abstractmethod
    def _horizon(self) -> LogOffset:
        """Return the offset that a new table's snapshot must be past: earlier log may be incomplete."""

    @abstractmethod
    def _open_log(self) -> LogThread[P]:
        """Start reading the log."""

    @abstractmethod
    def _open_chunks(self, context: SnapshotContext[T]) -> ChunkReaders[T]:
        """Start reading tables."""

    @abstractmethod
    def _empty_range(self) -> R:
        """Return an empty range of the log."""

    @abstractmethod
    def _add_piece(self, ranges: list[R], piece: P) -> None:
        """Append a piece of the log to the last split range, or to new ones."""

    @abstractmethod
    def _point(self) -> LogOffset:
        """Return the current log offset as snapshots express it."""

    @abstractmethod
    def _end_of_log(self) -> LogOffset:
        """Return the end of the log."""

    @abstractmethod
    def _has_reached(self, target: LogOffset) -> bool:
        """Return whether the log is assigned up to `target`."""

    @abstractmethod
    def _unassigned_bytes(self) -> int:
        """Return how many bytes of the log are not assigned."""

    def _request_progress(self) -> None:
        """Make the server report its progress."""

    @abstractmethod
    def _truncates(self, change: C) -> Sequence[str] | None:
        """Return the tables that a change truncates, or None for a row change."""

    @abstractmethod
    def _keys_of(self, change: C) -> tuple[str, list[Key]]:
        """Return the table of a change and the keys of its rows."""

    @abstractmethod
    def _remaining_changes(self, change: C, passes: dict[Key, bool]) -> list[C]:
        """Return the parts of a change that remain when rows of some keys are filtered out."""

    @abstractmethod
    def _compare(self, table: T, keys: list[Key], bounds: list[Key]) -> list[int]:
        """Return for each key how many bounds it exceeds, in the database's order."""

    def _closing(self) -> None:
        """Clean up when the source is finished or the job ended."""

    # --- tables

    def _add_tables(self) -> None:
        """Start capturing new tables."""
        new = [t for t in self._tables if t not in self._known]
        if not new:
            return
        horizon = self._horizon()
        with self._lock:
            for table in new:
                self._machine.add(table, horizon)
        self._known |= set(new)

    def _read_chunks(self) -> None:
        """Start readers for incomplete tables."""
        if self._chunks is None and not self._machine.is_complete:
            self._chunks = self._open_chunks(SnapshotContext(self._machine, self._lock, self._tables, self._on_wake))

    def _discover_tables(self, now: float) -> None:
        if self._next_discovery is not None and now >= self._next_discovery and self._settings.startup.mode != SNAPSHOT:
            self._find_new_tables()
            self._next_discovery = None
        if self._next_discovery is None:
            self._next_discovery = now + self._settings.discovery_seconds

    def _find_new_tables(self) -> None:
        tables = self._find_tables()
        self._check_known([t for t in tables if t.table in self._tables])
        if new := [t for t in tables if t.table not in self._tables]:
            self._make_ready(new)
            with self._lock:
                self._tables.update({t.table: t for t in new})
            self._add_tables()
            self._read_chunks()

    # --- assignment

    def _on_wake(self) -> None:
        self._wake()

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        # Earlier failures still count.
        wake()

    def poll(self, budget: int, now: float) -> SplitAssignment:
        with self._translated_errors():
            assignment = self._poll(budget, now)
            if now >= self._lag_at + _LAG_SECONDS:
                self._lag, self._lag_at = self._unassigned_bytes(), now
        assert self._log is not None
        return replace(assignment, unassigned={0: self._log.pending_changes}, unassigned_bytes={0: self._lag})

    def _poll(self, budget: int, now: float) -> SplitAssignment:
        assert self._log is not None
        self._log.check()
        if self._chunks is not None:
            self._chunks.check()
        self._discover_tables(now)
        if self._last_heartbeat is None:
            self._last_heartbeat = now
        chunks: list[ReadChunk] = []
        if not (self._assigns_log and self._log.has_more):
            with self._lock:
                chunks = self._machine.take(self._parallelism)
        self._assigns_log = bool(chunks)
        if chunks:
            return SplitAssignment({i: [done.rows] for i, done in enumerate(chunks)}, limited=True)
        ranges = self._assign_log(budget)
        self._end_snapshot()
        is_time = now >= self._last_heartbeat + self._settings.heartbeat_seconds
        if not ranges and is_time and self._offset > self._heartbeat_offset:
            # These tables have no changes, but checkpoints record the log's progress.
            ranges = [self._empty_range()]
        if not ranges:
            return SplitAssignment({})
        self._last_heartbeat, self._heartbeat_offset = now, self._offset
        return SplitAssignment({0: ranges}, limited=self._log.has_more)

    def next_poll(self, now: float) -> float:
        is_quiet = self._machine.is_complete and self._settings.startup.mode != SNAPSHOT
        return now + (_LOG_POLL if is_quiet else _SNAPSHOT_POLL)

    def _assign_log(self, budget: int) -> list[R]:
        assert self._log is not None
        ranges: list[R] = []
        changes = size = 0
        while changes < budget and size < _RANGE_BYTES and (piece := self._log.peek()) is not None:
            if piece.transaction is not None:
                with self._lock:
                    if not self._machine.may_assign(piece.transaction):
                        break
                    self._machine.record_assigned(piece.transaction)
                self._add_piece(ranges, piece)
            self._log.pop()
            changes += piece.count
            size += piece.size
            self._offset = piece.after
        if not self._machine.is_complete:
            with self._lock:
                self._machine.passed(self._point())
        return [s for s in ranges if not s.is_empty]

    def _end_snapshot(self) -> None:
        """Wait until the log passes all snapshots, and make the server advance it if needed."""
        if self._machine.is_complete and self._chunks is not None:
            self._chunks.close()
            self._chunks = None
        if self._settings.startup.mode != SNAPSHOT:
            return
        if self._target is None and self._machine.all_assigned:
            self._target = self._end_of_log()
        if self._target is not None and not self.is_finished():
            self._request_progress()

    # --- while tables are read

    def _passing(self, transaction: Transaction, changes: list[C]) -> list[C]:
        """Filter out changes to rows that a chunk contains or will contain."""
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
                        self._machine.restart(table)
            passing.append(change)
        return passing + self._passing_rows(transaction, run)

    def _passing_rows(self, transaction: Transaction, changes: list[C]) -> list[C]:
        with self._lock:
            busy = set(self._machine.tables)
        keyed = [(change, *self._keys_of(change)) for change in changes]
        keys_by_table: dict[str, list[Key]] = {}
        for _, table, keys in keyed:
            if table in busy:
                keys_by_table.setdefault(table, []).extend(keys)
        passing_keys = {table: self._passing_keys(table, keys, transaction) for table, keys in keys_by_table.items()}
        passing: list[C] = []
        for change, table, _ in keyed:
            passing += [change] if table not in busy else self._remaining_changes(change, passing_keys[table])
        return passing

    def _passing_keys(self, table: str, keys: list[Key], transaction: Transaction) -> dict[Key, bool]:
        """Return for which keys a transaction's changes pass; the database knows the key order."""
        different = list(dict.fromkeys(keys))
        with self._lock:
            if self._machine.all_pass(table, transaction):
                # Nothing to compare: the primary key may have changed.
                return dict.fromkeys(different, True)
            bounds = list(self._machine.bounds(table))
        if any(len(key) != len(bound) for key in different for bound in bounds[:1]):
            raise UnrecoverableError(
                f"The primary key of table {table} changed since the job began to read it: start the job "
                "without its state."
            )
        above = [0] * len(different) if not bounds else self._compare(self._tables[table], different, bounds)
        with self._lock:
            return {k: self._machine.passes(table, n, transaction) for k, n in zip(different, above, strict=True)}

    # --- SplitEnumerator

    def is_finished(self) -> bool:
        return self._target is not None and self._machine.is_complete and self._has_reached(self._target)

    def snapshot(self) -> CaptureSnapshot:
        with self._lock:
            return {
                "offset": tuple(self._offset),
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
