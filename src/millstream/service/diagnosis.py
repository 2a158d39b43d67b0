"""What a person would like to be told of a job: who holds it up, why event time does not go on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from millstream.jobmaster.machine.view import JobView
from millstream.operators.diagnostics.subtask_diagnostics import HotKey, LateRecord
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.windows.window_operator import LATE_DROPPED
from millstream.service.event_time_diagnosis import event_time
from millstream.service.explanation import Explanation, where
from millstream.service.responses.metrics import Value
from millstream.service.responses.pressure import NONE_TO
from millstream.service.responses.tasks import progress_of, vertex_id

# From such a share of its time on a subtask is as good as always busy.
_BUSY = 0.8
# With so many times the records of the others a subtask has too many.
_SKEW = 2.0
# With such a share of the records a key is one that comes too often.
_HOT = 0.1
# An epoch that takes longer hangs, or is one that cannot be cut.
_HANGING_SECONDS = 5.0
# So many records that came too late are shown.
_SAMPLES = 3

Metrics = Mapping[int, list[dict[str, Value]]]


def explanations(view: JobView, metrics: Metrics, now: float) -> list[Explanation]:
    """Return what is worth knowing of a job.

    Args:
        view: the job.
        metrics: by vertex, the metrics of its subtasks.
        now: the time, in seconds.
    """
    return [
        *_stuck(view),
        *_hanging(view, now),
        *_held_up(view, metrics),
        *_skewed(view, metrics),
        *event_time(view, now),
        *_starving(view),
        *_late(view, metrics),
    ]


def _stuck(view: JobView) -> list[Explanation]:
    if not view.is_stuck:
        return []
    text = f"It has failed {view.alike} times in a row in the same way, with nothing done in between: see Exceptions."
    return [Explanation("restarts", "high", "The job starts again and again and does not get on", text)]


def _hanging(view: JobView, now: float) -> list[Explanation]:
    """Say that an epoch does not end: nothing else is told of a job before it does."""
    if view.epoch_since is None or now - view.epoch_since < _HANGING_SECONDS:
        return []
    if view.plan.settings.batch or not view.progress.epochs:
        # An epoch is all of a level's input there; and slots come with the first.
        return []
    seconds = int(now - view.epoch_since)
    text = (
        f"An epoch takes a fraction of a second, and this one has not ended for {seconds} s: a function blocks, or a "
        "slot's process hangs; the flame graph and the thread dump of the task manager show what it does. A frozen "
        "process is replaced after heartbeat.timeout, and the job restarts when checkpoints exceed "
        "execution.checkpointing.timeout."
    )
    title = f"Epoch {view.epoch + 1} has been running for {seconds} s"
    return [Explanation("hanging epoch", "high", title, text, about={"seconds": seconds})]


def _share(metrics: dict[str, Value], name: str) -> float:
    return float(metrics.get(name, 0)) / 1000


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
                f"{where(vertex)}, or give it more subtasks than {vertex.parallelism}."
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
            subtask = read.index(most)
            hot = [key for key in _hottest(view, vertex, subtask) if key.share >= _HOT]
            text = f"Subtask {subtask} of {len(read)} has taken {most / total:.0%} of its records: {_blame(hot)}"
            about = {
                "subtask": subtask,
                "share": most / total,
                "keys": [{"key": key.key, "share": key.share} for key in hot],
            }
            title = f"{vertex.name} has more to do in one subtask"
            found.append(Explanation("skew", "low", title, text, vertex_id(vertex), about))
    return found


def _hottest(view: JobView, vertex: Vertex, subtask: int) -> tuple[HotKey, ...]:
    seen = progress_of(view, vertex, subtask).insight
    return () if seen is None else seen.keys


def _blame(hot: list[HotKey]) -> str:
    """Say why a subtask has more than the others."""
    if not hot:
        return "there are few keys, or a key comes more often than others. Spread it over more keys."
    keys = ", ".join(f"{key.key} with {key.share:.0%}" for key in hot)
    what = "the key" if len(hot) == 1 else "keys"
    return (
        f"of these, {what} that come{'s' if len(hot) == 1 else ''} most often: {keys}. Spread what has that key over "
        "more keys, or combine records before they are sent."
    )


def _starving(view: JobView) -> list[Explanation]:
    """Name a join that has rows of one input and none of the other."""
    by_id = {v.id: v for v in view.plan.vertices}
    found = []
    for vertex in view.plan.vertices:
        waiting: dict[int, int] = {}
        seen = [progress_of(view, vertex, i).insight for i in range(vertex.parallelism)]
        told = [[] if one is None else list(one.starved) for one in seen]
        # A subtask with rows of both, or of neither, says nothing; one side of all must be empty.
        for one in (s for subtask in told for s in subtask):
            waiting[one.input] = waiting.get(one.input, 0) + one.rows
        has_both = any(one is not None and one.state_rows and not s for one, s in zip(seen, told, strict=True))
        if len(waiting) != 1 or has_both:
            continue
        ((place, rows),) = waiting.items()
        before = by_id[vertex.in_edges[place].source]
        name = before.head.name if before.is_source else before.name
        text = (
            f"{rows:,} row{'s wait' if rows != 1 else ' waits'} there for a partner from {name}, of which nothing has "
            "come that could be joined: is there anything to read, and does a condition before the join let it pass?"
        )
        about = {"input": place, "rows": rows}
        title = f"{vertex.name} waits for its {('first', 'second')[place]} input"
        found.append(Explanation("waiting join", "high", title, text, vertex_id(vertex), about))
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
                f"{where(vertex)}. Let watermarks follow later (for_bounded_out_of_orderness), keep windows for "
                "longer (allowed_lateness), or take such records from a side output (side_output_late_data)."
            )
            samples = _late_samples(view, vertex)
            if samples:
                shown = "; ".join(
                    f"{late.record} of {late.timestamp}, when time had come to {late.watermark}" for late in samples
                )
                text += f" The last ones: {shown}."
            about = {"dropped": dropped, "read": read, "samples": [asdict(late) for late in samples]}
            title = f"Records come too late for {vertex.name}"
            found.append(Explanation("late records", "low", title, text, vertex_id(vertex), about))
    return found


def _late_samples(view: JobView, vertex: Vertex) -> list[LateRecord]:
    """Return some of the records that came too late, of all subtasks."""
    seen = (progress_of(view, vertex, i).insight for i in range(vertex.parallelism))
    return [late for one in seen if one is not None for late in one.late][:_SAMPLES]
