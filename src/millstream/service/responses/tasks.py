"""Vertices and their subtasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from millstream.common.execution_state import ExecutionState
from millstream.common.masking import masked_text
from millstream.jobmaster.machine.progress import SubtaskProgress
from millstream.jobmaster.machine.view import JobView, TaskView
from millstream.operators.diagnostics.subtask_diagnostics import SubtaskDiagnostics
from millstream.operators.runtime.vertex import Vertex

_NOTHING = SubtaskProgress()
# The worker of jobs that run in this process, and Flink's word for where a task is that has no worker yet.
LOCAL, NOWHERE = "local", "(unassigned)"


def place_of(view: JobView, vertex: Vertex, subtask: int) -> tuple[str, str]:
    """Return the worker and the machine that a subtask runs on."""
    found = view.place(vertex, subtask)
    # Slots say where they are with their first epoch.
    return (NOWHERE, NOWHERE) if found is None else (found.executor, found.host)


def milliseconds(seconds: float | None, missing: int = -1) -> int:
    """Return a time or length of time as REST tells it."""
    return missing if seconds is None else int(seconds * 1000)


def vertex_id(vertex: Vertex) -> str:
    """Return the id by which a vertex is known: its first operator's."""
    return vertex.head.id


def find_vertex(view: JobView, asked: str) -> Vertex | None:
    """Return the vertex of an id, None if there is none."""
    return next((v for v in view.plan.vertices if vertex_id(v) == asked), None)


def tasks_of(view: JobView, vertex: Vertex) -> list[TaskView]:
    """Return a vertex's tasks, by subtask; none before they are deployed."""
    found = (view.tasks.get((vertex.id, i)) for i in range(vertex.parallelism))
    return [t for t in found if t is not None]


def progress_of(view: JobView, vertex: Vertex, subtask: int) -> SubtaskProgress:
    """Return what a subtask has done."""
    return view.progress.subtasks.get((vertex.id, subtask), _NOTHING)


def state_of(tasks: Iterable[TaskView]) -> ExecutionState:
    """Return the state of a vertex as Flink makes it of its tasks' states."""
    states = [t.state for t in tasks]
    for first in (
        ExecutionState.FAILED,
        ExecutionState.CANCELING,
        ExecutionState.CANCELED,
        ExecutionState.RUNNING,
        ExecutionState.INITIALIZING,
        ExecutionState.DEPLOYING,
        ExecutionState.SCHEDULED,
    ):
        if first in states:
            return first
    return states[0] if states else ExecutionState.CREATED


def counts(tasks: Iterable[TaskView]) -> dict[str, int]:
    """Return how many tasks are in each state, by its name."""
    found = {state.name: 0 for state in ExecutionState}
    for task in tasks:
        found[task.state.name] += 1
    return found


def io_metrics(view: JobView, vertex: Vertex, subtasks: Iterable[int]) -> dict[str, Any]:
    """Return what subtasks have read and written, and how they spent their time."""
    chosen = list(subtasks)
    done = [progress_of(view, vertex, i) for i in chosen]
    traffic = [t for t in (view.traffic(vertex.id, i) for i in chosen) if t is not None]
    is_known = view.progress.epochs > 0
    return {
        "read-bytes": sum(p.bytes_in for p in done),
        "read-bytes-complete": is_known,
        "write-bytes": sum(p.bytes_out for p in done),
        "write-bytes-complete": is_known,
        "read-records": sum(p.records_in for p in done),
        "read-records-complete": is_known,
        "write-records": sum(p.records_out for p in done),
        "write-records-complete": is_known,
        "accumulated-backpressured-time": milliseconds(sum(t.back_pressured for t in traffic)),
        "accumulated-idle-time": milliseconds(sum(t.idle for t in traffic)),
        "accumulated-busy-time": sum(t.busy for t in traffic) * 1000
        if traffic
        else sum(p.seconds for p in done) * 1000,
    }


def _times(tasks: list[TaskView], now: float) -> tuple[int, int, int]:
    """Return start, end and duration of what tasks have done; end -1 while one has not ended."""
    starts = [t.times[ExecutionState.DEPLOYING] for t in tasks if ExecutionState.DEPLOYING in t.times]
    if not starts:
        return -1, -1, -1
    start = min(starts)
    is_over = all(t.state.is_terminal() for t in tasks)
    end = max(t.since for t in tasks) if is_over else None
    return milliseconds(start), milliseconds(end), milliseconds((now if end is None else end) - start)


def vertex_summary(view: JobView, vertex: Vertex, now: float) -> dict[str, Any]:
    """Return a vertex as the page of its job shows it."""
    tasks = tasks_of(view, vertex)
    start, end, duration = _times(tasks, now)
    return {
        "id": vertex_id(vertex),
        "slotSharingGroupId": "0" * 32,
        "name": masked_text(vertex.name),
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": state_of(tasks).name,
        "start-time": start,
        "end-time": end,
        "duration": duration,
        "tasks": counts(tasks),
        "metrics": io_metrics(view, vertex, range(vertex.parallelism)),
    }


def subtask_details(view: JobView, vertex: Vertex, subtask: int, now: float) -> dict[str, Any]:
    """Return one subtask's current attempt."""
    task = view.tasks.get((vertex.id, subtask))
    tasks = [] if task is None else [task]
    start, end, duration = _times(tasks, now)
    worker, host = place_of(view, vertex, subtask)
    return {
        "subtask": subtask,
        "status": ExecutionState.CREATED.name if task is None else task.state.name,
        "attempt": 0 if task is None else task.attempt,
        "endpoint": host,
        "start-time": start,
        "end-time": end,
        "duration": duration,
        "metrics": io_metrics(view, vertex, [subtask]),
        "taskmanager-id": worker,
        "status-duration": _status_durations(task, now),
        "other-concurrent-attempts": [],
    }


def _status_durations(task: TaskView | None, now: float) -> dict[str, int]:
    if task is None:
        return {}
    passed = sorted(task.times.items(), key=lambda item: item[1])
    ends = [at for _, at in passed[1:]] + [task.since if task.state.is_terminal() else now]
    return {state.name: milliseconds(end - at) for (state, at), end in zip(passed, ends, strict=True)}


def vertex_details(view: JobView, vertex: Vertex, now: float) -> dict[str, Any]:
    """Return a vertex and all its subtasks."""
    subtasks = [subtask_details(view, vertex, i, now) for i in range(vertex.parallelism)]
    return {
        "id": vertex_id(vertex),
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": milliseconds(now),
        "aggregated": _aggregated(subtasks),
        "subtasks": subtasks,
    }


def _aggregated(subtasks: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = [name for name in subtasks[0]["metrics"] if not name.endswith("-complete")]
    metrics = {name: summary([s["metrics"][name] for s in subtasks]) for name in numbers}
    states = {s["status"] for s in subtasks}
    durations = {
        state: summary([s["status-duration"].get(state, 0) for s in subtasks])
        for state in sorted({name for s in subtasks for name in s["status-duration"]} | states)
    }
    return {"metrics": metrics, "status-duration": durations}


def summary(values: list[float]) -> dict[str, Any]:
    """Return least, most, average, sum and quantiles of some numbers."""
    ordered = sorted(values)

    def quantile(share: float) -> int:
        return int(ordered[min(len(ordered) - 1, int(share * len(ordered)))])

    return {
        "min": int(ordered[0]),
        "max": int(ordered[-1]),
        "avg": int(sum(ordered) / len(ordered)),
        "sum": int(sum(ordered)),
        "median": quantile(0.5),
        "p25": quantile(0.25),
        "p75": quantile(0.75),
        "p95": quantile(0.95),
    }


def subtask_times(view: JobView, vertex: Vertex, now: float) -> dict[str, Any]:
    """Return when each subtask came to each state."""
    subtasks = []
    for i, task in enumerate(tasks_of(view, vertex)):
        _, _, duration = _times([task], now)
        _, host = place_of(view, vertex, i)
        stamps = {state.name: milliseconds(task.times.get(state, 0.0)) for state in ExecutionState}
        subtasks.append({"subtask": i, "host": host, "endpoint": host, "duration": duration, "timestamps": stamps})
    return {"id": vertex_id(vertex), "name": vertex.name, "now": milliseconds(now), "subtasks": subtasks}


def task_managers_of(view: JobView, vertex: Vertex, now: float) -> dict[str, Any]:
    """Return which workers run a vertex, and what its subtasks there have done."""
    found: dict[tuple[str, str], list[int]] = {}
    for subtask in range(len(tasks_of(view, vertex))):
        found.setdefault(place_of(view, vertex, subtask), []).append(subtask)
    about = {"id": vertex_id(vertex), "name": vertex.name, "now": milliseconds(now)}
    return {**about, "taskmanagers": [_on_worker(view, vertex, *place, on, now) for place, on in found.items()]}


def _on_worker(
    view: JobView, vertex: Vertex, worker: str, host: str, subtasks: list[int], now: float
) -> dict[str, Any]:
    every = tasks_of(view, vertex)
    tasks = [every[i] for i in subtasks]
    start, end, duration = _times(tasks, now)
    return {
        "endpoint": host,
        "taskmanager-id": worker,
        "status": state_of(tasks).name,
        "start-time": start,
        "end-time": end,
        "duration": duration,
        "metrics": io_metrics(view, vertex, subtasks),
        "status-counts": counts(tasks),
        "aggregated": _aggregated([subtask_details(view, vertex, i, now) for i in subtasks]),
    }


# Shares of time up to which Flink calls back pressure nothing, and low.
NONE_TO, LOW_TO = 0.10, 0.50


def back_pressure_level(share: float) -> str:
    """Return Flink's word for a share of time.

    Example:
        >>> back_pressure_level(0.05), back_pressure_level(0.3), back_pressure_level(0.9)
        ('ok', 'low', 'high')
    """
    return "ok" if share <= NONE_TO else "low" if share <= LOW_TO else "high"


def back_pressure_of(subtasks: list[dict[str, Any]], attempts: list[int], at: int) -> dict[str, Any]:
    """Return the back pressure of a vertex from the metrics of its subtasks."""
    shown = []
    for i, metrics in enumerate(subtasks):
        ratio = metrics["backPressuredTimeMsPerSecond"] / 1000
        shown.append(
            {
                "subtask": i,
                "attempt-number": attempts[i],
                "backpressureLevel": back_pressure_level(ratio),
                "backpressure-back_pressure_level": back_pressure_level(ratio),
                "ratio": ratio,
                "idleRatio": metrics["idleTimeMsPerSecond"] / 1000,
                "busyRatio": metrics["busyTimeMsPerSecond"] / 1000,
                "other-concurrent-attempts": [],
            }
        )
    most = max((s["ratio"] for s in shown), default=0.0)
    return {
        "status": "ok",
        "backpressureLevel": back_pressure_level(most),
        "backpressure-back_pressure_level": back_pressure_level(most),
        "end-timestamp": at,
        "subtasks": shown,
    }


def diagnostics_of_vertex(view: JobView, vertex: Vertex) -> dict[str, Any]:
    """Return what the subtasks of a vertex have told last."""
    subtasks = [diagnostics_of_subtask(view, vertex, i) for i in range(vertex.parallelism)]
    return {"id": vertex_id(vertex), "name": vertex.name, "subtasks": subtasks}


def diagnostics_of_subtask(view: JobView, vertex: Vertex, subtask: int) -> dict[str, Any]:
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
