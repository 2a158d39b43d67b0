"""Metrics under Flink's names, from a job's view and an earlier view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.common.aliases import Json
from millstream.common.execution_state import ExecutionState
from millstream.common.job_status import JobStatus
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.jobmaster.machine.view import JobView
from millstream.operators.diagnostics.io_metrics import SubtaskTraffic
from millstream.operators.functions.metrics import Marks
from millstream.operators.runtime.vertex import Vertex
from millstream.service.responses.tasks import milliseconds, progress_of

Value = int | float | str


def of_subtask(view: JobView, vertex: Vertex, subtask: int, before: JobView | None, seconds: float) -> dict[str, Value]:
    """Return the metrics of a subtask.

    Args:
        view: the job now.
        vertex: the vertex.
        subtask: the subtask.
        before: an earlier view; None if the job is too new.
        seconds: the age of the earlier view.
    """
    now = progress_of(view, vertex, subtask)
    then = now if before is None else progress_of(before, vertex, subtask)
    watermark = MIN_WATERMARK if now.watermark is None else now.watermark
    values: dict[str, Value] = {
        "numRecordsIn": now.records_in,
        "numRecordsOut": now.records_out,
        "numBytesIn": now.bytes_in,
        "numBytesOut": now.bytes_out,
        "numRecordsInPerSecond": _rate(now.records_in - then.records_in, seconds),
        "numRecordsOutPerSecond": _rate(now.records_out - then.records_out, seconds),
        "numBytesInPerSecond": _rate(now.bytes_in - then.bytes_in, seconds),
        "numBytesOutPerSecond": _rate(now.bytes_out - then.bytes_out, seconds),
        "currentInputWatermark": watermark,
        "currentOutputWatermark": watermark,
        "numEpochsStateLocal": now.epochs_here,
        "numEpochsStateRead": now.epochs_read,
        "stateLocalShare": _share(now.epochs_here, now.epochs_read),
    }
    if now.diagnostics is not None:
        values |= {"stateRows": now.diagnostics.state_rows, "stateSize": now.diagnostics.state_bytes}
        if MIN_WATERMARK < watermark < MAX_WATERMARK:
            values["watermarkLag"] = now.diagnostics.at - watermark
    for name, lags in view.progress.lags.get(vertex.id, {}).items():
        values[name] = lags.get(subtask, 0)
    values |= _times(view, vertex, subtask, before, seconds, now.seconds - then.seconds)
    for name, value in now.metrics.items():
        values |= _flat(name, value)
        if isinstance(value, Marks):
            # Flink shows a meter as a rate.
            values |= {f"{name}.count": int(value), name: _rate(value - then.metrics.get(name, 0), seconds)}
    return values


def _share(here: int, read: int) -> float:
    """Return the share of epochs whose state was already local; 1 if there were none."""
    return here / (here + read) if here + read else 1.0


def _rate(count: float, seconds: float) -> float:
    return max(count, 0) / seconds if seconds > 0 else 0.0


def _times(
    view: JobView, vertex: Vertex, subtask: int, before: JobView | None, seconds: float, busy_seconds: float
) -> dict[str, Value]:
    """Return busy, backpressured and idle time in milliseconds per second."""
    task = view.tasks.get((vertex.id, subtask))
    if task is None or task.state is not ExecutionState.RUNNING:
        busy = blocked = 0.0
    else:
        busy, blocked = _shares(view, vertex, subtask, before, seconds, busy_seconds)
    values: dict[str, Value] = {
        "busyTimeMsPerSecond": round(busy * 1000),
        "backPressuredTimeMsPerSecond": round(blocked * 1000),
        "idleTimeMsPerSecond": round((1 - busy - blocked) * 1000),
    }
    traffic = view.traffic(vertex.id, subtask)
    if traffic is not None:
        values |= {
            "buffers.outPoolUsage": traffic.out_usage,
            "buffers.inPoolUsage": traffic.in_usage,
            "accumulateBusyTimeMs": milliseconds(traffic.busy),
            "accumulateBackPressuredTimeMs": milliseconds(traffic.back_pressured),
            "accumulateIdleTimeMs": milliseconds(traffic.idle),
        }
    return values


def _shares(
    view: JobView, vertex: Vertex, subtask: int, before: JobView | None, seconds: float, busy_seconds: float
) -> tuple[float, float]:
    """Return the shares of time that a subtask is busy and backpressured."""
    now = view.traffic(vertex.id, subtask)
    then = None if before is None or before.attempt != view.attempt else before.traffic(vertex.id, subtask)
    if now is None:
        # A slot that is not resident reports only its processing time.
        return min(_rate(busy_seconds, seconds), 1.0), 0.0
    busy, blocked, elapsed = _difference(now, then)
    # Slots report time with epochs; between epochs elapsed time does not advance.
    whole = max(elapsed, seconds if then is not None else 0.0, 1e-9)
    busy = min(busy / whole, 1.0)
    return busy, min(blocked / whole, 1.0 - busy)


def _difference(now: SubtaskTraffic, then: SubtaskTraffic | None) -> tuple[float, float, float]:
    if then is None:
        return now.busy, now.back_pressured, now.busy + now.back_pressured + now.idle
    busy, blocked = now.busy - then.busy, now.back_pressured - then.back_pressured
    return busy, blocked, busy + blocked + now.idle - then.idle


def _flat(name: str, value: object) -> dict[str, Value]:
    if isinstance(value, Mapping):
        return {f"{name}.{part}": v for part, v in value.items() if v is not None}
    return {name: value if isinstance(value, (int, float, str)) else str(value)}


def of_job(view: JobView, now: float) -> dict[str, Value]:
    """Return the metrics of a whole job."""
    counts, latest = view.checkpoints, view.checkpoints.latest
    is_running = view.status is JobStatus.RUNNING
    since = view.times.get(JobStatus.RUNNING, now)
    here, read = view.progress.state_epochs()
    values: dict[str, Value] = {
        "numRestarts": view.restarts,
        "fullRestarts": view.restarts,
        "uptime": milliseconds(now - since) if is_running else 0,
        "runningTime": milliseconds(now - since) if is_running else 0,
        "downtime": 0 if is_running else milliseconds(now - view.times[view.status]),
        "totalNumberOfCheckpoints": counts.triggered,
        "numberOfCompletedCheckpoints": counts.completed,
        "numberOfFailedCheckpoints": counts.failed,
        "numberOfInProgressCheckpoints": counts.in_progress,
        # The restore after the last failure.
        "lastCheckpointRestoreTimestamp": milliseconds(_restored(view)),
        "lastEpochSeconds": view.progress.last_epoch_seconds,
        "numberOfEpochs": view.progress.epochs,
        "numEpochsStateLocal": here,
        "numEpochsStateRead": read,
        "stateLocalShare": _share(here, read),
    }
    if latest is not None and latest.completed_at is not None:
        values |= {
            "lastCheckpointSize": latest.state_bytes,
            "lastCheckpointFullSize": latest.state_bytes,
            # Checkpoints have no in-flight data that Flink would count here.
            "lastCheckpointProcessedData": 0,
            "lastCheckpointPersistedData": 0,
            "lastCheckpointDuration": milliseconds(latest.completed_at - latest.triggered_at),
            "lastCheckpointExternalPath": latest.location or "",
            "lastCompletedCheckpointId": latest.id,
        }
    return values


def _restored(view: JobView) -> float | None:
    """Return when a job last restored a checkpoint after a failure; None if it never did."""
    if not view.restarts or view.checkpoints.latest is None:
        return None
    return view.times.get(JobStatus.RUNNING)


def aggregated(values: Iterable[float], how: Iterable[str]) -> dict[str, float]:
    """Return the requested aggregates of a metric over subtasks: min, max, avg, sum, skew."""
    numbers = list(values)
    total, count = sum(numbers), len(numbers)
    mean = total / count
    # Flink's skew: mean absolute deviation in percent of the mean.
    spread = sum(abs(n - mean) for n in numbers) / count
    aggregates = {
        "min": min(numbers),
        "max": max(numbers),
        "avg": mean,
        "sum": total,
        "skew": min(spread / mean * 100, 100.0) if mean else 0.0,
    }
    return {name: value for name, value in aggregates.items() if name in set(how)}


def listed_metrics(values: Mapping[str, Value], names: list[str] | None) -> list[dict[str, str]]:
    """Return metric names if `names` is None, else the named metrics with their values as text."""
    if names is None:
        return [{"id": name} for name in sorted(values)]
    return [{"id": name, "value": str(values[name])} for name in names if name in values]


def aggregated_metrics(
    owners: list[dict[str, Value]], names: list[str] | None, aggregates: list[str] | None
) -> list[dict[str, Json]]:
    """Return metrics aggregated over several owners."""
    if names is None:
        return [{"id": name} for name in sorted({n for owner in owners for n in owner})]
    result = []
    for name in names:
        values = [v for owner in owners if isinstance(v := owner.get(name), (int, float))]
        if values:
            result.append({"id": name, **aggregated(values, aggregates or ["min", "max", "avg", "sum", "skew"])})
    return result
