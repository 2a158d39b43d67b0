"""The threads that read the log and the chunks of tables."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from millstream.common.aliases import LibraryObject
from millstream.common.errors import MillstreamError
from millstream.connectors.base import SplitRange
from millstream.connectors.cdc.incremental_snapshot import (
    Chunk,
    IncrementalSnapshot,
    Key,
    LogOffset,
    ReadChunk,
    SnapshotVisibility,
    Transaction,
)

__all__ = ["CHUNK_BYTES", "ChunkReaders", "Connection", "LogPiece", "LogThread", "SnapshotContext", "SnapshotInfo"]


# The connection class of a database's driver.
Connection: TypeAlias = LibraryObject


@dataclass(kw_only=True)
class LogPiece:
    """Changes of one transaction, or a log offset without changes.

    Attributes:
        transaction: its id, or None if no captured table changed.
        count: number of changes.
        size: approximate bytes.
        after: the log offset after it.
    """

    transaction: Transaction = None
    count: int = 0
    size: int = 0
    after: LogOffset = None


P = TypeVar("P", bound=LogPiece)


class LogThread(ABC, Generic[P]):
    """Reads pieces of the log until closed; the job consumes them.

    Args:
        name: the thread's name.
        wake: called in the thread when a piece is available or reading failed.
    """

    # Approximate limits of changes and bytes read ahead of the job.
    ahead_changes = 1 << 62
    ahead_bytes = 16 << 20

    def __init__(self, name: str, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Condition()
        self._pieces: deque[P] = deque()
        self._ahead = self._ahead_bytes = 0
        self._closed = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- called by the job

    def peek(self) -> P | None:
        """Return the next piece to assign, or None."""
        with self._lock:
            return self._pieces[0] if self._pieces else None

    def pop(self) -> None:
        """Remove the next piece."""
        with self._lock:
            piece = self._pieces.popleft()
            self._ahead -= piece.count
            self._ahead_bytes -= piece.size
            self._lock.notify_all()

    @property
    def has_more(self) -> bool:
        return bool(self._pieces)

    @property
    def pending_changes(self) -> int:
        """Number of changes read but not assigned."""
        return self._ahead

    def check(self) -> None:
        """Raise the error of the thread."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._thread.join(timeout=10)
        self._disconnect()

    # --- run by the thread

    @abstractmethod
    def _read(self) -> None:
        """Read the log and queue its pieces until closed."""

    @abstractmethod
    def _failed(self, error: Exception) -> MillstreamError:
        """Return the error to raise in the job."""

    @abstractmethod
    def _disconnect(self) -> None: ...

    def _run(self) -> None:
        try:
            self._read()
        except MillstreamError as e:
            self._failure = e
        except Exception as e:
            self._failure = self._failed(e)
            self._failure.__cause__ = e
        if self._failure is not None and not self._closed:
            self._wake()

    @property
    def _is_full(self) -> bool:
        return self._ahead > self.ahead_changes or self._ahead_bytes >= self.ahead_bytes

    def _put(self, *pieces: P) -> None:
        with self._lock:
            was_empty = not self._pieces
            for piece in pieces:
                last = self._pieces[-1] if self._pieces else None
                is_idle = piece.transaction is None and last is not None and last.transaction is None
                if is_idle and len(self._pieces) > 1:
                    # Of consecutive empty pieces only the last matters, but the job may hold the first.
                    self._pieces.pop()
                self._pieces.append(piece)
                self._ahead += piece.count
                self._ahead_bytes += piece.size
        if was_empty:
            self._wake()


log = logging.getLogger("millstream")

# Maximum bytes per chunk; the rest becomes another chunk.
CHUNK_BYTES = 8 << 20
_PAUSE = 0.02
# Maximum number of times that a table is read again because its columns changed.
_TRIES = 3
_WARN_SECONDS = 10

T = TypeVar("T")


class SnapshotInfo(NamedTuple):
    """A database snapshot.

    Attributes:
        until: the log offset after everything that the snapshot sees.
        ms: when the snapshot was taken.
    """

    seen: SnapshotVisibility
    until: LogOffset
    ms: int


@dataclass(frozen=True)
class SnapshotContext(Generic[T]):
    """Hands chunks to reader threads and collects their results.

    Attributes:
        machine: the snapshot's state machine, guarded by `lock`.
        tables: captured tables by name.
        wake: called when a chunk can be assigned or a thread failed.
    """

    machine: IncrementalSnapshot
    lock: threading.Condition
    tables: Mapping[str, T]
    wake: Callable[[], None]


class ChunkReaders(ABC, Generic[T]):
    """Threads that plan and read chunks until none are left.

    Args:
        rows: maximum rows per chunk.
    """

    def __init__(self, context: SnapshotContext[T], rows: int, threads: int) -> None:
        self._context, self._rows = context, rows
        self._machine, self._lock = context.machine, context.lock
        self._max_pending = 2 * threads
        self._planning = threading.Lock()
        self._closed = False
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"millstream-cdc-chunks-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    # --- implemented per database

    @abstractmethod
    def _connect(self) -> Connection:
        """Return a connection; it closes on exit."""

    @abstractmethod
    def _find_end(self, connection: Connection, table: T, low: Key | None) -> Key | None:
        """Return the last key of the chunk that starts above `low`, or None for the last chunk."""

    @abstractmethod
    def _take_snapshot(self, connection: Connection, table: T) -> SnapshotInfo:
        """Begin a transaction with a snapshot of the database."""

    @abstractmethod
    def _read_rows(
        self, connection: Connection, table: T, chunk: Chunk, snapshot: SnapshotInfo
    ) -> tuple[SplitRange, Key | None] | None:
        """Return the rows of a chunk and their last key, or None if the table was dropped."""

    @abstractmethod
    def _is_dropped(self, error: Exception) -> bool:
        """Return whether an error means that the table does not exist."""

    @abstractmethod
    def _has_changed(self, error: Exception) -> bool:
        """Return whether an error means that the table's columns changed."""

    @abstractmethod
    def _failed(self, error: Exception) -> MillstreamError:
        """Return the error to raise in the job."""

    # --- called by the job

    def check(self) -> None:
        """Raise the error of a failed thread."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join(timeout=10)

    # --- run by the threads

    def _run(self) -> None:
        try:
            with self._connect() as connection:
                while not self._closed:
                    if not self._plan(connection) and not self._read_next(connection):
                        with self._lock:
                            if not self._closed:
                                self._lock.wait(_PAUSE)
        except MillstreamError as e:
            self._failure = e
        except Exception as e:
            if not self._closed:
                self._failure = self._failed(e)
                self._failure.__cause__ = e
        if self._failure is not None:
            self._context.wake()

    def _plan(self, connection: Connection) -> bool:
        """Find the end of the next chunk of some table; return whether there was one to plan."""
        if not self._planning.acquire(blocking=False):
            return False
        try:
            with self._lock:
                unplanned = self._machine.to_plan(self._max_pending)
            if unplanned is None:
                return False
            table, low, round = unplanned
            try:
                high = self._find_end(connection, self._context.tables[table], low)
            except Exception as e:
                if not self._is_dropped(e):
                    raise
                self._skip_dropped(table)
                return True
            finally:
                connection.rollback()
            with self._lock:
                self._machine.planned(table, low, high, round)
                self._lock.notify_all()
            return True
        finally:
            self._planning.release()

    def _skip_dropped(self, table: str) -> None:
        log.warning("CDC: table %s was dropped, its remaining rows are not read", table)
        with self._lock:
            self._machine.skip(table)

    def _read_next(self, connection: Connection) -> bool:
        with self._lock:
            chunk = self._machine.next_chunk(self._max_pending)
        if chunk is None:
            return False
        for attempt in range(1, _TRIES + 1):
            try:
                self._read(connection, self._context.tables[chunk.table], chunk)
                break
            except Exception as e:
                if self._is_dropped(e):
                    self._skip_dropped(chunk.table)
                    break
                if not self._has_changed(e) or attempt == _TRIES:
                    raise
            finally:
                connection.rollback()
        return True

    def _read(self, connection: Connection, table: T, chunk: Chunk) -> None:
        snapshot = self._begin(connection, table, chunk)
        if snapshot is None:
            return
        result = self._read_rows(connection, table, chunk, snapshot)
        if result is None:
            self._skip_dropped(chunk.table)
            return
        rows, high = result
        with self._lock:
            self._machine.finish_chunk(ReadChunk(chunk, high, snapshot.seen, snapshot.until, rows))
            self._lock.notify_all()
        self._context.wake()

    def _begin(self, connection: Connection, table: T, chunk: Chunk) -> SnapshotInfo | None:
        """Begin a snapshot in which a chunk may be read, or return None if the readers are closing."""
        since: float | None = time.monotonic()
        while not self._closed:
            snapshot = self._take_snapshot(connection, table)
            with self._lock:
                if self._machine.begin(chunk, snapshot.seen):
                    return snapshot
            connection.rollback()
            if since is not None and time.monotonic() - since > _WARN_SECONDS:
                since = None
                log.warning("CDC: table %s is not read yet: a transaction is older than the job", chunk.table)
            time.sleep(_PAUSE)
        return None
