"""The keyed state of an operator's subtask: its tables and handles, synchronized with the changelog.

`prepare` loads the state of a version at the start of an epoch, `write_delta` writes the changes at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from millstream.common.aliases import Key, Value
from millstream.common.checksums import Checksum
from millstream.common.errors import InvalidProgramError, MillstreamError, StateLostError
from millstream.common.pickles import TooLargeError, dump
from millstream.state import kinds
from millstream.state.backend import Backend
from millstream.state.changelog import Chain, FileHeader, FileRef, Section, StoredState, encode, replay, sections
from millstream.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from millstream.state.handles import MapState, State, ValueState
from millstream.state.kinds import StateKind
from millstream.state.merging_handles import AggregatingState, ListState, ReducingState
from millstream.state.restored import Restored
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
    key_of,
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
    """The storage of state files."""

    def read(self, name: str) -> bytes | memoryview: ...

    def write(self, name: str, parts: Iterable[bytes]) -> int:
        """Write a file from its parts; return its size."""
        ...

    def drop_local_copies(self, names: list[str]) -> None:
        """Drop this host's copies of files that will not be read again."""
        ...

    def scratch(self, name: str) -> str:
        """Return a directory on this host that is deleted with the job."""
        ...


# The source of a subtask's state: the last file of a chain (a StoredState if its checksum must be verified), the state
# of another run, or None.
Version = str | StoredState | Restored | None

# With a base on disk, the maximum of changes in memory: rows, or bytes of the input that caused them.
HELD_ROWS = 1 << 16
HELD_BYTES = 1 << 24
# Maximum rows that are searched for those of one key.
SEARCHED_ROWS = 1_000_000
# Sampled rows, to estimate the size of all.
_SAMPLE_SIZE = 16


def _make_handle(descriptor: StateDescriptor, table: StateTable, cell: KeyCell, life: Lifetime | None) -> State:
    """Return the state object for user code."""
    if isinstance(descriptor, ReducingStateDescriptor):
        reduce = descriptor.reducer()
        return ReducingState(table, cell, reduce) if life is None else TtlReducingState(table, cell, reduce, life)
    if isinstance(descriptor, AggregatingStateDescriptor):
        aggregate = descriptor.agg_function
        if life is None:
            return AggregatingState(table, cell, aggregate)
        return TtlAggregatingState(table, cell, aggregate, life)
    plain, expiring = _HANDLES[type(descriptor)]
    return plain(table, cell) if life is None else expiring(table, cell, life)


_Handle = Callable[[StateTable, KeyCell], State]
_TtlHandle = Callable[[StateTable, KeyCell, Lifetime], State]
_HANDLES: dict[type, tuple[_Handle, _TtlHandle]] = {
    ValueStateDescriptor: (ValueState, TtlValueState),
    ListStateDescriptor: (ListState, TtlListState),
    MapStateDescriptor: (MapState, TtlMapState),
}


class KeyedState:
    """All keyed state of one operator in one subtask.

    Local memory is a cache of the changelog: `prepare` brings it to the version that the driver names, at the lowest
    cost, and `write_delta` writes the changes since the last file. After an epoch whose changes need no file, `hold`
    retains them in memory; then only this process has the current state.
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
        self._handles: dict[tuple[str, KeyCell], tuple[StateDescriptor, State]] = {}
        self._lifetimes: dict[str, Lifetime] = {}
        self._sweeping: dict[str, Iterator[Key]] = {}
        self._when_loaded: list[Callable[[], None]] = []
        self._when_taken_over: list[Callable[[], None]] = []
        self._store: LmdbStore | None = None
        if backend is Backend.LMDB:
            from millstream.state.lmdb_base import LmdbStore

            self._store = LmdbStore(storage.scratch(f"{operator}-{subtask}"))
        self._chain = Chain()
        # The version that is loaded.
        self._version: str | Restored | None = None
        # The file with the changes in the overlays, None before it is written.
        self._pending: FileRef | None = None
        self._dirty = False
        # The last epoch that ended here, and whether there are changes that are in no file.
        self._epoch: int | None = None
        self._holds = False
        # Whether such changes are in the bases already: then the next file must be complete.
        self._is_ahead = False
        # The bytes of input since the last file, and the rows that were changed before this epoch.
        self._bytes_in = 0
        self._rows_before = 0
        self._written = 0
        # Whether the state was in memory when this epoch started, or files were read; None if there was no state.
        self.was_local: bool | None = None

    def table(self, name: str, kind: StateKind, address: str = BY_KEY) -> StateTable:
        """Return the table of a name; create it if there is none."""
        table = self._tables.get(name)
        if table is None:
            base: Base = {} if self._store is None else self._store.table()
            table = self._tables[name] = StateTable(name, kind, address, base)
        elif table.kind is not kind:
            raise InvalidProgramError(
                f"State {name!r} is registered as {table.kind.name} state and is requested as {kind.name} state: use "
                "another name."
            )
        return table

    def columns(self, name: str, live: LiveColumns) -> None:
        """Create a table for the columns of an operator."""
        # Lazy: programs without SQL need neither numpy nor Arrow.
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
        """Add an action to run after every reload of the state."""
        self._when_loaded.append(action)

    def when_taken_over(self, action: Callable[[], None]) -> None:
        """Add an action to run first if the state is from another run, whose operator may have differed."""
        self._when_taken_over.append(action)

    def handle(self, descriptor: StateDescriptor, cell: KeyCell | None = None) -> Value:
        """Return the state object for user code; the descriptor determines its class.

        Args:
            descriptor: the state's descriptor.
            cell: the cell with the address of the current row; by default that of the current key.
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
            life = self._lifetimes[descriptor.name] = Lifetime(descriptor.ttl, self._clock)
        handle = _make_handle(descriptor, table, cell, life)
        handle.declared(descriptor)
        self._handles[descriptor.name, cell] = descriptor, handle
        return handle

    def _check_life(self, descriptor: StateDescriptor) -> None:
        """Raise an error if only one of the descriptor and the restored rows, which have stamps then, has a TTL."""
        expires = descriptor.ttl is not None and descriptor.ttl.is_enabled()
        before = self._version.expiring if isinstance(self._version, Restored) else None
        if before is None or not self._tables[descriptor.name].base:
            return
        if expires != (descriptor.name in before):
            raise InvalidProgramError(
                f"State {descriptor.name!r} has {'a' if expires else 'no'} time to live, but had "
                f"{'none' if expires else 'one'} in the restored snapshot: set it as before, or use another name."
            )

    def _check_same(self, known: StateDescriptor, descriptor: StateDescriptor) -> None:
        if known.type_info != descriptor.type_info:
            raise InvalidProgramError(
                f"State {descriptor.name!r} is registered with type {known.type_info} and is requested with "
                f"{descriptor.type_info}: use another name."
            )

    def has_rows(self) -> bool:
        return any(True for table in self._tables.values() for _ in table.rows())

    @property
    def tables(self) -> Mapping[str, StateTable]:
        """The tables by name."""
        return self._tables

    def lifetime_of(self, name: str) -> Lifetime | None:
        """Return the time to live of a table's contents; None if they do not expire."""
        return self._lifetimes.get(name)

    def descriptor_of(self, name: str) -> StateDescriptor | None:
        """Return the descriptor of a state, None if user code has not requested it."""
        return next((d for (known, _), (d, _) in self._handles.items() if known == name), None)

    def about_size(self) -> tuple[int, int]:
        """Estimate the number of rows and their pickled size in bytes, at low cost."""
        sizes = [about_size(table) for table in self._tables.values() if table.address != BY_GROUP]
        columns = any(table.address == BY_GROUP for table in self._tables.values())
        # The size of columns is unknown before they are written.
        written = sum(file.size for file in self._chain.files) if columns else 0
        return sum(rows for rows, _ in sizes), sum(size for _, size in sizes) + written

    @property
    def is_in_base(self) -> bool:
        """Whether nothing has changed since the bases were last brought up to date."""
        return not any(table.overlay for table in self._tables.values())

    def of_key(self, key: Key, max_size: int, only_base: bool = False) -> bytes:
        """Return a state file with the rows of one key, and the rows without a key.

        Args:
            key: the key.
            max_size: the maximum size of the file in bytes.
            only_base: whether to leave out the changes since the last update of the bases.

        Raises:
            TooLargeError: the file would be larger.
            MillstreamError: a table cannot be searched for a key.
        """
        header = FileHeader(self._operator, self._subtask, 0, True, [])
        row_sections = (
            Section(name, table.kind, table.address, rows)
            for name, table in self._tables.items()
            if (rows := dict(rows_of_key(table.before() if only_base else table, key)))
        )
        parts: list[bytes] = []
        size = 0
        for part in encode(header, row_sections):
            parts.append(part)
            size += len(part)
            if size > max_size:
                raise TooLargeError(f"more than {max_size} bytes")
        return b"".join(parts)

    def rows(self, name: str) -> Iterator[tuple[Key, Value]]:
        """Yield the rows of a table, for inspection."""
        if name in self._tables:
            yield from self._tables[name].rows()

    def prepare(self, version: Version, held_epoch: int | None = None) -> None:
        """Bring the tables to the state of a version.

        Args:
            version: the last acknowledged file, or the state of another run.
            held_epoch: the epoch whose changes this process holds in addition; None if the file has all.
        """
        expected = None
        if isinstance(version, StoredState):
            expected, version = version.checksum, version.file
        pending = self._pending
        self.was_local = None if version is None and held_epoch is None else True
        if pending is not None and version == pending.name:
            self._advance()
            if pending.is_base:
                self._storage.drop_local_copies([f.name for f in self._chain.files])
            self._chain = self._chain.then(pending)
            self._version, self._pending, self._dirty = version, None, False
            self._holds, self._is_ahead, self._bytes_in = False, False, 0
        elif held_epoch is not None:
            if self._dirty or (held_epoch, version) != (self._epoch, self._version):
                raise StateLostError(
                    f"The state of operator {self._operator} after epoch {held_epoch} is not in this process."
                )
        elif self._dirty or self._holds or version != self._version:
            self.was_local = None if version is None else False
            self._reload(version, expected)

    def begin(self) -> None:
        """Start an epoch: from now on the tables are ahead of the changelog."""
        self._dirty = True
        self._rows_before = self._max_changed()

    def new_keys(self) -> int:
        """Return how many keys this epoch is the first to change since the last file."""
        return self._max_changed() - self._rows_before

    def _max_changed(self) -> int:
        return max((len(t.overlay) for t in self._tables.values()), default=0)

    def add_input(self, bytes_in: int) -> None:
        """Count bytes of input."""
        self._bytes_in += bytes_in

    @property
    def can_hold(self) -> bool:
        """Whether changes may be held in memory for now."""
        if isinstance(self._version, Restored):
            # State of another run is written as this run's own first.
            return False
        if self._store is None or not self._chain.files:
            # Changes of a base in memory take no more than it does. Before the first file, they move into the base.
            return True
        # Changes of columns are in the columns, not in overlays.
        held_rows = sum(len(t.overlay) for t in self._tables.values())
        return not held_rows or (self._bytes_in < HELD_BYTES and held_rows < HELD_ROWS)

    def hold(self, epoch: int) -> Version:
        """Retain the changes since the last file in memory; return that file."""
        self._epoch, self._holds, self._dirty = epoch, True, False
        if not self._chain.files:
            # The next file is complete, so changes need not be tracked.
            self._sweep()
            self._is_ahead = self._is_ahead or any(t.overlay for t in self._tables.values())
            self._advance()
        return self._version

    def write_delta(self, epoch: int, attempt: str, whole: bool = False) -> str | None:
        """Write the changes since the last file; return the new last file, None without state.

        Args:
            epoch: the epoch.
            attempt: identifies this attempt of the epoch.
            whole: whether the file must not depend on others.
        """
        for table in self._tables.values():
            table.collect()
        # State of another run is written as this run's own.
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
        """The checksum of the last file, if known."""
        last = self._pending or (self._chain.files[-1] if self._chain.files else None)
        return None if last is None else last.checksum

    def take_written(self) -> int:
        """Return the number of bytes written since the last call."""
        written, self._written = self._written, 0
        return written

    def _sections(self, whole: bool) -> Iterator[Section]:
        for name, table in self._tables.items():
            if whole:
                yield from sections(name, table.kind, table.address, table.rows())
            elif table.overlay:
                yield Section(name, table.kind, table.address, table.overlay)

    def export(self, directory: str, max_parallelism: int, attempt: str) -> StoredState | None:
        """Write the state as a part of a savepoint; return its location, None without state."""
        # Lazy: only savepoints need Parquet.
        from millstream.state.savepoint_part import write_part

        if not self.has_rows():
            return None
        name = f"{directory}/{self._operator}-{self._subtask}-{attempt}.parquet"
        return write_part(name, self._sections(True), max_parallelism, self._storage.write, self._digests)

    def describe(self) -> dict[str, dict[str, str]]:
        """Return the kind, address, declared type and time to live of each table.

        Tables that no function has requested lack the last two: those that an earlier run recorded remain valid.
        """
        declared = {name: {"type": d.type_text(), "ttl": d.life_text()} for (name, _), (d, _) in self._handles.items()}
        return {
            name: {"kind": t.kind.name, "address": t.address, **declared.get(name, {})}
            for name, t in self._tables.items()
        }

    def _drop_expired(self) -> None:
        for name, life in self._lifetimes.items():
            table = self._tables[name]
            # Row by row: a base on disk may not fit into memory.
            for row in chain(list(table.overlay), _addresses(table.base)):
                _expire(table, row, life)

    def _sweep(self) -> None:
        """Check some rows for expiry: for each changed row as many as the cleanup strategy defines."""
        for name, life in self._lifetimes.items():
            table = self._tables[name]
            for _ in range(life.config.cleanup.rows_to_check * len(table.overlay)):
                row = next(self._sweeping.get(name, iter(())), MISSING)
                if row is MISSING:
                    # All rows are checked: restart in the next epoch.
                    self._sweeping[name] = _addresses(table.base)
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
    """Estimate the number of rows of a table and their pickled size, from a sample."""
    parts = table.panes() if table.address == BY_PANE else [(table.base, table.overlay)]
    count = size = 0
    for base, overlay in parts:
        rows = about_len(base, overlay)
        sample = [*islice(base.items(), _SAMPLE_SIZE), *islice(overlay.items(), _SAMPLE_SIZE)]
        count += rows
        size += len(dump(sample)) * rows // len(sample) if sample else 0
    return count, size


def rows_of_key(table: StateTable, key: Key) -> Iterator[tuple[Key, Value]]:
    """Yield the rows of a table that belong to one key, or to no key."""
    address = table.address
    if address == BY_GROUP:
        raise MillstreamError(f"the state {table.name!r} stores the keys of a group together, as columns")
    if address == BY_KEY:
        if (content := table.get(key)) is not None:
            yield key, content
        return
    for number, (row, content) in enumerate(table.rows()):
        if number == SEARCHED_ROWS:
            raise MillstreamError(f"the state {table.name!r} has too many rows to search for those of one key")
        if address == BY_PANE:
            if key in content:
                yield row, {key: content[key]}
        elif address == BY_NAME or key_of(address, row) == key:
            yield row, content


def _addresses(base: Base) -> Iterator[Key]:
    """Yield the addresses of all rows; rows may change meanwhile."""
    return iter(list(base)) if isinstance(base, dict) else base.addresses()


def _expire(table: StateTable, row: Key, life: Lifetime) -> None:
    """Remove expired content of a row."""
    content = table.get(row)
    if content is None:
        return
    rest = table.kind.unexpired(content, life.has_expired)
    if rest is None:
        table.remove(row)
    elif len(rest) < len(content):
        table.put(row, rest)
