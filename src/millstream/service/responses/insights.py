"""What subtasks tell of themselves: splits and inputs in event time, what waits, hot keys, late records, state."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from millstream.jobmaster.machine.view import JobView
from millstream.operators.diagnostics.subtask_diagnostics import SubtaskDiagnostics
from millstream.operators.runtime.vertex import Vertex
from millstream.service.responses.tasks import progress_of, vertex_id


def of_vertex(view: JobView, vertex: Vertex) -> dict[str, Any]:
    """Return what the subtasks of a vertex have told last."""
    subtasks = [of_subtask(view, vertex, i) for i in range(vertex.parallelism)]
    return {"id": vertex_id(vertex), "name": vertex.name, "subtasks": subtasks}


def of_subtask(view: JobView, vertex: Vertex, subtask: int) -> dict[str, Any]:
    """Return what one subtask has told."""
    done = progress_of(view, vertex, subtask)
    seen = done.insight or SubtaskDiagnostics(at=-1)
    by_edge = {e.id: number for number, e in enumerate(vertex.in_edges)}
    senders = {v.id: v.name for v in view.plan.vertices}
    sources = {e.id: senders[e.source] for e in vertex.in_edges}
    return {
        "subtask": subtask,
        "at": seen.at,
        "records-in": done.records_in,
        "records-out": done.records_out,
        "bytes-in": done.bytes_in,
        "bytes-out": done.bytes_out,
        "state-rows": seen.state_rows,
        "state-bytes": seen.state_bytes,
        "hottest-keys": [asdict(key) for key in seen.keys],
        "split-count": seen.split_count,
        "splits": [asdict(mark) for mark in seen.splits],
        "inputs": [
            {"input": by_edge[i.edge], "from": sources[i.edge], **_without_edge(asdict(i))}
            for i in seen.inputs
            if i.edge in by_edge
        ],
        "waiting": [asdict(one) for one in seen.waiting],
        "late": [asdict(late) for late in seen.late],
    }


def _without_edge(mark: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mark.items() if name != "edge"}
