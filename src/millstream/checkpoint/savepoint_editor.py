"""Edits a checkpoint or savepoint and writes the result as a new savepoint. The original is not changed.

Edits are collected and applied when the savepoint is written, subtask by subtask, so that only the state of one
operator's subtask is in memory. Unchanged state of a savepoint is copied as it is, without the program's classes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace

from millstream.checkpoint.inspect import Inspection, OperatorInfo, StateInfo, find_operator
from millstream.checkpoint.manifest import NAME, Manifest, encode_manifest
from millstream.checkpoint.signing import SIGNING_KEY_FILE, SigningKeys, signing_keys
from millstream.checkpoint.snapshot import (
    Snapshot,
    SubtaskSnapshot,
    VertexSnapshot,
    operator_of,
    state_id_of,
)
from millstream.checkpoint.state_rows import Address, Flat, Layout, StateRow
from millstream.checkpoint.storage import Storage, open_storage, storage_options
from millstream.checkpoint.store import open_checkpoint
from millstream.common.aliases import Json, Value
from millstream.common.checksums import checksum_of
from millstream.common.configuration import Configuration
from millstream.common.errors import InvalidProgramError, MissingClassError
from millstream.common.pickles import load, naming_missing_classes
from millstream.graph.stream_graph import operator_id_of
from millstream.operators.runtime.runtime_snapshot import decode, encode, has_pending_input
from millstream.state.changelog import Section, StoredState, sections
from millstream.state.key_groups import key_group, owner
from millstream.state.savepoint_part import check_part, write_part
from millstream.state.table import StateTable

# Bytes of a file that are copied at once.
_PIECE = 1 << 20


@dataclass(frozen=True)
class EditScope:
    """The subtask being edited, and the time."""

    subtask: int
    parallelism: int
    max_parallelism: int
    now: int

    def has(self, layout: Layout, address: Address) -> bool:
        """Return whether a row with that address belongs to this subtask."""
        if layout.is_broadcast:
            return True
        if layout.is_list_of_subtasks:
            return bool(address[1] == self.subtask)
        group = key_group(address[0], self.max_parallelism)
        return owner(group, self.parallelism, self.max_parallelism) == self.subtask


@dataclass(frozen=True)
class Put:
    """Sets a row."""

    address: Address
    value: Value

    def make(self, flat: Flat, layout: Layout, scope: EditScope) -> None:
        if scope.has(layout, self.address):
            flat[self.address] = layout.content_of(self.value, None, scope.now)


@dataclass(frozen=True)
class Update:
    """Sets every row to the result of a function; None removes the row."""

    function: Callable[[StateRow], Value]

    def make(self, flat: Flat, layout: Layout, scope: EditScope) -> None:
        for address, before in list(flat.items()):
            content = layout.content_of(self.function(layout.row(address, before)), before, scope.now)
            if content is None:
                del flat[address]
            else:
                flat[address] = content


@dataclass(frozen=True)
class Remove:
    """Removes the row of a key and namespace, or all rows of a key."""

    address: Address
    all_namespaces: bool

    def make(self, flat: Flat, layout: Layout, scope: EditScope) -> None:
        if self.all_namespaces:
            for address in [a for a in flat if a[0] == self.address[0]]:
                del flat[address]
        else:
            flat.pop(self.address, None)


@dataclass(frozen=True)
class DropState:
    """Removes all rows."""

    def make(self, flat: Flat, layout: Layout, scope: EditScope) -> None:
        flat.clear()


Change = Put | Update | Remove | DropState


class SavepointEditor:
    """The edits of a savepoint."""

    def __init__(self, inspection: Inspection, clock: Callable[[], float] = time.time) -> None:
        self._from = inspection
        self._clock = clock
        self._digests = False
        # The edited operators, by their current ids.
        vertices = inspection.snapshot.vertices.values()
        self._operators = {o.id: replace(o, tables=dict(o.tables)) for v in vertices for o in v.operators}
        # Changes by state, in order.
        self._changes: dict[tuple[str, StateInfo], list[Change]] = {}

    # --- requested changes

    def put(self, operator: str, state: str, key: Value, value: Value, namespace: Value = None) -> None:
        operator_id, info = self._state(operator, state)
        if info.layout.content_of(value, None, 0) is None:
            raise InvalidProgramError(f"State {state!r} cannot hold {value!r}: use remove() to remove a row.")
        self._change(operator_id, info, Put(info.layout.address_of(key, namespace), value))

    def update(self, operator: str, state: str, function: Callable[[StateRow], Value]) -> None:
        self._change(*self._state(operator, state), Update(function))

    def remove(self, operator: str, state: str, key: Value, namespace: Value = None) -> None:
        operator_id, info = self._state(operator, state)
        layout = info.layout
        whole_key = namespace is None and not layout.is_list_of_subtasks
        address = (layout.stored_key(key), None) if whole_key else layout.address_of(key, namespace)
        self._change(operator_id, info, Remove(address, whole_key))

    def drop_state(self, operator: str, state: str) -> None:
        operator_id, info = self._state(operator, state)
        self._change(operator_id, info, DropState())
        tables = self._operators[operator_id].tables
        which = _which(info)
        tables[which] = {name: about for name, about in tables.get(which, {}).items() if name != info.table}

    def drop_operator(self, operator: str) -> None:
        del self._operators[self._find(operator)]

    def rename(self, operator: str, uid: str) -> None:
        if not isinstance(uid, str) or not uid:
            raise InvalidProgramError(f"A uid must be a text that is not empty, not {uid!r}.")
        operator_id = self._find(operator)
        new_id = operator_id_of(uid)
        other = next((o for i, o in self._operators.items() if o.id == new_id and i != operator_id), None)
        if other is not None:
            raise InvalidProgramError(f"The uid '{uid}' is taken by operator '{other.name}': drop that one first.")
        self._operators[operator_id] = replace(self._operators[operator_id], id=new_id, uid=uid)

    def _find(self, operator: str) -> str:
        """Return the original id of an operator, by its current name."""
        snapshot = find_operator(self._operators.values(), operator, self._from.location)
        return next(i for i, o in self._operators.items() if o is snapshot)

    def _state(self, operator: str, state: str) -> tuple[str, StateInfo]:
        operator_id = self._find(operator)
        info: OperatorInfo = self._from.operator(operator_id)
        return operator_id, self._from.state(info, state)

    def _change(self, operator_id: str, state: StateInfo, change: Change) -> None:
        self._changes.setdefault((operator_id, state), []).append(change)

    # --- what is written

    def write(self, location: str, options: dict[str, Json] | None = None, keys: SigningKeys | None = None) -> str:
        """Write the savepoint, signed if there are keys; return its location."""
        storage = open_storage(location, options if options is not None else self._from.options)
        if storage.list(""):
            raise InvalidProgramError(f"{storage.url} is not empty: a savepoint needs a directory of its own.")
        try:
            self._write_to(storage, int(self._clock() * 1000), keys)
        except BaseException:
            # The directory was empty: remove the incomplete savepoint.
            storage.delete("")
            raise
        return storage.url

    def _write_to(self, storage: Storage, now: int, keys: SigningKeys | None) -> None:
        before, self._digests = self._from.manifest, keys is not None
        snapshot = self._snapshot(storage, now)
        names = snapshot.parts()
        manifest = Manifest("savepoint", before.id, now, snapshot, "", {"made-from": self._from.location})
        if names:
            storage.make_durable(names)
        storage.publish(NAME, encode_manifest(manifest, keys))

    def _snapshot(self, storage: Storage, now: int) -> Snapshot:
        before = self._from.snapshot
        vertices: dict[str, VertexSnapshot] = {}
        for vertex in before.vertices.values():
            operators = [self._operators[o.id] for o in vertex.operators if o.id in self._operators]
            if operators:
                subtasks = [self._subtask(vertex, i, storage, now) for i in range(vertex.parallelism)]
                vertices[operators[0].id] = VertexSnapshot(operators, vertex.max_parallelism, subtasks, vertex.ended)
        snapshot = copy(before)
        snapshot.vertices = vertices
        snapshot.sources = self._renamed(before.sources)
        snapshot.committables = self._renamed(before.committables)
        # An edge remains only if both of its ends do.
        snapshot.edges = [
            (number, self._operators[source].id, self._operators[target].id, index, partitioner)
            for number, source, target, index, partitioner in before.edges
            if source in self._operators and target in self._operators
        ]
        return snapshot

    def _renamed(self, by_operator: dict[str, Value]) -> dict[str, Value]:
        return {self._operators[i].id: x for i, x in by_operator.items() if i in self._operators}

    def _subtask(self, vertex: VertexSnapshot, subtask: int, storage: Storage, now: int) -> SubtaskSnapshot:
        source = vertex.subtasks[subtask]
        changed = {state_id_of(i, _which(s)) for i, s in self._changes if self._from.vertices[i] is vertex}
        scope = EditScope(subtask, vertex.parallelism, vertex.max_parallelism, now)
        parts: dict[str, StoredState] = {}
        for state_id in dict.fromkeys((*source.states, *source.parts, *changed)):
            operator, which = operator_of(state_id)
            if operator in self._operators:
                new_id = state_id_of(self._operators[operator].id, which)
                part = self._part(vertex, state_id, scope, f"{new_id}-{subtask}.parquet", storage)
                if part is not None:
                    parts[new_id] = part
        return SubtaskSnapshot({}, parts, self._runtime_snapshot(source.runtime_snapshot, vertex.operators[0].id))

    def _part(
        self, vertex: VertexSnapshot, state_id: str, scope: EditScope, name: str, storage: Storage
    ) -> StoredState | None:
        """Write the state of a subtask; None if there is nothing."""
        changes = {s: c for (i, s), c in self._changes.items() if state_id_of(i, _which(s)) == state_id}
        stored = self._from.stored(vertex, state_id, scope.subtask)
        if stored is not None and stored.is_part and not changes:
            data = self._from.read(stored.file)
            check_part(stored.file, data, stored.checksum)
            storage.write(name, (bytes(data[i : i + _PIECE]) for i in range(0, len(data), _PIECE)))
            return StoredState(name, stored.checksum)
        tables = self._from.tables(vertex, state_id, scope.subtask, load)
        for state, edits in changes.items():
            layout = state.layout
            before = tables.get(state.table)
            flat = dict(layout.flatten(before.rows(), scope.subtask)) if before is not None else {}
            for change in edits:
                change.make(flat, layout, scope)
            tables[state.table] = StateTable(state.table, layout.kind, layout.address, layout.gather(flat))
        if not any(len(t) for t in tables.values()):
            return None
        return write_part(name, _sections(tables), scope.max_parallelism, storage.write, self._digests)

    def _runtime_snapshot(self, encoded: bytes, head: str) -> bytes:
        """Return a subtask's runtime snapshot with the new operator ids; `head` is the first operator of its chain."""
        is_unchanged = head in self._operators or not has_pending_input(encoded)
        if not encoded or (is_unchanged and all(i == o.id for i, o in self._operators.items())):
            return encoded
        try:
            with naming_missing_classes():
                left = decode(encoded)
        except MissingClassError as e:
            raise MissingClassError(f"The runtime snapshot of a subtask cannot be read: {e}") from e
        return encode(
            watermark=left.watermark,
            idle=left.idle,
            ended=left.ended,
            channels=left.channels,
            operators=self._moved(left.operators),
            watermarks=self._moved(left.watermarks),
            ended_edges=left.ended_edges,
            pending_ranges=left.pending_ranges,
            requests=left.requests,
            # In-flight data belongs to its operator.
            pending_blocks=left.pending_blocks if head in self._operators else (),
            recovered_blocks=[
                (self._operators[i].id, number, b) for i, number, b in left.recovered_blocks if i in self._operators
            ],
        )

    def _moved(self, by_operator: Mapping[str, Value]) -> dict[str, Value]:
        ids = {i: o.id for i, o in self._operators.items()}
        return {ids.get(i, i): x for i, x in by_operator.items()}


def _which(state: StateInfo) -> str:
    return "" if state.scope == "keyed" else "operator"


def _sections(tables: dict[str, StateTable]) -> Iterator[Section]:
    for name, table in tables.items():
        yield from sections(name, table.kind, table.address, table.rows())


# Files that failed attempts may have left in a savepoint's directory.
_PART = re.compile(r"[0-9a-f]{32}(\.operator)?-\d+-.+\.parquet")


def dispose_savepoint(inspection: Inspection) -> list[str]:
    """Delete a savepoint; return the other files in its directory, which stay."""
    if inspection.manifest.kind != "savepoint":
        raise InvalidProgramError(
            f"{inspection.location} is a checkpoint, which belongs to its job and may share files with others: it is "
            "not deleted."
        )
    storage = open_storage(inspection.location, inspection.options)
    parts = set(inspection.snapshot.parts())
    # Delete the manifest first: an incomplete savepoint must not look like one.
    storage.delete(NAME)
    for name in storage.list(""):
        if name in parts or _PART.fullmatch(name):
            storage.delete(name)
    left = list(storage.list(""))
    if not left:
        storage.delete("")
    return left


def sign_savepoint(location: str, config: Configuration) -> str:
    """Write a savepoint's manifest again, with the digests of its files and a signature; return its location.

    Nothing in it is unpickled.
    """
    keys, options = signing_keys(config), storage_options(config)
    if keys is None:
        raise InvalidProgramError(f"There is no key to sign {location} with: set {SIGNING_KEY_FILE.key}.")
    stored = open_checkpoint(location, options)
    if stored.manifest.kind != "savepoint":
        raise InvalidProgramError(
            f"{stored.location} is a checkpoint, which belongs to its job: write it as a savepoint with "
            "millstream.state_processor, and sign that."
        )
    storage = open_storage(stored.location, options)
    for subtask in (s for v in stored.manifest.snapshot.vertices.values() for s in v.subtasks):
        for state_id, part in subtask.parts.items():
            data = storage.read(part.file)
            check_part(part.file, data, part.checksum)
            subtask.parts[state_id] = StoredState(part.file, checksum_of(data, digest=True))
    storage.publish(NAME, encode_manifest(stored.manifest, keys))
    return stored.location
