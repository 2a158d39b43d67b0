"""Order of chunks and log while tables are captured, so that both together are exact. Pure.

This is the watermark method of DBLog and Flink CDC with one difference. Those write marks into the log around the
reading of a chunk, and compare its rows with the log between them. Here a chunk is read in a database snapshot whose
visible transactions are known (`SnapshotVisibility`).

A table's chunks are intervals of its key, assigned in key order. At any time a key is in one of three ranges:

    (-inf ... recent[0].low]   assigned, and the log is past those snapshots: changes pass
    (low ... high] of recent   assigned: changes pass, except those of transactions that the chunk has seen
    (upto ... +inf)            not assigned: changes are filtered out, since the chunk will have seen them

Three rules make this exact:

1. A transaction is not assigned while a chunk is being read that does not see it (`may_assign`): its changes belong
   after the chunk.
2. A chunk is only read in a snapshot that sees every transaction assigned before (`begin`): their changes to it were
   filtered out.
3. The snapshot also sees every transaction that the log lacks or has only in part (`must_see`).

After a failure, chunks and log that were not assigned are read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

from millstream.common.aliases import Value
from millstream.common.tags import tagged
from millstream.connectors.base import SplitRange

__all__ = ["Chunk", "IncrementalSnapshot", "Progress", "ReadChunk", "SnapshotVisibility"]

# A key as the database writes it; None is unbounded.
Key: TypeAlias = tuple[Value, ...]
# A transaction of the log and an offset in it; each database has its own classes.
Transaction: TypeAlias = Any
LogOffset: TypeAlias = Any


class SnapshotVisibility(Protocol):
    """The transactions that a snapshot sees."""

    def sees(self, transaction: Transaction, /) -> bool:
        """Return whether the snapshot sees a transaction of the log."""
        ...

    def is_past(self, point: LogOffset, /) -> bool:
        """Return whether the snapshot sees everything before a log offset."""
        ...


@dataclass(frozen=True)
class Chunk:
    """The rows of a table with keys above `low`, up to and including `high`.

    Attributes:
        id: identifies the chunk within its table.
        round: how often capturing the table was started.
    """

    table: str
    id: int
    low: Key | None
    high: Key | None
    round: int = 0


@dataclass(frozen=True)
class ReadChunk:
    """The rows read of a chunk.

    Attributes:
        high: the last key.
        until: the log offset after everything that the snapshot sees.
        rows: the split range with the rows.
    """

    chunk: Chunk
    high: Key | None
    seen: SnapshotVisibility
    until: LogOffset
    rows: SplitRange


@tagged("cdc-progress")
@dataclass
class Progress:
    """The assigned part of a table.

    Attributes:
        upto: the last assigned key, or None at the beginning.
        done: whether all of the table is assigned.
        recent: chunks that the log has not passed, as (low, seen transactions, until).
        must_see: the log offset that a snapshot must be past.
    """

    upto: Key | None = None
    done: bool = False
    recent: tuple[tuple[Key | None, SnapshotVisibility, LogOffset], ...] = ()
    must_see: LogOffset = None
    round: int = 0


@dataclass
class _Ahead:
    """Chunks that are not assigned; not checkpointed.

    Attributes:
        order: chunks in key order.
        todo: chunks that no reader has begun.
        reading: the snapshots of chunks being read.
        read: chunks ready to be assigned.
    """

    planned: Key | None = None
    is_planned: bool = False
    ids: int = 0
    order: list[int] = field(default_factory=list)
    todo: deque[Chunk] = field(default_factory=deque)
    reading: dict[int, SnapshotVisibility] = field(default_factory=dict)
    read: dict[int, ReadChunk] = field(default_factory=dict)

    def new_id(self) -> int:
        self.ids += 1
        return self.ids

    @property
    def open(self) -> int:
        """Number of chunks that a reader has begun."""
        return len(self.order) - len(self.todo)


# The progress of each table, and the unsettled transactions.
SnapshotState: TypeAlias = tuple[dict[str, Progress], tuple[Transaction, ...]]


class IncrementalSnapshot:
    """State machine of the incremental snapshot of tables.

    Args:
        state: a former `state`, to restore.
    """

    def __init__(self, state: SnapshotState | None = None) -> None:
        tables, unseen = state or ({}, ())
        self._tables: dict[str, Progress] = {name: replace(p) for name, p in tables.items()}
        # Assigned transactions that no snapshot is known to see yet.
        self._unseen: set[Transaction] = set(unseen)
        self._ahead = {name: _Ahead(planned=p.upto) for name, p in self._tables.items()}

    @property
    def state(self) -> SnapshotState:
        """The state to checkpoint."""
        return {name: replace(p) for name, p in self._tables.items()}, tuple(self._unseen)

    @property
    def is_complete(self) -> bool:
        """Whether every table is assigned and the log is past all snapshots."""
        return not self._tables

    @property
    def all_assigned(self) -> bool:
        """Whether every table is assigned."""
        return all(p.done for p in self._tables.values())

    @property
    def tables(self) -> list[str]:
        """The incomplete tables."""
        return list(self._tables)

    def add(self, table: str, must_see: LogOffset) -> None:
        """Start capturing a table."""
        self._tables[table] = Progress(must_see=must_see)
        self._ahead[table] = _Ahead()

    # --- reading chunks

    def to_plan(self, limit: int) -> tuple[str, Key | None, int] | None:
        """Return a table whose next chunk needs an end, with the chunk's start and the round.

        Args:
            limit: maximum pending chunks per table.
        """
        for table, ahead in self._ahead.items():
            progress = self._tables[table]
            if not progress.done and not ahead.is_planned and len(ahead.todo) < limit:
                return table, ahead.planned, progress.round
        return None

    def planned(self, table: str, low: Key | None, high: Key | None, round: int) -> None:
        """Record the last key of a table's next chunk; None for the last chunk."""
        progress, ahead = self._tables.get(table), self._ahead.get(table)
        if progress is None or ahead is None or progress.round != round or ahead.planned != low or ahead.is_planned:
            # Another thread planned it, or the table was restarted.
            return
        chunk = Chunk(table, ahead.new_id(), low, high, progress.round)
        ahead.todo.append(chunk)
        ahead.order.append(chunk.id)
        ahead.planned, ahead.is_planned = high, high is None

    def next_chunk(self, limit: int) -> Chunk | None:
        """Return a chunk to read, while at most `limit` are begun; the first of a table is always returned."""
        begun = sum(ahead.open for ahead in self._ahead.values())
        for ahead in self._ahead.values():
            if ahead.todo and (begun < limit or ahead.todo[0].id == ahead.order[0]):
                return ahead.todo.popleft()
        return None

    def begin(self, chunk: Chunk, seen: SnapshotVisibility) -> bool:
        """Return whether a chunk may be read in a snapshot; otherwise retry with a newer one."""
        progress = self._current(chunk)
        if progress is None:
            return True
        if progress.must_see is not None and not seen.is_past(progress.must_see):
            return False
        if not all(seen.sees(transaction) for transaction in self._unseen):
            return False
        self._unseen.clear()
        self._ahead[chunk.table].reading[chunk.id] = seen
        return True

    def finish_chunk(self, result: ReadChunk) -> None:
        """Record a chunk's rows; if they end before its last key, the rest becomes another chunk."""
        chunk = result.chunk
        if self._current(chunk) is None:
            return
        ahead = self._ahead[chunk.table]
        if result.high != chunk.high:
            rest = Chunk(chunk.table, ahead.new_id(), result.high, chunk.high, chunk.round)
            ahead.order.insert(ahead.order.index(chunk.id) + 1, rest.id)
            ahead.todo.appendleft(rest)
        del ahead.reading[chunk.id]
        ahead.read[chunk.id] = result

    def _current(self, chunk: Chunk) -> Progress | None:
        """Return the progress of a chunk's table, or None if the table was restarted."""
        progress = self._tables.get(chunk.table)
        return None if progress is None or progress.round != chunk.round else progress

    def skip(self, table: str) -> None:
        """Drop a table that no longer exists."""
        if table in self._tables:
            self._tables[table].done = True
            self._ahead[table] = _Ahead(is_planned=True)
            self._drop_passed(table)

    def restart(self, table: str) -> None:
        """Restart a table that was truncated: assigned chunks no longer count."""
        old = self._tables[table]
        self._tables[table] = Progress(must_see=old.must_see, round=old.round + 1)
        self._ahead[table] = _Ahead()

    # --- assignment

    def take(self, limit: int) -> list[ReadChunk]:
        """Return chunks to assign now."""
        chunks: list[ReadChunk] = []
        for table, ahead in self._ahead.items():
            while ahead.order and ahead.order[0] in ahead.read and len(chunks) < limit:
                done = ahead.read.pop(ahead.order.pop(0))
                chunks.append(done)
                progress = self._tables[table]
                progress.upto, progress.done = done.high, done.high is None
                progress.recent = (*progress.recent, (done.chunk.low, done.seen, done.until))
        return chunks

    def may_assign(self, transaction: Transaction) -> bool:
        """Return whether a transaction may be assigned now."""
        for ahead in self._ahead.values():
            if not all(seen.sees(transaction) for seen in ahead.reading.values()):
                return False
            if not all(r.seen.sees(transaction) for r in ahead.read.values()):
                return False
        return True

    def record_assigned(self, transaction: Transaction) -> None:
        """Record that a transaction, or a part of it, is assigned."""
        if not self.all_assigned:
            self._unseen.add(transaction)

    def bounds(self, table: str) -> Sequence[Key]:
        """Return the keys to compare with: the number of bounds a key exceeds is its range."""
        progress = self._tables[table]
        lows = [low for low, _, _ in progress.recent if low is not None]
        return lows if progress.done or progress.upto is None else [*lows, progress.upto]

    def all_pass(self, table: str, transaction: Transaction) -> bool:
        """Return whether a change passes for every key: all rows are assigned, and no recent chunk has seen it."""
        progress = self._tables[table]
        return progress.done and not any(seen.sees(transaction) for _, seen, _ in progress.recent)

    def passes(self, table: str, above: int, transaction: Transaction) -> bool:
        """Return whether a change passes for a key that exceeds `above` of the bounds."""
        progress = self._tables[table]
        if progress.upto is None and not progress.done:
            return False
        # The first range is unbounded below if the first chunk is recent.
        starts_open = bool(progress.recent) and progress.recent[0][0] is None
        index = above - (0 if starts_open else 1)
        if index < 0:
            return True
        if index >= len(progress.recent):
            # Above all assigned chunks.
            return progress.done and not progress.recent
        return not progress.recent[index][1].sees(transaction)

    def passed(self, offset: LogOffset) -> None:
        """Record that the log is assigned up to an offset."""
        for table in list(self._tables):
            progress = self._tables[table]
            while progress.recent and progress.recent[0][2] <= offset:
                progress.recent = progress.recent[1:]
            self._drop_passed(table)

    def _drop_passed(self, table: str) -> None:
        progress = self._tables[table]
        if progress.done and not progress.recent:
            del self._tables[table]
            del self._ahead[table]
