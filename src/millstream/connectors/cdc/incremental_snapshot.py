"""Tables are read in chunks while the log is read: what is dealt out when, so that both together are exact. Pure.

This is the method of watermarks (DBLog, and Flink CDC after it), with one difference. Those put marks into the log
around the reading of a chunk, and compare its rows with what the log has between them. Here a chunk is read in a
snapshot of the database of which is known which transactions it sees (`Seen`).

A table's chunks are intervals of its key, dealt out in the order of the key. At any time a key is in one of three
places:

    (-inf ... recent[0].low]   dealt out, and the log is past all that those chunks have seen: changes pass
    (low ... high] of recent   dealt out: changes pass, but for those of transactions that the chunk has seen
    (upto ... +inf)            not dealt out: changes are left out, for the chunk will have seen them

Three rules make that right:

1. A transaction is not dealt out while a chunk is being read that does not see it (`may_deal`): its changes belong
   behind the chunk.
2. A chunk is only read in a snapshot that sees every transaction that was dealt out before (`begin`): their changes
   to it were left out.
3. It also sees every transaction that the log does not have, or not all of (`must_see`).

Whatever is forgotten when the job fails, chunks that were not dealt out and log that was not, is read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from millstream.common.tags import tagged

__all__ = ["Chunk", "Progress", "ReadChunk", "Seen", "Snapshotting"]

# A key as the database writes it; None: there is no bound.
Key = tuple[Any, ...]


class Seen(Protocol):
    """What a snapshot sees."""

    def sees(self, transaction: Any, /) -> bool:
        """Tell whether a transaction of the log is seen."""
        ...

    def is_past(self, point: Any, /) -> bool:
        """Tell whether everything from before a point is seen."""
        ...


@dataclass(frozen=True)
class Chunk:
    """The rows of a table with keys above `low`, up to `high`.

    Attributes:
        id: tells the chunks of a table apart.
        round: how often the table was begun.
    """

    table: str
    id: int
    low: Key | None
    high: Key | None
    round: int = 0


@dataclass(frozen=True)
class ReadChunk:
    """A chunk that was read.

    Attributes:
        high: up to which key.
        until: the place in the log where nothing is left that the snapshot sees.
        rows: what was read, as the reader understands it.
    """

    chunk: Chunk
    high: Key | None
    seen: Seen
    until: Any
    rows: Any


@tagged("cdc-progress")
@dataclass
class Progress:
    """How far a table has been dealt out.

    Attributes:
        upto: up to which key; None at the beginning.
        done: whether all of it.
        recent: the chunks that the log is not past of, as (low, what was seen, until).
        must_see: what a snapshot must be past of.
    """

    upto: Key | None = None
    done: bool = False
    recent: tuple[tuple[Key | None, Seen, Any], ...] = ()
    must_see: Any = None
    round: int = 0


@dataclass
class _Ahead:
    """What is known beyond what was dealt out: forgotten when the job fails.

    Attributes:
        order: the chunks that are not dealt out, in the order of the key.
        todo: those that nobody reads yet.
        reading: what those see that are being read.
        read: those that wait to be dealt out.
    """

    planned: Key | None = None
    is_planned: bool = False
    ids: int = 0
    order: list[int] = field(default_factory=list)
    todo: deque[Chunk] = field(default_factory=deque)
    reading: dict[int, Seen] = field(default_factory=dict)
    read: dict[int, ReadChunk] = field(default_factory=dict)

    def new_id(self) -> int:
        self.ids += 1
        return self.ids

    @property
    def open(self) -> int:
        """How many somebody has begun to read."""
        return len(self.order) - len(self.todo)


class Snapshotting:
    """The snapshot of some tables.

    Args:
        state: what `state` returned before a failure.
    """

    def __init__(self, state: Any = None) -> None:
        tables, unsettled = state or ({}, ())
        self._tables: dict[str, Progress] = {name: replace(p) for name, p in tables.items()}
        # Transactions that were dealt out, of which no snapshot is known yet to see them.
        self._unsettled: set[Any] = set(unsettled)
        self._ahead = {name: _Ahead(planned=p.upto) for name, p in self._tables.items()}

    @property
    def state(self) -> Any:
        """What another one needs to go on."""
        return {name: replace(p) for name, p in self._tables.items()}, tuple(self._unsettled)

    @property
    def is_complete(self) -> bool:
        """Whether every table has been dealt out and the log is past all of it."""
        return not self._tables

    @property
    def all_dealt(self) -> bool:
        """Whether every table has been dealt out."""
        return all(p.done for p in self._tables.values())

    @property
    def tables(self) -> list[str]:
        """The tables that are not complete."""
        return list(self._tables)

    def add(self, table: str, must_see: Any) -> None:
        """Begin with a table."""
        self._tables[table] = Progress(must_see=must_see)
        self._ahead[table] = _Ahead()

    # --- reading chunks

    def to_plan(self, most: int) -> tuple[str, Key | None, int] | None:
        """Return a table whose next chunk is to be planned: where it begins, and in which round.

        Args:
            most: so many chunks of a table wait to be read at most.
        """
        for table, ahead in self._ahead.items():
            progress = self._tables[table]
            if not progress.done and not ahead.is_planned and len(ahead.todo) < most:
                return table, ahead.planned, progress.round
        return None

    def planned(self, table: str, low: Key | None, high: Key | None, round: int) -> None:
        """The next chunk of a table ends with a key; None: it is the last one."""
        progress, ahead = self._tables.get(table), self._ahead.get(table)
        if progress is None or ahead is None or progress.round != round or ahead.planned != low or ahead.is_planned:
            # Somebody else has been there, or the table was begun again.
            return
        chunk = Chunk(table, ahead.new_id(), low, high, progress.round)
        ahead.todo.append(chunk)
        ahead.order.append(chunk.id)
        ahead.planned, ahead.is_planned = high, high is None

    def next_chunk(self, most: int) -> Chunk | None:
        """Return a chunk to read: of those that are begun no more than so many wait, but for the first of a table."""
        begun = sum(ahead.open for ahead in self._ahead.values())
        for ahead in self._ahead.values():
            if ahead.todo and (begun < most or ahead.todo[0].id == ahead.order[0]):
                return ahead.todo.popleft()
        return None

    def begin(self, chunk: Chunk, seen: Seen) -> bool:
        """Tell whether a chunk may be read in a snapshot; if not, the next snapshot may do."""
        progress = self._current(chunk)
        if progress is None:
            return True
        if progress.must_see is not None and not seen.is_past(progress.must_see):
            return False
        if not all(seen.sees(transaction) for transaction in self._unsettled):
            return False
        self._unsettled.clear()
        self._ahead[chunk.table].reading[chunk.id] = seen
        return True

    def was_read(self, found: ReadChunk) -> None:
        """A chunk was read, perhaps not up to the key where it was to end: then the rest is a chunk of its own."""
        chunk = found.chunk
        if self._current(chunk) is None:
            return
        ahead = self._ahead[chunk.table]
        if found.high != chunk.high:
            rest = Chunk(chunk.table, ahead.new_id(), found.high, chunk.high, chunk.round)
            ahead.order.insert(ahead.order.index(chunk.id) + 1, rest.id)
            ahead.todo.appendleft(rest)
        del ahead.reading[chunk.id]
        ahead.read[chunk.id] = found

    def _current(self, chunk: Chunk) -> Progress | None:
        """Return the progress of a chunk's table; None if it was begun again since."""
        progress = self._tables.get(chunk.table)
        return None if progress is None or progress.round != chunk.round else progress

    def skip(self, table: str) -> None:
        """A table is no longer there."""
        if table in self._tables:
            self._tables[table].done = True
            self._ahead[table] = _Ahead(is_planned=True)
            self._drop_passed(table)

    def again(self, table: str) -> None:
        """All rows of a table are gone: what was dealt out counts for nothing, and it begins anew."""
        old = self._tables[table]
        self._tables[table] = Progress(must_see=old.must_see, round=old.round + 1)
        self._ahead[table] = _Ahead()

    # --- dealing out

    def take(self, most: int) -> list[ReadChunk]:
        """Take chunks to deal out now."""
        found: list[ReadChunk] = []
        for table, ahead in self._ahead.items():
            while ahead.order and ahead.order[0] in ahead.read and len(found) < most:
                done = ahead.read.pop(ahead.order.pop(0))
                found.append(done)
                progress = self._tables[table]
                progress.upto, progress.done = done.high, done.high is None
                progress.recent = (*progress.recent, (done.chunk.low, done.seen, done.until))
        return found

    def may_deal(self, transaction: Any) -> bool:
        """Tell whether a transaction may be dealt out now."""
        for ahead in self._ahead.values():
            if not all(seen.sees(transaction) for seen in ahead.reading.values()):
                return False
            if not all(r.seen.sees(transaction) for r in ahead.read.values()):
                return False
        return True

    def dealt(self, transaction: Any) -> None:
        """A transaction is dealt out, or a part of it."""
        if not self.all_dealt:
            self._unsettled.add(transaction)

    def bounds(self, table: str) -> Sequence[Key]:
        """Return the keys to compare with: how many of them a key is above says where it is."""
        progress = self._tables[table]
        lows = [low for low, _, _ in progress.recent if low is not None]
        return lows if progress.done or progress.upto is None else [*lows, progress.upto]

    def all_pass(self, table: str, transaction: Any) -> bool:
        """Tell whether a change passes whatever its key is: all rows are dealt out, and none of them has seen it."""
        progress = self._tables[table]
        return progress.done and not any(seen.sees(transaction) for _, seen, _ in progress.recent)

    def passes(self, table: str, above: int, transaction: Any) -> bool:
        """Tell whether a change passes to a key that is above so many of the bounds."""
        progress = self._tables[table]
        if progress.upto is None and not progress.done:
            return False
        # The first interval is open below, if the first chunk is among the recent ones.
        starts_open = bool(progress.recent) and progress.recent[0][0] is None
        place = above - (0 if starts_open else 1)
        if place < 0:
            return True
        if place >= len(progress.recent):
            # Above all that was dealt out.
            return progress.done and not progress.recent
        return not progress.recent[place][1].sees(transaction)

    def passed(self, place: Any) -> None:
        """The log has been dealt out up to a place."""
        for table in list(self._tables):
            progress = self._tables[table]
            while progress.recent and progress.recent[0][2] <= place:
                progress.recent = progress.recent[1:]
            self._drop_passed(table)

    def _drop_passed(self, table: str) -> None:
        progress = self._tables[table]
        if progress.done and not progress.recent:
            del self._tables[table]
            del self._ahead[table]
