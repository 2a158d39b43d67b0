"""The snapshot of a job at the end of an epoch: everything needed to restore it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

from millstream.common.aliases import Value
from millstream.common.checksums import Checksum
from millstream.common.pickles import dump
from millstream.state.changelog import Loads, StoredState

# The files of one state of one subtask: its chain, oldest first.
Chain = list[str]


@dataclass
class OperatorSnapshot:
    """One operator: its identity, and the tables of its states."""

    id: str
    uid: str | None
    name: str
    # State ("" for keyed state, "operator" for operator state) -> table -> kind, address, declared type.
    tables: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)


@dataclass
class SubtaskSnapshot:
    """One subtask: its state files and runtime snapshot. States are named by id, see `state_id_of`.

    Attributes:
        checksums: of the last file of each chain: it covers the files before, too.
    """

    states: dict[str, Chain] = field(default_factory=dict)
    parts: dict[str, StoredState] = field(default_factory=dict)
    runtime_snapshot: bytes = b""
    checksums: dict[str, Checksum] = field(default_factory=dict)


@dataclass
class VertexSnapshot:
    """A chain of operators and its subtasks."""

    operators: list[OperatorSnapshot]
    max_parallelism: int
    subtasks: list[SubtaskSnapshot]
    ended: bool

    @property
    def parallelism(self) -> int:
        return len(self.subtasks)


@dataclass
class Snapshot:
    """The snapshot of a job at the end of an epoch.

    Attributes:
        vertices: by the id of their first operator.
        edges: (edge, first operators of its two ends, input, partitioner).
        sources: the position of each source, by operator id.
        committables: output that is not known to be committed, by operator id: (subtask, committable)s.

    Positions and committables are packed, see `pack`: a reader need not have their classes.
    """

    job_id: str
    job_name: str
    epoch: int
    vertices: dict[str, VertexSnapshot] = field(default_factory=dict)
    edges: list[tuple[int, str, str, int, str]] = field(default_factory=list)
    sources: dict[str, bytes] = field(default_factory=dict)
    committables: dict[str, bytes] = field(default_factory=dict)

    def files(self) -> set[str]:
        """Return the names of all state files."""
        return {
            name for v in self.vertices.values() for s in v.subtasks for chain in s.states.values() for name in chain
        }

    def checksums(self) -> Iterator[Checksum | None]:
        """Yield the checksums of all state files: of a chain the last, which covers the others."""
        for subtask in (s for v in self.vertices.values() for s in v.subtasks):
            yield from (subtask.checksums.get(i) for i, chain in subtask.states.items() if chain)
            yield from (part.checksum for part in subtask.parts.values())

    def parts(self) -> list[str]:
        """Return the files that a savepoint's state was exported to."""
        return [p.file for v in self.vertices.values() for s in v.subtasks for p in s.parts.values()]


def pack(value: Value) -> bytes:
    """Pack a source position or a list of committables; `unpack` reverses it.

    The version of the manifest covers packed values too.
    """
    return dump(value)


def unpack(packed: bytes, loads: Loads = pickle.loads) -> Value:
    """Return the position, or the list of (subtask, committable); `loads` reads the pickle."""
    return loads(packed)


def state_id_of(operator: str, which: str) -> str:
    """Return the id of a state: an operator's keyed state (""), or its operator state ("operator")."""
    return f"{operator}.{which}" if which else operator


def operator_of(state_id: str) -> tuple[str, str]:
    """Return the operator of a state, and which of its states it is."""
    operator, _, which = state_id.partition(".")
    return operator, which
