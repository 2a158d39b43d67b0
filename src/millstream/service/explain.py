"""What a person would like to be told of a job: who holds it up, why event time does not go on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.common.execution_state import ExecutionState
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.jobmaster.view import JobView
from millstream.operators.vertex import Vertex
from millstream.operators.watermarks import WatermarkOperator
from millstream.operators.windows.operator import LATE_DROPPED
from millstream.service.pictures.metrics import Value
from millstream.service.pictures.pressure import NONE_TO
from millstream.service.pictures.tasks import milliseconds, vertex_id

# From such a share of its time on a subtask is as good as always busy.
_BUSY = 0.8
# With so many times the records of the others a subtask has too many.
_SKEW = 2.0
# So far apart, in milliseconds, subtasks of a source may be in event time before it is worth telling.
_APART = 10_000

Metrics = Mapping[int, list[dict[str, Value]]]


@dataclass(frozen=True)
class Explanation:
    """One thing that is worth knowing.

    Attributes:
        kind: what it is about.
        level: `high` for what stops a job from getting on, `low` for what slows it, `ok` for what is good to know.
        vertex: the vertex it is about, by its id; None for the whole job.
    """

    kind: str
    level: str
    title: str
    text: str
    vertex: str | None = None


def explanations(view: JobView, metrics: Metrics, now: float) -> list[Explanation]:
    """Return what is worth knowing of a job.

    Args:
        view: the job.
        metrics: by vertex, the metrics of its subtasks.
        now: the time, in seconds.
    """
    return [
        *_stuck(view),
        *_held_up(view, metrics),
        *_skewed(view, metrics),
        *_event_time(view, now),
        *_late(view, metrics),
    ]


def _stuck(view: JobView) -> list[Explanation]:
    if not view.is_stuck:
        return []
    text = f"It has failed {view.alike} times in a row in the same way, with nothing done in between: see Exceptions."
    return [Explanation("restarts", "high", "The job starts again and again and does not get on", text)]


def _share(metrics: dict[str, Value], name: str) -> float:
    return float(metrics.get(name, 0)) / 1000


def _where(vertex: Vertex) -> str:
    places = [n.made_at for n in vertex.nodes if n.made_at]
    return f" (made at {', '.join(dict.fromkeys(places))})" if places else ""


def _held_up(view: JobView, metrics: Metrics) -> list[Explanation]:
    """Name the vertex that works without a pause while those before it wait for it."""
    by_id = {v.id: v for v in view.plan.vertices}
    found = []
    for vertex in view.plan.vertices:
        busy = max((_share(m, "busyTimeMsPerSecond") for m in metrics.get(vertex.id, [])), default=0.0)
        before = [by_id[e.source] for e in vertex.in_edges]
        waits = {
            v.name: max((_share(m, "backPressuredTimeMsPerSecond") for m in metrics.get(v.id, [])), default=0.0)
            for v in before
        }
        held = {name: share for name, share in waits.items() if share > NONE_TO}
        own = max((_share(m, "backPressuredTimeMsPerSecond") for m in metrics.get(vertex.id, [])), default=0.0)
        if held and own <= max(held.values()) and busy >= _BUSY / 2 and busy > own:
            who = " and ".join(f"{name} ({share:.0%} of its time)" for name, share in held.items())
            text = (
                f"It is busy {busy:.0%} of the time, and {who} waits for it. Make its functions cheaper"
                f"{_where(vertex)}, or give it more subtasks than {vertex.parallelism}."
            )
            level = "high" if max(held.values()) > 0.5 else "low"
            found.append(
                Explanation("back pressure", level, f"{vertex.name} holds the job up", text, vertex_id(vertex))
            )
    return found


def _skewed(view: JobView, metrics: Metrics) -> list[Explanation]:
    """Name a vertex one of whose subtasks has most of the records."""
    found = []
    for vertex in view.plan.vertices:
        if vertex.parallelism < 2 or vertex.is_source:
            continue
        read = [float(m.get("numRecordsIn", 0)) for m in metrics.get(vertex.id, [])]
        total = sum(read)
        if total < 1000 or len(read) < 2:
            continue
        most = max(read)
        if most > _SKEW * (total - most) / (len(read) - 1):
            text = (
                f"Subtask {read.index(most)} of {len(read)} has taken {most / total:.0%} of its records: a key comes "
                "more often than others, or there are few keys. Spread it over more keys, or combine records before."
            )
            found.append(
                Explanation("skew", "low", f"{vertex.name} has more to do in one subtask", text, vertex_id(vertex))
            )
    return found


def _event_time(view: JobView, now: float) -> list[Explanation]:
    """Say what holds event time back, where somebody waits for it."""
    waiting = [v for v in view.plan.vertices if any(n.operator.timers is not None or n.timestamped for n in v.nodes)]
    found = []
    for vertex in waiting:
        marked = [n for n in vertex.nodes if isinstance(n.operator, WatermarkOperator)]
        if not marked:
            continue
        marks = {
            i: p.watermark
            for i in range(vertex.parallelism)
            if (p := view.progress.subtasks.get((vertex.id, i))) is not None and p.watermark is not None
        }
        task = [view.tasks.get((vertex.id, i)) for i in range(vertex.parallelism)]
        running = [i for i, t in enumerate(task) if t is not None and t.state is ExecutionState.RUNNING]
        silent = [i for i in running if marks.get(i, MIN_WATERMARK) <= MIN_WATERMARK]
        ahead = [m for m in marks.values() if MIN_WATERMARK < m < MAX_WATERMARK]
        if silent and ahead:
            subtasks = ", ".join(map(str, silent))
            text = (
                f"Subtask {subtasks} of {vertex.parallelism} has had no record: it has no split to read, or nothing "
                "comes. Windows behind it wait. Use with_idleness(...) in the WatermarkStrategy, or no more subtasks "
                "than there are splits."
            )
            title = f"Event time does not go on behind {vertex.name}"
            found.append(Explanation("event time", "high", title, text, vertex_id(vertex)))
        elif ahead and max(ahead) - min(ahead) > _APART:
            slow = min((m, i) for i, m in marks.items() if MIN_WATERMARK < m < MAX_WATERMARK)
            when = datetime.fromtimestamp(slow[0] / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
            text = (
                f"It stands at {when}, {(milliseconds(now) - slow[0]) / 1000:,.0f} s behind the clock; others are "
                f"{(max(ahead) - slow[0]) / 1000:,.0f} s further. Windows behind wait for it."
            )
            title = f"Subtask {slow[1]} of {vertex.name} holds event time back"
            found.append(Explanation("event time", "low", title, text, vertex_id(vertex)))
    return found


def _late(view: JobView, metrics: Metrics) -> list[Explanation]:
    """Say who has dropped records that came too late."""
    found = []
    for vertex in view.plan.vertices:
        dropped = sum(
            int(value)
            for subtask in metrics.get(vertex.id, [])
            for name, value in subtask.items()
            if name.rpartition(".")[2] == LATE_DROPPED and isinstance(value, (int, float))
        )
        if dropped:
            read = sum(int(m.get("numRecordsIn", 0)) for m in metrics[vertex.id])
            text = (
                f"{dropped:,} of {read:,} records came when their windows were over already, and were dropped"
                f"{_where(vertex)}. Let watermarks follow later (for_bounded_out_of_orderness), keep windows for "
                "longer (allowed_lateness), or take such records from a side output (side_output_late_data)."
            )
            title = f"Records come too late for {vertex.name}"
            found.append(Explanation("late records", "low", title, text, vertex_id(vertex)))
    return found
