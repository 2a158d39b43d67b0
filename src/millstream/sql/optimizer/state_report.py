"""A report of operators' state: contents, key, bound, and how to reduce it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from millstream.common.fast_dataclass import fast_dataclass
from millstream.graph.transformations import UpstreamEdge
from millstream.sql.optimizer.changelog import RETRACT, UPDATE_FAST, is_over_time
from millstream.sql.plan import nodes as n
from millstream.sql.schema import INSERTS, TimeAttribute

_TTL = "'table.exec.state.ttl'"
_FIX = (
    f"Set {_TTL} to how long a key lives that nothing comes for, such as '1 d', or use windows or an input that ends."
)
# Operators that ignore the TTL.
_WITHOUT_TTL = (n.Match,)
_PASSED = "the watermark, which lets rows go once it has passed"


@fast_dataclass
class Kept:
    """The state of an operator.

    Attributes:
        what: its contents.
        key: the key columns; empty for non-keyed state.
        bound: what discards it; None if only a TTL or the end of input does.
        smaller: how to reduce it.
    """

    what: str
    key: str = ""
    bound: str | None = None
    smaller: tuple[str, ...] = ()


def endless_state(plans: Sequence[n.Planned]) -> list[str]:
    """Return a sentence for each operator of streaming plans with unbounded state, with its key."""
    result: dict[int, str] = {}
    for planned in (p for root in plans for p in _all(root)):
        kept = kept_by(planned)
        if kept is not None and _is_endless(planned, kept):
            fix = f"Use {kept.smaller[0]}." if isinstance(planned.node, _WITHOUT_TTL) else _FIX
            result[id(planned)] = f"{planned.name} keeps {kept.what} for ever, since its input does not end. {fix}"
    return list(result.values())


def _is_endless(planned: n.Planned, kept: Kept) -> bool:
    return kept.bound is None and not _time_to_live(planned) and not ends(planned.node)


def _time_to_live(planned: n.Planned) -> int:
    """Return the TTL in milliseconds after which an idle key expires; 0 for never."""
    return 0 if isinstance(planned.node, _WITHOUT_TTL) else planned.traits.state_ttl


def state_text(plans: Sequence[n.Planned]) -> str:
    """Return EXPLAIN's section on the state of streaming plans; empty for stateless plans."""
    parts: dict[int, str] = {}
    for planned in (p for root in plans for p in _all(root)):
        kept = kept_by(planned)
        if kept is not None and id(planned) not in parts:
            parts[id(planned)] = _told(planned, kept, len(parts) + 1)
    return "== State ==\n" + "\n".join(parts.values()) if parts else ""


def _told(planned: n.Planned, kept: Kept, number: int) -> str:
    lines = [f"[{number}] {planned.name}", f"    keeps: {kept.what}"]
    lines.append(f"    key: {kept.key or 'none: one subtask keeps it all'}")
    lines.append(f"    bounded by: {_bound(planned, kept)}")
    hints = list(kept.smaller)
    if _is_endless(planned, kept) and not isinstance(planned.node, _WITHOUT_TTL):
        hints.insert(0, f"SET {_TTL} = '1 d' (how long a key lives that nothing comes for), or a window")
    lines += [f"    smaller with: {hint}" for hint in hints]
    return "\n".join(lines) + "\n"


def _bound(planned: n.Planned, kept: Kept) -> str:
    if kept.bound is not None:
        return kept.bound
    ttl = _time_to_live(planned)
    if ttl:
        return f"time: what nothing comes for goes after {_span(ttl)} ({_TTL} or a hint)"
    if ends(planned.node):
        return "the end of the input"
    return "nothing: it grows for as long as new keys come"


def _all(planned: n.Planned) -> Iterator[n.Planned]:
    yield planned
    for below in planned.inputs:
        yield from _all(below)


# --- by kind of operator


def kept_by(planned: n.Planned) -> Kept | None:
    """Return the state of an operator in a streaming plan; None if stateless."""
    tell = next((tell for kind, tell in _TELL if isinstance(planned.node, kind)), None)
    return None if tell is None else tell(planned.node, planned)


def _aggregate(node: n.Aggregate | n.TableAggregate, planned: n.Planned) -> Kept | None:
    keys = _names(node, range(len(node.keys)))
    calls = node.calls if isinstance(node, n.Aggregate) else (node.call,)
    distinct = tuple(_distinct(calls, planned.inputs[0].node))
    if not node.keys:
        what = f"one row of {_count(len(calls), 'accumulator')}{', and the values they have seen' if distinct else ''}"
        return Kept(what, bound=None if distinct else "its size: it is one row", smaller=distinct)
    return Kept(f"a row for every value of {keys}", keys, smaller=distinct)


def _distinct(calls: Sequence[Any], below: n.Node) -> Iterator[str]:
    for call in calls:
        if call.distinct and call.arguments:
            name = ", ".join(_name(below, a) for a in call.arguments)
            yield f"fewer distinct values: {call.function}(DISTINCT {name}) keeps every value of {name} for each key"


def _window_aggregate(node: n.WindowAggregate, planned: n.Planned) -> Kept:
    keys = _names(node, range(len(node.keys)))
    if node.counts is not None:
        what = f"the last {node.counts[0]} rows{f' for every value of {keys}' if keys else ''}"
        bound = "rows: a window goes when it is full, but for its newest row, and stays for as long as it is not"
        return Kept(what, keys, bound, ("windows of fewer rows", "fewer keys"))
    window = _window(node.window)
    what = f"accumulators for {f'every value of {keys} in ' if keys else ''}{window} that is open"
    smaller = tuple(_distinct(node.calls, planned.inputs[0].node))
    if node.window.step and node.window.kind is not n.WindowKind.TUMBLE:
        parts = node.window.size // node.window.step or 1
        smaller += (f"a longer step: {_span(node.window.step)} makes {parts} parts of each window",)
    else:
        smaller += (_shorter(node.window),)
    late = f", and {_span(node.fires.lateness)} for late rows" if node.fires and node.fires.lateness else ""
    return Kept(what, keys, f"{_time(node.window.is_event_time)}: a window goes at its end{late}", smaller)


def _window(spec: n.WindowSpec) -> str:
    return f"each {spec.kind.value} window of {_span(spec.size)}"


def _window_table(node: n.WindowTable, planned: n.Planned) -> Kept | None:
    if not node.is_session:
        return None
    keys = _names(node, node.window.partition)
    each = f", for every value of {keys}" if keys else ""
    bound = f"{_time(node.window.is_event_time)}: a session goes {_span(node.window.size)} after its last row"
    return Kept(f"rows of sessions that are open{each}", keys, bound, (_shorter(node.window),))


def _shorter(window: n.WindowSpec) -> str:
    return f"a shorter {'gap' if window.kind is n.WindowKind.SESSION else 'window'}"


def _time(is_event_time: bool) -> str:
    return "the watermark" if is_event_time else "the clock"


def _over(node: n.Over, planned: n.Planned) -> Kept:
    over, below = node.over, planned.inputs[0].node
    keys = _names(below, over.partition)
    each = f" for every value of {keys}" if keys else ""
    distinct = tuple(_distinct(over.calls, below))
    if not is_over_time(node):
        hint = "a time attribute to order by: then rows before a frame are not kept"
        return Kept(f"all rows{each}, since one that comes in between changes those behind it", keys, smaller=(hint,))
    is_event_time = below.fields[over.order[0][0]].time is TimeAttribute.ROWTIME
    waits = ", and rows that the watermark has not passed" if is_event_time else ""
    if over.start is None:
        bound = None if keys or distinct else f"its size: one row of accumulators{waits}"
        return Kept(f"accumulators{each}{waits}", keys, bound, distinct)
    if over.rows:
        rows = _count(abs(over.start) + 1, "row")
        bound = None if keys else f"its size: {rows}{waits}"
        return Kept(f"the last {rows}{each}{waits}", keys, bound, ("a frame of fewer rows", *distinct))
    span = _span(abs(over.start))
    bound = f"{_time(is_event_time)}: rows go {span} behind it"
    return Kept(f"the rows of the last {span}{each}", keys, bound, ("a shorter frame", *distinct))


def _rank(node: n.Rank, planned: n.Planned) -> Kept | None:
    below = planned.inputs[0].node
    if isinstance(node, n.WindowRank):
        return _window_rank(node, below)
    keys = _names(below, node.partition)
    each = f" for every value of {keys}" if keys else ""
    if node.strategy == RETRACT:
        hint = "an input of inserts alone, or one updated by its key: then only the first rows are kept"
        return Kept(f"all rows{each}, since any of the first ones may be taken back", keys, smaller=(hint,))
    smaller = ("fewer places: WHERE row_num <= a smaller number",) if node.last > 1 else ()
    bound = None if keys else f"its size: {_count(node.last, 'row')}"
    return Kept(f"the first {node.last} rows{each}" if node.last > 1 else f"a row{each}", keys, bound, smaller)


def _window_rank(node: n.WindowRank, below: n.Node) -> Kept:
    keys = _names(below, [place for place in node.partition if place not in node.has_window])
    each = f" for every value of {keys}" if keys else ""
    rows = f"the first {node.last} rows" if node.last > 1 else "a row"
    bound = f"{_time(node.window.is_event_time)}: a window goes at its end"
    return Kept(f"{rows}{each} in {_window(node.window)} that is open", keys, bound, (_shorter(node.window),))


def _sort(node: n.Sort, planned: n.Planned) -> Kept:
    if node.limit is None:
        return Kept("rows until their time has come", bound=_PASSED, smaller=("watermarks that are less far behind",))
    takes_back = bool(planned.inputs[0].traits.changes - INSERTS)
    if takes_back and node.strategy != UPDATE_FAST:
        return Kept("all rows, since any of the first ones may be taken back", smaller=("an input of inserts alone",))
    if not node.order and not takes_back:
        return Kept("how many rows have come", bound="its size: it is one number")
    rows = _count(node.offset + node.limit, "row")
    return Kept(f"the first {rows}", bound=f"its size: {rows}", smaller=("a smaller LIMIT",))


def _deduplicate(node: n.Deduplicate, planned: n.Planned) -> Kept:
    keys = _names(node, node.keys)
    each = f" for every value of {keys}" if keys else ""
    bound = None if keys else "its size: it is one row"
    if node.keeps_last:
        return Kept(f"the last row{each}", keys, bound)
    waits = ", and first rows that the watermark has not passed" if node.is_event_time else ""
    return Kept(f"{f'every value of {keys} that has come' if keys else 'that a row has come'}{waits}", keys, bound)


def _join(node: n.Join, planned: n.Planned) -> Kept:
    left, right = (p.node for p in planned.inputs)
    on = [_names(left, node.left_keys), _names(right, node.right_keys)]
    key = " = ".join(on) if node.left_keys else ""
    what = f"every row of both inputs by {' and '.join(on)}" if node.left_keys else "every row of both inputs"
    return Kept(what, key, smaller=tuple(_join_hints(node, planned)))


def _join_hints(node: n.Join, planned: n.Planned) -> Iterator[str]:
    if not node.left_keys:
        yield "an equality between the inputs: without one, one subtask keeps and compares all rows"
    sides = (("left", node.left_keys), ("right", node.right_keys))
    for (side, keys), below in zip(sides, planned.inputs, strict=True):
        if node.left_keys and not any(key <= set(keys) for key in below.traits.upsert_keys):
            yield (
                f"a PRIMARY KEY of the {side} input within its join key: rows then replace each other, and one is kept "
                "for each key"
            )
    yield "a bound on time between both sides (an interval join), or fewer columns selected before the join"


def _window_join(node: n.WindowJoin, planned: n.Planned) -> Kept:
    key = _names(planned.inputs[0].node, node.left_keys)
    bound = f"{_time(node.window.is_event_time)}: a window goes at its end"
    rows = f"the rows of both inputs in {_window(node.window)} that is open"
    return Kept(rows, key, bound, (_shorter(node.window), "fewer columns selected before the join"))


def _interval_join(node: n.IntervalJoin, planned: n.Planned) -> Kept:
    key = _names(planned.inputs[0].node, node.left_keys)
    span = _span(abs(node.upper - node.lower))
    bound = f"{_time(node.is_event_time)}: a row goes once no partner can come, {span} at most behind it"
    return Kept("the rows of both inputs that can still find a partner", key, bound, ("a shorter interval",))


def _temporal_join(node: n.TemporalJoin, planned: n.Planned) -> Kept:
    key = _names(planned.inputs[1].node, node.right_keys)
    what = f"rows of the left input until their time has come, and the versions of every value of {key}"
    ttl = planned.traits.state_ttl
    stays = f"goes {_span(ttl)} after the last row for it ({_TTL})" if ttl else "stays"
    fewer = "fewer keys in the versioned table"
    smaller = (
        (fewer,) if ttl else (fewer, f"SET {_TTL} = '1 d' (how long the newest version lives that no row asks for)")
    )
    return Kept(what, key, f"{_PASSED}; the newest version of each key {stays}", smaller)


def _lookup_join(node: n.MaterializedLookupJoin, planned: n.Planned) -> Kept:
    keys = _names(planned.inputs[0].node, node.state_key)
    hint = "fewer columns of the table that is looked up, or only its primary key: then nothing is kept"
    return Kept(f"what was found for every value of {keys}", keys, smaller=(hint,))


def _match(node: n.Match, planned: n.Planned) -> Kept:
    keys = _names(planned.inputs[0].node, node.partition)
    what = "matches that have begun, with their rows" + (f", for every value of {keys}" if keys else "")
    if node.within is not None:
        bound = f"time: a match that takes longer than {_span(node.within)} is given up"
        return Kept(what, keys, bound, ("a shorter WITHIN",))
    return Kept(what, keys, smaller=("WITHIN INTERVAL '...' behind the pattern: what takes longer is given up",))


def _set_operation(node: n.SetOperation, planned: n.Planned) -> Kept:
    names = _names(node, range(len(node.fields)))
    return Kept(f"every row by {names}", names, smaller=("fewer columns selected, so that more rows are equal",))


def _normalize(node: n.ChangelogNormalize, planned: n.Planned) -> Kept:
    keys = _names(node, node.keys)
    hint = "a connector whose changes say what was there before, which needs no last rows"
    return Kept(f"a row for every value of {keys}", keys, smaller=(hint,))


def _sink(node: n.Sink, planned: n.Planned) -> Kept | None:
    if node.materialize is None:
        return None
    keys = _names(node, node.materialize)
    hint = (
        "a query whose key is the sink's primary key, or SET 'table.exec.sink.upsert-materialize' = 'NONE' where it is"
    )
    return Kept(f"every row by {keys}", keys, smaller=(hint,))


# The first match wins.
_TELL: list[tuple[type, Callable[[Any, n.Planned], Kept | None]]] = [
    (n.WindowAggregate, _window_aggregate),
    (n.WindowTable, _window_table),
    (n.Aggregate, _aggregate),
    (n.TableAggregate, _aggregate),
    (n.Over, _over),
    (n.Rank, _rank),
    (n.Sort, _sort),
    (n.Deduplicate, _deduplicate),
    (n.WindowJoin, _window_join),
    (n.IntervalJoin, _interval_join),
    (n.TemporalJoin, _temporal_join),
    (n.Join, _join),
    (n.MaterializedLookupJoin, _lookup_join),
    (n.Match, _match),
    (n.SetOperation, _set_operation),
    (n.ChangelogNormalize, _normalize),
    (n.Sink, _sink),
]


# --- texts


def _names(node: n.Node, places: Sequence[int]) -> str:
    return ", ".join(_name(node, i) for i in places)


def _name(node: n.Node, place: int) -> str:
    return node.fields[place].name


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _span(milliseconds: int) -> str:
    """Return a duration as settings write it.

    Example:
        >>> _span(90_000), _span(86_400_000), _span(5)
        ('90 s', '1 d', '5 ms')
    """
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size} {unit}"
    return f"{milliseconds} ms"


# --- boundedness


def ends(node: n.Node) -> bool:
    """Return whether all sources of a node are bounded."""
    if isinstance(node, n.Scan):
        return node.source.is_bounded
    if isinstance(node, n.StreamScan):
        return all(map(_stream_ends, node.stream.ends))
    return all(map(ends, node.inputs))


def _stream_ends(end: UpstreamEdge) -> bool:
    return end.source.is_bounded and all(map(_stream_ends, end.source.inputs))
