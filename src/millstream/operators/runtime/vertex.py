"""What a job's vertices are, and what all their subtasks must know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from millstream.common.fast_dataclass import record
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.record_writer import Edge
from millstream.operators.source import SourceOperator
from millstream.state.backend import Backend

# The configuration's key for writing users' functions out in loops.
INLINING = "millstream.inlining"


@dataclass
class Vertex:
    """A vertex of the job graph: a chain, each operator after the one it reads from, and how it is spread out."""

    id: int
    name: str
    nodes: list[ChainNode]
    parallelism: int
    max_parallelism: int
    level: int
    slot_offset: int
    in_edges: list[Edge] = field(default_factory=list)
    out_edges: list[Edge] = field(default_factory=list)
    # Whether it can never have more than one subtask.
    non_parallel: bool = False

    @property
    def head(self) -> ChainNode:
        return self.nodes[0]

    @property
    def is_source(self) -> bool:
        return isinstance(self.head.operator, SourceOperator)


@record(kw_only=True)
class JobSettings:
    """What every subtask of a job must know."""

    job_id: str
    job_name: str
    attempt: int
    batch: bool
    job_parameters: dict[str, str] = field(default_factory=dict)
    state_backend: Backend = Backend.HASHMAP
    # A clock other than the wall's, for tests.
    clock: Callable[[], int] | None = None
    # Whether state files are compressed.
    compressed: bool = False
    # Whether checksums of state files are such that nobody can make another file for them: signed manifests have them.
    digests: bool = False
    # Whether users' functions may be written out in the loops of chains, see INLINING.
    inlining: bool = True
    # So many bytes are kept of a record that fails, and of its state; none with 0.
    keep_bytes: int = 1 << 20
    # The bytes of memory that a slot may have; None if nobody has said.
    slot_memory: int | None = None
    # In BATCH, how many bytes the operators of a slot keep in memory before they put rows on disk; None for all.
    batch_memory: int | None = None
    # Under which id it writes, where that is not its own: another one for every leader of its job managers.
    run_id: str | None = None

    @property
    def writes_as(self) -> str:
        """The id in the names of all that it writes: of its directory, and of the transactions of its sinks."""
        return self.run_id or self.job_id
