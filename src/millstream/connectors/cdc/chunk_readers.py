"""Driver threads that read chunks of tables, each over its own connection."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.common.errors import MillstreamError
from millstream.connectors.cdc.incremental_snapshot import Chunk, Key, ReadChunk, Seen, Snapshotting

__all__ = ["CHUNK_BYTES", "ChunkReaders", "Desk", "SnapshotNote"]

log = logging.getLogger("millstream")

# Maximum bytes per chunk; the rest becomes another chunk.
CHUNK_BYTES = 8 << 20
_PAUSE = 0.02
# Maximum number of times that a table is read again because its columns changed.
_TRIES = 3
_WARN_SECONDS = 10

T = TypeVar("T")


class SnapshotNote(NamedTuple):
    """A database snapshot.

    Attributes:
        until: the log offset behind everything that the snapshot sees.
        ms: when the snapshot was taken.
    """

    seen: Seen
    until: Any
    ms: int


@dataclass(frozen=True)
class Desk(Generic[T]):
    """Hands chunks to reader threads and collects their results.

    Attributes:
        machine: the snapshot's state machine, guarded by `lock`.
        tables: captured tables by name.
        wake: called when a chunk can be assigned or a thread failed.
    """

    machine: Snapshotting
    lock: threading.Condition
    tables: Mapping[str, T]
    wake: Callable[[], None]


class ChunkReaders(ABC, Generic[T]):
    """Threads that plan and read chunks until none are left.

    Args:
        rows: maximum rows per chunk.
    """

    def __init__(self, desk: Desk[T], rows: int, threads: int) -> None:
        self._desk, self._rows = desk, rows
        self._machine, self._lock = desk.machine, desk.lock
        self._most = 2 * threads
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
    def _connect(self) -> Any:
        """Return a connection; it closes on exit."""

    @abstractmethod
    def _find_end(self, connection: Any, table: T, low: Key | None) -> Key | None:
        """Return the last key of the chunk that starts above `low`, or None for the last chunk."""

    @abstractmethod
    def _take_snapshot(self, connection: Any, table: T) -> SnapshotNote:
        """Begin a transaction with a snapshot of the database."""

    @abstractmethod
    def _read_rows(
        self, connection: Any, table: T, chunk: Chunk, snapshot: SnapshotNote
    ) -> tuple[Any, Key | None] | None:
        """Return the rows of a chunk and their last key, or None if the table was dropped."""

    @abstractmethod
    def _is_gone(self, error: Exception) -> bool:
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
            self._desk.wake()

    def _plan(self, connection: Any) -> bool:
        """Find the end of the next chunk of some table; return whether there was one to plan."""
        if not self._planning.acquire(blocking=False):
            return False
        try:
            with self._lock:
                wanted = self._machine.to_plan(self._most)
            if wanted is None:
                return False
            table, low, round = wanted
            try:
                high = self._find_end(connection, self._desk.tables[table], low)
            except Exception as e:
                if not self._is_gone(e):
                    raise
                self._gone(table)
                return True
            finally:
                connection.rollback()
            with self._lock:
                self._machine.planned(table, low, high, round)
                self._lock.notify_all()
            return True
        finally:
            self._planning.release()

    def _gone(self, table: str) -> None:
        log.warning("table %s is gone: the rest of it cannot be read", table)
        with self._lock:
            self._machine.skip(table)

    def _read_next(self, connection: Any) -> bool:
        with self._lock:
            chunk = self._machine.next_chunk(self._most)
        if chunk is None:
            return False
        for attempt in range(1, _TRIES + 1):
            try:
                self._read(connection, self._desk.tables[chunk.table], chunk)
                break
            except Exception as e:
                if self._is_gone(e):
                    self._gone(chunk.table)
                    break
                if not self._has_changed(e) or attempt == _TRIES:
                    raise
            finally:
                connection.rollback()
        return True

    def _read(self, connection: Any, table: T, chunk: Chunk) -> None:
        snapshot = self._begin(connection, table, chunk)
        if snapshot is None:
            return
        found = self._read_rows(connection, table, chunk, snapshot)
        if found is None:
            self._gone(chunk.table)
            return
        rows, high = found
        with self._lock:
            self._machine.was_read(ReadChunk(chunk, high, snapshot.seen, snapshot.until, rows))
            self._lock.notify_all()
        self._desk.wake()

    def _begin(self, connection: Any, table: T, chunk: Chunk) -> SnapshotNote | None:
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
                log.warning("table %s is not read yet: a transaction is open since before the job began", chunk.table)
            time.sleep(_PAUSE)
        return None
