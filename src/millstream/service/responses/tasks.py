"""Responses about vertices and their subtasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from millstream.common.aliases import Json
from millstream.common.execution_state import ExecutionState
from millstream.common.masking import masked_text
from millstream.jobmaster.machine.progress import SubtaskProgress
from millstream.jobmaster.machine.view import JobView, TaskView
from millstream.operators.diagnostics.subtask_diagnostics import SubtaskDiagnostics
from millstream.operators.runtime.vertex import Vertex

_NOTHING = SubtaskProgress()
# The worker id of this process, and Flink's text for a task without a worker.
LOCAL, UNASSIGNED = "local", "(unassigned)"


def location_of(view: JobView, vertex: Vertex, subtask: int) -> tuple[str, str]:
    """Return the worker id and the host of a subtask."""
    location = view.location(vertex, subtask)
    # Slots report their location with their first epoch.
    return (UNASSIGNED, UNASSIGNED) if location is None else (location.executor, location.host)


def milliseconds(seconds: float | None, missing: int = -1) -> int:
    """Return a time or duration in milliseconds."""
    return missing if seconds is None else int(seconds * 1000)


def vertex_id(vertex: Vertex) -> str:
    """Return the id of a vertex: that of its first operator."""
    return vertex.head.id


def find_vertex(view: JobView, id: str) -> Vertex | None:
    """Return the vertex with an id, None if there is none."""
    return next((v for v in view.plan.vertices if vertex_id(v) == id), None)


def tasks_of(view: JobView, vertex: Vertex) -> list[TaskView]:
    """Return a vertex's tasks in subtask order; empty before deployment."""
    tasks = (view.tasks.get((vertex.id, i)) for i in range(vertex.parallelism))
    return [t for t in tasks if t is not None]


def progress_of(view: JobView, vertex: Vertex, subtask: int) -> SubtaskProgress:
    """Return the progress of a subtask."""
    return view.progress.subtasks.get((vertex.id, subtask), _NOTHING)


def state_of(tasks: Iterable[TaskView]) -> ExecutionState:
    """Return the state of a vertex from the states of its tasks, as Flink does."""
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
    """Return the number of tasks in each state, by its name."""
    by_state = {state.name: 0 for state in ExecutionState}
    for task in tasks:
        by_state[task.state.name] += 1
    return by_state


def io_metrics(view: JobView, vertex: Vertex, subtasks: Iterable[int]) -> dict[str, Json]:
    """Return records and bytes read and written by subtasks, and their busy, idle and backpressured times."""
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
    """Return start, end and duration of tasks in milliseconds; end is -1 while a task is running."""
    starts = [t.times[ExecutionState.DEPLOYING] for t in tasks if ExecutionState.DEPLOYING in t.times]
    if not starts:
        return -1, -1, -1
    start = min(starts)
    has_ended = all(t.state.is_terminal() for t in tasks)
    end = max(t.since for t in tasks) if has_ended else None
    return milliseconds(start), milliseconds(end), milliseconds((now if end is None else end) - start)


def vertex_summary(view: JobView, vertex: Vertex, now: float) -> dict[str, Json]:
    """Return a vertex's entry in the job details."""
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


def subtask_details(view: JobView, vertex: Vertex, subtask: int, now: float) -> dict[str, Json]:
    """Return one subtask's current attempt."""
    task = view.tasks.get((vertex.id, subtask))
    tasks = [] if task is None else [task]
    start, end, duration = _times(tasks, now)
    worker, host = location_of(view, vertex, subtask)
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
    ends = [entered for _, entered in passed[1:]] + [task.since if task.state.is_terminal() else now]
    return {state.name: milliseconds(end - entered) for (state, entered), end in zip(passed, ends, strict=True)}


def vertex_details(view: JobView, vertex: Vertex, now: float) -> dict[str, Json]:
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


def _aggregated(subtasks: list[dict[str, Json]]) -> dict[str, Json]:
    numbers = [name for name in subtasks[0]["metrics"] if not name.endswith("-complete")]
    metrics = {name: summary([s["metrics"][name] for s in subtasks]) for name in numbers}
    states = {s["status"] for s in subtasks}
    durations = {
        state: summary([s["status-duration"].get(state, 0) for s in subtasks])
        for state in sorted({name for s in subtasks for name in s["status-duration"]} | states)
    }
    return {"metrics": metrics, "status-duration": durations}


def summary(values: list[float]) -> dict[str, Json]:
    """Return min, max, avg, sum and quantiles of numbers."""
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


def subtask_times(view: JobView, vertex: Vertex, now: float) -> dict[str, Json]:
    """Return when each subtask entered each state."""
    subtasks = []
    for i, task in enumerate(tasks_of(view, vertex)):
        _, _, duration = _times([task], now)
        _, host = location_of(view, vertex, i)
        stamps = {state.name: milliseconds(task.times.get(state, 0.0)) for state in ExecutionState}
        subtasks.append({"subtask": i, "host": host, "endpoint": host, "duration": duration, "timestamps": stamps})
    return {"id": vertex_id(vertex), "name": vertex.name, "now": milliseconds(now), "subtasks": subtasks}


def task_managers_of(view: JobView, vertex: Vertex, now: float) -> dict[str, Json]:
    """Return the workers that run a vertex, and the metrics of its subtasks there."""
    locations: dict[tuple[str, str], list[int]] = {}
    for subtask in range(len(tasks_of(view, vertex))):
        locations.setdefault(location_of(view, vertex, subtask), []).append(subtask)
    header = {"id": vertex_id(vertex), "name": vertex.name, "now": milliseconds(now)}
    workers = [_on_worker(view, vertex, *location, subtasks, now) for location, subtasks in locations.items()]
    return {**header, "taskmanagers": workers}


def _on_worker(
    view: JobView, vertex: Vertex, worker: str, host: str, subtasks: list[int], now: float
) -> dict[str, Json]:
    all_tasks = tasks_of(view, vertex)
    tasks = [all_tasks[i] for i in subtasks]
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


# Upper bounds of Flink's backpressure levels ok and low.
NONE_TO, LOW_TO = 0.10, 0.50


def back_pressure_level(share: float) -> str:
    """Return Flink's backpressure level for a share of time.

    Example:
        >>> back_pressure_level(0.05), back_pressure_level(0.3), back_pressure_level(0.9)
        ('ok', 'low', 'high')
    """
    return "ok" if share <= NONE_TO else "low" if share <= LOW_TO else "high"


def back_pressure_of(subtasks: list[dict[str, Json]], attempts: list[int], time_ms: int) -> dict[str, Json]:
    """Return the backpressure of a vertex from the metrics of its subtasks."""
    levels = []
    for i, metrics in enumerate(subtasks):
        ratio = metrics["backPressuredTimeMsPerSecond"] / 1000
        levels.append(
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
    highest = max((s["ratio"] for s in levels), default=0.0)
    return {
        "status": "ok",
        "backpressureLevel": back_pressure_level(highest),
        "backpressure-back_pressure_level": back_pressure_level(highest),
        "end-timestamp": time_ms,
        "subtasks": levels,
    }


def diagnostics_of_vertex(view: JobView, vertex: Vertex) -> dict[str, Json]:
    """Return the latest diagnostics of a vertex's subtasks."""
    subtasks = [diagnostics_of_subtask(view, vertex, i) for i in range(vertex.parallelism)]
    return {"id": vertex_id(vertex), "name": vertex.name, "subtasks": subtasks}


def diagnostics_of_subtask(view: JobView, vertex: Vertex, subtask: int) -> dict[str, Json]:
    """Return the latest diagnostics of one subtask."""
    progress = progress_of(view, vertex, subtask)
    diagnostics = progress.diagnostics or SubtaskDiagnostics(at=-1)
    by_edge = {e.id: number for number, e in enumerate(vertex.in_edges)}
    senders = {v.id: v.name for v in view.plan.vertices}
    sources = {e.id: senders[e.source] for e in vertex.in_edges}
    return {
        "subtask": subtask,
        "at": diagnostics.at,
        "records-in": progress.records_in,
        "records-out": progress.records_out,
        "bytes-in": progress.bytes_in,
        "bytes-out": progress.bytes_out,
        "state-rows": diagnostics.state_rows,
        "state-bytes": diagnostics.state_bytes,
        "hottest-keys": [asdict(key) for key in diagnostics.keys],
        "split-count": diagnostics.split_count,
        "splits": [asdict(mark) for mark in diagnostics.splits],
        "inputs": [
            {"input": by_edge[i.edge], "from": sources[i.edge], **_without_edge(asdict(i))}
            for i in diagnostics.inputs
            if i.edge in by_edge
        ],
        "waiting": [asdict(waiter) for waiter in diagnostics.waiting],
        "late": [asdict(late) for late in diagnostics.late],
    }


def _without_edge(mark: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in mark.items() if name != "edge"}
