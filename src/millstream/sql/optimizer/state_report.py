"""A report of operators' state: contents, key, bound, and how to reduce it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from millstream.common.dispatch import Dispatch
from millstream.common.fast_dataclass import fast_dataclass
from millstream.graph.transformations import UpstreamEdge
from millstream.sql.expressions import AggregateCall
from millstream.sql.optimizer.changelog import RETRACT, UPDATE_FAST, is_over_time
from millstream.sql.plan import nodes as n
from millstream.sql.schema import INSERTS, TimeAttribute

_TTL = "'table.exec.state.ttl'"
_FIX = f"Set {_TTL}, for example to '1 d', or use windows or a bounded input."
# Operators that ignore the TTL.
_WITHOUT_TTL = (n.Match,)
_PASSED = "watermark: rows are discarded when it passes them"


@fast_dataclass
class OperatorState:
    """The state of an operator.

    Attributes:
        contents: what it stores.
        key: the key columns; empty for non-keyed state.
        bound: what limits it; None if only a TTL or the end of input does.
        remedies: how to reduce it.
    """

    contents: str
    key: str = ""
    bound: str | None = None
    remedies: tuple[str, ...] = ()


def unbounded_state(plans: Sequence[n.Planned]) -> list[str]:
    """Return a sentence for each operator of streaming plans with unbounded state, with its key."""
    result: dict[int, str] = {}
    for planned in (p for root in plans for p in _all(root)):
        state = state_of(planned)
        if state is not None and _is_unbounded(planned, state):
            fix = f"Use {state.remedies[0]}." if isinstance(planned.node, _WITHOUT_TTL) else _FIX
            result[id(planned)] = (
                f"{planned.name} stores {state.contents} without bound, because its input is unbounded. {fix}"
            )
    return list(result.values())


def _is_unbounded(planned: n.Planned, state: OperatorState) -> bool:
    return state.bound is None and not _time_to_live(planned) and not is_bounded(planned.node)


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
    lines = [f"[{number}] {planned.name}", f"    stores: {state.contents}"]
    lines.append(f"    key: {state.key or 'none: one subtask holds all state'}")
    lines.append(f"    bound: {_bound(planned, state)}")
    hints = list(state.remedies)
    if _is_unbounded(planned, state) and not isinstance(planned.node, _WITHOUT_TTL):
        hints.insert(0, f"SET {_TTL} = '1 d' (idle keys expire), or a window")
    lines += [f"    reduce with: {hint}" for hint in hints]
    return "\n".join(lines) + "\n"


def _bound(planned: n.Planned, state: OperatorState) -> str:
    if state.bound is not None:
        return state.bound
    ttl = _time_to_live(planned)
    if ttl:
        return f"TTL: keys idle for {_span(ttl)} expire ({_TTL} or a hint)"
    if is_bounded(planned.node):
        return "the end of the input"
    return "none: it grows with the input"


def _all(planned: n.Planned) -> Iterator[n.Planned]:
    yield planned
    for below in planned.inputs:
        yield from _all(below)


# --- by kind of operator


def state_of(planned: n.Planned) -> OperatorState | None:
    """Return the state of an operator in a streaming plan; None if stateless."""
    describe = _DESCRIBE.find(planned.node)
    return None if describe is None else describe(planned.node, planned)


def _aggregate(node: n.Aggregate | n.TableAggregate, planned: n.Planned) -> OperatorState | None:
    keys = _names(node, range(len(node.keys)))
    calls = node.calls if isinstance(node, n.Aggregate) else (node.call,)
    distinct = tuple(_distinct(calls, planned.inputs[0].node))
    if not node.keys:
        contents = f"one row of {_count(len(calls), 'accumulator')}{', and the distinct values' if distinct else ''}"
        return OperatorState(contents, bound=None if distinct else "fixed size: one row", remedies=distinct)
    return OperatorState(f"a row for every value of {keys}", keys, remedies=distinct)


def _distinct(calls: Sequence[AggregateCall], below: n.Node) -> Iterator[str]:
    for call in calls:
        if call.distinct and call.arguments:
            name = ", ".join(_name(below, a) for a in call.arguments)
            yield f"fewer distinct values: {call.function}(DISTINCT {name}) stores every value of {name} for each key"


def _window_aggregate(node: n.WindowAggregate, planned: n.Planned) -> OperatorState:
    keys = _names(node, range(len(node.keys)))
    if node.counts is not None:
        contents = f"the last {node.counts[0]} rows{f' for every value of {keys}' if keys else ''}"
        bound = "row count: a full window is discarded except for its newest row; an incomplete one remains"
        return OperatorState(contents, keys, bound, ("windows of fewer rows", "fewer keys"))
    window = _window(node.window)
    contents = f"accumulators for {f'every value of {keys} in ' if keys else ''}{window}"
    remedies = tuple(_distinct(node.calls, planned.inputs[0].node))
    if node.window.step and node.window.kind is not n.WindowKind.TUMBLE:
        parts = node.window.size // node.window.step or 1
        remedies += (f"a longer step: {_span(node.window.step)} splits each window into {parts} slices",)
    else:
        remedies += (_shorter(node.window),)
    late = f", plus {_span(node.fires.lateness)} of allowed lateness" if node.fires and node.fires.lateness else ""
    return OperatorState(
        contents, keys, f"{_time(node.window.is_event_time)}: a window is discarded at its end{late}", remedies
    )


def _window(spec: n.WindowSpec) -> str:
    return f"each open {spec.kind.value} window of {_span(spec.size)}"


def _window_table(node: n.WindowTable, planned: n.Planned) -> OperatorState | None:
    if not node.is_session:
        return None
    keys = _names(node, node.window.partition)
    each = f", for every value of {keys}" if keys else ""
    bound = f"{_time(node.window.is_event_time)}: a session is discarded {_span(node.window.size)} after its last row"
    return OperatorState(f"rows of open sessions{each}", keys, bound, (_shorter(node.window),))


def _shorter(window: n.WindowSpec) -> str:
    return f"a shorter {'gap' if window.kind is n.WindowKind.SESSION else 'window'}"


def _time(is_event_time: bool) -> str:
    return "watermark" if is_event_time else "processing time"


def _over(node: n.Over, planned: n.Planned) -> OperatorState:
    over, below = node.over, planned.inputs[0].node
    keys = _names(below, over.partition)
    each = f" for every value of {keys}" if keys else ""
    distinct = tuple(_distinct(over.calls, below))
    if not is_over_time(node):
        hint = "ORDER BY a time attribute: then rows before a frame are discarded"
        return OperatorState(
            f"all rows{each}, since a new row changes the results of those after it", keys, remedies=(hint,)
        )
    is_event_time = below.fields[over.order[0][0]].time is TimeAttribute.ROWTIME
    pending = ", and rows that the watermark has not passed" if is_event_time else ""
    if over.start is None:
        bound = None if keys or distinct else f"fixed size: one row of accumulators{pending}"
        return OperatorState(f"accumulators{each}{pending}", keys, bound, distinct)
    if over.rows:
        rows = _count(abs(over.start) + 1, "row")
        bound = None if keys else f"fixed size: {rows}{pending}"
        return OperatorState(f"the last {rows}{each}{pending}", keys, bound, ("a frame of fewer rows", *distinct))
    span = _span(abs(over.start))
    bound = f"{_time(is_event_time)}: rows are discarded {span} behind it"
    return OperatorState(f"the rows of the last {span}{each}", keys, bound, ("a shorter frame", *distinct))


def _rank(node: n.Rank, planned: n.Planned) -> OperatorState | None:
    below = planned.inputs[0].node
    if isinstance(node, n.WindowRank):
        return _window_rank(node, below)
    keys = _names(below, node.partition)
    each = f" for every value of {keys}" if keys else ""
    if node.strategy == RETRACT:
        hint = "an append-only input, or one updated by its key: then only the first rows are stored"
        return OperatorState(f"all rows{each}, since any of the first ones may be retracted", keys, remedies=(hint,))
    remedies = ("a smaller N in WHERE row_num <= N",) if node.last > 1 else ()
    bound = None if keys else f"fixed size: {_count(node.last, 'row')}"
    return OperatorState(
        f"the first {node.last} rows{each}" if node.last > 1 else f"a row{each}", keys, bound, remedies
    )


def _window_rank(node: n.WindowRank, below: n.Node) -> OperatorState:
    keys = _names(below, [index for index in node.partition if index not in node.has_window])
    each = f" for every value of {keys}" if keys else ""
    rows = f"the first {node.last} rows" if node.last > 1 else "a row"
    bound = f"{_time(node.window.is_event_time)}: a window is discarded at its end"
    return OperatorState(f"{rows}{each} in {_window(node.window)}", keys, bound, (_shorter(node.window),))


def _sort(node: n.Sort, planned: n.Planned) -> OperatorState:
    if node.limit is None:
        return OperatorState("rows after the watermark", bound=_PASSED, remedies=("watermarks with a smaller delay",))
    retracts = bool(planned.inputs[0].traits.changes - INSERTS)
    if retracts and node.strategy != UPDATE_FAST:
        return OperatorState(
            "all rows, since any of the first ones may be retracted", remedies=("an append-only input",)
        )
    if not node.order and not retracts:
        return OperatorState("the number of rows received", bound="fixed size: one number")
    rows = _count(node.offset + node.limit, "row")
    return OperatorState(f"the first {rows}", bound=f"fixed size: {rows}", remedies=("a smaller LIMIT",))


def _deduplicate(node: n.Deduplicate, planned: n.Planned) -> OperatorState:
    keys = _names(node, node.keys)
    each = f" for every value of {keys}" if keys else ""
    bound = None if keys else "fixed size: one row"
    if node.keeps_last:
        return OperatorState(f"the last row{each}", keys, bound)
    pending = ", and first rows that the watermark has not passed" if node.is_event_time else ""
    return OperatorState(
        f"{f'every value of {keys} received' if keys else 'whether a row was received'}{pending}", keys, bound
    )


def _join(node: n.Join, planned: n.Planned) -> OperatorState:
    left, right = (p.node for p in planned.inputs)
    on = [_names(left, node.left_keys), _names(right, node.right_keys)]
    key = " = ".join(on) if node.left_keys else ""
    contents = f"every row of both inputs by {' and '.join(on)}" if node.left_keys else "every row of both inputs"
    return OperatorState(contents, key, remedies=tuple(_join_hints(node, planned)))


def _join_hints(node: n.Join, planned: n.Planned) -> Iterator[str]:
    if not node.left_keys:
        yield "an equality condition between the inputs: without one, one subtask stores and compares all rows"
    sides = (("left", node.left_keys), ("right", node.right_keys))
    for (side, keys), below in zip(sides, planned.inputs, strict=True):
        if node.left_keys and not any(key <= set(keys) for key in below.traits.upsert_keys):
            yield f"a PRIMARY KEY of the {side} input within its join key: then one row is stored per key"
    yield "a time bound between both sides (an interval join), or fewer columns selected before the join"


def _window_join(node: n.WindowJoin, planned: n.Planned) -> OperatorState:
    key = _names(planned.inputs[0].node, node.left_keys)
    bound = f"{_time(node.window.is_event_time)}: a window is discarded at its end"
    rows = f"the rows of both inputs in {_window(node.window)}"
    return OperatorState(rows, key, bound, (_shorter(node.window), "fewer columns selected before the join"))


def _interval_join(node: n.IntervalJoin, planned: n.Planned) -> OperatorState:
    key = _names(planned.inputs[0].node, node.left_keys)
    span = _span(abs(node.upper - node.lower))
    bound = f"{_time(node.is_event_time)}: a row is discarded when no partner can arrive, at most {span} behind it"
    return OperatorState("the rows of both inputs that can still have a partner", key, bound, ("a shorter interval",))


def _temporal_join(node: n.TemporalJoin, planned: n.Planned) -> OperatorState:
    key = _names(planned.inputs[1].node, node.right_keys)
    contents = f"rows of the left input after the watermark, and the versions of every value of {key}"
    ttl = planned.traits.state_ttl
    lifetime = f"expires {_span(ttl)} after the last row for it ({_TTL})" if ttl else "remains"
    fewer = "fewer keys in the versioned table"
    remedies = (fewer,) if ttl else (fewer, f"SET {_TTL} = '1 d' (versions of idle keys expire)")
    return OperatorState(contents, key, f"{_PASSED}; the newest version of each key {lifetime}", remedies)


def _lookup_join(node: n.MaterializedLookupJoin, planned: n.Planned) -> OperatorState:
    keys = _names(planned.inputs[0].node, node.state_key)
    hint = "fewer columns of the lookup table, or only its primary key: then nothing is stored"
    return OperatorState(f"the lookup result for every value of {keys}", keys, remedies=(hint,))


def _match(node: n.Match, planned: n.Planned) -> OperatorState:
    keys = _names(planned.inputs[0].node, node.partition)
    contents = "partial matches with their rows" + (f", for every value of {keys}" if keys else "")
    if node.within is not None:
        bound = f"time: partial matches expire after {_span(node.within)}"
        return OperatorState(contents, keys, bound, ("a shorter WITHIN",))
    return OperatorState(
        contents, keys, remedies=("WITHIN INTERVAL '...' after the pattern: then partial matches expire",)
    )


def _set_operation(node: n.SetOperation, planned: n.Planned) -> OperatorState:
    names = _names(node, range(len(node.fields)))
    return OperatorState(
        f"every row by {names}", names, remedies=("fewer columns selected, so that more rows are equal",)
    )


def _normalize(node: n.ChangelogNormalize, planned: n.Planned) -> OperatorState:
    keys = _names(node, node.keys)
    hint = "a changelog format with UPDATE_BEFORE rows, which needs no state"
    return OperatorState(f"a row for every value of {keys}", keys, remedies=(hint,))


def _sink(node: n.Sink, planned: n.Planned) -> OperatorState | None:
    if node.materialize is None:
        return None
    keys = _names(node, node.materialize)
    hint = (
        "a query whose upsert key is the sink's primary key, or SET 'table.exec.sink.upsert-materialize' = 'NONE' if "
        "it is"
    )
    return OperatorState(f"every row by {keys}", keys, remedies=(hint,))


_DESCRIBE = (
    Dispatch[[n.Planned], OperatorState | None]()
    .on(n.WindowAggregate, _window_aggregate)
    .on(n.WindowTable, _window_table)
    .on(n.Aggregate, _aggregate)
    .on(n.TableAggregate, _aggregate)
    .on(n.Over, _over)
    .on(n.Rank, _rank)
    .on(n.Sort, _sort)
    .on(n.Deduplicate, _deduplicate)
    .on(n.WindowJoin, _window_join)
    .on(n.IntervalJoin, _interval_join)
    .on(n.TemporalJoin, _temporal_join)
    .on(n.Join, _join)
    .on(n.MaterializedLookupJoin, _lookup_join)
    .on(n.Match, _match)
    .on(n.SetOperation, _set_operation)
    .on(n.ChangelogNormalize, _normalize)
    .on(n.Sink, _sink)
)


# --- texts


def _names(node: n.Node, columns: Sequence[int]) -> str:
    return ", ".join(_name(node, i) for i in columns)


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


def is_bounded(node: n.Node) -> bool:
    """Return whether all sources of a node are bounded."""
    if isinstance(node, n.Scan):
        return node.source.is_bounded
    if isinstance(node, n.StreamScan):
        return all(map(_stream_is_bounded, node.stream.ends))
    return all(map(is_bounded, node.inputs))


def _stream_is_bounded(end: UpstreamEdge) -> bool:
    return end.source.is_bounded and all(map(_stream_is_bounded, end.source.inputs))
