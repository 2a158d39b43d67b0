"""What a cut of a running job consists of: everything it takes to go on from there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from millstream.common.checksums import Checksum
from millstream.common.pickles import dump
from millstream.state.changelog import Loads
from millstream.state.restored import StoredState

# The files of one state of one subtask: the chain, oldest first, or its part of a savepoint.
Chain = list[str]


@dataclass
class OperatorSnapshot:
    """One operator: who it is, and what tables its states have."""

    id: str
    uid: str | None
    name: str
    # State ("" for keyed state, "operator" for operator state) -> table -> kind, address, declared type.
    tables: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)


@dataclass
class SubtaskSnapshot:
    """One subtask: where its states are, and what else it carries. States are by their ids, see `state_id_of`.

    Attributes:
        checksums: of the last file of each chain: it stands for the files before, too.
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
    """A cut of a job, at the end of an epoch.

    Attributes:
        vertices: by the id of their first operator.
        edges: how the vertices were connected: (edge, first operators of its two ends, input, partitioner).
        sources: how far each source had been dealt out, by operator id.
        committables: what sinks had staged and is not known to be committed, by operator id: (subtask, committable)s.

    Positions of sources and committables are packed, see `pack`: whoever only looks need not have the classes.
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
        """Yield the checksums by which all state files are known: of a chain the last, which stands for the others."""
        for subtask in (s for v in self.vertices.values() for s in v.subtasks):
            yield from (subtask.checksums.get(i) for i, chain in subtask.states.items() if chain)
            yield from (part.checksum for part in subtask.parts.values())

    def parts(self) -> list[str]:
        """Return the names of the files that state was exported to, for a savepoint."""
        return [p.file for v in self.vertices.values() for s in v.subtasks for p in s.parts.values()]


def pack(value: Any) -> bytes:
    """Return how a snapshot holds a source's position, or what a sink has staged; `unpack` is the way back.

    The version of the manifest is that of what is packed in it too.
    """
    return dump(value)


def unpack(packed: bytes, loads: Loads = pickle.loads) -> Any:
    """Return the position, or the list of (subtask, committable); `loads` says how to read pickles."""
    return loads(packed)


def state_id_of(operator: str, which: str) -> str:
    """Return what a state is known by: that of an operator's keys (""), or that of its subtasks ("operator")."""
    return f"{operator}.{which}" if which else operator


def operator_of(state_id: str) -> tuple[str, str]:
    """Return the operator a state belongs to, and which state of it it is."""
    operator, _, which = state_id.partition(".")
    return operator, which
