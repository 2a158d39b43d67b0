"""The stream graph: the operators that a set of sinks needs, with every default decided.

Validation happens here, before anything is started: a program that cannot run is refused with one sentence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container
from dataclasses import dataclass, field
from itertools import count

from millstream.common.errors import InvalidProgramError
from millstream.graph.transformations import DEFAULT_SLOT_GROUP, ChainingStrategy, Transformation
from millstream.operators.base import Operator
from millstream.operators.functions.output_tag import OutputTag
from millstream.operators.runtime.partitioners import ForwardElse, Partitioner, RebalancePartitioner
from millstream.operators.windows import panes, sessions
from millstream.operators.windows.window_operator import WindowOperator
from millstream.state.backend import Backend
from millstream.state.key_groups import UPPER_BOUND_MAX_PARALLELISM, default_max_parallelism


def select_operator(operator: Operator, backend: Backend) -> Operator:
    """Return the operator that runs with a backend: the given one, or a faster form of it."""
    # These read and write a pane, or a key's sessions, as a whole, which is cheap only in memory.
    if type(operator) is not WindowOperator or backend is not Backend.HASHMAP:
        return operator
    if panes.can_use_panes(operator):
        return panes.PaneOperator.like(operator)
    return sessions.SessionOperator.like(operator) if sessions.can_use_sessions(operator) else operator


# The default partitioner between two operators.
_DEFAULT = ForwardElse(RebalancePartitioner())


@dataclass(eq=False)
class StreamNode:
    """An operator with all settings decided.

    Attributes:
        operator: what does the work of the transformation's operator.
        uid: by which its state is found again, if it has one.
    """

    transformation: Transformation
    operator: Operator
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    operator_id: str = ""
    uid: str | None = None
    in_edges: list[StreamEdge] = field(default_factory=list)
    out_edges: list[StreamEdge] = field(default_factory=list)

    @property
    def id(self) -> int:
        return self.transformation.id

    @property
    def name(self) -> str:
        return self.transformation.shown_name

    @property
    def label(self) -> str:
        return self.transformation.label


@dataclass(eq=False)
class StreamEdge:
    """An edge between two operators."""

    source: StreamNode
    target: StreamNode
    partitioner: Partitioner
    tag: OutputTag | None
    input_index: int


@dataclass
class StreamGraph:
    """All operators in topological order."""

    job_name: str
    nodes: list[StreamNode]
    chaining_enabled: bool
    backend: Backend

    @property
    def is_bounded(self) -> bool:
        """Whether every source is bounded."""
        return all(n.transformation.is_bounded for n in self.nodes)


def build_stream_graph(
    sinks: list[Transformation],
    parallelism: int,
    job_name: str,
    chaining_enabled: bool,
    backend: Backend,
    max_parallelism: int | None = None,
) -> StreamGraph:
    """Collect the operators that the sinks need, decide all defaults, and select the operators that run.

    Args:
        sinks: the ends of the program.
        parallelism: the parallelism of operators without an explicit one.
        job_name: the job's name.
        chaining_enabled: whether operators may be chained.
        backend: where keyed state will be.
        max_parallelism: the max parallelism of operators without an explicit one; None for Flink's default.
    """
    if not sinks:
        raise InvalidProgramError(
            "No operators defined in streaming topology: the program has no sink. "
            "Add one, for example .print() or .sink_to(...), or use execute_and_collect()."
        )
    ordered = _in_order(sinks)
    nodes: dict[Transformation, StreamNode] = {}
    for t in ordered:
        node = nodes[t] = _decide(t, [nodes[e.source] for e in t.inputs], parallelism, backend, max_parallelism)
        for end in t.inputs:
            source = nodes[end.source]
            partitioner = (end.partitioner or _DEFAULT).between(source.parallelism, node.parallelism)
            _check_forward(source, node, partitioner)
            edge = StreamEdge(source, node, partitioner, end.tag, end.input_index)
            source.out_edges.append(edge)
            node.in_edges.append(edge)
    _identify(list(nodes.values()))
    return StreamGraph(job_name, list(nodes.values()), chaining_enabled, backend)


def _in_order(sinks: list[Transformation]) -> list[Transformation]:
    """Return the transformations upstream of the sinks, inputs first; a cycle is an error."""
    done: dict[Transformation, None] = {}
    open_path: dict[Transformation, None] = {}
    stack: list[tuple[Transformation, bool]] = [(s, False) for s in reversed(sinks)]
    while stack:
        t, inputs_done = stack.pop()
        if inputs_done:
            open_path.pop(t)
            done[t] = None
        elif t in open_path:
            names = " -> ".join(x.label for x in [*open_path, t])
            raise InvalidProgramError(f"The program has a cycle, which cannot run: {names}.")
        elif t not in done:
            open_path[t] = None
            stack.append((t, True))
            stack.extend((e.source, False) for e in reversed(t.inputs) if e.source not in done)
    return list(done)


def _decide(
    t: Transformation, inputs: list[StreamNode], default_parallelism: int, backend: Backend, default_max: int | None
) -> StreamNode:
    parallelism = 1 if t.non_parallel else t.parallelism or default_parallelism
    max_parallelism = t.max_parallelism or default_max or default_max_parallelism(parallelism)
    if not 1 <= max_parallelism <= UPPER_BOUND_MAX_PARALLELISM:
        raise InvalidProgramError(
            f"The max parallelism of operator {t.label} must be from 1 to {UPPER_BOUND_MAX_PARALLELISM}, "
            f"not {max_parallelism}."
        )
    if parallelism > max_parallelism:
        raise InvalidProgramError(
            f"The parallelism {parallelism} of operator {t.label} is above its max parallelism {max_parallelism}."
        )
    group = t.slot_sharing_group
    if group is None:
        # An operator shares the group of its inputs if they all have the same one.
        groups = {i.slot_sharing_group for i in inputs}
        group = groups.pop() if len(groups) == 1 else DEFAULT_SLOT_GROUP
    return StreamNode(t, select_operator(t.operator, backend), parallelism, max_parallelism, group)


def _check_forward(source: StreamNode, target: StreamNode, partitioner: Partitioner) -> None:
    if partitioner.name == "FORWARD" and source.parallelism != target.parallelism:
        raise InvalidProgramError(
            f"forward() from {source.label} of parallelism {source.parallelism} to {target.label} "
            f"of parallelism {target.parallelism} needs equal parallelism: use rebalance() or rescale() instead."
        )


def _identify(nodes: list[StreamNode]) -> None:
    """Assign operator ids: from the uid, or else from the position in the graph."""
    by_uid: dict[str, StreamNode] = {}
    index: dict[StreamNode, int] = {}
    for node in nodes:
        t = node.transformation
        if t.uid is not None and t.uid in by_uid:
            raise InvalidProgramError(
                f"Operators {by_uid[t.uid].label} and {t.label} have the same uid '{t.uid}': "
                "every uid must be used once."
            )
        node.uid = t.uid if t.uid is not None or t.plan_uid is None else _numbered(t.plan_uid, by_uid)
        if node.uid is not None:
            by_uid[node.uid] = node
        index[node] = len(index)
        if t.uid_hash is not None:
            node.operator_id = t.uid_hash
        elif node.uid is not None:
            node.operator_id = operator_id_of(node.uid)
        else:
            inputs = [f"{e.source.operator_id}/{e.input_index}/{e.tag.tag_id if e.tag else ''}" for e in node.in_edges]
            # Use the program's operator, not the selected form: state is restored even if the form changes.
            node.operator_id = _hash("place", str(index[node]), t.operator.identity, *inputs)


def _numbered(uid: str, used: Container[str]) -> str:
    """Return a plan's uid, with a number if another query of the job has it already.

    Example:
        >>> _numbered("Calc-1f", {}), _numbered("Calc-1f", {"Calc-1f"}), _numbered("Calc-1f", {"Calc-1f", "Calc-1f-1"})
        ('Calc-1f', 'Calc-1f-1', 'Calc-1f-2')
    """
    return next(candidate for n in count() if (candidate := f"{uid}-{n}" if n else uid) not in used)


def operator_id_of(uid: str) -> str:
    """Return the operator id for a uid.

    Example:
        >>> operator_id_of("counts")
        '0cb9180a0e92d32bdb8a45d832e681a1'
    """
    return _hash("uid", uid)


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=16).hexdigest()


def is_chainable(edge: StreamEdge, chaining_enabled: bool) -> bool:
    """Return whether the two ends of an edge can be chained: all of Flink's conditions."""
    up, down = edge.source, edge.target
    return (
        chaining_enabled
        and len(down.in_edges) == 1
        and down.operator.inputs == 1
        and up.slot_sharing_group == down.slot_sharing_group
        and down.transformation.chaining is ChainingStrategy.ALWAYS
        and up.transformation.chaining is not ChainingStrategy.NEVER
        and edge.partitioner.name == "FORWARD"
        and up.parallelism == down.parallelism
    )
