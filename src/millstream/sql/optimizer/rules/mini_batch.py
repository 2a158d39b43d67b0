"""Says where the rows of a mini-batch are counted: behind sources."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.common.configuration import parse_duration_ms
from millstream.sql.optimizer.changelog import is_over_time
from millstream.sql.optimizer.rules.two_phase_aggregate import MINI_BATCH
from millstream.sql.plan import nodes as n
from millstream.sql.schema import TimeAttribute

LATENCY = "table.exec.mini-batch.allow-latency"


def assign_mini_batches(node: n.Node, settings: Mapping[str, str]) -> n.Node:
    """Put a MiniBatch behind each source, or behind its watermarks, where mini-batch is on."""
    if settings.get(MINI_BATCH, "false").strip().lower() != "true":
        return node
    interval = parse_duration_ms(settings.get(LATENCY, "0"))
    done: dict[tuple[int, bool], n.Node] = {}

    def visit(one: n.Node, by_event_time: bool) -> n.Node:
        by_event_time = by_event_time or _follows_event_time(one)
        found = done.get((id(one), by_event_time))
        if found is None:
            if isinstance(one, (n.Watermark, n.Scan, n.StreamScan)):
                found = n.MiniBatch(one.fields, one, interval, by_event_time and isinstance(one, n.Watermark))
            else:
                inputs = [visit(i, by_event_time) for i in one.inputs]
                found = one.with_inputs(inputs) if inputs else one
            done[id(one), by_event_time] = found
        return found

    return visit(node, False)


def _follows_event_time(node: n.Node) -> bool:
    if isinstance(node, (n.WindowAggregate, n.WindowTable)):
        return node.window.is_event_time
    if isinstance(node, (n.IntervalJoin, n.TemporalJoin)):
        return node.is_event_time
    if isinstance(node, n.Over):
        return is_over_time(node) and node.fields[node.over.order[0][0]].time is TimeAttribute.ROWTIME
    return False
