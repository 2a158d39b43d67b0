"""Reads a checkpoint or savepoint: its operators, their states, and the rows of a state.

Reading runs no code of the writer: objects of user classes are stand-ins that show their contents. For a trusted
checkpoint, pass `load` to get the objects themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.signing import SigningKeys
from millstream.checkpoint.snapshot import OperatorSnapshot, VertexSnapshot, operator_of, state_id_of, unpack
from millstream.checkpoint.sql_state_rows import column_rows, names_of
from millstream.checkpoint.state_rows import Address, Layout, StateRow, is_internal, shown_kind, shown_name
from millstream.checkpoint.storage import open_storage
from millstream.checkpoint.store import StoredCheckpoint, list_checkpoints, open_checkpoint
from millstream.common.aliases import Json, Key, Value
from millstream.common.errors import DamagedStateError, InvalidProgramError, MissingClassError
from millstream.common.restricted_pickles import load_restricted
from millstream.state.changelog import Loads, Section, StoredState
from millstream.state.columns import jsonable, text_of
from millstream.state.kinds import COLUMNS, kind_named
from millstream.state.restored import apply, chain_files, stored_sections
from millstream.state.savepoint_part import index_part
from millstream.state.table import StateTable

# The scope of a state.
KEYED, OPERATOR = "keyed", "operator"
_WHICH = {KEYED: "", OPERATOR: "operator"}

# A section without its rows: their number, if known without reading them, and their bytes.
_Indexed = tuple[Section, int | None, int]


@dataclass(frozen=True)
class StateInfo:
    """One state of an operator.

    Attributes:
        name: the name for users; internal tables have readable names.
        table: the name in the files.
        scope: "keyed", or "operator" when it belongs to subtasks rather than keys.
        kind: the kind for users: "value", "list", "map", "timers", "broadcast", ...
        address: how rows are addressed: by "key", "namespace", "time", "pane" or "name".
        type: the declared type as text; empty if there is none.
        ttl: the time to live as text; empty if there is none.
        rows: the number of rows.
        size: the bytes they take in the files.
    """

    name: str
    table: str
    scope: str
    kind: str
    address: str
    type: str
    ttl: str
    layout: Layout
    rows: int = 0
    size: int = 0

    @property
    def is_internal(self) -> bool:
        """Whether it is internal to the operator, not a state of a user function."""
        return is_internal(self.table)


@dataclass(frozen=True)
class OperatorInfo:
    """One operator of a checkpoint or savepoint."""

    id: str
    uid: str | None
    name: str
    parallelism: int
    max_parallelism: int
    states: tuple[StateInfo, ...]

    @property
    def label(self) -> str:
        """The uid, or else the name."""
        return self.uid or self.name


@dataclass(frozen=True)
class SourceInfo:
    """The position of a source.

    Attributes:
        position: as stored by the source.
    """

    operator: str
    uid: str | None
    name: str
    position: Value


class Inspection:
    """A checkpoint or savepoint, opened for reading."""

    def __init__(
        self, stored: StoredCheckpoint, options: dict[str, Json] | None = None, loads: Loads = load_restricted
    ) -> None:
        self.location = stored.location
        self.manifest: Manifest = stored.manifest
        self.snapshot = stored.manifest.snapshot
        self.state_url = stored.state_url()
        self.options = options or {}
        self._loads = loads
        self._storage = open_storage(self.state_url, self.options)
        self.vertices = {o.id: v for v in self.snapshot.vertices.values() for o in v.operators}
        self._operators = {o.id: o for v in self.snapshot.vertices.values() for o in v.operators}
        self._counted: dict[str, OperatorInfo] = {}
        self._indexed: dict[str, list[_Indexed]] = {}

    @staticmethod
    def open(
        location: str,
        options: dict[str, Json] | None = None,
        loads: Loads = load_restricted,
        keys: SigningKeys | None = None,
    ) -> Inspection:
        """Open a checkpoint or savepoint, given its directory or its manifest.

        Args:
            location: its location.
            options: options of its storage.
            loads: reads the pickles of rows; `millstream.common.pickles.load` if the writer is trusted.
            keys: the keys it must be signed with.
        """
        try:
            return Inspection(open_checkpoint(location, options, keys), options, loads)
        except DamagedStateError:
            inside = list_checkpoints(location, options)
            if not inside:
                raise
            newest = ", ".join(path for path, _ in inside[:3])
            raise InvalidProgramError(f"{location} is a job's directory of checkpoints: give one, {newest}.") from None
        except OSError as e:
            raise DamagedStateError(f"{location} cannot be read: {e.strerror or e}.") from e

    # --- what there is

    def operators(self) -> list[OperatorInfo]:
        """Return the operators in the order of the program, with the size of each state."""
        return [self.counted(operator_id) for operator_id in self._operators]

    def counted(self, operator_id: str) -> OperatorInfo:
        """Return an operator with the size of each state, without empty internal tables."""
        if operator_id not in self._counted:
            info = self.operator(operator_id)
            states = tuple(self._count(operator_id, state) for state in info.states)
            listed = tuple(s for s in states if s.rows or not s.is_internal)
            self._counted[operator_id] = dataclasses.replace(info, states=listed)
        return self._counted[operator_id]

    def sources(self) -> list[SourceInfo]:
        """Return the sources and their positions."""
        return [
            SourceInfo(o.id, o.uid, o.name, unpack(self.snapshot.sources[o.id], load_restricted))
            for o in self._operators.values()
            if o.id in self.snapshot.sources
        ]

    def operator(self, name: str) -> OperatorInfo:
        """Return the operator with a uid, an id (or a prefix), or a unique name; without sizes."""
        operator = find_operator(self._operators.values(), name, self.location)
        vertex = self.vertices[operator.id]
        states = tuple(self._states(operator, vertex))
        return OperatorInfo(
            operator.id, operator.uid, operator.name, vertex.parallelism, vertex.max_parallelism, states
        )

    def state(self, operator: OperatorInfo, name: str, scope: str | None = None) -> StateInfo:
        """Return the state with a name for users, or in the files."""
        states = [s for s in operator.states if scope is None or s.scope == scope]
        matches = [s for s in states if s.name == name] or [s for s in states if s.table == name]
        if not matches:
            names = ", ".join(repr(s.name) for s in states) or "none"
            raise InvalidProgramError(f"Operator '{operator.label}' has no state {name!r} (it has {names}).")
        return matches[0]

    def _states(self, operator: OperatorSnapshot, vertex: VertexSnapshot) -> Iterator[StateInfo]:
        used: set[str] = set()
        for scope, which in _WHICH.items():
            tables = {name: dict(about) for name, about in operator.tables.get(which, {}).items()}
            # Include tables of the files that the manifest does not list.
            for section, _, _ in self._index(state_id_of(operator.id, which), vertex):
                tables.setdefault(section.table, {"kind": section.kind.name, "address": section.address})
            for table, about in tables.items():
                name = shown_name(table)
                if name in used or (name != table and name in tables):
                    name = table if table not in used else f"{scope}:{table}"
                used.add(name)
                ttl = about.get("ttl", "")
                kind = kind_named(about["kind"], f"State {name!r} of operator '{operator.uid or operator.name}'")
                layout = Layout(kind, about["address"], bool(ttl))
                label = shown_kind(table, layout)
                yield StateInfo(name, table, scope, label, about["address"], about.get("type", ""), ttl, layout)

    # --- how much there is

    def _index(self, state_id: str, vertex: VertexSnapshot) -> list[_Indexed]:
        """Return the sections of a state, of all subtasks."""
        if state_id not in self._indexed:
            subtasks = range(vertex.parallelism)
            self._indexed[state_id] = [i for s in subtasks for i in self._index_subtask(state_id, vertex, s)]
        return self._indexed[state_id]

    def _index_subtask(self, state_id: str, vertex: VertexSnapshot, subtask: int) -> Iterator[_Indexed]:
        stored = self.stored(vertex, state_id, subtask)
        if stored is None:
            return
        if stored.is_part:
            yield from index_part(stored.file, self._storage.read(stored.file), stored.checksum)
            return
        for file in chain_files(stored, self._storage.read):
            yield from ((section, None, size) for section, size in file.index())

    def _count(self, operator_id: str, state: StateInfo) -> StateInfo:
        vertex = self.vertices[operator_id]
        rows = size = 0
        # A stored row of these holds several rows.
        unknown = state.layout.kind.has_windows or state.scope == OPERATOR or state.kind == COLUMNS.name
        for section, count, length in self._index(self._state_id(operator_id, state), vertex):
            if section.table == state.table:
                size += length
                rows += count or 0
                unknown |= count is None
        if unknown:
            rows = sum(1 for _ in self._counted_rows(operator_id, state))
        return dataclasses.replace(state, rows=rows, size=size)

    # --- rows

    def _counted_rows(self, operator_id: str, state: StateInfo) -> Iterator[Value]:
        flat = self.flat(operator_id, state, load_restricted)
        return column_rows((c for _, content in flat for c in content), {}) if state.kind == COLUMNS.name else flat

    def rows(self, operator: OperatorInfo, state: StateInfo) -> Iterator[StateRow]:
        """Yield the rows of a state, of all subtasks."""
        for _, row in self.addressed_rows(operator, state):
            yield row

    def addressed_rows(self, operator: OperatorInfo, state: StateInfo) -> Iterator[tuple[Address, StateRow]]:
        """Yield the rows of a state with their addresses."""
        if state.kind == COLUMNS.name:
            changes = [c for _, content in self.flat(operator.id, state, self._loads) for c in content]
            columns = changes[0].rows.schema.names if changes else ()
            yield from column_rows(changes, names_of(operator.name, state.table, columns))
            return
        for address, content in self.flat(operator.id, state, self._loads):
            yield address, state.layout.row(address, content)

    def flat(self, operator_id: str, state: StateInfo, loads: Loads) -> Iterator[tuple[Address, Value]]:
        """Yield the rows of a state by key and namespace, as they are stored."""
        vertex = self.vertices[operator_id]
        state_id = self._state_id(operator_id, state)
        for subtask in range(vertex.parallelism):
            table = self.tables(vertex, state_id, subtask, loads, state.table).get(state.table)
            if table is not None:
                yield from state.layout.flatten(table.rows(), subtask)
                if state.layout.is_broadcast:
                    # All subtasks hold the same.
                    return

    def tables(
        self, vertex: VertexSnapshot, state_id: str, subtask: int, loads: Loads, only: str | None = None
    ) -> dict[str, StateTable]:
        """Return the tables of a subtask's state, or only one of them."""
        tables: dict[str, StateTable] = {}
        stored = self.stored(vertex, state_id, subtask)
        if stored is None:
            return tables
        try:
            for section in stored_sections(stored, self._storage.read, loads=loads, only=only):
                apply(tables, section)
        except MissingClassError as e:
            operator = self._operators[operator_of(state_id)[0]]
            which = f"State {shown_name(only)!r}" if only is not None else "The state"
            raise MissingClassError(
                f"{which} of operator '{operator.uid or operator.name}' cannot be read because {e}"
            ) from e
        return tables

    def stored(self, vertex: VertexSnapshot, state_id: str, subtask: int) -> StoredState | None:
        """Return where a subtask's state is stored; None if it has none."""
        part = vertex.subtasks[subtask].parts.get(state_id)
        if part is not None:
            return StoredState(f"{self.state_url}/{part.file}", part.checksum)
        chain = vertex.subtasks[subtask].states.get(state_id)
        checksum = vertex.subtasks[subtask].checksums.get(state_id)
        return StoredState(f"{self.state_url}/{chain[-1]}", checksum) if chain else None

    def read(self, name: str) -> memoryview:
        """Return the bytes of a state file."""
        return self._storage.read(name)

    def _state_id(self, operator_id: str, state: StateInfo) -> str:
        return state_id_of(operator_id, _WHICH[state.scope])


def find_operator(operators: Iterable[OperatorSnapshot], name: str, location: str) -> OperatorSnapshot:
    """Return the operator with a uid, an id (or a prefix), or a unique name."""
    candidates = list(operators)
    for matches in (
        [o for o in candidates if o.uid == name],
        [o for o in candidates if o.id == name],
        [o for o in candidates if o.name == name],
        [o for o in candidates if len(name) >= 4 and o.id.startswith(name)],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            ids = ", ".join(o.id[:8] for o in matches)
            raise InvalidProgramError(
                f"Several operators of {location} are called {name!r}: give the id of one ({ids})."
            )
    names = ", ".join(repr(o.uid or o.name) for o in candidates)
    raise InvalidProgramError(f"There is no operator {name!r} in {location} (there are {names}).")


def is_key(key: Key, text: str) -> bool:
    """Return whether a key matches what a user has typed: as it is shown, or as plain text."""
    return text in (str(key), repr(key), text_of(key))


def row_as_json(row: StateRow) -> dict[str, Json]:
    """Return a row as plain values."""
    return {"key": jsonable(row.key), "namespace": jsonable(row.namespace), "value": jsonable(row.value)}


def states_as_json(inspection: Inspection) -> list[dict[str, Json]]:
    """Return the operators with their states and sizes."""
    return [
        {
            "operator": operator.id,
            "uid": operator.uid,
            "name": operator.name,
            "states": [{"name": s.name, "kind": s.kind, "type": s.type, "rows": s.rows} for s in operator.states],
        }
        for operator in inspection.operators()
        if operator.states
    ]


def rows_as_json(inspection: Inspection, operator: str, state: str, key: str | None, limit: int) -> dict[str, Json]:
    """Return the rows of a state, of one key or of all.

    Args:
        inspection: the checkpoint.
        operator: its uid, id or name.
        state: the state's name.
        key: only rows of this key, as it is shown or as plain text; None for all.
        limit: the maximum number of rows.
    """
    owner = inspection.operator(operator)
    info = inspection.state(owner, state)
    rows = (row for row in inspection.rows(owner, info) if key is None or is_key(row.key, key))
    some = list(islice(rows, limit + 1))
    about = {"operator": owner.id, "uid": owner.uid, "state": info.name, "kind": info.kind}
    return {**about, "rows": [row_as_json(row) for row in some[:limit]], "complete": len(some) <= limit}
