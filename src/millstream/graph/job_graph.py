"""The job graph: operators are chained into vertices, and vertices are assigned to levels and slots.

An epoch runs the levels one after the other. Edges between vertices have a partitioner and a layout.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.common.typeinfo import TypeInformation
from millstream.graph.stream_graph import StreamEdge, StreamGraph, StreamNode, is_chainable
from millstream.operators.runtime.blocks import BatchLayout, Layout
from millstream.operators.runtime.chain import ChainNode, ChainOutput
from millstream.operators.runtime.partitioners import KeyPartitioner
from millstream.operators.runtime.record_writer import Edge
from millstream.operators.runtime.vertex import Vertex
from millstream.state.backend import Backend


@dataclass
class JobGraph:
    """The vertices of a job in topological order, and the state backend their operators were selected for."""

    job_name: str
    vertices: list[Vertex]
    backend: Backend


def build_job_graph(graph: StreamGraph, batch: bool = False) -> JobGraph:
    """Chain the operators of a stream graph, and assign levels and slots to the chains."""
    chained = {e for n in graph.nodes for e in n.in_edges if is_chainable(e, graph.chaining_enabled)}
    heads = [n for n in graph.nodes if not any(e in chained for e in n.in_edges)]
    head_of = _heads(graph, chained)
    timestamped: dict[StreamNode, bool] = {}
    for node in graph.nodes:
        assigned, dropped = node.operator.assigns_timestamps, node.operator.drops_timestamps
        timestamped[node] = assigned or (not dropped and any(timestamped[e.source] for e in node.in_edges))
    offsets = _slot_offsets(graph)
    levels = _levels(graph, chained, head_of)
    if batch:
        levels = _late(graph, chained, head_of, levels)
    vertices: dict[StreamNode, Vertex] = {}
    for head in heads:
        members = [n for n in graph.nodes if head_of[n] is head]
        index = {n: i for i, n in enumerate(members)}
        chain = [_chain_node(n, timestamped[n]) for n in members]
        for node, chain_node in zip(members, chain, strict=True):
            for edge in node.out_edges:
                if edge in chained:
                    chain_node.outputs.append(ChainOutput(*_tag(edge), node=index[edge.target]))
        vertices[head] = Vertex(
            head.id,
            _chain_name(head, chained),
            chain,
            head.parallelism,
            head.max_parallelism,
            levels[head],
            offsets[head.slot_sharing_group],
            non_parallel=any(n.transformation.non_parallel for n in members),
        )
    _connect(graph, chained, head_of, vertices, timestamped, batch)
    return JobGraph(graph.job_name, list(vertices.values()), graph.backend)


def _chain_node(node: StreamNode, timestamped: bool) -> ChainNode:
    t = node.transformation
    return ChainNode(node.operator, node.operator_id, node.name, node.uid, t.type_info, timestamped, t.made_at)


def _tag(edge: StreamEdge) -> tuple[str | None, TypeInformation | None]:
    return (edge.tag.tag_id, edge.tag.type_info) if edge.tag else (None, None)


def _heads(graph: StreamGraph, chained: set[StreamEdge]) -> dict[StreamNode, StreamNode]:
    """Return the head of each operator's chain."""
    head_of: dict[StreamNode, StreamNode] = {}
    for node in graph.nodes:
        head_of[node] = next((head_of[e.source] for e in node.in_edges if e in chained), node)
    return head_of


def _chain_name(node: StreamNode, chained: set[StreamEdge]) -> str:
    """Name a chain as Flink does: `a -> b`, and `a -> (b, c)` where it forks."""
    name = node.name
    while targets := [e.target for e in node.out_edges if e in chained]:
        if len(targets) > 1:
            return f"{name} -> ({', '.join(_chain_name(b, chained) for b in targets)})"
        node = targets[0]
        name += f" -> {node.name}"
    return name


def _levels(
    graph: StreamGraph, chained: set[StreamEdge], head_of: dict[StreamNode, StreamNode]
) -> dict[StreamNode, int]:
    """Return the level of each chain: one more than the highest level of its inputs."""
    levels: dict[StreamNode, int] = {}
    for node in graph.nodes:
        before = [levels[head_of[e.source]] + 1 for e in node.in_edges if e not in chained]
        head = head_of[node]
        levels[head] = max([levels.get(head, 0), *before])
    return levels


def _late(
    graph: StreamGraph, chained: set[StreamEdge], head_of: dict[StreamNode, StreamNode], levels: dict[StreamNode, int]
) -> dict[StreamNode, int]:
    """Return levels such that each chain runs right before its first consumer.

    Data passes through all levels between producer and consumer. In BATCH there is no reason to read a table early.
    """
    late: dict[StreamNode, int] = {}
    before: dict[StreamNode, list[int]] = {}
    for node in reversed(graph.nodes):
        # The head of a chain comes last in this order, after all its consumers.
        next_levels = before.setdefault(head_of[node], [])
        next_levels += [late[e.target] - 1 for e in node.out_edges if e not in chained]
        if head_of[node] is node:
            late[node] = min(next_levels, default=levels[node])
    return late


def _slot_offsets(graph: StreamGraph) -> dict[str, int]:
    """Give each slot sharing group its own slots: as many as its maximum parallelism."""
    width: dict[str, int] = {}
    for node in graph.nodes:
        width[node.slot_sharing_group] = max(width.get(node.slot_sharing_group, 0), node.parallelism)
    offsets, start = {}, 0
    for group, slots in width.items():
        offsets[group] = start
        start += slots
    return offsets


def _connect(
    graph: StreamGraph,
    chained: set[StreamEdge],
    head_of: dict[StreamNode, StreamNode],
    vertices: dict[StreamNode, Vertex],
    timestamped: dict[StreamNode, bool],
    batch: bool,
) -> None:
    """Add the edges between the chains."""
    nodes = {c.id: c for v in vertices.values() for c in v.nodes}
    # All edges into one input have the same columns, so an input has timestamps if any of its edges has.
    stamped_inputs = {
        (e.target, e.input_index) for n in graph.nodes for e in n.in_edges if e not in chained and timestamped[e.source]
    }
    number = 0
    for node in graph.nodes:
        for stream_edge in node.in_edges:
            if stream_edge in chained:
                continue
            source, target = vertices[head_of[stream_edge.source]], vertices[head_of[node]]
            stamped = (node, stream_edge.input_index) in stamped_inputs
            edge = Edge(
                number,
                source.id,
                target.id,
                stream_edge.input_index,
                stream_edge.partitioner,
                _layout(stream_edge, _ships_key(stream_edge, batch), stamped),
                None if stream_edge.tag else stream_edge.source.transformation.type_info,
            )
            number += 1
            source.out_edges.append(edge)
            target.in_edges.append(edge)
            nodes[stream_edge.source.operator_id].outputs.append(ChainOutput(*_tag(stream_edge), edge=edge.id))


def _layout(edge: StreamEdge, ships_key: bool, stamped: bool) -> Layout:
    return BatchLayout(False, False) if edge.source.operator.emits_batches else Layout(ships_key, stamped)


def _ships_key(edge: StreamEdge, batch: bool) -> bool:
    operator = edge.target.operator
    if not isinstance(edge.partitioner, KeyPartitioner):
        return False
    # In BATCH, records wait under their key until all input has arrived.
    return (batch and operator.keyed) or (operator.uses_key and not edge.partitioner.key_is_part)
