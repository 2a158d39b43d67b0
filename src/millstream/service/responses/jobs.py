"""Jobs: lists of them, and one with its plan, its configuration and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from millstream.common.job_status import JobStatus
from millstream.common.masking import masked, masked_text
from millstream.jobmaster.machine.view import FailureView, JobView
from millstream.operators.runtime.vertex import Vertex
from millstream.service.responses.tasks import (
    NOWHERE,
    counts,
    milliseconds,
    place_of,
    state_of,
    tasks_of,
    vertex_id,
    vertex_summary,
)


def is_over(view: JobView) -> bool:
    """Return whether a job has ended for good."""
    return view.status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED)


def _start_and_end(view: JobView, now: float) -> tuple[int, int, int]:
    start = min(view.times.values())
    end = view.times[view.status] if is_over(view) else None
    return milliseconds(start), milliseconds(end), milliseconds((now if end is None else end) - start)


def overview_of(view: JobView, now: float) -> dict[str, Any]:
    """Return a job's line in the list of jobs."""
    start, end, duration = _start_and_end(view, now)
    tasks = counts(t for v in view.plan.vertices for t in tasks_of(view, v))
    return {
        "jid": view.job_id,
        "name": view.job_name,
        "start-time": start,
        "end-time": end,
        "duration": duration,
        "state": view.status.name,
        "last-modification": milliseconds(max(view.times.values())),
        "tasks": {"total": sum(v.parallelism for v in view.plan.vertices)}
        | {state.lower(): number for state, number in tasks.items()},
        "pending-operators": 0,
        "job-type": job_type(view),
        "schedulerType": "Default",
    }


def application_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the application that a job is, one to each, from the job's line in the list of jobs."""
    about = {key: line[key] for key in ("name", "start-time", "end-time", "duration")}
    states = {status.name: int(status.name == line["state"]) for status in JobStatus}
    return {"id": line["jid"], **about, "status": line["state"], "jobs": states}


def job_type(view: JobView) -> str:
    return "BATCH" if view.plan.settings.batch else "STREAMING"


def details(view: JobView, now: float) -> dict[str, Any]:
    """Return all that a job's own page begins with."""
    start, end, duration = _start_and_end(view, now)
    states = counts(())
    for vertex in view.plan.vertices:
        states[state_of(tasks_of(view, vertex)).name] += 1
    return {
        "jid": view.job_id,
        "name": view.job_name,
        "isStoppable": False,
        "state": view.status.name,
        "job-type": job_type(view),
        "application-id": view.job_id,
        "schedulerType": "Default",
        "start-time": start,
        "end-time": end,
        "duration": duration,
        "maxParallelism": max((v.max_parallelism for v in view.plan.vertices), default=-1),
        "now": milliseconds(now),
        "timestamps": {status.name: milliseconds(view.times.get(status, 0.0)) for status in JobStatus},
        "vertices": [vertex_summary(view, v, now) for v in view.plan.vertices],
        "status-counts": states,
        "plan": plan(view),
        "stream-graph": {},
        "pending-operators": 0,
    }


def plan(view: JobView) -> dict[str, Any]:
    """Return the job graph."""
    return plan_of(view.job_id, view.job_name, job_type(view), view.plan.vertices)


def plan_of(job_id: str, name: str, kind: str, vertices: Iterable[Vertex]) -> dict[str, Any]:
    """Return a job graph, also of a job that does not run."""
    by_id = {v.id: v for v in vertices}
    return {"jid": job_id, "name": name, "type": kind, "nodes": [_node(v, by_id) for v in by_id.values()]}


def _node(vertex: Vertex, by_id: Mapping[int, Vertex]) -> dict[str, Any]:
    node: dict[str, Any] = {
        "id": vertex_id(vertex),
        "parallelism": vertex.parallelism,
        "operator": "",
        "operator_strategy": "",
        "description": masked_text(
            "<br/>".join(n.name + (f" (made at {n.made_at})" if n.made_at else "") for n in vertex.nodes)
        ),
        "optimizer_properties": {},
        "operators": [
            {"id": n.id, "name": masked_text(n.name), "uid": n.uid, "made-at": n.made_at} for n in vertex.nodes
        ],
    }
    if vertex.in_edges:
        node["inputs"] = [
            {
                "num": number,
                "id": vertex_id(by_id[edge.source]),
                "ship_strategy": edge.partitioner.name,
                "exchange": "pipelined_bounded",
            }
            for number, edge in enumerate(vertex.in_edges)
        ]
    return node


def configuration(view: JobView, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return what a job was started with."""
    return {
        "jid": view.job_id,
        "name": view.job_name,
        "execution-config": {
            "restart-strategy": settings.get("restart-strategy.type", "default"),
            "job-parallelism": max((v.parallelism for v in view.plan.vertices), default=0),
            "object-reuse-mode": False,
            "user-config": masked(view.plan.settings.job_parameters),
        },
    }


def exceptions(view: JobView, most: int) -> dict[str, Any]:
    """Return what went wrong, the newest first."""
    newest = list(reversed(view.failures))
    history = [_failure(view, f) for f in newest[:most]]
    answer: dict[str, Any] = {
        "all-exceptions": [],
        "truncated": len(newest) > most,
        "exceptionHistory": {"entries": history, "truncated": len(newest) > most},
    }
    if newest:
        answer |= {"root-exception": masked_text(newest[0].message), "timestamp": milliseconds(newest[0].at)}
    return answer


def _failure(view: JobView, failure: FailureView) -> dict[str, Any]:
    vertex = next((v for v in view.plan.vertices if any(n.id == failure.operator for n in v.nodes)), None)
    told = masked_text(failure.message)
    places = set() if vertex is None else {place_of(view, vertex, i) for i in range(vertex.parallelism)}
    # Which subtask it was is not always known, but where all of them are is.
    place = places.pop() if len(places) == 1 else None
    if place is not None and place[0] == NOWHERE:
        place = None
    return {
        "exceptionName": _headline(told),
        "stacktrace": told,
        "timestamp": milliseconds(failure.at),
        "taskName": None if vertex is None else vertex.name,
        "endpoint": None if place is None else place[1],
        "taskManagerId": None if place is None else place[0],
        "failureLabels": {},
        "concurrentExceptions": [],
        # Ours: how the record, or the timer, can be looked at alone.
        "replay": {
            "failure": failure.number,
            "kept": failure.is_kept,
            "note": failure.note,
            "command": f"millstream replay {view.job_id} --failure {failure.number}" if failure.is_kept else None,
        },
    }


def _headline(told: str) -> str:
    """Return the line that says what went wrong: the last of the user's traceback, before what is said about it.

    Example:
        >>> _headline("Traceback:\\n  File ...\\nValueError: no price\\nin operator 'a'\\nrecord: 3")
        'ValueError: no price'
    """
    lines = told.strip().splitlines() or [""]
    end = next((i for i, line in enumerate(lines) if i and line.startswith(("in operator", "record: "))), len(lines))
    return lines[end - 1][:500]
