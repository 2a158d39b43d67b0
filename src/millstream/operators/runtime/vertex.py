"""Vertices of the job graph, and the settings of all subtasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.common.fast_dataclass import fast_dataclass
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.record_writer import Edge
from millstream.operators.source import SourceOperator
from millstream.state.backend import Backend

# The option that enables inlining of user functions.
INLINING = "millstream.inlining"


@dataclass
class Vertex:
    """A vertex of the job graph: a chain in topological order, and its parallelism."""

    id: int
    name: str
    nodes: list[ChainNode]
    parallelism: int
    max_parallelism: int
    level: int
    slot_offset: int
    in_edges: list[Edge] = field(default_factory=list)
    out_edges: list[Edge] = field(default_factory=list)
    # Whether its parallelism is always 1.
    non_parallel: bool = False

    @property
    def head(self) -> ChainNode:
        return self.nodes[0]

    @property
    def is_source(self) -> bool:
        return isinstance(self.head.operator, SourceOperator)


@fast_dataclass(kw_only=True)
class JobSettings:
    """The settings that every subtask of a job needs."""

    job_id: str
    job_name: str
    attempt: int
    batch: bool
    job_parameters: dict[str, str] = field(default_factory=dict)
    state_backend: Backend = Backend.HASHMAP
    # A clock for tests, instead of the wall clock.
    clock: Callable[[], int] | None = None
    # Whether state files are compressed.
    compressed: bool = False
    # Whether checksums of state files are cryptographic, as signed manifests require.
    digests: bool = False
    # Whether user functions may be inlined into generated code, see INLINING.
    inlining: bool = True
    # Maximum bytes retained of a failed record and of its state; 0 retains nothing.
    keep_bytes: int = 1 << 20
    # The memory limit of a slot in bytes; None for no limit.
    slot_memory: int | None = None
    # In BATCH, the bytes that the operators of a slot retain in memory before they spill; None never spills.
    batch_memory: int | None = None
    # The id used in file and transaction names if it is not the job's own: each leading job manager has another.
    run_id: str | None = None

    @property
    def writes_as(self) -> str:
        """The id in the names of all that the job writes: its directory and the transactions of its sinks."""
        return self.run_id or self.job_id
