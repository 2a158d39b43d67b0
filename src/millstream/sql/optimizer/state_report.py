"""A report of operators' state: contents, key, bound, and how to reduce it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from millstream.common.fast_dataclass import fast_dataclass
from millstream.graph.transformations import UpstreamEdge
from millstream.sql.expressions import AggregateCall
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
class OperatorState:
    """The state of an operator.

    Attributes:
        what: its contents.
        key: the key columns; empty for non-keyed state.
        bound: what discards it; None if only a TTL or the end of input does.
        smaller: how to reduce it.
    """

    contents: str
    key: str = ""
    bound: str | None = None
    remedies: tuple[str, ...] = ()


def endless_state(plans: Sequence[n.Planned]) -> list[str]:
    """Return a sentence for each operator of streaming plans with unbounded state, with its key."""
    result: dict[int, str] = {}
    for planned in (p for root in plans for p in _all(root)):
        state = state_of(planned)
        if state is not None and _is_endless(planned, state):
            fix = f"Use {state.remedies[0]}." if isinstance(planned.node, _WITHOUT_TTL) else _FIX
            result[id(planned)] = (
                f"{planned.name} keeps {state.contents} without bound, because its input is unbounded. {fix}"
            )
    return list(result.values())


def _is_endless(planned: n.Planned, state: OperatorState) -> bool:
    return state.bound is None and not _time_to_live(planned) and not ends(planned.node)


def _time_to_live(planned: n.Planned) -> int:
    """Return the TTL in milliseconds after which an idle key expires; 0 for never."""
    return 0 if isinstance(planned.node, _WITHOUT_TTL) else planned.traits.state_ttl


def state_text(plans: Sequence[n.Planned]) -> str:
    """Return EXPLAIN's section on the state of streaming plans; empty for stateless plans."""
    parts: dict[int, str] = {}
    for planned in (p for root in plans for p in _all(root)):
        state = state_of(planned)
        if state is not None and id(planned) not in parts:
            parts[id(planned)] = _section(planned, state, len(parts) + 1)
    return "== State ==\n" + "\n".join(parts.values()) if parts else ""


def _section(planned: n.Planned, state: OperatorState, number: int) -> str:
    lines = [f"[{number}] {planned.name}", f"    keeps: {state.contents}"]
    lines.append(f"    key: {state.key or 'none: one subtask keeps it all'}")
    lines.append(f"    bounded by: {_bound(planned, state)}")
    hints = list(state.remedies)
    if _is_endless(planned, state) and not isinstance(planned.node, _WITHOUT_TTL):
        hints.insert(0, f"SET {_TTL} = '1 d' (how long a key lives that nothing comes for), or a window")
    lines += [f"    smaller with: {hint}" for hint in hints]
    return "\n".join(lines) + "\n"


def _bound(planned: n.Planned, state: OperatorState) -> str:
    if state.bound is not None:
        return state.bound
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


def state_of(planned: n.Planned) -> OperatorState | None:
    """Return the state of an operator in a streaming plan; None if stateless."""
    describe = next((describe for kind, describe in _DESCRIBE if isinstance(planned.node, kind)), None)
    return None if describe is None else describe(planned.node, planned)


def _aggregate(node: n.Aggregate | n.TableAggregate, planned: n.Planned) -> OperatorState | None:
    keys = _names(node, range(len(node.keys)))
    calls = node.calls if isinstance(node, n.Aggregate) else (node.call,)
    distinct = tuple(_distinct(calls, planned.inputs[0].node))
    if not node.keys:
        contents = (
            f"one row of {_count(len(calls), 'accumulator')}{', and the values they have seen' if distinct else ''}"
        )
        return OperatorState(contents, bound=None if distinct else "its size: it is one row", remedies=distinct)
    return OperatorState(f"a row for every value of {keys}", keys, remedies=distinct)


def _distinct(calls: Sequence[AggregateCall], below: n.Node) -> Iterator[str]:
    for call in calls:
        if call.distinct and call.arguments:
            name = ", ".join(_name(below, a) for a in call.arguments)
            yield f"fewer distinct values: {call.function}(DISTINCT {name}) keeps every value of {name} for each key"


def _window_aggregate(node: n.WindowAggregate, planned: n.Planned) -> OperatorState:
    keys = _names(node, range(len(node.keys)))
    if node.counts is not None:
        contents = f"the last {node.counts[0]} rows{f' for every value of {keys}' if keys else ''}"
        bound = "rows: a window goes when it is full, but for its newest row, and stays for as long as it is not"
        return OperatorState(contents, keys, bound, ("windows of fewer rows", "fewer keys"))
    window = _window(node.window)
    contents = f"accumulators for {f'every value of {keys} in ' if keys else ''}{window} that is open"
    remedies = tuple(_distinct(node.calls, planned.inputs[0].node))
    if node.window.step and node.window.kind is not n.WindowKind.TUMBLE:
        parts = node.window.size // node.window.step or 1
        remedies += (f"a longer step: {_span(node.window.step)} makes {parts} parts of each window",)
    else:
        remedies += (_shorter(node.window),)
    late = f", and {_span(node.fires.lateness)} for late rows" if node.fires and node.fires.lateness else ""
    return OperatorState(
        contents, keys, f"{_time(node.window.is_event_time)}: a window goes at its end{late}", remedies
    )


def _window(spec: n.WindowSpec) -> str:
    return f"each {spec.kind.value} window of {_span(spec.size)}"


def _window_table(node: n.WindowTable, planned: n.Planned) -> OperatorState | None:
    if not node.is_session:
        return None
    keys = _names(node, node.window.partition)
    each = f", for every value of {keys}" if keys else ""
    bound = f"{_time(node.window.is_event_time)}: a session goes {_span(node.window.size)} after its last row"
    return OperatorState(f"rows of sessions that are open{each}", keys, bound, (_shorter(node.window),))


def _shorter(window: n.WindowSpec) -> str:
    return f"a shorter {'gap' if window.kind is n.WindowKind.SESSION else 'window'}"


def _time(is_event_time: bool) -> str:
    return "the watermark" if is_event_time else "the clock"


def _over(node: n.Over, planned: n.Planned) -> OperatorState:
    over, below = node.over, planned.inputs[0].node
    keys = _names(below, over.partition)
    each = f" for every value of {keys}" if keys else ""
    distinct = tuple(_distinct(over.calls, below))
    if not is_over_time(node):
        hint = "a time attribute to order by: then rows before a frame are not kept"
        return OperatorState(
            f"all rows{each}, since one that comes in between changes those behind it", keys, remedies=(hint,)
        )
    is_event_time = below.fields[over.order[0][0]].time is TimeAttribute.ROWTIME
    waits = ", and rows that the watermark has not passed" if is_event_time else ""
    if over.start is None:
        bound = None if keys or distinct else f"its size: one row of accumulators{waits}"
        return OperatorState(f"accumulators{each}{waits}", keys, bound, distinct)
    if over.rows:
        rows = _count(abs(over.start) + 1, "row")
        bound = None if keys else f"its size: {rows}{waits}"
        return OperatorState(f"the last {rows}{each}{waits}", keys, bound, ("a frame of fewer rows", *distinct))
    span = _span(abs(over.start))
    bound = f"{_time(is_event_time)}: rows go {span} behind it"
    return OperatorState(f"the rows of the last {span}{each}", keys, bound, ("a shorter frame", *distinct))


def _rank(node: n.Rank, planned: n.Planned) -> OperatorState | None:
    below = planned.inputs[0].node
    if isinstance(node, n.WindowRank):
        return _window_rank(node, below)
    keys = _names(below, node.partition)
    each = f" for every value of {keys}" if keys else ""
    if node.strategy == RETRACT:
        hint = "an input of inserts alone, or one updated by its key: then only the first rows are kept"
        return OperatorState(f"all rows{each}, since any of the first ones may be retracted", keys, remedies=(hint,))
    remedies = ("fewer places: WHERE row_num <= a smaller number",) if node.last > 1 else ()
    bound = None if keys else f"its size: {_count(node.last, 'row')}"
    return OperatorState(
        f"the first {node.last} rows{each}" if node.last > 1 else f"a row{each}", keys, bound, remedies
    )


def _window_rank(node: n.WindowRank, below: n.Node) -> OperatorState:
    keys = _names(below, [index for index in node.partition if index not in node.has_window])
    each = f" for every value of {keys}" if keys else ""
    rows = f"the first {node.last} rows" if node.last > 1 else "a row"
    bound = f"{_time(node.window.is_event_time)}: a window goes at its end"
    return OperatorState(f"{rows}{each} in {_window(node.window)} that is open", keys, bound, (_shorter(node.window),))


def _sort(node: n.Sort, planned: n.Planned) -> OperatorState:
    if node.limit is None:
        return OperatorState(
            "rows until their time has come", bound=_PASSED, remedies=("watermarks that are less far behind",)
        )
    takes_back = bool(planned.inputs[0].traits.changes - INSERTS)
    if takes_back and node.strategy != UPDATE_FAST:
        return OperatorState(
            "all rows, since any of the first ones may be retracted", remedies=("an input of inserts alone",)
        )
    if not node.order and not takes_back:
        return OperatorState("how many rows have come", bound="its size: it is one number")
    rows = _count(node.offset + node.limit, "row")
    return OperatorState(f"the first {rows}", bound=f"its size: {rows}", remedies=("a smaller LIMIT",))


def _deduplicate(node: n.Deduplicate, planned: n.Planned) -> OperatorState:
    keys = _names(node, node.keys)
    each = f" for every value of {keys}" if keys else ""
    bound = None if keys else "its size: it is one row"
    if node.keeps_last:
        return OperatorState(f"the last row{each}", keys, bound)
    waits = ", and first rows that the watermark has not passed" if node.is_event_time else ""
    return OperatorState(
        f"{f'every value of {keys} that has come' if keys else 'that a row has come'}{waits}", keys, bound
    )


def _join(node: n.Join, planned: n.Planned) -> OperatorState:
    left, right = (p.node for p in planned.inputs)
    on = [_names(left, node.left_keys), _names(right, node.right_keys)]
    key = " = ".join(on) if node.left_keys else ""
    contents = f"every row of both inputs by {' and '.join(on)}" if node.left_keys else "every row of both inputs"
    return OperatorState(contents, key, remedies=tuple(_join_hints(node, planned)))


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


def _window_join(node: n.WindowJoin, planned: n.Planned) -> OperatorState:
    key = _names(planned.inputs[0].node, node.left_keys)
    bound = f"{_time(node.window.is_event_time)}: a window goes at its end"
    rows = f"the rows of both inputs in {_window(node.window)} that is open"
    return OperatorState(rows, key, bound, (_shorter(node.window), "fewer columns selected before the join"))


def _interval_join(node: n.IntervalJoin, planned: n.Planned) -> OperatorState:
    key = _names(planned.inputs[0].node, node.left_keys)
    span = _span(abs(node.upper - node.lower))
    bound = f"{_time(node.is_event_time)}: a row goes once no partner can come, {span} at most behind it"
    return OperatorState("the rows of both inputs that can still find a partner", key, bound, ("a shorter interval",))


def _temporal_join(node: n.TemporalJoin, planned: n.Planned) -> OperatorState:
    key = _names(planned.inputs[1].node, node.right_keys)
    contents = f"rows of the left input until their time has come, and the versions of every value of {key}"
    ttl = planned.traits.state_ttl
    stays = f"goes {_span(ttl)} after the last row for it ({_TTL})" if ttl else "stays"
    fewer = "fewer keys in the versioned table"
    remedies = (
        (fewer,) if ttl else (fewer, f"SET {_TTL} = '1 d' (how long the newest version lives that no row asks for)")
    )
    return OperatorState(contents, key, f"{_PASSED}; the newest version of each key {stays}", remedies)


def _lookup_join(node: n.MaterializedLookupJoin, planned: n.Planned) -> OperatorState:
    keys = _names(planned.inputs[0].node, node.state_key)
    hint = "fewer columns of the table that is looked up, or only its primary key: then nothing is kept"
    return OperatorState(f"what was found for every value of {keys}", keys, remedies=(hint,))


def _match(node: n.Match, planned: n.Planned) -> OperatorState:
    keys = _names(planned.inputs[0].node, node.partition)
    contents = "matches that have begun, with their rows" + (f", for every value of {keys}" if keys else "")
    if node.within is not None:
        bound = f"time: a match that takes longer than {_span(node.within)} is given up"
        return OperatorState(contents, keys, bound, ("a shorter WITHIN",))
    return OperatorState(
        contents, keys, remedies=("WITHIN INTERVAL '...' behind the pattern: what takes longer is given up",)
    )


def _set_operation(node: n.SetOperation, planned: n.Planned) -> OperatorState:
    names = _names(node, range(len(node.fields)))
    return OperatorState(
        f"every row by {names}", names, remedies=("fewer columns selected, so that more rows are equal",)
    )


def _normalize(node: n.ChangelogNormalize, planned: n.Planned) -> OperatorState:
    keys = _names(node, node.keys)
    hint = "a connector whose changes say what was there before, which needs no last rows"
    return OperatorState(f"a row for every value of {keys}", keys, remedies=(hint,))


def _sink(node: n.Sink, planned: n.Planned) -> OperatorState | None:
    if node.materialize is None:
        return None
    keys = _names(node, node.materialize)
    hint = (
        "a query whose key is the sink's primary key, or SET 'table.exec.sink.upsert-materialize' = 'NONE' where it is"
    )
    return OperatorState(f"every row by {keys}", keys, remedies=(hint,))


# The first match wins. Each function takes the class beside it.
_DESCRIBE: list[tuple[type[n.Node], Callable[[Any, n.Planned], OperatorState | None]]] = [
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


def _name(node: n.Node, index: int) -> str:
    return node.fields[index].name


def _count(number: int, contents: str) -> str:
    return f"{number} {contents}" if number == 1 else f"{number} {contents}s"


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
