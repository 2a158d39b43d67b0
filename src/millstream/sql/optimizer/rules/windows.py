"""Recognizes window aggregates, window joins and window Top-N, and applies early and late firing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.common.configuration import parse_duration_ms
from millstream.common.fast_dataclass import fast_dataclass
from millstream.sql.errors import TableException, ValidationException
from millstream.sql.expressions import AggregateCall, Column, columns_of, conjuncts
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Field, Fields, TimeAttribute
from millstream.sql.types import LocalZonedTimestampType


@fast_dataclass
class Windowed:
    """The columns of a window in a node; `time` None if missing."""

    start: int
    end: int
    time: int | None
    spec: n.WindowSpec

    def moved(self, by: int) -> Windowed:
        """Return the columns shifted."""
        time = None if self.time is None else self.time + by
        return replace(self, start=self.start + by, end=self.end + by, time=time)


def windowed(node: n.Node) -> Windowed | None:
    """Return the window that a node's rows belong to; None if they have none."""
    if isinstance(node, n.WindowTable):
        width = len(node.input.fields)
        return Windowed(width, width + 1, width + 2, _with_points(node))
    if isinstance(node, n.WindowJoin):
        return windowed(node.left)
    if isinstance(node, (n.Calc, n.Project)):
        return _through_calc(node)
    if isinstance(node, (n.Rank, n.Deduplicate, n.Filter)):
        return windowed(node.input)
    if isinstance(node, n.Expand):
        return _through_expand(node)
    if isinstance(node, n.WindowAggregate) and {"start", "end"} <= set(node.properties):
        first = len(node.keys) + len(node.calls)
        mapping = {p: first + i for i, p in enumerate(node.properties)}
        spec = node.window if node.has_window is not None else _with_points(node)
        return Windowed(mapping["start"], mapping["end"], mapping.get("rowtime", mapping.get("proctime")), spec)
    return None


def _with_points(node: n.WindowTable | n.WindowAggregate) -> n.WindowSpec:
    """Return the window of a node that assigns windows, with the type of its times."""
    kind = node.input.fields[node.window.time].type
    return replace(node.window, are_points=isinstance(kind, LocalZonedTimestampType))


def _through_calc(node: n.Calc | n.Project) -> Windowed | None:
    below = windowed(node.input)
    if below is None:
        return None
    mapping: dict[int, int] = {}
    for i, e in enumerate(node.expressions):
        if isinstance(e, Column):
            mapping.setdefault(e.index, i)
    if below.start not in mapping or below.end not in mapping:
        return None
    time = mapping.get(below.time) if below.time is not None else None
    return Windowed(mapping[below.start], mapping[below.end], time, below.spec)


def _through_expand(node: n.Expand) -> Windowed | None:
    """Return the window below grouping sets if all sets contain it."""
    below = windowed(node.input)
    if below is None:
        return None
    window_columns = [i for i in (below.start, below.end, below.time) if i is not None and _is_kept(node, i)]
    if below.start not in window_columns or below.end not in window_columns:
        return None
    return replace(below, time=below.time if below.time in window_columns else None)


def _is_kept(node: n.Expand, column: int) -> bool:
    return all(isinstance(row[column], Column) for row in node.sets)


def find_window_aggregate(node: n.Node) -> n.Node:
    """Convert an Aggregate grouped by a window to a WindowAggregate."""
    if not isinstance(node, n.Aggregate):
        return node
    window = windowed(node.input)
    if window is None or not {window.start, window.end} <= set(node.keys):
        return node
    if window.spec.kind is n.WindowKind.HOP and window.spec.size % window.spec.step:
        raise ValidationException(
            f"HOP table function based aggregate requires size must be an integral multiple of slide, but got size "
            f"{window.spec.size} ms and slide {window.spec.step} ms."
        )
    special = {window.start: "start", window.end: "end"}
    if window.time is not None:
        special[window.time] = "rowtime" if window.spec.is_event_time else "proctime"
    keys = [k for k in node.keys if k not in special]
    properties = [p for k, p in special.items() if k in node.keys]
    fused = _fused(node, window, keys)
    if fused is None and window.spec.kind is n.WindowKind.SESSION and _calc_over_table(node.input)[1] is not None:
        # With another key than the sessions', Flink plans a plain aggregate of rows with assigned sessions.
        return node
    width = len(node.keys)
    fields = [node.fields[node.keys.index(k)] for k in keys]
    fields += node.fields.fields[width:]
    fields += [_property_field(node, special, p) for p in properties]
    if fused is not None:
        below, moved_keys, calls, spec = fused
        result = n.WindowAggregate(
            Fields(tuple(fields)), below, spec, moved_keys, calls, tuple(properties), of_function=True
        )
    else:
        spec = replace(window.spec, time=window.time if window.time is not None else window.end, partition=())
        has = (window.start, window.end)
        result = n.WindowAggregate(
            Fields(tuple(fields)), node.input, spec, tuple(keys), node.calls, tuple(properties), has_window=has
        )
        result = replace(result, of_function=True)
    return _reordered(node, result, keys, special, properties)


def _property_field(node: n.Aggregate, special: dict[int, str], part: str) -> Field:
    key = next(k for k, p in special.items() if p == part)
    field = node.fields[node.keys.index(key)]
    time = {"rowtime": TimeAttribute.ROWTIME, "proctime": TimeAttribute.PROCTIME}.get(part)
    return replace(field, time=time)


def _reordered(
    node: n.Aggregate, aggregate: n.WindowAggregate, keys: list[int], special: dict[int, str], properties: list[str]
) -> n.Node:
    """Restore the Aggregate's order of keys and window columns."""
    first = len(keys) + len(node.calls)
    mapping = [keys.index(k) if k in keys else first + properties.index(special[k]) for k in node.keys]
    mapping += [len(keys) + i for i in range(len(node.calls))]
    columns = tuple(Column(aggregate.fields[p].type, p) for p in mapping)
    fields = tuple(replace(node.fields[i], time=aggregate.fields[p].time) for i, p in enumerate(mapping))
    return n.Calc(Fields(fields), aggregate, columns)


def _fused(
    node: n.Aggregate, window: Windowed, keys: list[int]
) -> tuple[n.Node, tuple[int, ...], tuple[AggregateCall, ...], n.WindowSpec] | None:
    """Return the aggregate's input without the window node, if only the keys use the window."""
    calc, table = _calc_over_table(node.input)
    if table is None:
        return None
    width = len(table.input.fields)
    used = {c for call in node.calls for c in (*call.arguments, *(p for p, _, _ in call.order))}
    used |= {call.condition for call in node.calls if call.condition is not None}
    if calc is None:
        if used & {width, width + 1, width + 2} or any(k >= width for k in keys):
            return None
        return _checked_session(table.input, tuple(keys), node.calls, table.window)
    read_columns = {c for t in conjuncts(calc.condition) for c in columns_of(t)}
    used_columns = sorted({*keys, *used})
    for used_column in used_columns:
        read_columns |= columns_of(calc.expressions[used_column])
    if any(c >= width for c in read_columns):
        return None
    expressions = [calc.expressions[p] for p in used_columns]
    fields = [calc.fields[p] for p in used_columns]
    spec = table.window
    extra = [spec.time, *spec.partition]
    for column in extra:
        if not any(isinstance(e, Column) and e.index == column for e in expressions):
            expressions.append(Column(table.input.fields[column].type, column))
            fields.append(table.input.fields[column])
    where = {
        column: next(i for i, e in enumerate(expressions) if isinstance(e, Column) and e.index == column)
        for column in extra
    }
    fields = [
        replace(f, time=table.input.fields[e.index].time if isinstance(e, Column) else f.time)
        for f, e in zip(fields, expressions, strict=True)
    ]
    below = n.Calc(Fields(tuple(fields)), table.input, tuple(expressions), calc.condition)
    mapping = {p: i for i, p in enumerate(used_columns)}
    calls = tuple(
        replace(
            c,
            arguments=tuple(mapping[a] for a in c.arguments),
            condition=None if c.condition is None else mapping[c.condition],
            order=tuple((mapping[p], d, f) for p, d, f in c.order),
        )
        for c in node.calls
    )
    moved = replace(spec, time=where[spec.time], partition=tuple(where[p] for p in spec.partition))
    return _checked_session(below, tuple(mapping[k] for k in keys), calls, moved)


def _checked_session(
    below: n.Node, keys: tuple[int, ...], calls: tuple[AggregateCall, ...], spec: n.WindowSpec
) -> tuple[n.Node, tuple[int, ...], tuple[AggregateCall, ...], n.WindowSpec] | None:
    """Check that sessions are partitioned by the grouping keys."""
    if spec.kind is n.WindowKind.SESSION and set(spec.partition) != set(keys):
        return None
    return below, keys, calls, spec


def _calc_over_table(node: n.Node) -> tuple[n.Calc | None, n.WindowTable | None]:
    if isinstance(node, n.WindowTable):
        return None, node
    if isinstance(node, n.Calc) and isinstance(node.input, n.WindowTable):
        return node, node.input
    return None, None


_EARLY, _LATE = "table.exec.emit.early-fire", "table.exec.emit.late-fire"
_LATENESS = "table.exec.emit.allow-lateness"


def fired(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Return a GROUP BY window with early and late firing as configured."""
    early, late = (str(settings.get(f"{o}.enabled", "false")).lower() == "true" for o in (_EARLY, _LATE))
    if not isinstance(node, n.WindowAggregate) or not (early or late):
        return node
    if node.of_function:
        raise TableException(
            "Currently, window table function based aggregate doesn't support early-fire and late-fire configuration "
            f"'{_EARLY}.enabled' and '{_LATE}.enabled'."
        )
    if node.counts is not None or node.window.kind is n.WindowKind.SESSION or not node.window.is_event_time:
        raise TableException(
            f"{_EARLY} and {_LATE} apply only to event-time TUMBLE and HOP windows: other windows fire only at their "
            "end."
        )
    early_delay, late_delay = _delay(settings, _EARLY, early), _delay(settings, _LATE, late)
    lateness = _lateness(settings, late_delay) if late else 0
    if early_delay or late_delay:
        return replace(node, fires=n.PeriodicFires(early and not early_delay, lateness, early_delay, late_delay))
    return replace(node, fires=n.Fires(early, lateness))


def _delay(settings: Mapping[str, str], option: str, is_on: bool) -> int:
    if not is_on:
        return 0
    if f"{option}.delay" not in settings:
        raise TableException(
            f"{option}.delay is not set: set 0 s to fire with every row, or the period of processing-time fires."
        )
    return parse_duration_ms(str(settings[f"{option}.delay"]))


def _lateness(settings: Mapping[str, str], delay: int) -> int:
    result = parse_duration_ms(str(settings.get(_LATENESS, settings.get("table.exec.state.ttl", "0 ms"))))
    if not result:
        raise TableException(
            f"The 'AFTER WATERMARK' emit strategy requires set '{_LATENESS}' or 'table.exec.state.ttl' in table config."
        )
    if delay > result:
        raise TableException(
            f"Allow-lateness [{result}ms] should not be smaller than Late-fire delay [{delay}ms] when enable late-fire "
            "emit strategy."
        )
    return result


def find_window_rank(node: n.Node) -> n.Node:
    """Convert a Rank or Deduplicate partitioned by a window to a WindowRank."""
    if type(node) not in (n.Rank, n.Deduplicate):
        return node
    assert isinstance(node, (n.Rank, n.Deduplicate))
    window = windowed(node.input)
    partition = node.partition if isinstance(node, n.Rank) else node.keys
    if window is None or not {window.start, window.end} <= set(partition):
        return node
    if isinstance(node, n.Rank):
        return n.WindowRank(**vars(node), window=window.spec, has_window=(window.start, window.end))
    order = ((node.time, node.keeps_last, not node.keeps_last),)
    return n.WindowRank(
        node.fields,
        node.input,
        partition,
        order,
        "ROW_NUMBER",
        1,
        1,
        False,
        window=window.spec,
        has_window=(window.start, window.end),
        is_deduplicate=True,
    )


def find_window_join(node: n.Node) -> n.Node:
    """Convert a Join of rows in the same window to a WindowJoin."""
    if type(node) is not n.Join:
        return node
    left, right = windowed(node.left), windowed(node.right)
    if left is None or right is None:
        return node
    pairs = set(zip(node.left_keys, node.right_keys, strict=True))
    if not {(left.start, right.start), (left.end, right.end)} <= pairs:
        return node
    if _common_window(left) != _common_window(right):
        raise TableException(
            "Currently, window join doesn't support different window table function of left and right inputs: join "
            "windows of the same kind, size and time attribute."
        )
    return n.WindowJoin(
        **vars(node), window=left.spec, left_window=(left.start, left.end), right_window=(right.start, right.end)
    )


def _common_window(window: Windowed) -> n.WindowSpec:
    return replace(window.spec, time=0, partition=())
