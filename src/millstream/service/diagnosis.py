"""Explanations of a job's health: backpressure, skew, event time that does not advance, late records. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from millstream.common.aliases import Json
from millstream.common.execution_state import ExecutionState
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.jobmaster.machine.view import JobView
from millstream.operators.diagnostics.subtask_diagnostics import (
    HotKey,
    InputMark,
    LateRecord,
    SplitMark,
    SubtaskDiagnostics,
)
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.watermarks import WatermarkEmitter, WatermarkOperator
from millstream.operators.windows.window_operator import LATE_DROPPED
from millstream.service.responses.metrics import Value
from millstream.service.responses.tasks import NONE_TO, milliseconds, progress_of, vertex_id


@dataclass(frozen=True)
class Explanation:
    """One finding about a job.

    Attributes:
        kind: the kind of finding.
        level: `high` if the job makes no progress, `low` if it is slowed down, `ok` for information.
        vertex: the id of the vertex concerned; None for the whole job.
        about: the same facts as values.
    """

    kind: str
    level: str
    title: str
    text: str
    vertex: str | None = None
    about: dict[str, Json] = field(default_factory=dict)


def creation_text(vertex: Vertex) -> str:
    """Return the program lines that define the operators of a vertex."""
    locations = [n.made_at for n in vertex.nodes if n.made_at]
    return f" (made at {', '.join(dict.fromkeys(locations))})" if locations else ""


# Findings report splits that lag this many milliseconds of event time, or watermarks unchanged for this many.
_MAX_LAG_MS, _MAX_STALL_MS = 10_000, 5_000


@dataclass(frozen=True)
class _Holder:
    """A split, or a subtask without splits, that delays event time. Without watermarks the mark is None."""

    vertex: Vertex
    subtask: int
    mark: SplitMark | None
    # All inputs on the path are idle.
    is_idle: bool


@dataclass
class _Waiters:
    """What waits downstream of a holder: counts of windows, timers and rows, the earliest time, and the inputs."""

    counts: dict[str, int]
    earliest: int
    inputs: list[str]


def event_time(view: JobView, now: float) -> list[Explanation]:
    """Explain what delays event time where windows, timers or rows wait for it."""
    held: dict[tuple[int, int, SplitMark | None], tuple[_Holder, _Waiters]] = {}
    for vertex in view.plan.vertices:
        for subtask in range(vertex.parallelism):
            diagnostics = _diagnostics(view, vertex, subtask)
            if diagnostics is None or not diagnostics.waiting or not _is_running(view, vertex, subtask):
                continue
            holder, first = _trace(view, vertex, subtask)
            if holder is None:
                continue
            address = holder.vertex.id, holder.subtask, holder.mark
            _, waiters = held.setdefault(address, (holder, _Waiters({}, MAX_WATERMARK, [])))
            for waiter in diagnostics.waiting:
                waiters.counts[waiter.kind] = waiters.counts.get(waiter.kind, 0) + waiter.count
                waiters.earliest = min(waiters.earliest, waiter.earliest)
            if first is not None and len(vertex.in_edges) > 1:
                waiters.inputs.append(_input(vertex, first))
    candidates = (_explain_holder(view, holder, waiters, milliseconds(now)) for holder, waiters in held.values())
    return [waiter for waiter in candidates if waiter is not None]


def _name(vertex: Vertex) -> str:
    """Return the display name of a vertex; for a source vertex, the source's name."""
    return vertex.head.name if vertex.is_source else vertex.name


def _diagnostics(view: JobView, vertex: Vertex, subtask: int) -> SubtaskDiagnostics | None:
    progress = view.progress.subtasks.get((vertex.id, subtask))
    return None if progress is None else progress.diagnostics


def _is_running(view: JobView, vertex: Vertex, subtask: int) -> bool:
    task = view.tasks.get((vertex.id, subtask))
    return task is not None and task.state is ExecutionState.RUNNING


def _trace(view: JobView, vertex: Vertex, subtask: int) -> tuple[_Holder | None, InputMark | None]:
    """Follow the lowest watermark upstream; return the subtask that holds it back and the first input on the path."""
    by_id = {v.id: v for v in view.plan.vertices}
    first: InputMark | None = None
    is_idle = False
    while True:
        diagnostics = _diagnostics(view, vertex, subtask)
        if diagnostics is None:
            return None, first
        if diagnostics.splits:
            # Sorted: active splits first, the lowest watermark first.
            mark = diagnostics.splits[0]
            return _Holder(vertex, subtask, mark, is_idle or mark.idle), first
        if not diagnostics.inputs:
            return _Holder(vertex, subtask, None, is_idle), first
        lowest = min(diagnostics.inputs, key=lambda i: (i.idle == i.channels, i.watermark))
        if lowest.watermark == MAX_WATERMARK:
            return None, first
        first, is_idle = first or lowest, is_idle or lowest.idle == lowest.channels
        edge = next(e for e in vertex.in_edges if e.id == lowest.edge)
        vertex, subtask = by_id[edge.source], lowest.sender


def _input(vertex: Vertex, mark: InputMark) -> str:
    number = next(n for n, e in enumerate(vertex.in_edges, 1) if e.id == mark.edge)
    return f"input {number} of {vertex.name}"


def _explain_holder(view: JobView, holder: _Holder, waiters: _Waiters, now: int) -> Explanation | None:
    vertex, mark = holder.vertex, holder.mark
    waiters_text = _waiters_text(waiters)
    if mark is None:
        text = (
            f"{_name(vertex)}{creation_text(vertex)} assigns no timestamps and watermarks: pass a WatermarkStrategy to "
            f"from_source, or call assign_timestamps_and_watermarks(...). {waiters_text}"
        )
        return _explanation(holder, waiters, "high", f"{_name(vertex)} has no event time", text, None)
    if mark.watermark == MAX_WATERMARK:
        return None
    marker = next((n for n in vertex.nodes if n.id == mark.operator), None)
    if (
        marker is not None
        and isinstance(marker.operator, WatermarkOperator)
        and not marker.operator.generates_watermarks
    ):
        text = (
            f"The WatermarkStrategy of {_name(vertex)}{creation_text(vertex)} is no_watermarks(): use "
            f"for_bounded_out_of_orderness(...) or for_monotonous_timestamps(). {waiters_text}"
        )
        return _explanation(holder, waiters, "high", f"{_name(vertex)} emits no watermarks", text, None)
    if mark.watermark <= MIN_WATERMARK:
        return _silent(view, holder, waiters, waiters_text)
    return _lagging(view, holder, mark, waiters, waiters_text, now)


def _silent(view: JobView, holder: _Holder, waiters: _Waiters, waiters_text: str) -> Explanation | None:
    """Explain a holder that has read no record yet."""
    vertex = holder.vertex
    marks = {i: _marks(view, vertex, i) for i in range(vertex.parallelism)}
    silent = [i for i, split_marks in marks.items() if all(m.watermark <= MIN_WATERMARK for m in split_marks)]
    splits = sum(diagnostics.split_count for i in marks if (diagnostics := _diagnostics(view, vertex, i)) is not None)
    idle = [i for i in silent if not any(m.name is not None for m in marks[i])]
    mark = holder.mark
    assert mark is not None
    if idle and splits and splits < vertex.parallelism:
        text = (
            f"{_name(vertex)} has {vertex.parallelism} subtasks and {_count(splits, 'split')}: {_subtasks(idle)} no "
            f"split to read, and event time waits for {'it' if len(idle) == 1 else 'them'}. Set the parallelism of "
            f"the source to at most the number of splits, or {_small(_advice(vertex, mark))}."
        )
    elif mark.name is not None:
        text = (
            f"Split {mark.name!r} (subtask {holder.subtask} of {vertex.parallelism}) has read no record{_idle(mark)}. "
            f"{_advice(vertex, mark)}, so that other splits do not wait for it."
        )
    else:
        text = (
            f"{_subtasks(silent or [holder.subtask])} read no record, of {vertex.parallelism} subtasks{_idle(mark)}: "
            f"there is no split to read, or no input. {_advice(vertex, mark)}, or set the parallelism to at most the "
            "number of splits."
        )
    title = f"Event time does not advance after {_name(vertex)}"
    return _explanation(holder, waiters, "high", title, f"{text} {waiters_text}", None)


def _lagging(
    view: JobView, holder: _Holder, mark: SplitMark, waiters: _Waiters, waiters_text: str, now: int
) -> Explanation | None:
    """Explain a watermark that lags behind other splits, or has not changed for some time."""
    vertex = holder.vertex
    others = [m.watermark for m in _all_marks(view) if m != mark and m.watermark < MAX_WATERMARK and not m.idle]
    ahead = max([m - mark.watermark for m in others if m > MIN_WATERMARK], default=0)
    stalled = now - mark.since
    if ahead <= _MAX_LAG_MS and stalled <= _MAX_STALL_MS:
        return None
    label = f"subtask {holder.subtask} of {vertex.parallelism}"
    if mark.name is not None:
        label = f"split {mark.name!r} ({label})"
    text = (
        f"{label[0].upper()}{label[1:]} is at {_time(mark.watermark)}, {(now - mark.watermark) / 1000:,.0f} s behind "
        "the clock"
    )
    if stalled > _MAX_STALL_MS:
        text += f", unchanged for {stalled / 1000:,.0f} s"
    if ahead > 0:
        text += f"; others are {ahead / 1000:,.0f} s ahead"
    text += f". Its last record arrived {max(now - mark.last_record, 0) / 1000:,.0f} s ago{_idle(mark)}."
    if stalled > _MAX_STALL_MS and not mark.idle:
        text += (
            f" {_advice(vertex, mark)}, so that other splits do not wait for it."
            if others
            else " A window fires when a record arrives with a timestamp after its end."
        )
    title = f"{label.partition(' (')[0].capitalize()} of {_name(vertex)} delays event time"
    level = "high" if stalled > _MAX_STALL_MS else "low"
    return _explanation(holder, waiters, level, title, f"{text} {waiters_text}", ahead)


def _advice(vertex: Vertex, mark: SplitMark) -> str:
    """Return how to mark a split idle, in the terms of the operator that assigns its watermarks."""
    operator = next((n.operator for n in vertex.nodes if n.id == mark.operator), None)
    return operator.idle_advice if isinstance(operator, WatermarkEmitter) else WatermarkEmitter.idle_advice


def _small(advice: str) -> str:
    return f"u{advice[1:]}" if advice.startswith("Use ") else advice


def _marks(view: JobView, vertex: Vertex, subtask: int) -> tuple[SplitMark, ...]:
    diagnostics = _diagnostics(view, vertex, subtask)
    return () if diagnostics is None else diagnostics.splits


def _all_marks(view: JobView) -> Iterator[SplitMark]:
    for vertex in view.plan.vertices:
        for subtask in range(vertex.parallelism):
            yield from _marks(view, vertex, subtask)


def _explanation(
    holder: _Holder, waiters: _Waiters, level: str, title: str, text: str, lag_ms: int | None
) -> Explanation:
    mark = holder.mark
    about: dict[str, Json] = {
        "subtask": holder.subtask,
        "split": None if mark is None else mark.name,
        "watermark": None if mark is None or mark.watermark <= MIN_WATERMARK else mark.watermark,
        "since": None if mark is None else mark.since,
        "last-record": None if mark is None else mark.last_record,
        "behind-by": lag_ms,
        "idle": holder.is_idle,
        "inputs": sorted(set(waiters.inputs)),
        "waiting": waiters.counts,
        "earliest": waiters.earliest,
    }
    return Explanation("event time", level, title, text, vertex_id(holder.vertex), about)


def _waiters_text(waiters: _Waiters) -> str:
    counts = [_count(count, kind.removesuffix("s")) for kind, count in waiters.counts.items()]
    verb = "waits" if sum(waiters.counts.values()) == 1 else "wait"
    inputs = f" ({', '.join(sorted(set(waiters.inputs)))})" if waiters.inputs else ""
    return f"Downstream{inputs} {' and '.join(counts)} {verb}, the first for {_time(waiters.earliest)}."


def _subtasks(numbers: list[int]) -> str:
    """Return the subtasks with the verb "have".

    Example:
        >>> _subtasks([1]), _subtasks([1, 2])
        ('subtask 1 has', 'subtasks 1, 2 have')
    """
    if len(numbers) == 1:
        return f"subtask {numbers[0]} has"
    return f"subtasks {', '.join(map(str, numbers))} have"


def _idle(mark: SplitMark) -> str:
    return "; it is idle" if mark.idle else "; it is not idle"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _time(millis: int) -> str:
    """Format a timestamp.

    Example:
        >>> _time(1_000), _time(-(2**62))
        ('1970-01-01 00:00:01.000', '-4611686018427387904')
    """
    try:
        return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return str(millis)


# A subtask that is busy for this share of its time is saturated.
_BUSY = 0.8
# A subtask with this many times the mean of the others is skewed.
_SKEW = 2.0
# A key with this share of a subtask's records is hot.
_HOT = 0.1
# An epoch that takes longer hangs.
_HANGING_SECONDS = 5.0
# Maximum late records shown.
_MAX_SAMPLES = 3

Metrics = Mapping[int, list[dict[str, Value]]]


def explanations(view: JobView, metrics: Metrics, now: float) -> list[Explanation]:
    """Return the findings about a job.

    Args:
        view: the job.
        metrics: by vertex, the metrics of its subtasks.
        now: the time, in seconds.
    """
    return [
        *_stuck(view),
        *_hanging(view, now),
        *_backpressure(view, metrics),
        *_skewed(view, metrics),
        *event_time(view, now),
        *_starving(view),
        *_late(view, metrics),
    ]


def _stuck(view: JobView) -> list[Explanation]:
    if not view.is_stuck:
        return []
    times = view.repeated_failures
    text = f"It has failed {times} times in a row with the same error and without progress: see Exceptions."
    return [Explanation("restarts", "high", "The job keeps restarting without progress", text)]


def _hanging(view: JobView, now: float) -> list[Explanation]:
    """Explain an epoch that does not end. Nothing else is reported about the job until it does."""
    if view.epoch_since is None or now - view.epoch_since < _HANGING_SECONDS:
        return []
    if view.plan.settings.batch or not view.progress.epochs:
        # In batch mode an epoch is all input of a level. Before the first epoch slots are still starting.
        return []
    seconds = int(now - view.epoch_since)
    text = (
        f"An epoch takes a fraction of a second, but this one has been running for {seconds} s: a function blocks, or "
        "a slot's process hangs; the flame graph and the thread dump of the task manager show where. A frozen "
        "process is replaced after heartbeat.timeout, and the job restarts when checkpoints exceed "
        "execution.checkpointing.timeout."
    )
    title = f"Epoch {view.epoch + 1} has been running for {seconds} s"
    return [Explanation("hanging epoch", "high", title, text, about={"seconds": seconds})]


def _share(metrics: dict[str, Value], name: str) -> float:
    return float(metrics.get(name, 0)) / 1000


def _backpressure(view: JobView, metrics: Metrics) -> list[Explanation]:
    """Explain vertices that are busy while their upstream vertices are backpressured."""
    by_id = {v.id: v for v in view.plan.vertices}
    result = []
    for vertex in view.plan.vertices:
        busy = max((_share(m, "busyTimeMsPerSecond") for m in metrics.get(vertex.id, [])), default=0.0)
        upstream = [by_id[e.source] for e in vertex.in_edges]
        shares = {
            v.name: max((_share(m, "backPressuredTimeMsPerSecond") for m in metrics.get(v.id, [])), default=0.0)
            for v in upstream
        }
        held = {name: share for name, share in shares.items() if share > NONE_TO}
        own = max((_share(m, "backPressuredTimeMsPerSecond") for m in metrics.get(vertex.id, [])), default=0.0)
        if held and own <= max(held.values()) and busy >= _BUSY / 2 and busy > own:
            blocked = " and ".join(f"{name} ({share:.0%} of its time)" for name, share in held.items())
            text = (
                f"It is busy {busy:.0%} of the time, and backpressures {blocked}. Make its functions cheaper"
                f"{creation_text(vertex)}, or increase its parallelism above {vertex.parallelism}."
            )
            level = "high" if max(held.values()) > 0.5 else "low"
            result.append(
                Explanation("back pressure", level, f"{vertex.name} is the bottleneck", text, vertex_id(vertex))
            )
    return result


def _skewed(view: JobView, metrics: Metrics) -> list[Explanation]:
    """Explain vertices with one subtask that receives most of the records."""
    result = []
    for vertex in view.plan.vertices:
        if vertex.parallelism < 2 or vertex.is_source:
            continue
        read = [float(m.get("numRecordsIn", 0)) for m in metrics.get(vertex.id, [])]
        total = sum(read)
        if total < 1000 or len(read) < 2:
            continue
        largest = max(read)
        if largest > _SKEW * (total - largest) / (len(read) - 1):
            subtask = read.index(largest)
            hot = [key for key in _hottest(view, vertex, subtask) if key.share >= _HOT]
            text = f"Subtask {subtask} of {len(read)} has received {largest / total:.0%} of the records: {_cause(hot)}"
            about = {
                "subtask": subtask,
                "share": largest / total,
                "keys": [{"key": key.key, "share": key.share} for key in hot],
            }
            title = f"{vertex.name} has data skew"
            result.append(Explanation("skew", "low", title, text, vertex_id(vertex), about))
    return result


def _hottest(view: JobView, vertex: Vertex, subtask: int) -> tuple[HotKey, ...]:
    diagnostics = progress_of(view, vertex, subtask).diagnostics
    return () if diagnostics is None else diagnostics.keys


def _cause(hot: list[HotKey]) -> str:
    """Return why a subtask has more records than the others."""
    if not hot:
        return "there are few keys, or some keys are more frequent. Use more distinct keys."
    keys = ", ".join(f"{key.key} with {key.share:.0%}" for key in hot)
    return (
        f"hot key{'' if len(hot) == 1 else 's'} {keys}. Split {'it' if len(hot) == 1 else 'them'} into several keys, "
        "or pre-aggregate records before the exchange."
    )


def _starving(view: JobView) -> list[Explanation]:
    """Explain joins that have rows of one input and none of the other."""
    by_id = {v.id: v for v in view.plan.vertices}
    result = []
    for vertex in view.plan.vertices:
        rows_by_input: dict[int, int] = {}
        diagnostics = [progress_of(view, vertex, i).diagnostics for i in range(vertex.parallelism)]
        starved = [
            [] if subtask_diagnostics is None else list(subtask_diagnostics.starved)
            for subtask_diagnostics in diagnostics
        ]
        # Report only if the same input is empty in all subtasks that have rows.
        for starved_input in (s for subtask in starved for s in subtask):
            rows_by_input[starved_input.input] = rows_by_input.get(starved_input.input, 0) + starved_input.rows
        has_both = any(
            subtask_diagnostics is not None and subtask_diagnostics.state_rows and not s
            for subtask_diagnostics, s in zip(diagnostics, starved, strict=True)
        )
        if len(rows_by_input) != 1 or has_both:
            continue
        ((index, rows),) = rows_by_input.items()
        upstream = by_id[vertex.in_edges[index].source]
        text = (
            f"{rows:,} row{'s wait' if rows != 1 else ' waits'} for a matching row of {_name(upstream)}, which has "
            "sent none: check that it has input, and that no filter before the join drops it."
        )
        about = {"input": index, "rows": rows}
        title = f"{vertex.name} waits for its {('first', 'second')[index]} input"
        result.append(Explanation("waiting join", "high", title, text, vertex_id(vertex), about))
    return result


def _late(view: JobView, metrics: Metrics) -> list[Explanation]:
    """Explain vertices that drop late records."""
    result = []
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
                f"{dropped:,} of {read:,} records were late for their windows and were dropped{creation_text(vertex)}. "
                "Increase the bound of for_bounded_out_of_orderness, set allowed_lateness, or read late records from a "
                "side output (side_output_late_data)."
            )
            samples = _late_samples(view, vertex)
            if samples:
                shown = "; ".join(f"{late.record} at {late.timestamp}, watermark {late.watermark}" for late in samples)
                text += f" Latest: {shown}."
            about = {"dropped": dropped, "read": read, "samples": [asdict(late) for late in samples]}
            title = f"{vertex.name} drops late records"
            result.append(Explanation("late records", "low", title, text, vertex_id(vertex), about))
    return result


def _late_samples(view: JobView, vertex: Vertex) -> list[LateRecord]:
    """Return samples of late records of all subtasks."""
    diagnostics = (progress_of(view, vertex, i).diagnostics for i in range(vertex.parallelism))
    return [
        late
        for subtask_diagnostics in diagnostics
        if subtask_diagnostics is not None
        for late in subtask_diagnostics.late
    ][:_MAX_SAMPLES]
