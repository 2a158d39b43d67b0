"""The keyed state of one operator's subtask: its tables, its handles, and how it follows the changelog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

from millstream.common.checksums import Checksum
from millstream.common.errors import InvalidProgramError, MillstreamError, StateLostError
from millstream.common.pickles import TooLargeError, dump
from millstream.state import kinds
from millstream.state.backend import Backend
from millstream.state.changelog import Chain, FileHeader, FileRef, Section, encode, replay, sections
from millstream.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from millstream.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from millstream.state.kinds import StateKind
from millstream.state.restored import Restored, StoredState, key_of
from millstream.state.table import (
    BY_GROUP,
    BY_KEY,
    BY_NAME,
    BY_PANE,
    BY_TIME,
    MISSING,
    Base,
    KeyCell,
    StateTable,
    about_len,
)
from millstream.state.timers import TimerQueue
from millstream.state.ttl import (
    Clock,
    Lifetime,
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlReducingState,
    TtlValueState,
)

if TYPE_CHECKING:
    from millstream.state.column_table import LiveColumns
    from millstream.state.lmdb_base import LmdbStore


class StateStorage(Protocol):
    """Where state files are kept."""

    def read(self, name: str) -> bytes | memoryview: ...

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        """Write a file from its parts; return its size."""
        ...

    def forget(self, names: list[str]) -> None:
        """Drop what is kept of these files on this host only: they will not be read again."""
        ...

    def scratch(self, name: str) -> str:
        """Return a directory on this host that is deleted with the job."""
        ...


# What the state of a subtask is read from: the last file of a chain (a StoredState where it must have a checksum), what
# another run has left, or nothing.
Version = str | StoredState | Restored | None

# With a base on disk, no more changes than this stay in memory: so many rows, or what came of so many bytes of input.
HELD_ROWS = 1 << 16
HELD_BYTES = 1 << 24
# So many rows are looked at, at most, to find those of one key.
SEARCHED_ROWS = 1_000_000
# So many rows say how large the others are.
_FEW_ROWS = 16


def _make_handle(descriptor: StateDescriptor, table: StateTable, cell: KeyCell, life: Lifetime | None) -> Any:
    """Return the object through which user code reads and writes a state."""
    if isinstance(descriptor, ReducingStateDescriptor):
        function = descriptor.reduce_function
        reduce: Callable[[Any, Any], Any] = getattr(function, "reduce", function)
        return ReducingState(table, cell, reduce) if life is None else TtlReducingState(table, cell, reduce, life)
    if isinstance(descriptor, AggregatingStateDescriptor):
        aggregate = descriptor.agg_function
        if life is None:
            return AggregatingState(table, cell, aggregate)
        return TtlAggregatingState(table, cell, aggregate, life)
    plain, expiring = _HANDLES[type(descriptor)]
    return plain(table, cell) if life is None else expiring(table, cell, life)


_HANDLES: dict[type, tuple[Any, Any]] = {
    ValueStateDescriptor: (ValueState, TtlValueState),
    ListStateDescriptor: (ListState, TtlListState),
    MapStateDescriptor: (MapState, TtlMapState),
}


class KeyedState:
    """All keyed state of one operator in one subtask.

    Local memory is a cache of the changelog: `prepare` brings it to the version the driver names, by the
    cheapest way that is right, and `write_delta` says what has changed since the last file. After an epoch whose
    changes need no file, `hold` keeps them in memory; then it is more than a cache, and only this process has it.
    """

    def __init__(
        self,
        operator: str,
        subtask: int,
        storage: StateStorage,
        clock: Clock,
        backend: Backend = Backend.HASHMAP,
        compressed: bool = False,
        digests: bool = False,
    ) -> None:
        self.cell = KeyCell()
        self._operator = operator
        self._subtask = subtask
        self._storage = storage
        self._clock = clock
        self._compressed = compressed
        self._digests = digests
        self._tables: dict[str, StateTable] = {}
        self._handles: dict[tuple[str, KeyCell], tuple[StateDescriptor, Any]] = {}
        self._lives: dict[str, Lifetime] = {}
        self._sweeping: dict[str, Iterator[Any]] = {}
        self._when_loaded: list[Callable[[], None]] = []
        self._when_taken_over: list[Callable[[], None]] = []
        self._store: LmdbStore | None = None
        if backend is Backend.LMDB:
            from millstream.state.lmdb_base import LmdbStore

            self._store = LmdbStore(storage.scratch(f"{operator}-{subtask}"))
        self._chain = Chain()
        # What is loaded now.
        self._version: str | Restored | None = None
        # The file that holds what is in the overlays now, None before one was written.
        self._pending: FileRef | None = None
        self._dirty = False
        # The epoch that ended here last, and whether there are changes that no file has.
        self._epoch: int | None = None
        self._holds = False
        # Whether such changes are in the bases already: then only a file with everything has them.
        self._is_ahead = False
        # The bytes of input that came since the last file, and the rows that were changed before this epoch.
        self._bytes_in = 0
        self._rows_before = 0
        self._written = 0
        # Whether this epoch found its state here, or had to read files; None when there was none to find.
        self.was_here: bool | None = None

    def table(self, name: str, kind: StateKind, address: str = BY_KEY) -> StateTable:
        """Return the table of that name, making it when it is new."""
        table = self._tables.get(name)
        if table is None:
            base: Base = {} if self._store is None else self._store.table()
            table = self._tables[name] = StateTable(name, kind, address, base)
        elif table.kind is not kind:
            raise InvalidProgramError(
                f"State {name!r} was registered as {table.kind.name} state and is now asked for as {kind.name} state: "
                "use another name."
            )
        return table

    def columns(self, name: str, live: LiveColumns) -> None:
        """Make a table of what an operator has as columns."""
        # Here, since programs without SQL need neither numpy nor Arrow.
        from millstream.state.column_table import ColumnTable

        if self._store is not None:
            from millstream.state.array_storage import InFiles

            live.live_in(InFiles(self._store.path))
        self._tables[name] = ColumnTable(name, live)

    def timers(self, name: str) -> TimerQueue:
        """Return a queue of timers that is part of this state."""
        queue = TimerQueue(self.table(name, kinds.TIMERS, BY_TIME))
        self.when_loaded(queue.rebuild)
        return queue

    def when_loaded(self, action: Callable[[], None]) -> None:
        """Have something done whenever the state was read anew."""
        self._when_loaded.append(action)

    def when_taken_over(self, action: Callable[[], None]) -> None:
        """Have something done, before that, when the state comes from another run, whose operator may have differed."""
        self._when_taken_over.append(action)

    def handle(self, descriptor: StateDescriptor, cell: KeyCell | None = None) -> Any:
        """Return the object through which user code reads and writes a state.

        Args:
            descriptor: what the user asks for.
            cell: where the address of the current row stands; without one, the current key.
        """
        cell = cell or self.cell
        known = self._handles.get((descriptor.name, cell))
        table = self.table(descriptor.name, descriptor.kind, cell.address)
        if known is not None:
            self._check_same(known[0], descriptor)
            return known[1]
        self._check_life(descriptor)
        life = None
        if descriptor.ttl is not None and descriptor.ttl.is_enabled():
            life = self._lives[descriptor.name] = Lifetime(descriptor.ttl, self._clock)
        handle = _make_handle(descriptor, table, cell, life)
        handle.declared(descriptor)
        self._handles[descriptor.name, cell] = descriptor, handle
        return handle

    def _check_life(self, asked: StateDescriptor) -> None:
        """What expires is stored with the time it was written, so that one kind cannot be read as the other."""
        expires = asked.ttl is not None and asked.ttl.is_enabled()
        before = self._version.expiring if isinstance(self._version, Restored) else None
        if before is None or not self._tables[asked.name].base:
            return
        if expires != (asked.name in before):
            raise InvalidProgramError(
                f"State {asked.name!r} {'has a time to live now and had none' if expires else 'had a time to live'} in "
                "what the job starts from: leave that as it was, or use another name."
            )

    def _check_same(self, known: StateDescriptor, asked: StateDescriptor) -> None:
        if known.type_info != asked.type_info:
            raise InvalidProgramError(
                f"State {asked.name!r} was registered with type {known.type_info} and is now asked for with "
                f"{asked.type_info}: use another name."
            )

    def has_rows(self) -> bool:
        return any(True for table in self._tables.values() for _ in table.rows())

    @property
    def tables(self) -> Mapping[str, StateTable]:
        """The tables there are, by name."""
        return self._tables

    def life_of(self, name: str) -> Lifetime | None:
        """Return how long the contents of a table live; None for ever."""
        return self._lives.get(name)

    def descriptor_of(self, name: str) -> StateDescriptor | None:
        """Return what user code has asked for a state with; None when it has not."""
        return next((d for (known, _), (d, _) in self._handles.items() if known == name), None)

    def about_size(self) -> tuple[int, int]:
        """Return how many rows there are, and how many bytes they take, pickled: both about, and at no cost."""
        sizes = [about_size(table) for table in self._tables.values() if table.address != BY_GROUP]
        columns = any(table.address == BY_GROUP for table in self._tables.values())
        # Of columns nobody knows before they are written.
        written = sum(file.size for file in self._chain.files) if columns else 0
        return sum(rows for rows, _ in sizes), sum(size for _, size in sizes) + written

    @property
    def is_in_base(self) -> bool:
        """Whether nothing has changed since the bases were last brought up to date."""
        return not any(table.overlay for table in self._tables.values())

    def of_key(self, key: Any, most: int, only_base: bool = False) -> bytes:
        """Return a state file that has the rows of one key, and those that are of no key.

        Args:
            key: the key.
            most: how many bytes it may have.
            only_base: whether to leave out what has changed since the bases were brought up to date.

        Raises:
            TooLargeError: it would have more than so many bytes.
            MillstreamError: it cannot be made.
        """
        header = FileHeader(self._operator, self._subtask, 0, True, [])
        found = (
            Section(name, table.kind, table.address, rows)
            for name, table in self._tables.items()
            if (rows := dict(rows_of_key(table.before() if only_base else table, key)))
        )
        parts: list[bytes] = []
        size = 0
        for part in encode(header, found):
            parts.append(part)
            size += len(part)
            if size > most:
                raise TooLargeError(f"more than {most} bytes")
        return b"".join(parts)

    def rows(self, name: str) -> Iterator[tuple[Any, Any]]:
        """Yield the rows of a table, for those who look from outside."""
        if name in self._tables:
            yield from self._tables[name].rows()

    def prepare(self, version: Version, held: int | None = None) -> None:
        """Bring the tables to the state that `version` (the last acknowledged file) names.

        Args:
            version: the file.
            held: the epoch whose changes this process holds on top of that; None when the file has all.
        """
        expected = None
        if isinstance(version, StoredState):
            expected, version = version.checksum, version.file
        pending = self._pending
        self.was_here = None if version is None and held is None else True
        if pending is not None and version == pending.name:
            self._advance()
            if pending.is_base:
                self._storage.forget([f.name for f in self._chain.files])
            self._chain = self._chain.then(pending)
            self._version, self._pending, self._dirty = version, None, False
            self._holds, self._is_ahead, self._bytes_in = False, False, 0
        elif held is not None:
            if self._dirty or (held, version) != (self._epoch, self._version):
                raise StateLostError(
                    f"The state of operator {self._operator} after epoch {held} is not in this process."
                )
        elif self._dirty or self._holds or version != self._version:
            self.was_here = None if version is None else False
            self._reload(version, expected)

    def begin(self) -> None:
        """An epoch starts: from here on the tables are ahead of the changelog."""
        self._dirty = True
        self._rows_before = self._most_changed()

    def new_keys(self) -> int:
        """Return how many keys this epoch has changed that had not been changed since the last file."""
        return self._most_changed() - self._rows_before

    def _most_changed(self) -> int:
        return max((len(t.overlay) for t in self._tables.values()), default=0)

    def took(self, bytes_in: int) -> None:
        """So many bytes of input have come."""
        self._bytes_in += bytes_in

    @property
    def can_hold(self) -> bool:
        """Whether what has changed may stay in memory for now."""
        if isinstance(self._version, Restored):
            # What was taken over from another run is made this one's own.
            return False
        if self._store is None or not self._chain.files:
            # Changes of a base in memory take no more than it does. Without a file before, the base takes them.
            return True
        # Changes of columns are where the columns are.
        held = sum(len(t.overlay) for t in self._tables.values())
        return not held or (self._bytes_in < HELD_BYTES and held < HELD_ROWS)

    def hold(self, epoch: int) -> Version:
        """Keep in memory what has changed since the last file; return that file."""
        self._epoch, self._holds, self._dirty = epoch, True, False
        if not self._chain.files:
            # The next file has everything anyway: nobody has to know what has changed.
            self._sweep()
            self._is_ahead = self._is_ahead or any(t.overlay for t in self._tables.values())
            self._advance()
        return self._version

    def write_delta(self, epoch: int, attempt: str, whole: bool = False) -> str | None:
        """Write what has changed since the last file; return the file that is now the last, None without state.

        Args:
            epoch: the epoch.
            attempt: what tells this run of the epoch from every other.
            whole: whether the file must not depend on others.
        """
        for table in self._tables.values():
            table.collect()
        # What was taken over from another run is made this one's own.
        taken_over = isinstance(self._version, Restored)
        changed = self._is_ahead or any(t.overlay for t in self._tables.values())
        whole = taken_over or self._is_ahead or (whole and len(self._chain.files) + changed > 1)
        if not changed and not whole:
            self._epoch, self._holds, self._dirty, self._bytes_in = epoch, False, False, 0
            return None if isinstance(self._version, Restored) else self._version
        if (taken_over or self._is_ahead) and not self.has_rows():
            self._version, self._is_ahead = None, False
            self._epoch, self._holds, self._dirty = epoch, False, False
            return None
        rebase = whole or self._chain.wants_rebase(sum(table.known_bytes for table in self._tables.values()))
        if rebase:
            self._drop_expired()
        else:
            self._sweep()
        parents = [] if rebase else self._chain.files
        name = f"{self._operator}-{self._subtask}-{epoch}-{attempt}.{'base' if rebase else 'delta'}"
        header = FileHeader(self._operator, self._subtask, epoch, rebase, parents, name)
        checksums: list[Checksum] = []
        content = encode(header, self._sections(rebase), self._compressed, checksums.append, self._digests)
        size = self._storage.write(name, content)
        self._pending = FileRef(name, size, rebase, checksums[-1])
        self._written += size
        return name

    def _advance(self) -> None:
        for table in self._tables.values():
            table.advance()

    @property
    def checksum(self) -> Checksum | None:
        """The checksum of the last file, if that is known."""
        last = self._pending or (self._chain.files[-1] if self._chain.files else None)
        return None if last is None else last.checksum

    def take_written(self) -> int:
        """Return how many bytes were written since this was last asked."""
        written, self._written = self._written, 0
        return written

    def _sections(self, everything: bool) -> Iterator[Section]:
        for name, table in self._tables.items():
            if everything:
                yield from sections(name, table.kind, table.address, table.rows())
            elif table.overlay:
                yield Section(name, table.kind, table.address, table.overlay)

    def export(self, directory: str, max_parallelism: int, attempt: str) -> StoredState | None:
        """Write everything as a part of a savepoint; return where it is, None when there is nothing."""
        from millstream.state.savepoint_part import write_part

        if not self.has_rows():
            return None
        name = f"{directory}/{self._operator}-{self._subtask}-{attempt}.parquet"
        return write_part(name, self._sections(True), max_parallelism, self._storage.write, self._digests)

    def describe(self) -> dict[str, dict[str, str]]:
        """Return what tables there are: their kind, how rows are addressed, the declared type, and how long rows live.

        The last two are left out of tables that no function has asked for: what an earlier run knew of them holds.
        """
        asked = {name: {"type": d.type_text(), "ttl": d.life_text()} for (name, _), (d, _) in self._handles.items()}
        return {
            name: {"kind": t.kind.name, "address": t.address, **asked.get(name, {})} for name, t in self._tables.items()
        }

    def _drop_expired(self) -> None:
        for name, life in self._lives.items():
            table = self._tables[name]
            # Row by row: with a base on disk, not all of them fit into memory.
            for row in chain(list(table.overlay), _in_turn(table.base)):
                _expire(table, row, life)

    def _sweep(self) -> None:
        """Look at some rows that nobody has asked for: as many for each changed one as the cleanup says."""
        for name, life in self._lives.items():
            table = self._tables[name]
            for _ in range(life.config.cleanup.rows_to_look_at * len(table.overlay)):
                row = next(self._sweeping.get(name, iter(())), MISSING)
                if row is MISSING:
                    # All have been seen: begin anew with the next epoch.
                    self._sweeping[name] = _in_turn(table.base)
                    break
                _expire(table, row, life)

    def _reload(self, version: str | Restored | None, expected: Checksum | None) -> None:
        for table in self._tables.values():
            table.clear()
        self._chain, self._pending, self._dirty = Chain(), None, False
        self._epoch, self._holds, self._is_ahead, self._bytes_in = None, False, False, 0
        self._version = version
        if isinstance(version, Restored):
            for section in version.sections(self._storage.read):
                self.table(section.table, section.kind, section.address).apply(section.rows)
            for action in self._when_taken_over:
                action()
        elif version is not None:
            self._chain, files = replay(version, self._storage.read, expected)
            for file in files:
                for section in file.sections():
                    self.table(section.table, section.kind, section.address).apply(section.rows)
        for action in self._when_loaded:
            action()


def about_size(table: StateTable) -> tuple[int, int]:
    """Return about how many rows a table has, and how many bytes they take, pickled: as many as a few of them."""
    parts = table.panes() if table.address == BY_PANE else [(table.base, table.overlay)]
    count = size = 0
    for base, overlay in parts:
        rows = about_len(base, overlay)
        few = [*islice(base.items(), _FEW_ROWS), *islice(overlay.items(), _FEW_ROWS)]
        count += rows
        size += len(dump(few)) * rows // len(few) if few else 0
    return count, size


def rows_of_key(table: StateTable, key: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of a table that are of one key, or of no key at all."""
    address = table.address
    if address == BY_GROUP:
        raise MillstreamError(f"the state {table.name!r} has the keys of a group together, as columns")
    if address == BY_KEY:
        if (content := table.get(key)) is not None:
            yield key, content
        return
    for number, (row, content) in enumerate(table.rows()):
        if number == SEARCHED_ROWS:
            raise MillstreamError(f"the state {table.name!r} has too many rows to look for those of one key")
        if address == BY_PANE:
            if key in content:
                yield row, {key: content[key]}
        elif address == BY_NAME or key_of(address, row) == key:
            yield row, content


def _in_turn(base: Base) -> Iterator[Any]:
    """Yield which rows there are, whatever happens to them meanwhile."""
    return iter(list(base)) if isinstance(base, dict) else base.in_turn()


def _expire(table: StateTable, row: Any, life: Lifetime) -> None:
    """Remove from a row what has expired."""
    content = table.get(row)
    if content is None:
        return
    rest = table.kind.living(content, life.is_over)
    if rest is None:
        table.remove(row)
    elif len(rest) < len(content):
        table.put(row, rest)
