"""Restores a snapshot for a plan, also one that has changed since. Pure.

Operators are matched by id, which comes from the uid. With the same graph and parallelism, everything continues as it
was. Otherwise state is redistributed by key group, and each subtask starts with the minimum watermark of the subtasks
it takes over from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from millstream.checkpoint.snapshot import OperatorSnapshot, Snapshot, VertexSnapshot, operator_of, state_id_of
from millstream.checkpoint.sql_state_diff import is_of_sql, mismatch_reason
from millstream.common.aliases import Value
from millstream.common.checksums import Checksum
from millstream.common.errors import InvalidProgramError
from millstream.common.watermark_strategy import MIN_WATERMARK
from millstream.operators.runtime.chain import ChainNode
from millstream.operators.runtime.messages import JobPlan
from millstream.operators.runtime.runtime_snapshot import (
    RECOVERED,
    SPLIT_RANGES,
    PendingRange,
    RecoveredBlocks,
    decode,
    encode,
    has_pending_input,
    has_requests,
    pending_inputs,
)
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.source import SourceOperator
from millstream.state.changelog import StoredState
from millstream.state.key_groups import owned_groups
from millstream.state.keyed import Version
from millstream.state.restored import Restored

Address = tuple[int, int]

# In-flight data by operator, each with the index of its subtask.
RecoveredInput = dict[str, list[tuple[int, RecoveredBlocks]]]


@dataclass
class InitialState:
    """The initial state of an execution.

    Attributes:
        state_files, runtime_snapshots: by (vertex, subtask), as in LevelTask.
        chains: the files of each state that is continued: (vertex, subtask, state) -> names.
        checksums: of the last file of each chain, if known.
        sources: the position of each source, by operator id; pickled.
        ended: the vertices whose input has ended.
        tables: the tables of each state, by state id.
    """

    epoch: int = 0
    state_files: dict[Address, dict[str, Version]] = field(default_factory=dict)
    chains: dict[tuple[int, int, str], list[str]] = field(default_factory=dict)
    checksums: dict[tuple[int, int, str], Checksum] = field(default_factory=dict)
    runtime_snapshots: dict[Address, bytes] = field(default_factory=dict)
    sources: dict[str, bytes] = field(default_factory=dict)
    ended: frozenset[int] = frozenset()
    # Files of the restored snapshot in the job's own directory: read by the first epoch and then superseded.
    restored_files: set[str] = field(default_factory=set)
    tables: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)


def edges_of(plan: JobPlan) -> list[tuple[int, str, str, int, str]]:
    """Return the edges of a plan, by the ids of the first operators of its vertices."""
    heads = {v.id: v.head.id for v in plan.vertices}
    return [
        (e.id, heads[e.source], heads[e.target], e.input_index, e.partitioner.name)
        for v in plan.vertices
        for e in v.out_edges
    ]


def is_same_graph(snapshot: Snapshot, plan: JobPlan) -> bool:
    """Return whether a plan has exactly the vertices, parallelism and edges of a snapshot."""
    before = {h: ([o.id for o in v.operators], v.parallelism) for h, v in snapshot.vertices.items()}
    now = {v.head.id: ([n.id for n in v.nodes], v.parallelism) for v in plan.vertices}
    return before == now and sorted(map(tuple, snapshot.edges)) == sorted(edges_of(plan))


def restore(snapshot: Snapshot, plan: JobPlan, state_url: str | None, allow_non_restored: bool = False) -> InitialState:
    """Return the initial state of a plan that is restored from a snapshot.

    Args:
        snapshot: the snapshot.
        plan: the plan to start.
        state_url: the location of the snapshot's state files; None if they are in the job's own directory and are
            continued.
        allow_non_restored: whether state without an operator is dropped.
    """
    _check_all_taken(snapshot, plan, allow_non_restored)
    same = is_same_graph(snapshot, plan)
    start = InitialState(snapshot.epoch)
    if state_url is None:
        start.restored_files = snapshot.files()
    source_ids = {n.id for v in plan.vertices for n in v.nodes if isinstance(n.operator, SourceOperator)}
    start.sources = {operator: state for operator, state in snapshot.sources.items() if operator in source_ids}
    owners = {o.id: v for v in snapshot.vertices.values() for o in v.operators}
    start.tables = {state_id_of(o.id, which): t for o in _operators_in(snapshot, plan) for which, t in o.tables.items()}
    recovered = {} if same else _in_flight_data(snapshot)
    start.ended = _ended(plan, owners, recovered)
    for vertex in plan.vertices:
        for subtask in range(vertex.parallelism):
            address = vertex.id, subtask
            if same:
                start.runtime_snapshots[address] = snapshot.vertices[vertex.head.id].subtasks[subtask].runtime_snapshot
            else:
                runtime_snapshot = _taken_over(vertex, subtask, owners, start.ended, plan, recovered)
                if runtime_snapshot is not None:
                    start.runtime_snapshots[address] = runtime_snapshot
            files = start.state_files[address] = {}
            for node in vertex.nodes:
                before = owners.get(node.id)
                if before is not None:
                    _take_state(start, files, vertex, subtask, node, before, state_url, same)
    return start


def _ended(plan: JobPlan, owners: dict[str, VertexSnapshot], recovered: Collection[str]) -> frozenset[int]:
    """Return the vertices whose input has ended and that have no work left.

    A vertex with async requests in flight or with recovered input has not ended, even behind a source that has. Nor
    has a vertex that now contains both.
    """
    ended: set[int] = set()
    for vertex in sorted(plan.vertices, key=lambda v: v.level):
        before = [owners[n.id] for n in vertex.nodes if n.id in owners]
        if vertex.head.id in owners:
            has_ended = all(b.ended for b in before)
        else:
            # It is new: no input will ever arrive.
            has_ended = bool(vertex.in_edges) and all(e.source in ended for e in vertex.in_edges) and not before
        if has_ended and not any(n.id in recovered for n in vertex.nodes):
            ended.add(vertex.id)
    return frozenset(ended)


def _take_state(
    start: InitialState,
    files: dict[str, Version],
    vertex: Vertex,
    subtask: int,
    node: ChainNode,
    before: VertexSnapshot,
    state_url: str | None,
    same: bool,
) -> None:
    """Set what one operator's subtask reads its states from."""
    states = {i for s in before.subtasks for i in (*s.states, *s.parts) if operator_of(i)[0] == node.id}
    for state_id in states:
        is_keyed = operator_of(state_id)[1] == ""
        if same and state_url is None and is_keyed:
            # The chain belongs to this job and is continued.
            chain = before.subtasks[subtask].states.get(state_id, [])
            files[state_id] = chain[-1] if chain else None
            start.chains[vertex.id, subtask, state_id] = list(chain)
            if (checksum := before.subtasks[subtask].checksums.get(state_id)) is not None:
                start.checksums[vertex.id, subtask, state_id] = checksum
            continue
        groups = owned_groups(subtask, vertex.parallelism, vertex.max_parallelism)
        stored = tuple(_stored(before, i, state_id, state_url) for i in range(before.parallelism))
        if is_keyed:
            stored = tuple(
                s
                for i, s in enumerate(stored)
                if s is not None and _overlaps(i, before, groups, vertex.max_parallelism)
            )
        if any(s is not None for s in stored):
            files[state_id] = Restored(
                stored, groups, vertex.max_parallelism, subtask, vertex.parallelism, _expiring(before, node, state_id)
            )


def _expiring(before: VertexSnapshot, node: ChainNode, state_id: str) -> frozenset[str] | None:
    """Return the tables of a state with a time to live; None if unknown."""
    operator = next(o for o in before.operators if o.id == node.id)
    tables = operator.tables.get(operator_of(state_id)[1])
    if tables is None:
        return None
    return frozenset(name for name, table in tables.items() if table.get("ttl"))


def _overlaps(subtask: int, before: VertexSnapshot, groups: range, max_parallelism: int) -> bool:
    if before.max_parallelism != max_parallelism:
        # Other key groups: any key may be anywhere.
        return True
    previous_groups = owned_groups(subtask, before.parallelism, before.max_parallelism)
    return previous_groups.start < groups.stop and groups.start < previous_groups.stop


def _stored(before: VertexSnapshot, subtask: int, state_id: str, state_url: str | None) -> StoredState | None:
    prefix = f"{state_url}/" if state_url is not None else ""
    part = before.subtasks[subtask].parts.get(state_id)
    if part is not None:
        return StoredState(prefix + part.file, part.checksum)
    chain, checksum = before.subtasks[subtask].states.get(state_id), before.subtasks[subtask].checksums.get(state_id)
    return StoredState(prefix + chain[-1], checksum) if chain else None


def _taken_over(
    vertex: Vertex,
    subtask: int,
    owners: dict[str, VertexSnapshot],
    ended: frozenset[int],
    plan: JobPlan,
    recovered: RecoveredInput,
) -> bytes | None:
    """Return the runtime snapshot that a subtask takes over; None if all its operators are new."""
    head = vertex.head.operator
    reads, pending_ranges = None, list[PendingRange]()
    if isinstance(head, SourceOperator):
        reads = partial(_reads, head, subtask, vertex.parallelism)
        pending_ranges = _pending_ranges(owners.get(vertex.head.id), subtask, vertex.parallelism, reads)
    operators: dict[str, Value] = {}
    watermarks: dict[str, int] = {}
    for node in vertex.nodes:
        before = owners.get(node.id)
        if before is None:
            continue
        left = [decode(s.runtime_snapshot) for s in before.subtasks if s.runtime_snapshot]
        operator_snapshots = [former.operators.get(node.id) for former in left]
        snapshots = [s for s in operator_snapshots if s is not None]
        # An ended operator that runs once more has emitted everything; only operators behind it have not.
        if snapshots and (vertex.id in ended or not before.ended):
            operators[node.id] = node.operator.redistribute(snapshots, subtask, reads)
        watermarks[node.id] = min(
            (former.watermarks.get(node.id, MIN_WATERMARK) for former in left), default=MIN_WATERMARK
        )
    if not watermarks:
        return None
    ended_vertices = {v.id for v in plan.vertices if v.id in ended}
    return encode(
        watermark=watermarks.get(vertex.head.id, MIN_WATERMARK),
        idle=False,
        ended=vertex.id in ended,
        channels={},
        operators=operators,
        watermarks=watermarks,
        ended_edges=frozenset(e.id for e in vertex.in_edges if e.source in ended_vertices),
        pending_ranges=pending_ranges,
        # The new owners repeat the requests in their first epoch.
        requests=any(
            has_requests(s.runtime_snapshot) for n in vertex.nodes if n.id in owners for s in owners[n.id].subtasks
        ),
        recovered_blocks=[
            former
            for position in range(len(vertex.nodes))
            for former in _taken_input(vertex, position, subtask, recovered)
        ],
    )


def _in_flight_data(snapshot: Snapshot) -> RecoveredInput:
    """Return the in-flight data of the operators of a snapshot."""
    recovered: RecoveredInput = {}
    for head, vertex in snapshot.vertices.items():
        for subtask, runtime_snapshot in enumerate(s.runtime_snapshot for s in vertex.subtasks):
            if not has_pending_input(runtime_snapshot):
                continue
            left = decode(runtime_snapshot)
            # Input recovered earlier is processed first.
            inputs = [*left.recovered_blocks, *((head, number, blocks) for _, number, blocks in left.pending_blocks)]
            for pending in inputs:
                recovered.setdefault(pending[0], []).append((subtask, pending))
    return recovered


def _taken_input(vertex: Vertex, position: int, subtask: int, recovered: RecoveredInput) -> list[RecoveredBlocks]:
    """Return the in-flight data of an operator that a subtask takes over.

    It gets all records partitioned by key, and selects its own.
    """
    node = vertex.nodes[position]
    by_key = {e.input_index for e in vertex.in_edges if position == 0 and e.partitioner.by_key}
    inputs = []
    for former, blocks in recovered.get(node.id, []):
        if blocks[1] >= max(node.operator.inputs, 1):
            raise InvalidProgramError(
                f"Operator '{node.name}' has no second input now, but the snapshot has unprocessed records of it: give "
                "the operator another uid, or stop the former job with a savepoint that drains it."
            )
        if blocks[1] in by_key or former % vertex.parallelism == subtask:
            inputs.append(blocks)
    return inputs


def _pending_ranges(
    before: VertexSnapshot | None, subtask: int, parallelism: int, reads: Callable[[Value], bool]
) -> list[PendingRange]:
    """Return the assigned but unread split ranges that a source's subtask takes over."""
    if before is None:
        return []
    # Without splits, any subtask may read any range.
    return [
        pending
        for i, former in enumerate(before.subtasks)
        if has_pending_input(former.runtime_snapshot)
        for pending in decode(former.runtime_snapshot).pending_ranges
        if (i % parallelism == subtask if pending[0] is None else reads(pending[0]))
    ]


def _reads(source: SourceOperator, subtask: int, parallelism: int, split: Value) -> bool:
    return source.source.subtask_of(split, parallelism) == subtask


def _operators_in(snapshot: Snapshot, plan: JobPlan) -> list[OperatorSnapshot]:
    """Return the operators of a snapshot that the plan has too."""
    ids = {n.id for v in plan.vertices for n in v.nodes}
    return [o for v in snapshot.vertices.values() for o in v.operators if o.id in ids]


def _check_all_taken(snapshot: Snapshot, plan: JobPlan, allow: bool) -> None:
    if allow:
        return
    ids = {n.id for v in plan.vertices for n in v.nodes}
    lost = [
        operator
        for vertex in snapshot.vertices.values()
        for operator in vertex.operators
        if operator.id not in ids and has_state(vertex, operator.id, snapshot)
    ]
    if any(is_of_sql(operator.uid) for operator in lost):
        raise InvalidProgramError(_changed_query(snapshot, plan, lost))
    for operator in lost:
        called = f"uid '{operator.uid}'" if operator.uid else "no uid"
        raise InvalidProgramError(
            f"The state of operator '{operator.name}' ({called}) matches no operator of the program. "
            "Give the operator its uid again, or discard its state (--allow-non-restored-state)."
        )


def _changed_query(snapshot: Snapshot, plan: JobPlan, lost: list[OperatorSnapshot]) -> str:
    """Return the error message for a query whose operators differ from those of the snapshot."""
    names_by_id = {n.id: n.name for v in plan.vertices for n in v.nodes}
    former_names = {o.id: o.name for v in snapshot.vertices.values() for o in v.operators}
    before = [name for operator_id, name in former_names.items() if operator_id not in names_by_id]
    now = [name for operator_id, name in names_by_id.items() if operator_id not in former_names]
    differences = "".join(f"\n  {o.name}: {mismatch_reason(o.name, before, now)}" for o in lost)
    return (
        f"The query has changed, and some of its state cannot be restored:{differences}\n"
        "Run the previous query (COMPILE PLAN preserves it), or discard that state (--allow-non-restored-state, or "
        "SET 'execution.state-recovery.ignore-unclaimed-state' = 'true')."
    )


def _has_input(vertex: VertexSnapshot, operator_id: str) -> bool:
    """Return whether an operator has in-flight data; it is not decoded, since its classes may be missing."""
    inputs = {i for s in vertex.subtasks for i in pending_inputs(s.runtime_snapshot)} - {SPLIT_RANGES}
    # Channels lead to the first operator of a chain.
    return RECOVERED in inputs or (vertex.operators[0].id == operator_id and bool(inputs))


def has_state(vertex: VertexSnapshot, operator_id: str, snapshot: Snapshot) -> bool:
    """Return whether an operator has anything that would be lost without it."""
    if operator_id in snapshot.sources or operator_id in snapshot.committables or _has_input(vertex, operator_id):
        return True
    return any(operator_of(i)[0] == operator_id for s in vertex.subtasks for i in (*s.states, *s.parts))
