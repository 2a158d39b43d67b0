"""Translation of windows, window aggregates, window joins and OVER."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from millstream.graph.transformations import UpstreamEdge
from millstream.operators.base import Operator
from millstream.sql.columns.arrow import arrow_type
from millstream.sql.operators.aggregate.local_aggregate import LocalWindowAggregateOperator
from millstream.sql.operators.aggregate.object_accumulators import in_session
from millstream.sql.operators.over.over_batch import BatchOverOperator
from millstream.sql.operators.over.over_non_time import ColumnOverOperator, streamed
from millstream.sql.operators.over.over_time import OverOperator
from millstream.sql.operators.window.buffered_window import BufferedInput, WindowJoinOperator, WindowRankOperator
from millstream.sql.operators.window.count_session_windows import (
    CountWindowOperator,
    SessionTableOperator,
    SessionWindowOperator,
)
from millstream.sql.operators.window.early_late_fire import FiringWindowOperator, PeriodicWindowOperator
from millstream.sql.operators.window.session_aggregate import MergedSessionOperator, can_merge
from millstream.sql.operators.window.window_aggregate import (
    GlobalWindowAggregateOperator,
    WindowAggregateOperator,
    WindowTableOperator,
    WindowTimes,
)
from millstream.sql.operators.window.windowing import Windowing
from millstream.sql.optimizer.changelog import is_over_time
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.schema import INSERTS, Changes, TimeAttribute
from millstream.sql.translate.translator import Translator, arrow_types

_RETRACTIONS = frozenset({Changes.UPDATE_BEFORE, Changes.DELETE})


def window_aggregate(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.WindowAggregate)
    spec, batch = node.window, to.session.batch
    kinds, calls = arrow_types(before), in_session(node.calls, to.session)
    properties = _properties(node)
    times = WindowTimes(spec.time, spec.is_event_time, to.session.time_zone, node.has_window)
    partition = node.keys
    operator: Operator
    if node.has_window is not None:
        times.are_points = spec.are_points or not spec.is_event_time
    if node.counts is not None:
        operator = CountWindowOperator(*node.counts, times, node.keys, calls, kinds)
    elif spec.kind is nodes.WindowKind.SESSION and node.has_window is None:
        partition = spec.partition or node.keys
        if partition == node.keys and before.traits.changes == INSERTS and can_merge(calls, kinds):
            operator = MergedSessionOperator(spec.size, times, node.keys, calls, kinds, properties, batch)
        else:
            operator = SessionWindowOperator(spec.size, times, partition, node.keys, calls, kinds, properties, batch)
    elif node.fires is not None:
        by_clock = isinstance(node.fires, nodes.PeriodicFires)
        operator = (PeriodicWindowOperator if by_clock else FiringWindowOperator)(
            Windowing.of(spec),
            times,
            node.keys,
            calls,
            kinds,
            properties,
            node.fires,
            retracts=bool(before.traits.changes & _RETRACTIONS),
            pairs=Changes.UPDATE_BEFORE in planned.traits.changes,
        )
    else:
        operator = WindowAggregateOperator(
            Windowing.of(spec),
            times,
            node.keys,
            calls,
            kinds,
            properties,
            retracts=bool(before.traits.changes & _RETRACTIONS),
            batch=batch,
        )
    return to.add_after(planned, operator, to.by_key(before, partition), single=not partition)


def local_window_aggregate(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.LocalWindowAggregate)
    spec = node.window
    times = WindowTimes(spec.time, True, to.session.time_zone, node.has_window)
    operator = LocalWindowAggregateOperator(
        Windowing.of(spec), times, node.keys, node.calls, arrow_types(before), node.retracts
    )
    return to.add_forward(planned, operator)


def global_window_aggregate(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (local,) = planned.node, planned.inputs
    assert isinstance(node, nodes.GlobalWindowAggregate)
    spec = node.window
    operator = GlobalWindowAggregateOperator(
        Windowing.of(spec),
        WindowTimes(spec.time, True, to.session.time_zone, node.has_window),
        node.local.keys,
        node.calls,
        arrow_types(local.inputs[0]),
        _properties(node),
        retracts=node.retracts,
    )
    return to.add_after(planned, operator, to.by_key(local, node.keys), single=not node.keys)


def window_table(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.WindowTable)
    spec = node.window
    if spec.kind is nodes.WindowKind.SESSION:
        return _session_table(to, planned, spec)
    times = WindowTimes(spec.time, spec.is_event_time, to.session.time_zone)
    if spec.is_event_time:
        times.are_points = arrow_types(before)[spec.time].tz is not None
    return to.add_forward(planned, WindowTableOperator(Windowing.of(spec), times, arrow_types(planned)[-3:]))


def _session_table(to: Translator, planned: Planned, spec: nodes.WindowSpec) -> list[UpstreamEdge]:
    (before,) = planned.inputs
    names = ("start", "end", "rowtime" if spec.is_event_time else "proctime")
    properties = list(zip(names, arrow_types(planned)[-3:], strict=True))
    times = WindowTimes(spec.time, spec.is_event_time, to.session.time_zone)
    kinds, batch = arrow_types(before), to.session.batch
    operator = SessionTableOperator(spec.size, times, spec.partition, (), (), kinds, properties, batch)
    return to.add_after(planned, operator, to.by_key(before, spec.partition), single=not spec.partition)


def _properties(node: nodes.WindowAggregate) -> list[tuple[str, pa.DataType]]:
    """Return the window properties in the last columns, with their types."""
    types = [arrow_type(f.type) for f in node.fields.fields[len(node.keys) + len(node.calls) :]]
    return list(zip(node.properties, types, strict=True))


def window_rank(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.WindowRank)
    operator = WindowRankOperator(
        _given_windows(to, node.window, node.has_window),
        node.has_window[1],
        node.partition,
        node.order,
        arrow_types(before),
        node.first,
        node.last,
        node.shows_rank,
        last_wins=node.is_deduplicate and node.order[0][1],
    )
    return to.add_after(planned, operator, to.by_key(before, node.partition))


def window_join(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (left, right) = planned.node, planned.inputs
    assert isinstance(node, nodes.WindowJoin)
    operator = WindowJoinOperator(
        node.kind,
        _given_windows(to, node.window, node.left_window),
        BufferedInput(arrow_types(left), node.left_keys, node.left_window[1]),
        BufferedInput(arrow_types(right), node.right_keys, node.right_window[1]),
        node.null_safe,
        node.condition,
        to.session,
    )
    return to.add_join(planned, operator)


def _given_windows(to: Translator, spec: nodes.WindowSpec, has_window: tuple[int, int]) -> WindowTimes:
    """Return the times of windows that the input's columns hold."""
    times = WindowTimes(has_window[1], spec.is_event_time, to.session.time_zone, has_window)
    times.are_points = spec.are_points or not spec.is_event_time
    return times


def over(to: Translator, planned: Planned) -> list[UpstreamEdge]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.Over)
    over, kinds = replace(node.over, calls=in_session(node.over.calls, to.session)), arrow_types(before)
    operator: Operator
    if to.session.batch:
        operator = BatchOverOperator(over, kinds)
    elif is_over_time(node):
        time = over.order[0][0]
        rowtime = time if before.node.fields[time].time is TimeAttribute.ROWTIME else None
        preceding = None if over.start is None else -over.start
        calls = streamed(over).calls
        operator = OverOperator(over.partition, rowtime, over.rows, preceding, calls, kinds, planned.traits.state_ttl)
    else:
        operator = ColumnOverOperator(streamed(over), kinds, planned.traits.state_ttl)
    return to.add_after(planned, operator, to.by_key(before, over.partition), single=not over.partition)
