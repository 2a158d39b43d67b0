"""The execution plan as JSON, in the shape Flink's plan visualizer reads."""

from __future__ import annotations

import json
from typing import Any

from millstream.graph.stream_graph import StreamGraph, StreamNode


def execution_plan(graph: StreamGraph) -> str:
    """Return the plan of a stream graph."""
    return json.dumps({"nodes": [_node(n) for n in graph.nodes]}, indent=2)


def _node(node: StreamNode) -> dict[str, Any]:
    t = node.transformation
    pact = "Data Source" if t.is_source else "Data Sink" if t.is_sink else "Operator"
    shown: dict[str, Any] = {
        "id": node.id,
        "type": node.name,
        "pact": pact,
        "contents": t.description or node.name,
        "parallelism": node.parallelism,
    }
    if t.made_at is not None:
        shown["made_at"] = t.made_at
    if node.in_edges:
        shown["predecessors"] = [
            {
                "id": e.source.id,
                "ship_strategy": e.partitioner.name,
                "side": "second" if e.input_index == 0 else "first",
            }
            for e in node.in_edges
        ]
    return shown
