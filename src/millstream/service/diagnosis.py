"""Explanations of a job's health: backpressure, skew, event time that does not advance, late records. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from millstream.common.execution_state import ExecutionState
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.jobmaster.machine.view import JobView
from millstream.operators.base import Operator
from millstream.operators.diagnostics.subtask_diagnostics import (
    HotKey,
    InputMark,
    LateRecord,
    SplitMark,
    SubtaskDiagnostics,
)
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.watermarks import WatermarkOperator
from millstream.operators.windows.window_operator import LATE_DROPPED
from millstream.service.responses.metrics import Value
from millstream.service.responses.tasks import NONE_TO, milliseconds, progress_of, vertex_id


@dataclass(frozen=True)
class Explanation:
    """One thing that is worth knowing.

    Attributes:
        kind: what it is about.
        level: `high` for what stops a job from getting on, `low` for what slows it, `ok` for what is good to know.
        vertex: the vertex it is about, by its id; None for the whole job.
        about: the same for machines.
    """

    kind: str
    level: str
    title: str
    text: str
    vertex: str | None = None
    about: dict[str, Any] = field(default_factory=dict)


def where(vertex: Vertex) -> str:
    """Say where the operators of a vertex were made."""
    places = [n.made_at for n in vertex.nodes if n.made_at]
    return f" (made at {', '.join(dict.fromkeys(places))})" if places else ""


# So far apart, in milliseconds, splits may be in event time, and for so long it may stand, before it is worth telling.
_APART, _STANDS = 10_000, 5_000


@dataclass(frozen=True)
class _Holder:
    """Who holds event time back: a split, or a subtask that has none; the mark is None where no watermarks are made."""

    vertex: Vertex
    subtask: int
    mark: SplitMark | None
    # All inputs on the way are idle.
    is_idle: bool


@dataclass
class _Waits:
    """What waits behind one of them, and how far it has come on the way there."""

    counts: dict[str, int]
    earliest: int
    inputs: list[str]


def event_time(view: JobView, now: float) -> list[Explanation]:
    """Say what holds event time back, where somebody waits for it."""
    held: dict[tuple[int, int, SplitMark | None], tuple[_Holder, _Waits]] = {}
    for vertex in view.plan.vertices:
        for subtask in range(vertex.parallelism):
            seen = _insight(view, vertex, subtask)
            if seen is None or not seen.waiting or not _runs(view, vertex, subtask):
                continue
            holder, first = _trace(view, vertex, subtask)
            if holder is None:
                continue
            address = holder.vertex.id, holder.subtask, holder.mark
            _, waits = held.setdefault(address, (holder, _Waits({}, MAX_WATERMARK, [])))
            for one in seen.waiting:
                waits.counts[one.kind] = waits.counts.get(one.kind, 0) + one.count
                waits.earliest = min(waits.earliest, one.earliest)
            if first is not None and len(vertex.in_edges) > 1:
                waits.inputs.append(_input(vertex, first))
    told = (_told(view, holder, waits, milliseconds(now)) for holder, waits in held.values())
    return [one for one in told if one is not None]


def _name(vertex: Vertex) -> str:
    """Return what a vertex is to people: of one that reads, the source."""
    return vertex.head.name if vertex.is_source else vertex.name


def _insight(view: JobView, vertex: Vertex, subtask: int) -> SubtaskDiagnostics | None:
    progress = view.progress.subtasks.get((vertex.id, subtask))
    return None if progress is None else progress.insight


def _runs(view: JobView, vertex: Vertex, subtask: int) -> bool:
    task = view.tasks.get((vertex.id, subtask))
    return task is not None and task.state is ExecutionState.RUNNING


def _trace(view: JobView, vertex: Vertex, subtask: int) -> tuple[_Holder | None, InputMark | None]:
    """Go up from a subtask to who holds its time back; return that, and the input by which the way began."""
    by_id = {v.id: v for v in view.plan.vertices}
    first: InputMark | None = None
    is_idle = False
    while True:
        seen = _insight(view, vertex, subtask)
        if seen is None:
            return None, first
        if seen.splits:
            # Ordered: those that are not idle first, and of them the one that is furthest behind.
            mark = seen.splits[0]
            return _Holder(vertex, subtask, mark, is_idle or mark.idle), first
        if not seen.inputs:
            return _Holder(vertex, subtask, None, is_idle), first
        least = min(seen.inputs, key=lambda i: (i.idle == i.channels, i.watermark))
        if least.watermark == MAX_WATERMARK:
            return None, first
        first, is_idle = first or least, is_idle or least.idle == least.channels
        edge = next(e for e in vertex.in_edges if e.id == least.edge)
        vertex, subtask = by_id[edge.source], least.sender


def _input(vertex: Vertex, mark: InputMark) -> str:
    number = next(n for n, e in enumerate(vertex.in_edges, 1) if e.id == mark.edge)
    return f"input {number} of {vertex.name}"


def _told(view: JobView, holder: _Holder, waits: _Waits, now: int) -> Explanation | None:
    vertex, mark = holder.vertex, holder.mark
    waiting = _waiting(waits)
    if mark is None:
        text = (
            f"No timestamps and watermarks are assigned to what {_name(vertex)} reads{where(vertex)}: give from_source "
            f"a WatermarkStrategy, or call assign_timestamps_and_watermarks(...). {waiting}"
        )
        return _explanation(holder, waits, "high", f"{_name(vertex)} has no event time", text, None)
    if mark.watermark == MAX_WATERMARK:
        return None
    marker = next((n for n in vertex.nodes if n.id == mark.operator), None)
    if marker is not None and isinstance(marker.operator, WatermarkOperator) and not marker.operator.makes_any:
        text = (
            f"The WatermarkStrategy of {_name(vertex)}{where(vertex)} is no_watermarks(): use "
            f"for_bounded_out_of_orderness(...) or for_monotonous_timestamps(). {waiting}"
        )
        return _explanation(holder, waits, "high", f"{_name(vertex)} makes no watermarks", text, None)
    if mark.watermark <= MIN_WATERMARK:
        return _silent(view, holder, waits, waiting)
    return _behind(view, holder, mark, waits, waiting, now)


def _silent(view: JobView, holder: _Holder, waits: _Waits, waiting: str) -> Explanation | None:
    """Nothing has come yet where time is held back."""
    vertex = holder.vertex
    marks = {i: _marks(view, vertex, i) for i in range(vertex.parallelism)}
    silent = [i for i, found in marks.items() if all(m.watermark <= MIN_WATERMARK for m in found)]
    splits = sum(seen.split_count for i in marks if (seen := _insight(view, vertex, i)) is not None)
    without = [i for i in silent if not any(m.name is not None for m in marks[i])]
    mark = holder.mark
    assert mark is not None
    if without and splits and splits < vertex.parallelism:
        text = (
            f"{_name(vertex)} has {vertex.parallelism} subtasks and {_count(splits, 'split')}: {_subtasks(without)} no "
            f"split to read, and event time waits for {'it' if len(without) == 1 else 'them'}. Give the source no more "
            f"subtasks than there are splits, or {_small(_advice(vertex, mark))}."
        )
    elif mark.name is not None:
        text = (
            f"Split {mark.name!r} (subtask {holder.subtask} of {vertex.parallelism}) has had no record{_idle(mark)}. "
            f"{_advice(vertex, mark)}, so that the others need not wait for it."
        )
    else:
        text = (
            f"{_subtasks(silent or [holder.subtask])} had no record, of {vertex.parallelism} subtasks{_idle(mark)}: "
            f"there is no split to read, or nothing comes. {_advice(vertex, mark)}, or use no more subtasks than there "
            "are splits."
        )
    title = f"Event time does not go on behind {_name(vertex)}"
    return _explanation(holder, waits, "high", title, f"{text} {waiting}", None)


def _behind(
    view: JobView, holder: _Holder, mark: SplitMark, waits: _Waits, waiting: str, now: int
) -> Explanation | None:
    """Time has come to somewhere: tell it if others are further, or if it stands."""
    vertex = holder.vertex
    others = [m.watermark for m in _all_marks(view) if m != mark and m.watermark < MAX_WATERMARK and not m.idle]
    ahead = max([m - mark.watermark for m in others if m > MIN_WATERMARK], default=0)
    stood = now - mark.since
    if ahead <= _APART and stood <= _STANDS:
        return None
    who = f"subtask {holder.subtask} of {vertex.parallelism}"
    if mark.name is not None:
        who = f"split {mark.name!r} ({who})"
    text = (
        f"{who[0].upper()}{who[1:]} stands at {_time(mark.watermark)}, {(now - mark.watermark) / 1000:,.0f} s behind "
        "the clock"
    )
    if stood > _STANDS:
        text += f", and has for {stood / 1000:,.0f} s"
    if ahead > 0:
        text += f"; others are {ahead / 1000:,.0f} s further"
    text += f". Its last record came {max(now - mark.last_record, 0) / 1000:,.0f} s ago{_idle(mark)}."
    if stood > _STANDS and not mark.idle:
        text += (
            f" {_advice(vertex, mark)}, so that the others need not wait for it."
            if others
            else " A window fires when a record comes that is later than its end."
        )
    title = f"{who.partition(' (')[0].capitalize()} of {_name(vertex)} holds event time back"
    return _explanation(holder, waits, "high" if stood > _STANDS else "low", title, f"{text} {waiting}", ahead)


def _advice(vertex: Vertex, mark: SplitMark) -> str:
    """Return how to have time go on without a split, in the words of whoever makes its watermarks."""
    marker = next((n for n in vertex.nodes if n.id == mark.operator), None)
    return Operator.idle_advice if marker is None else marker.operator.idle_advice


def _small(advice: str) -> str:
    return f"u{advice[1:]}" if advice.startswith("Use ") else advice


def _marks(view: JobView, vertex: Vertex, subtask: int) -> tuple[SplitMark, ...]:
    seen = _insight(view, vertex, subtask)
    return () if seen is None else seen.splits


def _all_marks(view: JobView) -> Iterator[SplitMark]:
    for vertex in view.plan.vertices:
        for subtask in range(vertex.parallelism):
            yield from _marks(view, vertex, subtask)


def _explanation(
    holder: _Holder, waits: _Waits, level: str, title: str, text: str, behind_by: int | None
) -> Explanation:
    mark = holder.mark
    about: dict[str, Any] = {
        "subtask": holder.subtask,
        "split": None if mark is None else mark.name,
        "watermark": None if mark is None or mark.watermark <= MIN_WATERMARK else mark.watermark,
        "since": None if mark is None else mark.since,
        "last-record": None if mark is None else mark.last_record,
        "behind-by": behind_by,
        "idle": holder.is_idle,
        "inputs": sorted(set(waits.inputs)),
        "waiting": waits.counts,
        "earliest": waits.earliest,
    }
    return Explanation("event time", level, title, text, vertex_id(holder.vertex), about)


def _waiting(waits: _Waits) -> str:
    counts = [_count(count, kind.removesuffix("s")) for kind, count in waits.counts.items()]
    verb = "waits" if sum(waits.counts.values()) == 1 else "wait"
    inputs = f" ({', '.join(sorted(set(waits.inputs)))})" if waits.inputs else ""
    return f"Behind it{inputs} {' and '.join(counts)} {verb}, the first for {_time(waits.earliest)}."


def _subtasks(numbers: list[int]) -> str:
    """Write which subtasks have something.

    Example:
        >>> _subtasks([1]), _subtasks([1, 2])
        ('subtask 1 has', 'subtasks 1, 2 have')
    """
    if len(numbers) == 1:
        return f"subtask {numbers[0]} has"
    return f"subtasks {', '.join(map(str, numbers))} have"


def _idle(mark: SplitMark) -> str:
    return "; it is idle" if mark.idle else "; it is not idle"


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _time(millis: int) -> str:
    """Write a time.

    Example:
        >>> _time(1_000), _time(-(2**62))
        ('1970-01-01 00:00:01.000', '-4611686018427387904')
    """
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return str(millis)


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
