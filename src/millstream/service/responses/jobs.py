"""Responses about jobs: overviews, details, plan, configuration and exceptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.common.aliases import Json
from millstream.common.job_status import JobStatus
from millstream.common.masking import masked, masked_text
from millstream.jobmaster.machine.view import FailureView, JobView
from millstream.operators.runtime.vertex import Vertex
from millstream.service.responses.tasks import (
    UNASSIGNED,
    counts,
    location_of,
    milliseconds,
    state_of,
    tasks_of,
    vertex_id,
    vertex_summary,
)


def has_ended(view: JobView) -> bool:
    """Return whether a job is in a globally terminal state."""
    return view.status in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED)


def _start_and_end(view: JobView, now: float) -> tuple[int, int, int]:
    start = min(view.times.values())
    end = view.times[view.status] if has_ended(view) else None
    return milliseconds(start), milliseconds(end), milliseconds((now if end is None else end) - start)


def overview_of(view: JobView, now: float) -> dict[str, Json]:
    """Return a job's entry in the overview."""
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


def application_of(line: Mapping[str, Json]) -> dict[str, Json]:
    """Return the application of a job, one for each, from the job's overview entry."""
    common = {key: line[key] for key in ("name", "start-time", "end-time", "duration")}
    states = {status.name: int(status.name == line["state"]) for status in JobStatus}
    return {"id": line["jid"], **common, "status": line["state"], "jobs": states}


def job_type(view: JobView) -> str:
    return "BATCH" if view.plan.settings.batch else "STREAMING"


def details(view: JobView, now: float) -> dict[str, Json]:
    """Return the details of a job."""
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


def plan(view: JobView) -> dict[str, Json]:
    """Return the job graph."""
    return plan_of(view.job_id, view.job_name, job_type(view), view.plan.vertices)


def plan_of(job_id: str, name: str, kind: str, vertices: Iterable[Vertex]) -> dict[str, Json]:
    """Return a job graph, also of a job that is not running."""
    by_id = {v.id: v for v in vertices}
    return {"jid": job_id, "name": name, "type": kind, "nodes": [_node(v, by_id) for v in by_id.values()]}


def _node(vertex: Vertex, by_id: Mapping[int, Vertex]) -> dict[str, Json]:
    node: dict[str, Json] = {
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


def configuration(view: JobView, settings: Mapping[str, str]) -> dict[str, Json]:
    """Return the configuration of a job."""
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


def exceptions(view: JobView, max_entries: int) -> dict[str, Json]:
    """Return the failures of a job, newest first."""
    newest = list(reversed(view.failures))
    history = [_failure(view, f) for f in newest[:max_entries]]
    answer: dict[str, Json] = {
        "all-exceptions": [],
        "truncated": len(newest) > max_entries,
        "exceptionHistory": {"entries": history, "truncated": len(newest) > max_entries},
    }
    if newest:
        answer |= {"root-exception": masked_text(newest[0].message), "timestamp": milliseconds(newest[0].failed_at)}
    return answer


def _failure(view: JobView, failure: FailureView) -> dict[str, Json]:
    vertex = next((v for v in view.plan.vertices if any(n.id == failure.operator for n in v.nodes)), None)
    message = masked_text(failure.message)
    locations = set() if vertex is None else {location_of(view, vertex, i) for i in range(vertex.parallelism)}
    # The failed subtask is not always known; name a location only if all subtasks are there.
    location = locations.pop() if len(locations) == 1 else None
    if location is not None and location[0] == UNASSIGNED:
        location = None
    return {
        "exceptionName": _headline(message),
        "stacktrace": message,
        "timestamp": milliseconds(failure.failed_at),
        "taskName": None if vertex is None else vertex.name,
        "endpoint": None if location is None else location[1],
        "taskManagerId": None if location is None else location[0],
        "failureLabels": {},
        "concurrentExceptions": [],
        # Not in Flink: how to replay the failed record or timer.
        "replay": {
            "failure": failure.number,
            "kept": failure.can_replay,
            "note": failure.note,
            "command": f"millstream replay {view.job_id} --failure {failure.number}" if failure.can_replay else None,
        },
    }


def _headline(message: str) -> str:
    """Return the last line of the user's traceback, which names the exception.

    Example:
        >>> _headline("Traceback:\\n  File ...\\nValueError: no price\\nin operator 'a'\\nrecord: 3")
        'ValueError: no price'
    """
    lines = message.strip().splitlines() or [""]
    end = next((i for i, line in enumerate(lines) if i and line.startswith(("in operator", "record: "))), len(lines))
    return lines[end - 1][:500]
