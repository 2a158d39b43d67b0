"""The keyed state of one operator's subtask: its tables, its handles, and how it follows the changelog."""

from __future__ import annotations

from typing import Any, Protocol

from millstream.common.errors import InvalidProgramError
from millstream.state.changelog import Chain, ChangelogFile, FileRef, Table, encode, replay
from millstream.state.descriptors import StateDescriptor, ValueStateDescriptor
from millstream.state.table import MISSING, KeyCell, StateTable, tombstones


class StateStorage(Protocol):
    """Where state files are kept."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None: ...


class ValueState:
    """One value a key."""

    __slots__ = ("_base", "_cell", "_overlay")

    def __init__(self, table: StateTable, cell: KeyCell) -> None:
        self._base = table.base
        self._overlay = table.overlay
        self._cell = cell

    def value(self) -> Any:
        """Return the value of the current key, None when it has none."""
        key = self._cell.key
        value = self._overlay.get(key, MISSING)
        return self._base.get(key) if value is MISSING else value

    def update(self, value: Any) -> None:
        """Set the value of the current key; None clears it."""
        if value is None:
            self.clear()
        else:
            self._overlay[self._cell.key] = value

    def clear(self) -> None:
        key = self._cell.key
        if key in self._base:
            self._overlay[key] = None
        else:
            self._overlay.pop(key, None)


_HANDLES = {ValueStateDescriptor.kind: ValueState}


class KeyedState:
    """All keyed state of one operator in one subtask.

    Local memory is a cache of the changelog: `prepare` brings it to the version the driver names, by the
    cheapest way that is right, and `write_delta` says what an epoch changed.
    """

    def __init__(self, operator: str, subtask: int, storage: StateStorage) -> None:
        self.cell = KeyCell()
        self._operator = operator
        self._subtask = subtask
        self._storage = storage
        self._tables: dict[str, StateTable] = {}
        self._handles: dict[str, Any] = {}
        self._chain = Chain()
        # The file that holds what is in the overlays now, None before one was written.
        self._pending: FileRef | None = None
        self._dirty = False

    def table(self, name: str, kind: str) -> StateTable:
        """Return the table of that name, making it when it is new."""
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = StateTable(name, kind)
        elif table.kind != kind:
            raise InvalidProgramError(
                f"State {name!r} was registered as {table.kind} state and is now asked for as {kind} state: "
                "use another name."
            )
        return table

    def handle(self, descriptor: StateDescriptor) -> Any:
        """Return the object through which user code reads and writes a state."""
        found = self._handles.get(descriptor.name)
        table = self.table(descriptor.name, descriptor.kind)
        if found is None:
            found = self._handles[descriptor.name] = _HANDLES[descriptor.kind](table, self.cell)
        return found

    def prepare(self, version: str | None) -> None:
        """Bring the tables to the state that `version` (the last acknowledged file) names."""
        pending = self._pending
        if not self._dirty and version == self._current():
            return
        if pending is not None and version == pending.name:
            for table in self._tables.values():
                table.advance()
            self._chain = self._chain.then(pending)
            self._pending, self._dirty = None, False
            return
        self._reload(version)

    def begin(self) -> None:
        """An epoch starts: from here on the tables are ahead of the changelog."""
        self._dirty = True

    def changed_keys(self) -> int:
        """Return how many keys this epoch has changed."""
        return max((len(t.overlay) for t in self._tables.values()), default=0)

    def write_delta(self, epoch: int, attempt: str) -> str | None:
        """Write what this epoch changed; return the file's name, None when nothing changed."""
        changed = {n: Table(t.kind, t.overlay) for n, t in self._tables.items() if t.overlay}
        if not changed:
            self._dirty = False
            return self._current()
        rebase = self._chain.wants_rebase()
        if rebase:
            changed = {n: Table(t.kind, _merged(t)) for n, t in self._tables.items()}
        parents = [] if rebase else self._chain.files
        name = f"{self._operator}-{self._subtask}-{epoch}-{attempt}.{'base' if rebase else 'delta'}"
        data = encode(ChangelogFile(self._operator, self._subtask, epoch, rebase, parents, changed))
        self._storage.write(name, data)
        self._pending = FileRef(name, len(data), rebase)
        return name

    def _current(self) -> str | None:
        return self._chain.files[-1].name if self._chain.files else None

    def _reload(self, version: str | None) -> None:
        for table in self._tables.values():
            table.base.clear()
            table.overlay.clear()
        self._chain, self._pending, self._dirty = Chain(), None, False
        if version is None:
            return
        self._chain, files = replay(version, self._storage.read)
        for file in files:
            for name, content in file.tables.items():
                self.table(name, content.kind).apply(content.rows)


def _merged(table: StateTable) -> dict[Any, Any]:
    rows = {**table.base, **table.overlay}
    for key in tombstones(table.overlay):
        del rows[key]
    return rows
