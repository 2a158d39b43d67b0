"""Why has my window not fired? Who holds event time back, since when, and what waits for it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from millstream.common.execution_state import ExecutionState
from millstream.common.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK
from millstream.jobmaster.machine.view import JobView
from millstream.operators.base import Operator
from millstream.operators.diagnostics.subtask_diagnostics import InputMark, SplitMark, SubtaskDiagnostics
from millstream.operators.runtime.vertex import Vertex
from millstream.operators.watermarks import WatermarkOperator
from millstream.service.explanation import Explanation, where
from millstream.service.responses.tasks import milliseconds, vertex_id

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
