"""Responses about checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping

from millstream.checkpoint.options import CheckpointOptions
from millstream.common.aliases import Json
from millstream.common.configuration import Configuration
from millstream.jobmaster.machine.coordinator import CheckpointStatus
from millstream.jobmaster.machine.view import CheckpointView, JobView
from millstream.service.responses.tasks import milliseconds, summary, vertex_id


def statistics(view: JobView) -> dict[str, Json]:
    """Return the checkpoint statistics of a job, newest first."""
    counts = view.checkpoints
    history = [checkpoint_response(view, c) for c in reversed(counts.history)]
    complete = [h for h in history if h["status"] == "COMPLETED"]
    failed = [h for h in history if h["status"] == "FAILED"]
    return {
        "counts": {
            "restored": 0,
            "total": counts.triggered,
            "in_progress": counts.in_progress,
            "completed": counts.completed,
            "failed": counts.failed,
        },
        "summary": {name: _summary([h[name] for h in complete]) for name in _SUMMED},
        "latest": {
            **({"completed": complete[0]} if complete else {}),
            **({"failed": failed[0]} if failed else {}),
        },
        "history": history,
    }


_SUMMED = (
    "checkpointed_size",
    "state_size",
    "end_to_end_duration",
    "alignment_buffered",
    "processed_data",
    "persisted_data",
)


def _summary(values: list[int]) -> dict[str, Json]:
    stats = summary([float(v) for v in values] or [0.0])
    quantiles = {"p50": stats["median"], "p90": stats["p95"], "p95": stats["p95"], "p99": stats["max"]}
    return {"min": stats["min"], "max": stats["max"], "avg": stats["avg"], **quantiles, "p999": stats["max"]}


def _status(checkpoint: CheckpointView) -> str:
    if checkpoint.is_complete:
        return "COMPLETED"
    return "IN_PROGRESS" if checkpoint.status is not CheckpointStatus.FAILED else "FAILED"


def checkpoint_response(view: JobView, checkpoint: CheckpointView) -> dict[str, Json]:
    """Return one checkpoint."""
    status = _status(checkpoint)
    end = checkpoint.completed_at
    subtasks = sum(v.parallelism for v in view.plan.vertices)
    acknowledged = 0 if checkpoint.acknowledged_at is None else subtasks
    answer: dict[str, Json] = {
        "className": status.lower(),
        "id": checkpoint.id,
        "status": status,
        "is_savepoint": False,
        "trigger_timestamp": milliseconds(checkpoint.triggered_at),
        "latest_ack_timestamp": milliseconds(checkpoint.acknowledged_at),
        "checkpointed_size": checkpoint.state_bytes,
        "state_size": checkpoint.state_bytes,
        "end_to_end_duration": -1 if end is None else milliseconds(end - checkpoint.triggered_at),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": subtasks,
        "num_acknowledged_subtasks": acknowledged,
        "checkpoint_type": "CHECKPOINT",
        "tasks": {},
    }
    if status == "COMPLETED":
        is_retained = checkpoint.id in view.checkpoints.retained
        answer |= {"external_path": checkpoint.location or "", "discarded": not is_retained}
    elif status == "FAILED":
        answer |= {"failure_timestamp": milliseconds(end), "failure_message": checkpoint.failure or ""}
    return answer


def details(view: JobView, checkpoint: CheckpointView) -> dict[str, Json]:
    """Return one checkpoint with the acknowledgements of each vertex."""
    answer = checkpoint_response(view, checkpoint)
    common = {k: answer[k] for k in ("id", "status", "latest_ack_timestamp", "end_to_end_duration")}
    sizes = {k: answer[k] for k in ("alignment_buffered", "processed_data", "persisted_data")}
    for vertex in view.plan.vertices:
        acknowledged = vertex.parallelism if answer["num_acknowledged_subtasks"] else 0
        answer["tasks"][vertex_id(vertex)] = {
            **common,
            **sizes,
            "checkpointed_size": 0,
            "state_size": 0,
            "num_subtasks": vertex.parallelism,
            "num_acknowledged_subtasks": acknowledged,
        }
    return answer


def configuration(view: JobView, settings: Mapping[str, str]) -> dict[str, Json]:
    """Return the checkpoint configuration of a job."""
    options = CheckpointOptions.read(Configuration.from_dict(dict(settings)))
    return {
        "mode": "exactly_once",
        "interval": 2**63 - 1 if math.isinf(options.interval) else milliseconds(options.interval),
        "timeout": milliseconds(options.timeout),
        "min_pause": milliseconds(options.min_pause),
        "max_concurrent": options.max_concurrent,
        "externalization": {"enabled": options.retained > 0, "delete_on_cancellation": False},
        "state_backend": view.plan.settings.state_backend.name.lower(),
        "checkpoint_storage": "filesystem" if options.directory else "jobmanager",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": options.tolerable_failures,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": True,
        "changelog_periodic_materialization_interval": 0,
        "changelog_storage": "filesystem",
    }
