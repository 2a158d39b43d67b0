"""Names of operators: they describe the operator and are stable for the same query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millstream.common.dispatch import Dispatch
from millstream.sql.expressions import Column, Expression, conjuncts
from millstream.sql.optimizer.rules.aggregate_phases import Accumulated
from millstream.sql.optimizer.text import Style, aggregate_text, by_name, constant_text, function_text, text, type_text
from millstream.sql.plan import nodes as n
from millstream.sql.schema import INSERTS, Fields

Order = Sequence[tuple[int, bool, bool]]


def name_of(node: n.Node, inputs: Sequence[n.Traits], style: Style = Style.INFIX) -> str:
    """Return the name of a node.

    Args:
        node: the node.
        inputs: the planned inputs.
        style: the notation of operators in expressions.
    """
    return _NAMES[node](node, inputs, style)


def _join(parts: Sequence[str]) -> str:
    return ", ".join(parts)


def _columns(fields: Fields, columns: Sequence[int]) -> str:
    return _join([fields[i].name for i in columns])


def _select(node: n.Calc | n.Project, style: Style) -> str:
    names = by_name(node.input.fields.names)
    shown = []
    for e, field in zip(node.expressions, node.fields.fields, strict=True):
        written = text(e, names, style)
        shown.append(written if isinstance(e, Column) and written == field.name else f"{written} AS {field.name}")
    return _join(shown)


def _calc(node: n.Calc, inputs: Sequence[n.Traits], style: Style) -> str:
    where = ""
    if node.condition is not None:
        where = f", where=[{text(node.condition, by_name(node.input.fields.names), style)}]"
    return f"Calc(select=[{_select(node, style)}]{where})"


def _project(node: n.Project, inputs: Sequence[n.Traits], style: Style) -> str:
    return f"Project(select=[{_select(node, style)}])"


def _filter(node: n.Filter, inputs: Sequence[n.Traits], style: Style) -> str:
    return f"Filter(where=[{text(node.condition, by_name(node.fields.names), style)}])"


def _scan(node: n.Scan, inputs: Sequence[n.Traits], style: Style) -> str:
    table = _join(node.name)
    more = ""
    if node.filters:
        shown = " AND ".join(text(f, by_name(node.fields.names), style) for f in node.filters)
        more += f", filter=[{shown}]"
    if node.limit is not None:
        more += f", limit=[{node.limit}]"
    hints = ""
    if node.options:
        hints = f", hints=[[[OPTIONS options:{{{_join([f'{k}={v}' for k, v in node.options])}}}]]]"
    return f"TableSourceScan(table=[[{table}{more}]], fields=[{_join(node.fields.names)}]{hints})"


def _stream(node: n.StreamScan, inputs: Sequence[n.Traits], style: Style) -> str:
    return f"DataStreamScan(table=[[*anonymous_datastream_source*]], fields=[{_join(node.fields.names)}])"


def _values(node: n.Values, inputs: Sequence[n.Traits], style: Style) -> str:
    rows = _join([f"{{ {_join([constant_text(c, Style.PREFIX) for c in row])} }}" for row in node.rows])
    if style is Style.INFIX:
        return f"Values(tuples=[[{rows}]])"
    kinds = _join([f"{type_text(f.type)} {f.name}" for f in node.fields.fields])
    return f"Values(type=[RecordType({kinds})], tuples=[[{rows}]])"


def _watermark(node: n.Watermark, inputs: Sequence[n.Traits], style: Style) -> str:
    names = node.input.fields.names
    strategy = text(node.strategy, by_name(names), style)
    return f"WatermarkAssigner(rowtime=[{names[node.column]}], watermark=[{strategy}])"


def _correlate(node: n.Correlate, inputs: Sequence[n.Traits], style: Style) -> str:
    function = "$UNNEST_ROWS$1" if node.function == "UNNEST" else getattr(node.function, "name", "f")
    arguments = _join([text(a, by_name(node.input.fields.names), style) for a in node.arguments])
    kinds = _join([f"{type_text(f.type)} {f.name}" for f in node.fields.fields])
    condition = ""
    if node.condition is not None:
        condition = f", condition=[{text(node.condition, by_name(node.fields.names), style)}]"
    return (
        f"Correlate(invocation=[{function}({arguments})], correlate=[table({function}({arguments}))], "
        f"select=[{','.join(node.fields.names)}], rowType=[RecordType({kinds})], joinType=[{node.kind.name}]"
        f"{condition})"
    )


def _expand(node: n.Expand, inputs: Sequence[n.Traits], style: Style) -> str:
    names = by_name(node.input.fields.names)
    rows = []
    for row in node.sets:
        parts = []
        for e, field in zip(row, node.fields.fields, strict=True):
            written = "null" if _is_null(e) else text(e, names, style)
            parts.append(written if isinstance(e, Column) else f"{written} AS {field.name}")
        rows.append(f"{{{_join(parts)}}}")
    return f"Expand(projects=[{_join(rows)}])"


def _is_null(e: Expression) -> bool:
    return getattr(e, "value", 0) is None


def _calls(
    node: n.Aggregate | n.WindowAggregate, names: Sequence[str], inputs: Sequence[n.Traits], first: int
) -> list[str]:
    retracting = bool(inputs) and inputs[0].changes != INSERTS
    below = by_name(node.input.fields.names)
    return [f"{aggregate_text(c, below, retracting)} AS {names[first + i]}" for i, c in enumerate(node.calls)]


def _aggregate(node: n.Aggregate, inputs: Sequence[n.Traits], style: Style) -> str:
    keys = _columns(node.input.fields, node.keys)
    group = f"groupBy=[{keys}], " if node.keys else ""
    calls = _calls(node, node.fields.names, inputs, len(node.keys))
    shown = _join([*([keys] if node.keys else []), *calls])
    return f"GroupAggregate({group}{_part(node)}select=[{shown}])"


def _part(node: n.Aggregate | n.LocalAggregate) -> str:
    return "" if node.part is None else f"partialFinalType=[{node.part}], "


def _table_aggregate(node: n.TableAggregate, inputs: Sequence[n.Traits], style: Style) -> str:
    keys = _columns(node.input.fields, node.keys)
    group = f"groupBy=[{keys}], " if node.keys else ""
    call = aggregate_text(node.call, by_name(node.input.fields.names))
    result = _join(node.fields.names[len(node.keys) :])
    return f"GroupTableAggregate({group}select=[{_join([*([keys] if node.keys else []), f'{call} AS ({result})'])}])"


def _mini_batch(node: n.MiniBatch, inputs: Sequence[n.Traits], style: Style) -> str:
    mode = "RowTime" if node.by_event_time else "ProcTime"
    return f"MiniBatchAssigner(interval=[{node.interval}ms], mode=[{mode}])"


def _local_calls(node: n.LocalAggregate | n.LocalWindowAggregate) -> list[str]:
    accumulators, below = Accumulated(node.calls, node.retracts), by_name(node.input.fields.names)
    shown = []
    for call, names, distinct in zip(node.calls, accumulators.names, accumulators.distinct, strict=True):
        written = aggregate_text(call, below, node.retracts)
        shown.append(f"{written.replace('DISTINCT', distinct or '')} AS {_together(names)}")
    shown += [] if accumulators.rows is None else [f"COUNT_RETRACT(*) AS {accumulators.rows}"]
    tables = accumulators.tables.items()
    return [*shown, *(f"DISTINCT({_join([below(a) for a in c.arguments])}) AS {name}" for name, c in tables)]


def _global_calls(node: n.GlobalAggregate | n.GlobalWindowAggregate) -> list[str]:
    accumulators = Accumulated(node.calls, node.retracts)
    shown = []
    for i, (call, names, distinct) in enumerate(
        zip(node.calls, accumulators.names, accumulators.distinct, strict=True)
    ):
        inside = f"{distinct} {_together(names)}" if distinct else _together(names)
        shown.append(f"{function_text(call, node.retracts)}({inside}) AS {node.fields[len(node.keys) + i].name}")
    return shown


def _together(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"({_join(names)})"


def _local_aggregate(node: n.LocalAggregate, inputs: Sequence[n.Traits], style: Style) -> str:
    return _phase("LocalGroupAggregate", node, _local_calls(node))


def _global_aggregate(node: n.GlobalAggregate, inputs: Sequence[n.Traits], style: Style) -> str:
    return _phase("GlobalGroupAggregate", node, _global_calls(node))


def _phase(name: str, node: n.LocalAggregate | n.GlobalAggregate, calls: Sequence[str]) -> str:
    keys = [node.input.fields[k].name for k in node.keys]
    group = f"groupBy=[{_join(keys)}], " if keys else ""
    return f"{name}({group}{_part(node)}select=[{_join([*keys, *calls])}])"


def _local_window_aggregate(node: n.LocalWindowAggregate, inputs: Sequence[n.Traits], style: Style) -> str:
    end = f"slice_end('w$) AS {node.fields[len(node.fields) - 1].name}"
    window = window_text(node.window, node.input.fields.names, node.has_window)
    return _window_phase("LocalWindowAggregate", node, window, [*_local_calls(node), end])


def _global_window_aggregate(node: n.GlobalWindowAggregate, inputs: Sequence[n.Traits], style: Style) -> str:
    names, first = node.fields.names, len(node.keys) + len(node.calls)
    properties = [f"{p}('w$) AS {names[first + i]}" for i, p in enumerate(node.properties)]
    end = node.local.fields[len(node.local.fields) - 1].name
    column = f"slice_end=[{end}]" if node.has_window is None else f"win_end=[{end}]"
    window = _window_text(node.window, column)
    return _window_phase("GlobalWindowAggregate", node, window, [*_global_calls(node), *properties])


def _window_phase(
    name: str, node: n.LocalWindowAggregate | n.GlobalWindowAggregate, window: str, shown: Sequence[str]
) -> str:
    keys = [node.input.fields[k].name for k in node.keys]
    group = f"groupBy=[{_join(keys)}], " if keys else ""
    return f"{name}({group}window=[{window}], select=[{_join([*keys, *shown])}])"


def _duration(milliseconds: int) -> str:
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % length == 0:
            return f"{milliseconds // length} {unit}"
    return f"{milliseconds} ms"


def window_text(window: n.WindowSpec, names: Sequence[str], has_window: tuple[int, int] | None = None) -> str:
    """Return windows as text."""
    if has_window is None:
        column = f"time_col=[{names[window.time]}]"
    else:
        column = f"win_start=[{names[has_window[0]]}], win_end=[{names[has_window[1]]}]"
    if window.kind is n.WindowKind.SESSION:
        partition = "" if not window.partition else f", partition keys=[{_join([names[p] for p in window.partition])}]"
        return f"SESSION({column}, gap=[{_duration(window.size)}]{partition})"
    return _window_text(window, column)


def _window_text(window: n.WindowSpec, column: str) -> str:
    kind = window.kind
    size = f"{'max_size' if kind is n.WindowKind.CUMULATE else 'size'}=[{_duration(window.size)}]"
    step = {n.WindowKind.HOP: "slide", n.WindowKind.CUMULATE: "step"}.get(kind)
    steps = f", {step}=[{_duration(window.step)}]" if step else ""
    offset = f", offset=[{_duration(window.offset)}]" if window.offset else ""
    return f"{kind.value}({column}, {size}{steps}{offset})"


def _window_table(node: n.WindowTable, inputs: Sequence[n.Traits], style: Style) -> str:
    return f"WindowTableFunction(window=[{window_text(node.window, node.input.fields.names)}])"


def _window_aggregate(node: n.WindowAggregate, inputs: Sequence[n.Traits], style: Style) -> str:
    names, below = node.fields.names, node.input.fields.names
    keys = [below[k] for k in node.keys]
    calls = _calls(node, names, inputs, len(node.keys))
    first = len(node.keys) + len(node.calls)
    properties = [f"{p}('w$) AS {names[first + i]}" for i, p in enumerate(node.properties)]
    group = f"groupBy=[{_join(keys)}], " if keys else ""
    if node.counts is not None:
        kind = "TumblingGroupWindow" if node.counts[0] == node.counts[1] else "SlidingGroupWindow"
        window = f"{kind}('w$, {below[node.window.time]}, {node.counts[0]})"
    else:
        window = window_text(node.window, below, node.has_window)
    # Omitted without a delay, because uids derive from this name.
    emit = f", emit=[{_fires_text(node.fires)}]" if isinstance(node.fires, n.PeriodicFires) else ""
    return f"WindowAggregate({group}window=[{window}], select=[{_join([*keys, *calls, *properties])}]{emit})"


def _fires_text(fires: n.PeriodicFires) -> str:
    def delay(side: str, milliseconds: int) -> str:
        return f"{side} delay {milliseconds} millisecond" if milliseconds else f"{side} no delay"

    early = [delay("early", fires.early_delay)] if fires.early or fires.early_delay else []
    return _join([*early, *([delay("late", fires.late_delay)] if fires.lateness else [])])


def order_text(order: Order, names: Sequence[str]) -> str:
    """Return an order as text; null order is omitted where nulls are low."""
    parts = []
    for column, descending, nulls_first in order:
        nulls = "" if nulls_first != descending else (" NULLS FIRST" if nulls_first else " NULLS LAST")
        parts.append(f"{names[column]} {'DESC' if descending else 'ASC'}{nulls}")
    return _join(parts)


def frame_text(over: n.OverSpec) -> str:
    """Return a frame as text."""

    def bound(distance: int | None, side: str) -> str:
        if distance is None:
            return f"UNBOUNDED {side}"
        if distance == 0:
            return "CURRENT ROW"
        return f"{abs(distance)} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"

    unit = "ROWS" if over.rows else "RANGE"
    return f" {unit} BETWEEN {bound(over.start, 'PRECEDING')} AND {bound(over.end, 'FOLLOWING')}"


def _over(node: n.Over, inputs: Sequence[n.Traits], style: Style) -> str:
    over, below = node.over, node.input.fields.names
    partition = f"partitionBy=[{_join([below[p] for p in over.partition])}], " if over.partition else ""
    order = f"orderBy=[{order_text(over.order, below)}], " if over.order else ""
    first = len(below)
    calls = [f"{aggregate_text(c, by_name(below))} AS {node.fields[first + i].name}" for i, c in enumerate(over.calls)]
    return f"OverAggregate({partition}{order}window=[{frame_text(over)}], select=[{_join([*below, *calls])}])"


def _rank(node: n.Rank, inputs: Sequence[n.Traits], style: Style) -> str:
    below = node.input.fields.names
    partition = _join([below[p] for p in node.partition])
    return (
        f"Rank(strategy=[{node.strategy}], rankType=[{node.function}], "
        f"rankRange=[rankStart={node.first}, rankEnd={node.last}], partitionBy=[{partition}], "
        f"orderBy=[{order_text(node.order, below)}], select=[{_join(node.fields.names)}])"
    )


def _window_rank(node: n.WindowRank, inputs: Sequence[n.Traits], style: Style) -> str:
    below = node.input.fields.names
    window = window_text(node.window, below, node.has_window)
    partition = _join([below[p] for p in node.partition if p not in node.has_window])
    if node.is_deduplicate:
        keep = "LastRow" if node.order[0][1] else "FirstRow"
        time = "ROWTIME" if node.window.is_event_time else "PROCTIME"
        return (
            f"WindowDeduplicate(window=[{window}], keep=[{keep}], partitionKeys=[{partition}], "
            f"orderKey=[{below[node.order[0][0]]}], order=[{time}])"
        )
    by = f"partitionBy=[{partition}], " if partition else "partitionBy=[], "
    return (
        f"WindowRank(window=[{window}], rankType=[{node.function}], "
        f"rankRange=[rankStart={node.first}, rankEnd={node.last}], {by}orderBy=[{order_text(node.order, below)}], "
        f"select=[{_join(node.fields.names)}])"
    )


def _deduplicate(node: n.Deduplicate, inputs: Sequence[n.Traits], style: Style) -> str:
    keep = "LastRow" if node.keeps_last else "FirstRow"
    time = "ROWTIME" if node.is_event_time else "PROCTIME"
    append = not node.keeps_last and inputs and inputs[0].changes == INSERTS
    keys = _columns(node.fields, node.keys)
    return f"Deduplicate(keep=[{keep}], key=[{keys}], order=[{time}], outputInsertOnly=[{str(bool(append)).lower()}])"


def _match(node: n.Match, inputs: Sequence[n.Traits], style: Style) -> str:
    below = node.input.fields.names
    partition = f"partitionBy=[{_columns(node.input.fields, node.partition)}], " if node.partition else ""
    within = "" if node.within is None else f", within=[{_duration(node.within)}]"
    return f"Match({partition}orderBy=[{order_text(node.order, below)}], {node.text}{within})"


def _conditions(node: n.Join, style: Style) -> str:
    names = [*node.left.fields.names, *_renamed(node)]
    width = len(node.left.fields)
    shown = []
    for a, b, null_safe in zip(node.left_keys, node.right_keys, node.null_safe, strict=True):
        left, right = names[a], names[width + b]
        if null_safe:
            shown.append(f"IS NOT DISTINCT FROM({left}, {right})")
        else:
            shown.append(f"=({left}, {right})" if style is Style.PREFIX else f"({left} = {right})")
    shown += [text(test, by_name(names), style) for test in conjuncts(node.condition)]
    if len(shown) < 2:
        return shown[0] if shown else "true"
    return f"AND({_join(shown)})" if style is Style.PREFIX else f"({' AND '.join(shown)})"


def _renamed(node: n.Join) -> list[str]:
    """Return the right side's column names, numbered where the left side has the same name."""
    taken = set(node.left.fields.names)
    result = []
    for name in node.right.fields.names:
        number, new = 0, name
        while new in taken:
            new = f"{name}{number}"
            number += 1
        taken.add(new)
        result.append(new)
    return result


def _joined_names(node: n.Join) -> str:
    if node.kind in (n.JoinKind.SEMI, n.JoinKind.ANTI):
        return _join(node.left.fields.names)
    return _join([*node.left.fields.names, *_renamed(node)])


def _join_node(node: n.Join, inputs: Sequence[n.Traits], style: Style) -> str:
    shown = f"joinType=[{node.kind.value}], where=[{_conditions(node, style)}], select=[{_joined_names(node)}]"
    if node.join_strategy is not None:
        return f"{node.join_strategy.value}({shown})"
    left, right = _spec(inputs, 0, node.left_keys), _spec(inputs, 1, node.right_keys)
    return f"Join({shown}, leftInputSpec=[{left}], rightInputSpec=[{right}])"


def _spec(inputs: Sequence[n.Traits], side: int, keys: Sequence[int]) -> str:
    """Return the upsert key description of a join side, which determines its state layout."""
    unique = inputs[side].upsert_keys if inputs else frozenset()
    if not unique:
        return "NoUniqueKey"
    return "JoinKeyContainsUniqueKey" if any(k <= frozenset(keys) for k in unique) else "HasUniqueKey"


def _window_join(node: n.WindowJoin, inputs: Sequence[n.Traits], style: Style) -> str:
    left = window_text(node.window, node.left.fields.names, node.left_window)
    right = window_text(node.window, node.right.fields.names, node.right_window)
    windows = {(node.left_window[i], node.right_window[i]) for i in (0, 1)}
    indexes = [i for i, p in enumerate(zip(node.left_keys, node.right_keys, strict=True)) if p not in windows]
    single = replace(
        node,
        left_keys=tuple(node.left_keys[i] for i in indexes),
        right_keys=tuple(node.right_keys[i] for i in indexes),
        null_safe=tuple(node.null_safe[i] for i in indexes),
    )
    return (
        f"WindowJoin(leftWindow=[{left}], rightWindow=[{right}], joinType=[{node.kind.value}], "
        f"where=[{_conditions(single, style)}], select=[{_joined_names(node)}])"
    )


def _interval_join(node: n.IntervalJoin, inputs: Sequence[n.Traits], style: Style) -> str:
    bounds = (
        f"isRowTime={str(node.is_event_time).lower()}, leftLowerBound={-node.upper}, leftUpperBound={-node.lower}, "
        f"leftTimeIndex={node.left_time}, rightTimeIndex={node.right_time}"
    )
    return (
        f"IntervalJoin(joinType=[{node.kind.value}], windowBounds=[{bounds}], where=[{_conditions(node, style)}], "
        f"select=[{_joined_names(node)}])"
    )


def _temporal_join(node: n.TemporalJoin, inputs: Sequence[n.Traits], style: Style) -> str:
    time = node.left.fields[node.left_time].name
    return (
        f"TemporalJoin(joinType=[{node.kind.value}], where=[{_conditions(node, style)}], asOf=[{time}], "
        f"select=[{_joined_names(node)}])"
    )


def _lookup_join(node: n.LookupJoin, inputs: Sequence[n.Traits], style: Style) -> str:
    left, result = node.input.fields.names, node.scan.columns
    pairs = [f"{result[k]}={left[i]}" for k, i in zip(node.lookup_keys, node.left_keys, strict=True)]
    parts = [
        f"table=[{'.'.join(node.scan.name)}]",
        f"joinType=[{node.kind.value}]",
        f"lookup=[{_join(pairs)}]",
    ]
    if node.filter is not None:
        parts.append(f"where=[{text(node.filter, by_name(node.scan.fields.names), style)}]")
    if node.condition is not None:
        parts.append(f"joinCondition=[{text(node.condition, by_name(node.fields.names), style)}]")
    parts.append(f"select=[{_join(node.fields.names)}]")
    if node.at_once > 1:
        parts.append("async=[true]")
    if node.retry is not None:
        delay = int(node.retry.seconds * 1000)
        parts.append(f"retry=[lookup_miss, FIXED_DELAY, {delay}ms, {node.retry.attempts}]")
    if isinstance(node, n.MaterializedLookupJoin):
        parts.append("upsertMaterialize=[true]")
        if node.replaces:
            parts.append(f"upsertKey=[[{_join([str(k) for k in node.state_key])}]]")
    return f"LookupJoin({', '.join(parts)})"


def _union(node: n.Union, inputs: Sequence[n.Traits], style: Style) -> str:
    return f"Union(all=[true], union=[{_join(node.fields.names)}])"


def _set_operation(node: n.SetOperation, inputs: Sequence[n.Traits], style: Style) -> str:
    name = {"INTERSECT": "Intersect", "EXCEPT": "Minus"}[node.operator]
    return f"{name}(all=[{str(node.all).lower()}], select=[{_join(node.fields.names)}])"


def _sort(node: n.Sort, inputs: Sequence[n.Traits], style: Style) -> str:
    names = node.fields.names
    if not node.order:
        fetch = "unlimited" if node.limit is None else node.limit
        return f"Limit(offset=[{node.offset}], fetch=[{fetch}])"
    order = order_text(node.order, names)
    if node.limit is None and not node.offset:
        temporal = node.fields[node.order[0][0]].time is not None and not node.order[0][1]
        return f"{'TemporalSort' if temporal else 'Sort'}(orderBy=[{order}])"
    fetch = "unlimited" if node.limit is None else node.limit
    return f"SortLimit(orderBy=[{order}], offset=[{node.offset}], fetch=[{fetch}], strategy=[{node.strategy}])"


def _normalize(node: n.ChangelogNormalize, inputs: Sequence[n.Traits], style: Style) -> str:
    where = ""
    if node.condition is not None:
        where = f", condition=[{text(node.condition, by_name(node.fields.names), style)}]"
    return f"ChangelogNormalize(key=[{_columns(node.fields, node.keys)}]{where})"


def _sink(node: n.Sink, inputs: Sequence[n.Traits], style: Style) -> str:
    upsert = ", upsertMaterialize=[true]" if node.materialize is not None else ""
    upsert += f", conflictStrategy=[{node.conflict}]" if node.conflict is not None else ""
    return f"Sink(table=[{'.'.join(node.name)}], fields=[{_join(node.input.fields.names)}]{upsert})"


def _collected(node: n.Collected, inputs: Sequence[n.Traits], style: Style) -> str:
    return f"Sink(table=[*anonymous_collect$1*], fields=[{_join(node.fields.names)}])"


def _to_stream(node: n.ToStream, inputs: Sequence[n.Traits], style: Style) -> str:
    return f"Sink(table=[*anonymous_datastream_sink*], fields=[{_join(node.fields.names)}])"


def _process_table_function(node: n.ToChangelog | n.FromChangelog, inputs: Sequence[n.Traits], style: Style) -> str:
    function = changelog_function(node)
    columns, kinds = ",".join(node.fields.names), record_type(node)
    call = f"invocation=[{changelog_call(node)}], uid=[{function}]"
    return f"ProcessTableFunction({call}, select=[{columns}], rowType=[{kinds}])"


def changelog_function(node: n.ToChangelog | n.FromChangelog) -> str:
    """Return the name of the function."""
    return "TO_CHANGELOG" if isinstance(node, n.ToChangelog) else "FROM_CHANGELOG"


def changelog_call(node: n.ToChangelog | n.FromChangelog) -> str:
    """Return the call of the function as text."""
    function = changelog_function(node)
    op = node.fields[0].name if isinstance(node, n.ToChangelog) else node.input.fields[node.op].name
    column = "DEFAULT()" if op == "op" else f"DESCRIPTOR(_UTF-16LE'{op}')"
    words = _join([f"_UTF-16LE'{word}'" for pair in node.codes for word in pair])
    codes = "DEFAULT()" if all(a == b for a, b in node.codes) else f"MAP({words})"
    return f"{function}(TABLE(#0), {column}, {codes}, DEFAULT(), _UTF-16LE'{function}')"


def record_type(node: n.Node) -> str:
    """Return the types and names of columns as text."""
    return f"RecordType({_join([f'{type_text(f.type)} {f.name}' for f in node.fields.fields])})"


_NAMES = (
    Dispatch[[Sequence[n.Traits], Style], str]()
    .on(n.Calc, _calc)
    .on(n.Project, _project)
    .on(n.Filter, _filter)
    .on(n.Scan, _scan)
    .on(n.StreamScan, _stream)
    .on(n.Values, _values)
    .on(n.Watermark, _watermark)
    .on(n.Correlate, _correlate)
    .on(n.Expand, _expand)
    .on(n.Aggregate, _aggregate)
    .on(n.TableAggregate, _table_aggregate)
    .on(n.MiniBatch, _mini_batch)
    .on(n.LocalAggregate, _local_aggregate)
    .on(n.GlobalAggregate, _global_aggregate)
    .on(n.LocalWindowAggregate, _local_window_aggregate)
    .on(n.GlobalWindowAggregate, _global_window_aggregate)
    .on(n.WindowTable, _window_table)
    .on(n.WindowAggregate, _window_aggregate)
    .on(n.Over, _over)
    .on(n.Rank, _rank)
    .on(n.WindowRank, _window_rank)
    .on(n.Deduplicate, _deduplicate)
    .on(n.Match, _match)
    .on(n.Join, _join_node)
    .on(n.WindowJoin, _window_join)
    .on(n.IntervalJoin, _interval_join)
    .on(n.TemporalJoin, _temporal_join)
    .on(n.LookupJoin, _lookup_join)
    .on(n.MaterializedLookupJoin, _lookup_join)
    .on(n.Union, _union)
    .on(n.SetOperation, _set_operation)
    .on(n.Sort, _sort)
    .on(n.ChangelogNormalize, _normalize)
    .on(n.ToChangelog, _process_table_function)
    .on(n.FromChangelog, _process_table_function)
    .on(n.Sink, _sink)
    .on(n.Collected, _collected)
    .on(n.ToStream, _to_stream)
)
