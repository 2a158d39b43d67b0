"""Rows of windows: their first, and their joins."""

from __future__ import annotations

from millstream.graph.transformations import StreamEnd
from millstream.sql.operators.window.buffered_window import KeptInput
from millstream.sql.operators.window.window_aggregate import (
    WindowTimes,
)
from millstream.sql.operators.window.window_join import WindowJoinOperator
from millstream.sql.operators.window.window_rank import WindowRankOperator
from millstream.sql.plan import nodes
from millstream.sql.plan.nodes import Planned
from millstream.sql.translate.translator import Translator, kinds_of


def window_rank(to: Translator, planned: Planned) -> list[StreamEnd]:
    node, (before,) = planned.node, planned.inputs
    assert isinstance(node, nodes.WindowRank)
    operator = WindowRankOperator(
        _given_windows(to, node.window, node.has_window),
        node.has_window[1],
        node.partition,
        node.order,
        kinds_of(before),
        node.first,
        node.last,
        node.shows_rank,
        last_wins=node.is_deduplicate and node.order[0][1],
    )
    return to.one(planned, operator, to.by_key(before, node.partition))


def window_join(to: Translator, planned: Planned) -> list[StreamEnd]:
    node, (left, right) = planned.node, planned.inputs
    assert isinstance(node, nodes.WindowJoin)
    operator = WindowJoinOperator(
        node.kind,
        _given_windows(to, node.window, node.left_window),
        KeptInput(kinds_of(left), node.left_keys, node.left_window[1]),
        KeptInput(kinds_of(right), node.right_keys, node.right_window[1]),
        node.null_safe,
        node.condition,
        to.session,
    )
    return to.joined(planned, operator)


def _given_windows(to: Translator, spec: nodes.WindowSpec, has_window: tuple[int, int]) -> WindowTimes:
    """Return when windows end that rows have been given."""
    times = WindowTimes(has_window[1], spec.is_event_time, to.session.time_zone, has_window)
    times.are_points = spec.are_points or not spec.is_event_time
    return times
