"""The execution plan as JSON, as Flink's plan visualizer reads it, and the job graph as SVG."""

from __future__ import annotations

import json
from html import escape

from millstream.common.aliases import Json
from millstream.common.display_text import printable
from millstream.graph.job_graph import JobGraph
from millstream.graph.stream_graph import StreamGraph, StreamNode
from millstream.operators.runtime.vertex import Vertex


def execution_plan(graph: StreamGraph) -> str:
    """Return the plan of a stream graph."""
    return json.dumps({"nodes": [_node(n) for n in graph.nodes]}, indent=2)


def _node(node: StreamNode) -> dict[str, Json]:
    t = node.transformation
    pact = "Data Source" if t.is_source else "Data Sink" if t.is_sink else "Operator"
    properties: dict[str, Json] = {
        "id": node.id,
        "type": node.name,
        "pact": pact,
        "contents": t.description or node.name,
        "parallelism": node.parallelism,
    }
    if t.made_at is not None:
        properties["made_at"] = t.made_at
    if node.in_edges:
        properties["predecessors"] = [
            {
                "id": e.source.id,
                "ship_strategy": e.partitioner.name,
                "side": "second" if e.input_index == 0 else "first",
            }
            for e in node.in_edges
        ]
    return properties


_WIDTH, _LINE, _GAP_X, _GAP_Y, _MARGIN = 240, 16, 110, 28, 24


def draw(graph: JobGraph) -> str:
    """Return a job graph as SVG: vertices in columns by level, edges with their partitioner."""
    boxes = _layout(graph.vertices)
    width = max(x for x, _, _ in boxes.values()) + _WIDTH + _MARGIN
    height = max(y + h for _, y, h in boxes.values()) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#667"/></marker></defs>',
        f"<title>{escape(printable(graph.job_name))}</title>",
    ]
    for vertex in graph.vertices:
        for edge in vertex.out_edges:
            parts += _arrow(boxes[edge.source], boxes[edge.target], edge.partitioner.name)
    for vertex in graph.vertices:
        parts += _box(vertex, *boxes[vertex.id])
    return "\n".join([*parts, "</svg>"])


def _lines(vertex: Vertex) -> list[str]:
    return [*(node.name for node in vertex.nodes), f"parallelism {vertex.parallelism}"]


def _layout(vertices: list[Vertex]) -> dict[int, tuple[int, int, int]]:
    """Return x, y and height of every vertex."""
    next_y: dict[int, int] = {}
    boxes = {}
    for vertex in vertices:
        height = _LINE * len(_lines(vertex)) + 14
        y = next_y.get(vertex.level, _MARGIN)
        boxes[vertex.id] = (_MARGIN + vertex.level * (_WIDTH + _GAP_X), y, height)
        next_y[vertex.level] = y + height + _GAP_Y
    return boxes


def _box(vertex: Vertex, x: int, y: int, height: int) -> list[str]:
    parts = [f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="6" fill="#eef3fb" stroke="#5577aa"/>']
    lines = _lines(vertex)
    for i, line in enumerate(lines):
        text = printable(line, 36)
        color = "#667" if i == len(lines) - 1 else "#123"
        call_site = vertex.nodes[i].made_at if i < len(vertex.nodes) else None
        tip = f"<title>{escape(printable(line))}, made at {escape(printable(call_site))}</title>" if call_site else ""
        parts.append(f'<text x="{x + 10}" y="{y + 18 + i * _LINE}" fill="{color}">{tip}{escape(text)}</text>')
    return parts


def _arrow(source: tuple[int, int, int], target: tuple[int, int, int], label: str) -> list[str]:
    x1, y1 = source[0] + _WIDTH, source[1] + source[2] // 2
    x2, y2 = target[0], target[1] + target[2] // 2
    return [
        f'<path d="M{x1},{y1} C{x1 + 50},{y1} {x2 - 50},{y2} {x2},{y2}" fill="none" '
        'stroke="#667" marker-end="url(#tip)"/>',
        f'<text x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 6}" fill="#667" '
        f'text-anchor="middle" font-size="10">{label}</text>',
    ]
