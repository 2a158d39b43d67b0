"""Prunes unused columns, down to the columns that scans read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from millstream.common.dispatch import Dispatch
from millstream.sql.expressions import AggregateCall, Column, Expression, columns_of
from millstream.sql.optimizer.rewrite import moved
from millstream.sql.plan import nodes as n
from millstream.sql.schema import Fields

Mapping = dict[int, int]
Pruned = tuple[n.Node, Mapping]


def prune_columns(end: n.Node) -> n.Node:
    """Prune unused columns in the whole plan below a sink."""
    assert isinstance(end, n.Single)
    below, mapping = pruned(end.input, set(range(len(end.input.fields))))
    return end.with_inputs([restored(below, mapping, end.input.fields)])


def restored(node: n.Node, mapping: Mapping, fields: Fields) -> n.Node:
    """Return a node with all its columns in place."""
    if len(node.fields) == len(fields) and all(mapping[i] == i for i in range(len(fields))):
        return node
    columns = tuple(Column(f.type, mapping[i]) for i, f in enumerate(fields.fields))
    return n.Project(fields, node, columns)


def pruned(node: n.Node, needed: set[int]) -> Pruned:
    """Return a node with at least the needed columns, and their new indexes."""
    prune = _PRUNE.get(node)
    if prune is not None:
        return prune(node, needed)
    # Unknown nodes need all columns of their inputs.
    inputs = []
    for below in node.inputs:
        inner, mapping = pruned(below, set(range(len(below.fields))))
        inputs.append(restored(inner, mapping, below.fields))
    result = node.with_inputs(inputs) if inputs else node
    return result, {i: i for i in range(len(node.fields))}


def narrowed(node: n.Node, needed: set[int]) -> Pruned:
    """Return a node with exactly the needed columns, for stateful nodes."""
    result, mapping = pruned(node, needed)
    indexes = sorted(needed) or [0]
    if len(result.fields) == len(indexes) or not needed:
        return result, mapping
    columns = tuple(Column(result.fields[mapping[i]].type, mapping[i]) for i in indexes)
    fields = Fields(tuple(result.fields[mapping[i]] for i in indexes))
    return n.Project(fields, result, columns), _mapping_of(indexes)


def _selected(fields: Fields, indexes: list[int]) -> Fields:
    return Fields(tuple(fields[i] for i in indexes))


def _mapping_of(indexes: list[int]) -> Mapping:
    return {old: new for new, old in enumerate(indexes)}


def _used(expressions: Iterable[Expression]) -> set[int]:
    return {c for e in expressions for c in columns_of(e)}


def _scan(node: n.Scan, needed: set[int]) -> Pruned:
    used = needed | _used(node.filters)
    indexes = sorted(used) or [0]
    mapping = _mapping_of(indexes)
    result = replace(
        node,
        fields=_selected(node.fields, indexes),
        columns=tuple(node.columns[i] for i in indexes),
        filters=tuple(moved(f, mapping) for f in node.filters),
    )
    return result, mapping


def _values(node: n.Values, needed: set[int]) -> Pruned:
    indexes = sorted(needed) or [0]
    rows = tuple(tuple(row[i] for i in indexes) for row in node.rows)
    return n.Values(_selected(node.fields, indexes), rows), _mapping_of(indexes)


def _project(node: n.Project, needed: set[int]) -> Pruned:
    indexes = sorted(needed)
    if not indexes:
        # A row needs at least one column.
        indexes = [min(range(len(node.expressions)), key=lambda i: len(columns_of(node.expressions[i])))]
    expressions: list[Expression] = [node.expressions[i] for i in indexes]
    below, mapping = pruned(node.input, _used(expressions))
    result = tuple(moved(e, mapping) for e in expressions)
    return n.Project(_selected(node.fields, indexes), below, result), _mapping_of(indexes)


def _filter(node: n.Filter, needed: set[int]) -> Pruned:
    below, mapping = pruned(node.input, needed | columns_of(node.condition))
    condition = moved(node.condition, mapping)
    return n.Filter(below.fields, below, condition), mapping


def _calc(node: n.Calc, needed: set[int]) -> Pruned:
    indexes = sorted(needed)
    if not indexes:
        indexes = [min(range(len(node.expressions)), key=lambda i: len(columns_of(node.expressions[i])))]
    expressions = [node.expressions[i] for i in indexes]
    condition = [] if node.condition is None else [node.condition]
    below, mapping = pruned(node.input, _used([*expressions, *condition]))
    result = tuple(moved(e, mapping) for e in expressions)
    tested = None if node.condition is None else moved(node.condition, mapping)
    return n.Calc(_selected(node.fields, indexes), below, result, tested), _mapping_of(indexes)


def _normalize(node: n.ChangelogNormalize, needed: set[int]) -> Pruned:
    condition = [] if node.condition is None else [node.condition]
    below, mapping = pruned(node.input, needed | set(node.keys) | _used(condition))
    tested = None if node.condition is None else moved(node.condition, mapping)
    return n.ChangelogNormalize(below.fields, below, tuple(mapping[k] for k in node.keys), tested), mapping


def _deduplicate(node: n.Deduplicate, needed: set[int]) -> Pruned:
    below, mapping = narrowed(node.input, needed | {*node.keys, node.time})
    keys = tuple(mapping[k] for k in node.keys)
    return replace(node, fields=below.fields, input=below, keys=keys, time=mapping[node.time]), mapping


def _watermark(node: n.Watermark, needed: set[int]) -> Pruned:
    below, mapping = pruned(node.input, needed | {node.column} | columns_of(node.strategy))
    column = mapping[node.column]
    fields = list(below.fields.fields)
    fields[column] = node.fields[node.column]
    return n.Watermark(Fields(tuple(fields)), below, column, moved(node.strategy, mapping)), mapping


def _aggregate(node: n.Aggregate, needed: set[int]) -> Pruned:
    width = len(node.keys)
    calls = [i for i in range(len(node.calls)) if width + i in needed]
    if not calls and node.calls and not node.keys:
        calls = [0]
    if node.calls and not calls:
        # Without any aggregate it would be DISTINCT, whose changes are fewer; that is as good, the rows are the same.
        calls = []
    chosen = [node.calls[i] for i in calls]
    used = set(node.keys)
    for c in chosen:
        used |= {*c.arguments, *(p for p, _, _ in c.order)} | ({c.condition} if c.condition is not None else set())
    below, mapping = pruned(node.input, used)
    result = tuple(_moved_call(c, mapping) for c in chosen)
    indexes = [*range(width), *(width + i for i in calls)]
    keys = tuple(mapping[k] for k in node.keys)
    return replace(node, fields=_selected(node.fields, indexes), input=below, keys=keys, calls=result), _mapping_of(
        indexes
    )


def _table_aggregate(node: n.TableAggregate, needed: set[int]) -> Pruned:
    below, mapping = narrowed(node.input, {*node.keys, *node.call.arguments})
    keys = tuple(mapping[k] for k in node.keys)
    result = replace(node, input=below, keys=keys, call=_moved_call(node.call, mapping))
    return result, {i: i for i in range(len(node.fields))}


def _moved_call(call: AggregateCall, mapping: Mapping) -> AggregateCall:
    return replace(
        call,
        arguments=tuple(mapping[a] for a in call.arguments),
        condition=None if call.condition is None else mapping[call.condition],
        order=tuple((mapping[p], d, f) for p, d, f in call.order),
    )


def _window_aggregate(node: n.WindowAggregate, needed: set[int]) -> Pruned:
    used = {*node.keys, node.window.time, *node.window.partition, *(node.has_window or ())}
    for c in node.calls:
        used |= {*c.arguments, *(p for p, _, _ in c.order)} | ({c.condition} if c.condition is not None else set())
    below, mapping = pruned(node.input, used)
    result = replace(
        node,
        input=below,
        keys=tuple(mapping[k] for k in node.keys),
        calls=tuple(_moved_call(c, mapping) for c in node.calls),
        window=_moved_window(node.window, mapping),
        has_window=None if node.has_window is None else (mapping[node.has_window[0]], mapping[node.has_window[1]]),
    )
    return result, {i: i for i in range(len(node.fields))}


def _moved_window(window: n.WindowSpec, mapping: Mapping) -> n.WindowSpec:
    return replace(window, time=mapping[window.time], partition=tuple(mapping[p] for p in window.partition))


def _window_table(node: n.WindowTable, needed: set[int]) -> Pruned:
    width = len(node.input.fields)
    used = {i for i in needed if i < width} | {node.window.time, *node.window.partition}
    below, mapping = pruned(node.input, used)
    new = len(below.fields)
    fields = Fields((*below.fields.fields, *node.fields.fields[width:]))
    result = n.WindowTable(fields, below, _moved_window(node.window, mapping))
    return result, {**mapping, **{width + i: new + i for i in range(3)}}


def _over(node: n.Over, needed: set[int]) -> Pruned:
    width = len(node.input.fields)
    over = node.over
    used = {i for i in needed if i < width} | {*over.partition, *(p for p, _, _ in over.order)}
    for c in over.calls:
        used |= {*c.arguments} | ({c.condition} if c.condition is not None else set())
    below, mapping = pruned(node.input, used)
    new = len(below.fields)
    spec = replace(
        over,
        partition=tuple(mapping[p] for p in over.partition),
        order=tuple((mapping[p], d, f) for p, d, f in over.order),
        calls=tuple(_moved_call(c, mapping) for c in over.calls),
    )
    fields = Fields((*below.fields.fields, *node.fields.fields[width:]))
    return n.Over(fields, below, spec), {**mapping, **{width + i: new + i for i in range(len(over.calls))}}


def _moved_pair(pair: tuple[int, int], mapping: Mapping) -> tuple[int, int]:
    return mapping[pair[0]], mapping[pair[1]]


def _rank(node: n.Rank, needed: set[int]) -> Pruned:
    width = len(node.input.fields)
    used = {i for i in needed if i < width} | {*node.partition, *(p for p, _, _ in node.order)}
    below, mapping = narrowed(node.input, used)
    new = len(below.fields)
    shows = node.shows_rank and width in needed
    rank = (node.fields[width],) if shows else ()
    result = replace(
        node,
        fields=Fields((*below.fields.fields, *rank)),
        input=below,
        partition=tuple(mapping[p] for p in node.partition),
        order=tuple((mapping[p], d, f) for p, d, f in node.order),
        shows_rank=shows,
    )
    if isinstance(result, n.WindowRank):
        result = replace(result, has_window=_moved_pair(result.has_window, mapping))
    return result, {**mapping, **({width: new} if shows else {})}


def _join(node: n.Join, needed: set[int]) -> Pruned:
    width = len(node.left.fields)
    semi = node.kind in (n.JoinKind.SEMI, n.JoinKind.ANTI)
    used = set(needed) | (columns_of(node.condition) if node.condition is not None else set())
    left_used = {i for i in used if i < width} | set(node.left_keys)
    right_used = {i - width for i in used if i >= width} | set(node.right_keys)
    if isinstance(node, (n.IntervalJoin, n.TemporalJoin)):
        left_used.add(node.left_time)
        right_used.add(node.right_time)
    left, left_mapping = narrowed(node.left, left_used)
    right, right_mapping = narrowed(node.right, right_used)
    new = len(left.fields)
    both = {**left_mapping, **{i + width: p + new for i, p in right_mapping.items()}}
    if semi:
        fields = left.fields
    else:
        back_left = {p: i for i, p in left_mapping.items()}
        back_right = {p: i for i, p in right_mapping.items()}
        left_fields = [node.fields[back_left[i]] if i in back_left else left.fields[i] for i in range(new)]
        right_fields = [
            node.fields[width + back_right[i]] if i in back_right else right.fields[i] for i in range(len(right.fields))
        ]
        fields = Fields((*left_fields, *right_fields))
    result = replace(
        node,
        fields=fields,
        left=left,
        right=right,
        left_keys=tuple(left_mapping[k] for k in node.left_keys),
        right_keys=tuple(right_mapping[k] for k in node.right_keys),
        condition=None if node.condition is None else moved(node.condition, both),
    )
    if isinstance(result, (n.IntervalJoin, n.TemporalJoin)):
        left_time, right_time = left_mapping[result.left_time], right_mapping.get(result.right_time, 0)
        result = replace(result, left_time=left_time, right_time=right_time)
    if isinstance(result, n.WindowJoin):
        left_window = _moved_pair(result.left_window, left_mapping)
        right_window = _moved_pair(result.right_window, right_mapping)
        result = replace(result, left_window=left_window, right_window=right_window)
    return result, left_mapping if semi else both


def _correlate(node: n.Correlate, needed: set[int]) -> Pruned:
    width = len(node.input.fields)
    condition = columns_of(node.condition) if node.condition is not None else set()
    used = {i for i in needed | condition if i < width} | _used(node.arguments)
    below, mapping = pruned(node.input, used)
    new = len(below.fields)
    created = node.fields.fields[width:]
    both = {**mapping, **{width + i: new + i for i in range(len(created))}}
    result = replace(
        node,
        fields=Fields((*below.fields.fields, *created)),
        input=below,
        arguments=tuple(moved(a, mapping) for a in node.arguments),
        condition=None if node.condition is None else moved(node.condition, both),
    )
    return result, both


def _sort(node: n.Sort, needed: set[int]) -> Pruned:
    below, mapping = narrowed(node.input, needed | {p for p, _, _ in node.order})
    order = tuple((mapping[p], d, f) for p, d, f in node.order)
    return replace(node, fields=below.fields, input=below, order=order), mapping


def _union(node: n.Union, needed: set[int]) -> Pruned:
    indexes = sorted(needed) or [0]
    parts = []
    for part in node.parts:
        below, mapping = pruned(part, set(indexes))
        columns = tuple(Column(part.fields[i].type, mapping[i]) for i in indexes)
        fields = _selected(part.fields, indexes)
        same = len(below.fields) == len(indexes) and all(mapping[i] == new for new, i in enumerate(indexes))
        parts.append(below if same else n.Project(fields, below, columns))
    return n.Union(_selected(node.fields, indexes), tuple(parts)), _mapping_of(indexes)


_PRUNE = (
    Dispatch[[set[int]], Pruned]()
    .on(n.Scan, _scan)
    .on(n.Values, _values)
    .on(n.Project, _project)
    .on(n.Filter, _filter)
    .on(n.Calc, _calc)
    .on(n.ChangelogNormalize, _normalize)
    .on(n.Deduplicate, _deduplicate)
    .on(n.Watermark, _watermark)
    .on(n.Aggregate, _aggregate)
    .on(n.TableAggregate, _table_aggregate)
    .on(n.WindowAggregate, _window_aggregate)
    .on(n.WindowTable, _window_table)
    .on(n.Over, _over)
    .on(n.Rank, _rank)
    .on(n.WindowRank, _rank)
    .on(n.Join, _join)
    .on(n.WindowJoin, _join)
    .on(n.IntervalJoin, _join)
    .on(n.TemporalJoin, _join)
    .on(n.Correlate, _correlate)
    .on(n.Sort, _sort)
    .on(n.Union, _union)
)
